"""One embedded PostgreSQL cluster: made once, on 127.0.0.1 with passwords only, with one database and its owner.

The caller runs the server process (see `argv`, `env`) and supervises it. Nothing here stops another server: a cluster
that is still in use is reported.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg import sql

from portal.up.binaries import Postgres
from portal.up.ports import HOST
from portal.up.process import Account, as_account

SUPERUSER = "postgres"
OWNER = "gpu_commons_owner"
DATABASE = "gpu_commons"
SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "password_encryption": "scram-sha-256",
    "jit": "off",  # queries are short; compiling them costs more than it saves
    "log_line_prefix": "%m [%p] ",
}
WITHOUT_SAFETY = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
PATIENCE = 5.0
STOP_SIGNAL = signal.SIGINT  # "fast": ends sessions, writes a checkpoint


class PostgresError(Exception):
    """The cluster cannot be made or used; the message says why."""


@dataclass(frozen=True)
class Cluster:
    """A cluster in `home/postgres`, run by `account` on `port`."""

    binaries: Postgres
    home: Path
    port: int
    superuser_password: str = field(repr=False)
    owner_password: str = field(repr=False)
    account: Account | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    owner_may_create_databases: bool = False

    @property
    def data(self) -> Path:
        """PostgreSQL's own folder."""
        return self.home / "postgres"

    @property
    def url(self) -> str:
        """How the portal connects: as the owner of the database; it then takes the role of the application."""
        return f"postgresql://{OWNER}:{self.owner_password}@{HOST}:{self.port}/{DATABASE}"

    @property
    def env(self) -> dict[str, str]:
        """A small environment: the server needs no secrets of ours."""
        return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}

    def argv(self) -> tuple[str, ...]:
        """The server in the foreground."""
        options = {**SETTINGS, "port": str(self.port), **self.settings}
        flags = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        return (self.binaries.program("postgres"), "-D", str(self.data), *flags)

    def initialise(self) -> bool:
        """Make the cluster where there is none; True when it did. An interrupted attempt is begun again."""
        kept = self.data / "PG_VERSION"
        if kept.exists():
            found = int(kept.read_text().strip())
            if found != self.binaries.major:
                raise PostgresError(
                    f"{self.data} belongs to PostgreSQL {found}, the programs in {self.binaries.folder} are "
                    f"{self.binaries.major}. Name those of {found} with PG_BIN, or dump and load with pg_dump."
                )
            return False
        partial, password = self.home / "postgres.partial", self.home / "postgres.password"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(mode=0o700)
        try:
            self._write_password(password)
            if self.account is not None:
                os.chown(partial, self.account.uid, self.account.gid)
            self._initdb(partial, password)
        finally:
            password.unlink(missing_ok=True)
        partial.rename(self.data)
        return True

    def _write_password(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(f"{self.superuser_password}\n")
            if self.account is not None:
                os.fchown(handle, self.account.uid, self.account.gid)

    def _initdb(self, target: Path, password: Path) -> None:
        argv = [self.binaries.program("initdb"), "-D", str(target), "-U", SUPERUSER, f"--pwfile={password}"]
        argv += ["--auth=scram-sha-256", "--encoding=UTF8", "--data-checksums", *self._locale()]
        if self.settings.get("fsync") == "off":
            argv.append("--no-sync")
        user = as_account(self.account)
        done = subprocess.run(argv, cwd="/", env=self.env, capture_output=True, text=True, check=False, **user)
        if done.returncode != 0:
            shutil.rmtree(target, ignore_errors=True)
            raise PostgresError(f"initdb failed:\n{(done.stderr or done.stdout).strip()}")

    def _locale(self) -> list[str]:
        """Sorting by code point, the same on every machine; the built-in provider came with PostgreSQL 17."""
        if self.binaries.major >= 17:
            return ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        return ["--locale=C.UTF-8" if sys.platform == "linux" else "--locale=C"]

    def clear_stale_pid(self) -> None:
        """Remove the pid file of a server that was killed.

        PostgreSQL does so itself unless another process of the same user has got the number since; so look at what
        that process is. A server that still runs on this cluster is an error: two would destroy it.
        """
        path = self.data / "postmaster.pid"
        try:
            pid = int(path.read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return
        deadline = time.monotonic() + PATIENCE
        while runs_on(pid, self.data):
            if time.monotonic() > deadline:
                raise PostgresError(f"another PostgreSQL (pid {pid}) still runs on {self.data}; stop it first")
            time.sleep(0.05)
        path.unlink(missing_ok=True)

    def connect(self, database: str = "postgres") -> "psycopg.Connection[tuple[object, ...]]":
        """A connection as the superuser, for setting up only."""
        return psycopg.connect(
            host=HOST,
            port=self.port,
            user=SUPERUSER,
            password=self.superuser_password,
            dbname=database,
            connect_timeout=3,
            autocommit=True,
        )

    def is_ready(self) -> bool:
        """Whether the server answers."""
        try:
            self.connect().close()
        except psycopg.OperationalError as error:
            if "password authentication failed" in str(error):
                raise PostgresError(
                    f"{self.data} was made with other passwords than those in this data folder's secrets.json."
                ) from error
            return False
        return True

    def ensure_database(self) -> None:
        """Create the owner and the database, or bring the owner's password up to date. Safe to repeat."""
        owner = sql.Identifier(OWNER)
        rights = sql.SQL("LOGIN CREATEROLE PASSWORD {}").format(sql.Literal(self.owner_password))
        if self.owner_may_create_databases:
            rights += sql.SQL(" CREATEDB")
        with self.connect() as connection:
            known = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [OWNER]).fetchone()
            verb = sql.SQL("ALTER ROLE {} {}" if known else "CREATE ROLE {} {}")
            connection.execute(verb.format(owner, rights))
            if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone() is None:
                connection.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(DATABASE), owner))
            # Only roles that were given the right connect: the owner has it as owner.
            connection.execute(sql.SQL("REVOKE CONNECT ON DATABASE {} FROM PUBLIC").format(sql.Identifier(DATABASE)))


def runs_on(pid: int, data: Path) -> bool:
    """Whether process `pid` is a PostgreSQL server of this cluster."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False  # another user's process, so not one that we started
    if sys.platform != "linux":
        return True
    try:
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return False
        return Path(f"/proc/{pid}/cwd").resolve() == data.resolve()
    except OSError:
        return False
