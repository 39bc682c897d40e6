"""`manage.py test`: both halves together run every test, and either's failure is the run's."""

from __future__ import annotations

from pathlib import Path

import pytest

from portal.up.testing import halves, run_halves

ROOT = Path(__file__).parents[3]


def test_both_halves_hold_every_test_file_once() -> None:
    held: list[Path] = []
    for arguments in halves():
        ignored = [ROOT / argument.removeprefix("--ignore=") for argument in arguments if argument.startswith("--")]
        for folder in (ROOT / argument for argument in arguments if not argument.startswith("--")):
            files = folder.rglob("test_*.py")
            held += [file for file in files if not any(file.is_relative_to(other) for other in ignored)]
    assert sorted(held) == sorted((ROOT / "tests").rglob("test_*.py"))


@pytest.mark.parametrize(
    ("first", "second", "passes"),
    [("--version", "--version", True), ("--no-such", "--version", False), ("--version", "--no-such", False)],
)
def test_the_run_passes_when_both_halves_do(first: str, second: str, passes: bool) -> None:
    assert (run_halves([first], [second]) == 0) is passes
