"""Storage that works, that refuses, that lies and that hangs."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from scheduler.agent.storage import Probe, Storage, probe
from tests.scheduler.agent.conftest import Machine, Portal, until


def test_what_was_written_is_read_back_and_nothing_stays(tmp_path: Path) -> None:
    probe(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_each_path_is_in_the_report(machine: Machine, tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "none"
    good.mkdir()
    told = machine.print("--storage-probe", str(good), "--storage-probe", str(bad))["node"]["storage"]
    assert [(answer["path"], answer["ok"], answer["error"]) for answer in told] == [
        (str(good), True, None),
        (str(bad), False, "No such file or directory"),
    ]
    assert all(0 <= answer["ms"] < 10_000 for answer in told)
    assert machine.print()["node"]["storage"] is None


def test_other_bytes_than_were_written_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.read", lambda fd, count: b"\0" * 17)
    with pytest.raises(OSError, match="17 bytes came back"):
        probe(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_hangs_fails_without_holding_anyone_up_and_is_tried_again_once_it_answers() -> None:
    answers, tries = threading.Event(), []

    def hang(path: str) -> None:
        tries.append(path)
        answers.wait(10)

    one = Probe("/hung", limit_s=0.05, run=hang)
    one.begin()
    assert one.answer() is None  # not known yet
    time.sleep(0.06)
    for _ in range(3):
        one.begin()
        told = one.answer()
        assert told is not None
        assert (told["ok"], told["error"]) == (False, "no answer within 0.05 s")
    assert tries == ["/hung"]  # one thread waits, no more
    answers.set()
    until(lambda: (one.answer() or {}).get("ok"), "the answer that came late")
    one.begin()
    until(lambda: len(tries) == 2, "another try")


def test_a_hanging_path_costs_a_look_half_a_second_and_the_others_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forever = threading.Event()
    real = probe
    monkeypatch.setattr("scheduler.agent.storage.probe", real)
    storage = Storage([str(tmp_path)])
    storage._probes.insert(0, Probe("/hung", run=lambda path: forever.wait(10) and None))
    begun = time.monotonic()
    told = storage.look()
    assert time.monotonic() - begun < 5
    assert told is not None
    assert [(answer["path"], answer["ok"]) for answer in told] == [(str(tmp_path), True)]
    forever.set()


def test_a_full_or_read_only_disk_is_named_again_and_again(machine: Machine, portal: Portal, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no folder")
    machine.start(portal.url, "--virtual-cards", "1", "--storage-probe", str(file))
    until(lambda: len(portal.accepted) > 2, "three reports")
    assert {report["node"]["storage"][0]["error"] for report in portal.accepted} == {"Not a directory"}
