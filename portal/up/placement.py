"""Where PostgreSQL's files stand. As root it runs as `nobody`, who may be unable to enter the data folder.

Then the files go to a home that it can enter, named after the data folder and recorded there; the programs are copied
beside them when `nobody` can't run them in place. No folder outside our own is ever opened to others.
"""

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from portal.up.binaries import Postgres
from portal.up.folder import DataFolder, write_private
from portal.up.process import Account, as_account

HOMES = (Path("/var/lib/gpu-commons"), Path("/srv/gpu-commons"))
RECORD = "postgres-home"
OWNER = "data-folder"


class PlacementError(Exception):
    """No place where PostgreSQL's user can work."""


@dataclass(frozen=True, slots=True)
class Place:
    """The programs to run and the folder that holds (or will hold) the cluster."""

    binaries: Postgres
    home: Path


def choose_place(
    folder: DataFolder, binaries: Postgres, account: Account | None, homes: Sequence[Path] = HOMES
) -> Place:
    """The place for this data folder, the same one at every start."""
    if account is None:
        return Place(binaries, folder.path)
    home = recorded_home(folder) or (
        folder.path if can_enter(account, folder.path) else new_home(folder, account, homes)
    )
    return Place(runnable(binaries, home, account), home)


def recorded_home(folder: DataFolder) -> Path | None:
    """The home outside the data folder that an earlier start made, if it did."""
    record = folder.path / RECORD
    if not record.is_file():
        return None
    home = Path(record.read_text().strip())
    try:
        owner = Path((home / OWNER).read_text().strip())
    except OSError as error:
        raise PlacementError(
            f"{record} names {home}, which is missing or not ours; use --fresh to begin again."
        ) from error
    if owner != folder.path and owner.exists():
        raise PlacementError(
            f"{folder.path} looks like a copy of {owner}: both name {home} for PostgreSQL's files, and only one may. "
            f"Use --fresh here after removing {record}."
        )
    return home


def new_home(folder: DataFolder, account: Account, homes: Sequence[Path]) -> Path:
    """Make a home that `account` can enter and record it in the data folder."""
    name = f"postgres-{hashlib.sha256(str(folder.path).encode()).hexdigest()[:16]}"
    for parent in homes:
        home = parent / name
        try:
            home.mkdir(parents=True, exist_ok=True)
            parent.chmod(0o711)
            home.chmod(0o711)
            (home / OWNER).write_text(f"{folder.path}\n")
        except OSError:
            continue
        if can_enter(account, home):
            write_private(folder.path / RECORD, f"{home}\n")
            return home
    raise PlacementError(
        f"PostgreSQL runs as the user {account.name}, who can enter neither {folder.path} "
        f"nor {' or '.join(map(str, homes))}. "
        "Name a data folder whose parents others can enter (--data), or set DATABASE_URL."
    )


def forget_home(folder: DataFolder) -> None:
    """Delete the home outside the data folder, for --fresh; only one that says it belongs to this folder."""
    record = folder.path / RECORD
    if not record.is_file():
        return
    home = Path(record.read_text().strip())
    owner = home / OWNER
    if owner.is_file() and Path(owner.read_text().strip()) == folder.path:
        shutil.rmtree(home)


def runnable(binaries: Postgres, home: Path, account: Account) -> Postgres:
    """The programs where they are if `account` can run them there, else a copy in `home`."""
    if can_run(account, binaries):
        return binaries
    if binaries.package is None:
        raise PlacementError(f"The user {account.name} can't run {binaries.folder / 'postgres'}; name another PG_BIN.")
    copied = copy_of_wheel(binaries, home)
    if not can_run(account, copied):
        raise PlacementError(f"The user {account.name} can't run {copied.folder / 'postgres'} (mounted noexec?).")
    return copied


def copy_of_wheel(binaries: Postgres, home: Path) -> Postgres:
    """Copy the wheel's programs below `home`, once a release; the libraries keep their place relative to them."""
    assert binaries.package is not None
    target = home / f"postgres-{binaries.release}"
    folder = target / binaries.package.name / "pginstall" / "bin"
    if not target.is_dir():
        partial = home / f"postgres-{binaries.release}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        for part in ("bin", "lib", "share"):
            source = binaries.package / "pginstall" / part
            shutil.copytree(source, partial / binaries.package.name / "pginstall" / part)
        libraries = binaries.package.with_name(f"{binaries.package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, partial / libraries.name)
        open_to_readers(partial)
        partial.rename(target)
    return Postgres(folder, binaries.major, None, binaries.release)


def open_to_readers(tree: Path) -> None:
    """Let others read the copy whatever umask the originals were installed with."""
    tree.chmod(0o755)
    for path in tree.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def can_enter(account: Account, folder: Path) -> bool:
    """Tried, not worked out from modes: access lists and mounts count too."""
    return succeeds(account, ["/bin/sh", "-c", 'cd "$1"', "sh", str(folder)])


def can_run(account: Account, binaries: Postgres) -> bool:
    """Whether the account can start the server program and read what initdb needs."""
    return succeeds(account, [binaries.program("postgres"), "--version"]) and succeeds(
        account, [binaries.program("initdb"), "--version"]
    )


def succeeds(account: Account, argv: list[str]) -> bool:
    """Run a probe as the account."""
    try:
        done = subprocess.run(argv, cwd="/", capture_output=True, check=False, **as_account(account))
    except OSError:
        return False
    return bool(done.returncode == 0)
