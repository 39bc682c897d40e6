"""`manage.py test`: its processes together run every test once, and the failure of one is the run's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from portal.up.bootstrap import CHECKOUT
from portal.up.testing import BROWSER, SHARING, SHELL, SKIP_SYSTEM, install_system_packages, run_together

ONCE_A_PROCESS = """
from pathlib import Path
import pytest

@pytest.fixture(scope="session", autouse=True)
def ends():
    yield
    with (Path(__file__).parent / "ended").open("a") as ended:
        ended.write("once ")
"""
# Nobody gets past its first test before both processes have one.
MEETING = """
import os, time
from pathlib import Path
import pytest

HERE = Path(__file__).parent

@pytest.mark.parametrize("number", range(3))
def test_each(number):
    with (HERE / "told").open("a") as told:
        told.write(f"{Path(__file__).stem} {number} {os.getpid()}\\n")
    deadline = time.monotonic() + 60
    while len({line.split()[2] for line in (HERE / "told").read_text().splitlines()}) < 2:
        assert time.monotonic() < deadline, "there is no other process"
        time.sleep(0.01)
"""


@pytest.mark.parametrize(("codes", "whole"), [((0, 0, 0), 0), ((1, 0, 0), 1), ((0, 0, 2), 2)])
def test_the_run_passes_when_all_do(tmp_path: Path, codes: tuple[int, ...], whole: int) -> None:
    """Each process takes an exit status of its own."""
    for number, code in enumerate(codes):
        (tmp_path / f"{number}-{code}").touch()
    program = (
        "import pathlib, sys\n"
        f"for path in sorted(pathlib.Path({str(tmp_path)!r}).iterdir()):\n"
        "    try: path.unlink()\n"
        "    except FileNotFoundError: continue\n"
        "    sys.exit(int(path.name[-1]))\n"
        "sys.exit(9)\n"
    )
    assert run_together([sys.executable, "-c", program], len(codes)) == whole
    assert list(tmp_path.iterdir()) == []


def test_two_processes_run_every_test_once(tmp_path: Path) -> None:
    share = tmp_path / "share"
    share.mkdir()
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "conftest.py").write_text(ONCE_A_PROCESS)
    for name in ("test_a", "test_b", "test_c"):
        (tmp_path / f"{name}.py").write_text(MEETING)
    command = [*SHARING, f"--share={share}"]
    command += ["-c", str(tmp_path / "pytest.ini"), str(tmp_path)]
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    both = [subprocess.Popen(command, cwd=CHECKOUT, env=alone, stdout=subprocess.PIPE) for _ in range(2)]
    outputs = [one.communicate(timeout=120)[0].decode() for one in both]
    assert [one.returncode for one in both] == [0, 0], outputs
    told = [line.split()[:2] for line in (tmp_path / "told").read_text().splitlines()]
    assert sorted(told) == [[name, str(number)] for name in ("test_a", "test_b", "test_c") for number in range(3)]
    assert (tmp_path / "ended").read_text() == "once once "


def programs(folder: Path, monkeypatch: pytest.MonkeyPatch, **found: str) -> None:
    """A system that has these programs alone, each a shell script."""
    for name, script in found.items():
        program = folder / name.replace("_", "-")
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv(SKIP_SYSTEM, raising=False)


@pytest.mark.parametrize(("offers", "browser"), [(0, SHELL), (100, BROWSER)])
def test_the_browser_is_the_one_that_the_system_offers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], offers: int, browser: str
) -> None:
    told = tmp_path / "told"
    programs(tmp_path, monkeypatch, apt_get=f'echo "$@" >> {told}', apt_cache=f"exit {offers}", bwrap="", gcc="")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    install_system_packages()
    update, install = told.read_text().splitlines()
    assert update.startswith("update")
    assert browser in install.split()
    assert {SHELL, BROWSER} & {*install.split()} == {browser}
    assert "bubblewrap" not in install.split()
    assert "Not installed" not in capsys.readouterr().out


def test_what_apt_refuses_is_told_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    programs(tmp_path, monkeypatch, apt_get="echo no network >&2; exit 100", apt_cache="", bwrap="", gcc="")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    install_system_packages()
    assert "(apt-get: no network). Tests that need them are skipped" in capsys.readouterr().out


@pytest.mark.parametrize("browser", [SHELL, BROWSER])
def test_the_chromium_that_is_there_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], browser: str
) -> None:
    programs(tmp_path, monkeypatch, apt_get="exit 1", bwrap="", **{browser.replace("-", "_"): ""})
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    install_system_packages()
    out = capsys.readouterr().out
    assert "chromium" not in out
    assert "Not installed: " in out
    assert "gcc" in out
    assert "only root may install packages" in out
