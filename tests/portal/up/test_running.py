"""What an `up` that runs must do: keep others off its folder, bring back what dies, keep what was committed."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
import redis

from portal.up.bootstrap import CHECKOUT
from portal.up.folder import MARKER, SECRETS, SERVICES
from tests.portal.up.conftest import Runner, wait_for
from tests.portal.up.stand_in import FLAKY


def second(runner: Runner, *more: str) -> "subprocess.CompletedProcess[str]":
    """Try another `up` on the same folder."""
    env = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
    argv = [sys.executable, "-m", "tests.portal.up.stand_in", "--data", str(runner.data), *more]
    return subprocess.run(argv, cwd=CHECKOUT, env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("more", [(), ("--fresh",)])
def test_a_second_up_on_one_folder_is_refused_in_one_line(running: Runner, more: tuple[str, ...]) -> None:
    refused = second(running, *more)
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert refused.stderr.count("\n") == 1
    assert f"already running on {running.data} (pid {running.process.pid})" in refused.stderr
    assert (running.data / SECRETS).exists()


def test_a_port_in_use_is_refused_before_anything_starts(running: Runner, open_folder: Path) -> None:
    argv = [sys.executable, "-m", "tests.portal.up.stand_in", "--data", str(open_folder / "other")]
    refused = subprocess.run(
        [*argv, "--port", str(running.port)], cwd=CHECKOUT, capture_output=True, text=True, timeout=60, check=False
    )
    assert refused.returncode == 2
    assert f"Port {running.port} of 127.0.0.1 is in use" in refused.stderr
    assert sorted(path.name for path in (open_folder / "other").iterdir()) == [MARKER, "logs", "up.lock"]


@pytest.mark.parametrize("name", [SERVICES, SECRETS])
def test_files_with_secrets_are_for_their_owner_alone(running: Runner, name: str) -> None:
    assert stat.S_IMODE((running.data / name).stat().st_mode) == 0o600


def test_no_secret_stands_in_a_command_line(running: Runner) -> None:
    secrets = [value for value in running.url("DATABASE_URL").replace("@", ":").split(":") if len(value) > 40]
    secrets += [running.url("SECRET_KEY"), running.url("REDIS_URL").split(":")[2].split("@")[0]]
    assert len(secrets) == 3
    lines = [Path(f"/proc/{pid}/cmdline").read_text() for pid in running.services()["pids"].values()]
    assert not [line for line in lines for secret in secrets if secret in line]


def test_the_sign_ins_are_shown_by_the_first_start(running: Runner) -> None:
    assert "researcher secret-word" in running.said()


@pytest.mark.parametrize("name", ["web", "drivers", "beat", "agent"])
def test_a_killed_child_is_started_again(running: Runner, name: str) -> None:
    old = running.pid(name)
    os.kill(old, signal.SIGKILL)
    new = wait_for(lambda: running.services()["pids"][name] not in (None, old) and running.pid(name), f"{name} is back")
    assert new != old


def test_a_child_that_keeps_dying_is_restarted_less_and_less_often(running: Runner) -> None:
    (running.data / FLAKY).touch()
    try:
        for delay in ("0.2", "0.4", "0.8"):
            line = f"books      ended with exit code 7; starting again in {delay} s"
            wait_for(lambda line=line: line in running.said(), f"{line!r} is said")  # type: ignore[misc]
    finally:
        (running.data / FLAKY).unlink()
    wait_for(lambda: running.services()["pids"]["books"], "books runs")


def test_postgresql_comes_back_after_kill_9_with_what_was_committed(running: Runner) -> None:
    url, old = running.url("DATABASE_URL"), running.pid("postgres")
    open_session = psycopg.connect(url)
    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO kept SELECT generate_series(1, 100)")
    os.kill(old, signal.SIGKILL)
    assert wait_for(lambda: tried(lambda: rows(url)), "PostgreSQL answers again") == 100
    assert running.pid("postgres") != old
    with pytest.raises(psycopg.OperationalError):
        open_session.execute("SELECT 1")


def test_valkey_comes_back_after_kill_9_with_its_messages(running: Runner) -> None:
    url, old = running.url("REDIS_URL"), running.pid("valkey")
    with redis.Redis.from_url(url) as client:
        client.rpush("queue", "one", "two")
    os.kill(old, signal.SIGKILL)

    def messages() -> int:
        with redis.Redis.from_url(url) as client:
            return int(client.llen("queue"))  # type: ignore[arg-type]

    assert wait_for(lambda: tried(messages), "Valkey answers again") == 2
    assert running.pid("valkey") != old


def test_valkey_refuses_a_client_without_the_password(running: Runner) -> None:
    address = running.url("REDIS_URL").split("@")[1]
    with redis.Redis.from_url(f"redis://{address}") as client, pytest.raises(redis.AuthenticationError):
        client.ping()


def test_postgresql_refuses_a_client_without_the_password(running: Runner) -> None:
    address = running.url("DATABASE_URL").split("@")[1]
    with pytest.raises(psycopg.OperationalError, match="no password supplied"):
        psycopg.connect(f"postgresql://gpu_commons_owner@{address}")


def rows(url: str) -> int:
    """How many rows the table of the stand-in step has."""
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM kept").fetchone()
    assert row is not None
    return int(row[0])


def tried(action: Callable[[], int]) -> int | None:
    """The result, or None while the server is away."""
    try:
        return action()
    except (psycopg.OperationalError, redis.RedisError):
        return None
