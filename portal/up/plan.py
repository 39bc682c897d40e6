"""The process table of GPU Commons: which steps run before the web server, and which services there are.

Data only: the runner starts them in this order and stops them in reverse. Tests run the same runner with another table.
"""

import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from portal.up.bootstrap import CHECKOUT
from portal.up.ports import HOST
from portal.up.supervisor import Service

QUEUES = ("placement", "drivers", "inventory", "books", "health")
# Stages: 0 PostgreSQL, 1 Valkey, then these. Stopped from the highest to the lowest.
WEB, WORKERS, BEAT, AGENT = 2, 3, 4, 5


@dataclass(frozen=True)
class Context:
    """What the table is made from."""

    data: Path
    port: int
    env: Mapping[str, str] = field(repr=False)
    fleet: bool = True

    @property
    def address(self) -> str:
        """Where the portal answers."""
        return f"http://{HOST}:{self.port}"


@dataclass(frozen=True)
class Step:
    """A command that must end well before the services start."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """Steps, the web server that is waited for, and the services behind it."""

    steps: tuple[Step, ...]
    web: Service
    services: tuple[Service, ...]


def portal_plan(context: Context) -> Plan:
    """The table of the product."""
    python, manage = sys.executable, str(CHECKOUT / "manage.py")
    seed = (python, manage, "seed") + (() if context.fleet else ("--no-fleet",))
    steps = (
        Step("migrate", (python, manage, "migrate", "--noinput", "--verbosity", "1"), {"DATABASE_ROLE": ""}),
        Step("seed", seed),
        Step("compile", (python, "-c", "from scheduler.engine.batch import warm; warm()")),
    )
    return Plan(steps, web(context), (*workers(context), beat(context), agent(context)))


def service(context: Context, name: str, argv: Sequence[str], stage: int) -> Service:
    """A service of this checkout with the environment of the portal."""
    return Service(name, (sys.executable, *argv), stage, env=context.env, cwd=CHECKOUT)


def web(context: Context) -> Service:
    """gunicorn, with the settings of portal.up.webserver."""
    argv = ["-m", "gunicorn", "portal.wsgi:application", "--config", "python:portal.up.webserver"]
    return service(context, "web", [*argv, "--bind", f"{HOST}:{context.port}"], WEB)


def workers(context: Context) -> tuple[Service, ...]:
    """One Celery worker a queue, without child processes: what it starts outlives it only on purpose."""
    celery = ("-m", "celery", "-A", "portal", "worker")
    common = ("-P", "solo", "--without-gossip", "--without-mingle", "-l", "warning")
    return tuple(
        service(context, queue, (*celery, "-Q", queue, "-n", f"{queue}@%h", *common), WORKERS) for queue in QUEUES
    )


def beat(context: Context) -> Service:
    """Celery's clock. Its schedule is code; the file only remembers when each entry last ran."""
    schedule = str(context.data / "beat-schedule")
    argv = ("-m", "celery", "-A", "portal", "beat", "--schedule", schedule, "-l", "warning")
    return service(context, "beat", argv, BEAT)


def agent(context: Context) -> Service:
    """The agent of this machine, with the token that `seed` made for it."""
    argv = ["-m", "scheduler.agent", "--url", context.address, "--token-file", str(context.data / "agent.token")]
    argv += ["--hostname", agent_hostname(context.data), "--spool", str(context.data / "agent-spool")]
    return service(context, "agent", argv, AGENT)


def agent_hostname(data: Path) -> str:
    """The name that `seed` registered this machine under, which may differ from the present host name."""
    try:
        return (data / "agent.hostname").read_text().strip() or socket.gethostname()
    except OSError:
        return socket.gethostname()
