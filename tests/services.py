"""Early pytest plugin: PostgreSQL and Valkey in a temporary folder, unless DATABASE_URL and REDIS_URL name servers.

Addresses and passwords are set before Django reads its settings; the servers start when the first collected test
needs them, so a run of pure tests starts none. Loaded by `-p tests.services` in pyproject.toml.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from portal.up import binaries, placement, ports
from portal.up.folder import DataFolder
from portal.up.postgres import STOP_SIGNAL, WITHOUT_SAFETY, Cluster
from portal.up.process import account_for_postgres, spawn, tail
from portal.up.valkey import Valkey

NEEDING = {"db", "transactional_db", "django_db_setup", "live_server", "services", "admin_client", "client_as"}
START_SECONDS = 60.0
WITHOUT_CHECKPOINTS = {
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "checkpoint_timeout": "1h",
    "max_wal_size": "1GB",
}


class TestServices:
    """The servers of one test run. `reserve` decides addresses, `start` makes them true."""

    __test__ = False  # the name is for people; pytest must not collect it

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="gpu-commons-test-"))
        self.root.chmod(0o711 if os.geteuid() == 0 else 0o700)
        self.folder = DataFolder(self.root / "data")
        self.cluster: Cluster | None = None
        self.valkey: Valkey | None = None
        self.running: list[tuple[subprocess.Popen[bytes], int]] = []
        self.started = False

    def reserve(self) -> None:
        """Choose ports and passwords and set what the settings read."""
        self.folder.open()
        self.folder.lock()
        if not os.environ.get("DATABASE_URL"):
            self.cluster = self._cluster()
            os.environ["DATABASE_URL"] = self.cluster.url
        if not os.environ.get("REDIS_URL"):
            port, password = ports.choose(), self.folder.secret("valkey")
            self.valkey = Valkey(binaries.find_valkey(), self.folder.path, port, password, fsync="no")
            os.environ["REDIS_URL"] = self.valkey.url
        os.environ["DATABASE_ROLE"] = ""  # tests create and flush the schema, which only its owner may
        os.environ["GPU_COMMONS_DATA"] = str(self.folder.path)
        os.environ["SECRET_KEY"] = self.folder.secret("secret_key")
        os.environ.setdefault("RATE_FACTOR", "0")  # one client sends what many would; test_throttling.py counts
        os.environ.setdefault("ALLOWED_HOSTS", "testserver,127.0.0.1,localhost")

    def _cluster(self) -> Cluster:
        system = os.environ.get("TEST_WITH_SYSTEM_POSTGRES") == "1"
        account = account_for_postgres()
        place = placement.choose_place(self.folder, binaries.find_postgres(system=system), account)
        return Cluster(
            binaries=place.binaries,
            home=place.home,
            port=ports.choose(),
            superuser_password=self.folder.secret("postgres_superuser"),
            owner_password=self.folder.secret("postgres_owner"),
            account=account,
            settings=WITHOUT_SAFETY | WITHOUT_CHECKPOINTS,
            owner_may_create_databases=True,
        )

    def start(self) -> None:
        """Start what was reserved; once a run."""
        if self.started:
            return
        self.started = True
        if self.cluster is not None:
            cluster = self.cluster
            cluster.initialise()
            log = self.folder.logs / "postgres.log"
            child = spawn(
                cluster.argv(),
                env=cluster.env,
                log=log,
                cwd=Path("/"),
                account=cluster.account,
                death_signal=STOP_SIGNAL,
            )
            self._await(child, STOP_SIGNAL, log, cluster.is_ready)
            cluster.ensure_database()
        if self.valkey is not None:
            self.valkey.initialise()
            log = self.folder.logs / "valkey.log"
            child = spawn(self.valkey.argv(), env={"PATH": os.defpath}, log=log, cwd=Path("/"))
            self._await(child, signal.SIGTERM, log, self.valkey.is_ready)

    def _await(self, child: "subprocess.Popen[bytes]", stop: int, log: Path, ready: Callable[[], bool]) -> None:
        self.running.append((child, stop))
        deadline = time.monotonic() + START_SECONDS
        while not ready():
            if child.poll() is not None or time.monotonic() > deadline:
                pytest.exit(f"{log.stem} did not start. The end of its log:\n{tail(log)}", returncode=3)
            time.sleep(0.02)

    def describe(self) -> str:
        """One line for the head of the run."""
        if self.cluster is None:
            return "database: DATABASE_URL of the environment"
        return f"database: PostgreSQL {self.cluster.binaries.major} from {self.cluster.binaries.folder}"

    def stop(self) -> None:
        """Stop the servers and delete their files. Safe to call twice."""
        while self.running:
            process, stop = self.running.pop()
            process.send_signal(stop)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self.folder.path.exists():
            placement.forget_home(self.folder)
        self.folder.unlock()
        shutil.rmtree(self.root, ignore_errors=True)


_services: TestServices | None = None


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests() -> Iterator[None]:
    """Runs around pytest-django's own hook, which loads the settings."""
    global _services
    if _services is None:
        _services = TestServices()
        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C: the servers are stopped
        try:
            _services.reserve()
        except (binaries.BinariesError, placement.PlacementError) as error:
            _services.stop()
            raise pytest.UsageError(str(error)) from error
    return (yield)


def pytest_report_header() -> str:
    """Say which database is tested on."""
    return _services.describe() if _services is not None else "database: none"


def needs_services(item: pytest.Item) -> bool:
    """Whether a collected test touches the database or the broker."""
    if item.get_closest_marker("django_db") is not None or NEEDING & set(getattr(item, "fixturenames", ())):
        return True
    cls = getattr(item, "cls", None)
    return cls is not None and any(base.__module__.startswith("django.test") for base in cls.__mro__)


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Iterator[None]:
    """Start the servers before the first test when any collected one needs them."""
    if _services is not None and not session.config.option.collectonly and any(map(needs_services, session.items)):
        _services.start()
    return (yield)


@pytest.fixture(scope="session")
def services() -> TestServices:
    """The running servers, for a test that uses them without a database fixture."""
    assert _services is not None
    _services.start()
    return _services


def pytest_unconfigure() -> None:
    """Also runs after Ctrl-C."""
    if _services is not None:
        _services.stop()
