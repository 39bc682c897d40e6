"""Pytest plugin for a run in several processes: each collects all tests and takes the next file that no other has taken.

`manage.py test` loads it (portal/up/testing.py) with `--share=FOLDER`, in which a file taken leaves a mark. So every file
runs once, and no process idles while another has more than one file left. Files that wait long come first, and those
that start processes of their own and count what is left of them go together, one after another in one process.
"""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

DRIVES_THE_MACHINE = ("tests/process/", "tests/portal/up/", "tests/scheduler/drivers/", "tests/scheduler/agent/")
LONG = (
    "tests/e2e/test_pages.py",
    "tests/scheduler/engine/test_stories.py",
    "tests/portal/views/test_books.py",
    "tests/portal/views/test_matrix.py",
    "tests/portal/views/test_fleet.py",
    "tests/portal/views/test_query_counts.py",
    "tests/e2e/",
    "tests/scheduler/test_races.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--share", type=Path, required=True, help="folder in which the processes of one run take files")


def part_of(item: pytest.Item) -> str:
    """What is taken as a whole: a file, or all that drives the machine."""
    name = item.path.relative_to(item.config.rootpath).as_posix()
    return DRIVES_THE_MACHINE[0] if name.startswith(DRIVES_THE_MACHINE) else name


def turn_of(part: str) -> int:
    """Small numbers first."""
    begun = [turn for turn, name in enumerate((DRIVES_THE_MACHINE[0], *LONG)) if part.startswith(name)]
    return begun[0] if begun else len(LONG) + 1


def take(folder: Path, part: str) -> bool:
    """Whether this process is the first to ask for it."""
    try:
        (folder / f"{part.replace('/', '+')}.taken").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def taken(items: list[pytest.Item], folder: Path) -> Iterator[pytest.Item]:
    """The tests of one part after another, each part taken when its first test is asked for."""
    parts = {part: list(tests) for part, tests in groupby(sorted(items, key=part_of), key=part_of)}
    for part in sorted(parts, key=lambda part: (turn_of(part), part)):
        if take(folder, part):
            yield from parts[part]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """In the place of pytest's own loop. Looks one test ahead, for pytest keeps the fixtures that the next one needs."""
    if session.testsfailed or session.config.option.collectonly:
        return None
    tests = taken(session.items, session.config.option.share)
    item = next(tests, None)
    while item is not None:
        after = next(tests, None)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        item = after
    return True
