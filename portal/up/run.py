"""`manage.py up`: lock, databases, migrate, seed, web, workers, beat, agent; then watch over them until a signal.

Decides the order and what is said; the parts do the work. Exit status: 0 after a signal, 1 when something did not come
up, 2 when it was refused before anything started.
"""

import argparse
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from portal.up import databases, ports
from portal.up.bootstrap import CHECKOUT
from portal.up.databases import Databases
from portal.up.folder import SIGN_INS, DataFolder, FolderError
from portal.up.placement import forget_home
from portal.up.plan import Context, Plan, portal_plan
from portal.up.supervisor import Stopped, Supervisor

READY_SECONDS = 90.0
Table = Callable[[Context], Plan]


class Refused(Exception):
    """Nothing was started; the message says why."""


def main(argv: Sequence[str]) -> int:
    """Parse the arguments and run."""
    return up(parse(argv), portal_plan)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments of `up`."""
    parser = argparse.ArgumentParser(prog="manage.py up", description="Run all of GPU Commons on this machine.")
    parser.add_argument("--port", type=port_number, default=8000, metavar="N", help="port of 127.0.0.1 (default 8000)")
    parser.add_argument("--data", type=Path, default=default_data(), metavar="DIR", help="data folder (default .data)")
    parser.add_argument("--fresh", action="store_true", help="delete the data folder first; refused while it is in use")
    parser.add_argument("--no-fleet", action="store_true", help="seed without the bundled simulated fleet")
    return parser.parse_args(argv)


def port_number(text: str) -> int:
    """A port that an ordinary server can have."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not 1 <= number <= 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (1 to 65535)")
    return number


def default_data() -> Path:
    """GPU_COMMONS_DATA, or `.data` in the checkout."""
    return Path(os.environ.get("GPU_COMMONS_DATA") or CHECKOUT / ".data")


def up(options: argparse.Namespace, table: Table) -> int:
    """Run until a signal; returns the exit status."""
    folder = DataFolder(options.data)
    try:
        prepare(folder, options)
    except (FolderError, Refused) as error:
        print(error, file=sys.stderr)
        return 2
    supervisor = Supervisor(folder.logs, say)
    supervisor.listen()
    try:
        Runner(folder, options, supervisor).run(table)
    except Stopped:
        pass
    except databases.ERRORS as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        say("Stopping …")
        supervisor.stop()
        folder.withdraw()
        folder.unlock()
    say("Stopped. Data and logs are kept; running jobs go on and are found again at the next start.")
    return 0


def prepare(folder: DataFolder, options: argparse.Namespace) -> None:
    """All refusals, before anything starts."""
    folder.open()
    folder.lock()
    folder.withdraw()
    if not ports.is_free(options.port):
        raise Refused(f"Port {options.port} of {ports.HOST} is in use by another program; choose one with --port N.")
    if options.fresh:
        forget_home(folder)
        folder.empty()
        say(f"Deleted everything in {folder.path}.")


class Runner:
    """One run of `up` on a locked folder."""

    def __init__(self, folder: DataFolder, options: argparse.Namespace, supervisor: Supervisor) -> None:
        self.folder = folder
        self.options = options
        self.supervisor = supervisor
        self.began = time.monotonic()

    def run(self, table: Table) -> None:
        """Start everything in order and stay."""
        connected = databases.start(self.folder, self.supervisor, os.environ)
        env = self.environment(connected)
        self.supervisor.changed = lambda: self.publish(env)
        context = Context(self.folder.path, self.options.port, env, not self.options.no_fleet)
        sign_ins = self.folder.path / SIGN_INS
        known = sign_ins.exists()
        plan = table(context)
        for step in plan.steps:
            say(f"{step.name} …")
            self.supervisor.run_step(step.name, step.argv, {**env, **step.env}, CHECKOUT)
        # Made again after the steps: `seed` decides the name and the token of the agent.
        plan = table(context)
        web = self.supervisor.start(plan.web)
        self.supervisor.wait_until(lambda: answers(f"{context.address}/readyz"), web, READY_SECONDS)
        for service in plan.services:
            self.supervisor.start(service)
        self.publish(env)
        self.conclude(context, None if known else sign_ins)
        self.supervisor.run()

    def environment(self, connected: Databases) -> dict[str, str]:
        """What the settings read, on top of the caller's environment."""
        chosen = {
            "DJANGO_SETTINGS_MODULE": "portal.settings",
            "DATABASE_URL": connected.database_url,
            "REDIS_URL": connected.redis_url,
            "GPU_COMMONS_DATA": str(self.folder.path),
            "SECRET_KEY": os.environ.get("SECRET_KEY") or self.folder.secret("secret_key"),
            "ALLOWED_HOSTS": os.environ.get("ALLOWED_HOSTS") or "127.0.0.1,localhost,[::1]",
            "PORTAL_URL": os.environ.get("PORTAL_URL") or f"http://{ports.HOST}:{self.options.port}",
            "PYTHONUNBUFFERED": "1",
        }
        return {**os.environ, **chosen}

    def publish(self, env: dict[str, str]) -> None:
        """services.json: the way in for commands outside, and the process ids for people and tests."""
        names = ("DATABASE_URL", "REDIS_URL", "SECRET_KEY", "GPU_COMMONS_DATA", "ALLOWED_HOSTS", "PORTAL_URL")
        pids = {child.service.name: child.pid for child in self.supervisor.children}
        self.folder.publish(
            {
                "runner_pid": os.getpid(),
                "port": self.options.port,
                "address": f"http://{ports.HOST}:{self.options.port}",
                "environment": {name: env[name] for name in names},
                "pids": pids,
            }
        )

    def conclude(self, context: Context, sign_ins: Path | None) -> None:
        """The final block; the sign-ins themselves only when this run made them."""
        lines = ["", f"GPU Commons is ready: {context.address}   ({time.monotonic() - self.began:.1f} s)"]
        lines.append(f"Data and logs: {self.folder.path}")
        if (self.folder.path / SIGN_INS).exists():
            lines.append(f"Sign-ins: {self.folder.path / SIGN_INS} (readable by you alone)")
        if sign_ins is not None and sign_ins.exists():
            lines += ["These sign-ins are shown this once:", "", sign_ins.read_text().rstrip(), ""]
        lines.append("Ctrl-C stops all services.")
        say("\n".join(lines))


def answers(url: str) -> bool:
    """Whether the address answers 200; never through a proxy."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=5) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError, ValueError):
        return False


def say(text: str) -> None:
    """One line to the terminal; a closed terminal must not end the services."""
    try:
        print(text, flush=True)
    except OSError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - stays open for the rest of the run
