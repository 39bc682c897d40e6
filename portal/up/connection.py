"""Lets Django's commands reach what `up` runs: reads services.json of the data folder before the settings load.

Changes only this process's environment. A value that is already set is never replaced.
"""

import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from portal.up.bootstrap import CHECKOUT
from portal.up.folder import SERVICES, DataFolder

# They change or read the schema, as the owner of the tables; every other command takes the role of the application.
OWNER_COMMANDS = frozenset(
    {"migrate", "makemigrations", "squashmigrations", "flush", "sqlmigrate", "sqlflush", "showmigrations", "dbshell"}
)
# They need settings that load, but no server.
OFFLINE_COMMANDS = frozenset(
    {"help", "version", "check", "makemigrations", "makemessages", "compilemessages", "spectacular", "diffsettings"}
    | {"findstatic", "collectstatic", "optimizemigration", "squashmigrations", "startapp", "--help", "-h", "--version"}
    | {"bench"}  # starts servers of its own
)
OFFLINE_DATABASE = "postgresql://nobody@127.0.0.1:1/none"
OFFLINE_REDIS = "redis://127.0.0.1:1/0"


def prepare(argv: Sequence[str]) -> list[str]:
    """Set the environment for a Django command and return its arguments without `--data DIR`."""
    arguments, data = without_data(argv)
    command = arguments[0] if arguments else "help"
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
    if data is not None:
        os.environ["GPU_COMMONS_DATA"] = str(data.expanduser().resolve())
    if command in OWNER_COMMANDS:
        os.environ.setdefault("DATABASE_ROLE", "")
    if os.environ.get("DATABASE_URL"):
        return arguments
    folder = DataFolder(Path(os.environ.get("GPU_COMMONS_DATA") or CHECKOUT / ".data"))
    if folder.is_locked():
        use_running(folder)
    elif command in OFFLINE_COMMANDS or "--help" in arguments:
        use_nothing()
    else:
        sys.exit(nothing_runs(folder, command))
    return arguments


def without_data(argv: Sequence[str]) -> tuple[list[str], Path | None]:
    """Split `--data DIR` or `--data=DIR` off, wherever it stands before a bare `--`."""
    rest: list[str] = []
    data: str | None = None
    waiting = iter(argv)
    for argument in waiting:
        if argument == "--":
            rest += [argument, *waiting]
        elif argument == "--data":
            data = next(waiting, None)
            if data is None:
                sys.exit("--data needs a folder.")
        elif argument.startswith("--data="):
            data = argument.removeprefix("--data=")
        else:
            rest.append(argument)
    return rest, Path(data) if data else None


def use_running(folder: DataFolder) -> None:
    """Take the addresses and the key that the running `up` published."""
    published = folder.read(SERVICES).get("environment")
    if not isinstance(published, dict):
        sys.exit(f"GPU Commons is just starting on {folder.path}, or its {SERVICES} is not yours to read; try again.")
    for name, value in published.items():
        os.environ.setdefault(str(name), str(value))


def use_nothing() -> None:
    """Values that let the settings load; nothing listens there, and the key is for this process alone."""
    os.environ["DATABASE_URL"] = OFFLINE_DATABASE
    os.environ.setdefault("REDIS_URL", OFFLINE_REDIS)
    os.environ.setdefault("SECRET_KEY", secrets.token_urlsafe(48))


def nothing_runs(folder: DataFolder, command: str) -> str:
    """What to do when there is no database to talk to."""
    return (
        f"`{command}` needs the database, and nothing is running on {folder.path}.\n"
        "Start it with `python3 manage.py up`, name another data folder with --data DIR or GPU_COMMONS_DATA, "
        "or set DATABASE_URL, REDIS_URL and SECRET_KEY."
    )
