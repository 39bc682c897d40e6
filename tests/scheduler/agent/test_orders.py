"""Orders of the portal: each once, with a limit, and never a program that the portal chose."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from scheduler.agent.__main__ import arguments
from scheduler.agent.order_book import MOST_KEPT, STOPPED, OrderBook, Result
from scheduler.agent.orders import (
    Commands,
    Impossible,
    Order,
    Runner,
    Target,
    command_words,
    plan,
    read_orders,
)
from scheduler.agent.spool import Spool
from tests.scheduler.agent.conftest import Machine, Portal, h100, until

GPU0 = "GPU-00000000-1111-2222-3333-444444444444"
VIRTUAL = Target("VIRT-a", "3", True)
REAL = Target("GPU-a", "3", False)
PYTHON = f"{sys.executable} -c"


def order(number: int = 1, kind: str = "burn_in", card: str | None = "VIRT-a", timeout_s: int = 60) -> dict[str, Any]:
    return {"id": number, "kind": kind, "card": card, "timeout_s": timeout_s}


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (None, []),
        ([], []),
        ({"accepted": True}, []),
        ({"orders": "burn_in"}, []),
        ({"orders": [order()]}, [Order(1, "burn_in", "VIRT-a", 60)]),
        ({"orders": [order(card=None)]}, [Order(1, "burn_in", None, 60)]),
        ({"orders": [order() | {"command": "rm -rf /"}]}, [Order(1, "burn_in", "VIRT-a", 60)]),  # nothing reads it
        ({"orders": [order(kind="shell"), order(2)]}, [Order(2, "burn_in", "VIRT-a", 60)]),
        ({"orders": [order(timeout_s=0), order(2, timeout_s=10**12)]}, [
            Order(1, "burn_in", "VIRT-a", 1),
            Order(2, "burn_in", "VIRT-a", 86_400),
        ]),
        ({"orders": [order() | {"id": True}, order() | {"id": "1"}, order() | {"card": 3}, 7, None]}, []),
    ],
)  # fmt: skip
def test_what_is_no_order_is_left_out(answer: Any, found: list[Order]) -> None:
    assert read_orders(answer) == found


def test_the_defaults_test_virtual_cards_and_reset_real_ones() -> None:
    burn_in, reset = Order(1, "burn_in", "x", 10), Order(1, "reset", "x", 10)
    words = plan(burn_in, VIRTUAL, Commands())
    assert words[:5] == (sys.executable, "-m", "scheduler.agent.burn_in", "--seconds", "5")
    with pytest.raises(Impossible, match="--burn-in"):
        plan(burn_in, REAL, Commands())
    assert plan(reset, REAL, Commands()) == ("nvidia-smi", "--gpu-reset", "-i", "GPU-a")
    assert plan(Order(1, "reset", None, 10), REAL, Commands()) == ("nvidia-smi", "--gpu-reset")
    assert plan(reset, VIRTUAL, Commands()) == "a virtual card has nothing to reset"


def test_a_chosen_command_gets_the_card_as_one_word() -> None:
    commands = Commands(command_words("dcgmi diag -r 3 -i '{slot} of' {uuid}"), command_words("reset {uuid}{slot}"))
    odd = Target("GPU-a; rm -rf {slot}", "3", False)
    assert plan(Order(1, "burn_in", "x", 10), REAL, commands) == ("dcgmi", "diag", "-r", "3", "-i", "3 of", "GPU-a")
    assert plan(Order(1, "reset", "x", 10), odd, commands)[0] == "reset"
    assert len(plan(Order(1, "reset", "x", 10), odd, commands)) == 2


@pytest.mark.parametrize("text", ["", "  ", "say 'hello"])
def test_a_command_that_is_none_is_refused_at_the_start(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        arguments(["--print", "--burn-in", text])
    assert "can't be parted into words" in capsys.readouterr().err


class Bench:
    """A runner on a spool, with the cards that it is told of."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.spool = Spool(folder, "boot-1")
        self.runner = Runner(Commands(words, words), self.spool)
        self.body = {"virtual": True, "cards": [{"uuid": f"VIRT-{letter}", "slot": n} for n, letter in enumerate("ab")]}

    def take(self, *orders: dict[str, Any]) -> None:
        self.runner.take(read_orders({"orders": list(orders)}), self.body)

    def results(self, count: int = 1) -> tuple[Result, ...]:
        def enough() -> tuple[Result, ...]:
            self.runner.collect()
            found = self.spool.orders.untold(100)
            return found if len(found) >= count else ()

        found: tuple[Result, ...] = until(enough, "results")
        return found


@pytest.mark.parametrize(
    ("code", "ok", "detail"),
    [
        ("print('first'); print('all is well'); print()", True, "all is well"),
        ("", True, "done"),
        ("import sys; print('bad memory', file=sys.stderr); sys.exit(3)", False, "exit status 3: bad memory"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", False, "ended by signal 11: it said nothing"),
        ("print('x' * 100_000)", True, "x" * 500),
        (r"print('\x1b[31mred\0')", True, "[31mred"),
    ],
)
def test_how_a_command_ends_is_the_result(tmp_path: Path, code: str, ok: bool, detail: str) -> None:
    bench = Bench(tmp_path, sys.executable, "-c", code)
    bench.take(order(7))
    (result,) = bench.results()
    assert (result.order, result.ok, result.detail) == (7, ok, detail)
    assert 0 < result.seconds < 30


def test_a_program_that_is_not_there_is_a_result(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "/no/such/program")
    bench.take(order())
    (result,) = bench.results()
    assert (result.ok, result.detail) == (False, "/no/such/program can't be run: No such file or directory")


def test_a_card_that_is_not_here_is_a_result(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "true")
    bench.take(order(card="VIRT-other"))
    (result,) = bench.results()
    assert (result.ok, result.detail) == (False, "there is no card VIRT-other here")


def test_a_command_that_takes_too_long_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    code = "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); p.wait()"
    bench = Bench(tmp_path, sys.executable, "-c", code)
    bench.take(order(timeout_s=1))
    (result,) = bench.results()
    assert not result.ok
    said = "no end within 1 s, so it was killed; it said last: "
    assert result.detail.startswith(said)
    child = Path(f"/proc/{result.detail.removeprefix(said)}/stat")
    until(lambda: not child.exists() or child.read_text().rpartition(")")[2].split()[0] == "Z", "its child gone")


def test_a_command_that_leaves_its_output_open_ends_when_it_ends(tmp_path: Path) -> None:
    code = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid)"
    bench = Bench(tmp_path, sys.executable, "-c", code)
    begun = time.monotonic()
    bench.take(order())
    (result,) = bench.results()
    os.kill(int(result.detail), signal.SIGKILL)
    assert (result.ok, time.monotonic() - begun < 30) == (True, True)


def test_an_order_that_is_told_again_runs_once(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    bench = Bench(tmp_path / "spool", "sh", "-c", f"echo run >> {runs}; sleep 0.2")
    for _ in range(3):
        bench.take(order())
    bench.results()
    bench.take(order())
    assert runs.read_text() == "run\n"
    bench.spool.confirm(bench.spool.orders.untold(1))
    bench.take(order())  # the portal has lost the result
    assert [result.order for result in bench.results()] == [1]
    assert runs.read_text() == "run\n"


def test_one_at_a_time_on_a_card_and_several_cards_at_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    bench = Bench(tmp_path / "spool", "sh", "-c", f"echo + {{uuid}} >> {log}; sleep 0.3; echo - {{uuid}} >> {log}")
    wanted = [order(1), order(2, kind="reset"), order(3, card="VIRT-b")]

    def all_done() -> bool:
        bench.take(*wanted)  # as the portal does with each answer
        bench.runner.collect()
        return len(bench.spool.orders.untold(10)) == 3

    until(all_done, "all three")
    lines = log.read_text().splitlines()
    assert [line for line in lines if "VIRT-a" in line] == ["+ VIRT-a", "- VIRT-a", "+ VIRT-a", "- VIRT-a"]
    assert lines.index("+ VIRT-b") < lines.index("- VIRT-a")


def test_an_order_that_can_not_be_noted_does_not_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = tmp_path / "runs"
    bench = Bench(tmp_path / "spool", "touch", str(runs))

    def full(order: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bench.spool, "begin_order", full)
    with pytest.raises(OSError, match="No space"):
        bench.take(order())
    monkeypatch.undo()
    assert not runs.exists()
    bench.take(order())
    assert bench.results()[0].ok


def test_the_book_survives_restarts_and_compaction(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "boot-1")
    for number in (1, 2, 3):
        spool.begin_order(number)
    spool.end_order(Result(1, True, 2.5, "well"))
    spool.end_order(Result(2, False, 1.0, "bad"))
    spool.confirm([Result(1, True, 2.5, "well")])
    for _ in range(2):
        spool._compact()
        spool.close()
        spool = Spool(tmp_path, "boot-1")
        assert spool.orders.untold(10) == (Result(2, False, 1.0, "bad"), Result(3, False, 0.0, STOPPED))
        assert all(spool.orders.knows(number) for number in (1, 2, 3))
    assert not spool.orders.knows(4)


def test_only_so_many_told_results_are_kept() -> None:
    book = OrderBook()
    for number in range(MOST_KEPT + 5):
        book.begin(number)
        book.end(Result(number, True, 1.0, ""))
        book.confirm([Result(number, True, 1.0, "")])
    assert [book.knows(number) for number in (0, 4, 5, MOST_KEPT + 4)] == [False, False, True, True]


# -- the real agent ----------------------------------------------------------------------------------------------------


class Ordering:
    """A portal that orders until it is told how it ended."""

    def __init__(self, portal: Portal, *orders: dict[str, Any]) -> None:
        self.open = {item["id"]: item for item in orders}
        self.results: list[dict[str, Any]] = []
        self.refuse = False
        portal.answer = self.answer

    def answer(self, report: dict[str, Any]) -> tuple[int, str]:
        if self.refuse:
            return 503, ""
        for result in report["results"]:
            self.results.append(result)
            self.open.pop(result["order"], None)
        return 200, json.dumps({"accepted": True, "faults": 0, "note": "", "orders": list(self.open.values())})


def _first_card(portal: Portal, machine: Machine) -> str:
    return str(machine.print("--virtual-cards", "1")["cards"][0]["uuid"])


def test_a_virtual_card_is_tested_and_reset_end_to_end(machine: Machine, portal: Portal) -> None:
    card = _first_card(portal, machine)
    portal_orders = Ordering(portal, order(1, card=card, timeout_s=2), order(2, kind="reset", card=card))
    agent = machine.start(portal.url, "--virtual-cards", "1")
    until(lambda: len(portal_orders.results) == 2, "both results")
    machine.stop(agent)
    first, second = sorted(portal_orders.results, key=lambda result: result["order"])
    assert (first["ok"], first["detail"].startswith("passed: ")) == (True, True)
    assert first["seconds"] >= 1
    assert (second["ok"], second["detail"]) == (True, "a virtual card has nothing to reset")


def test_a_result_is_told_until_the_portal_has_taken_it_also_after_kill_9(machine: Machine, portal: Portal) -> None:
    card = _first_card(portal, machine)
    ordering = Ordering(portal, order(5, card=card))
    own = ("--virtual-cards", "1", "--burn-in", "echo tested {slot}")
    agent = machine.start(portal.url, *own)
    until(lambda: portal.accepted, "the order told")
    ordering.refuse = True
    until(lambda: any(report["results"] for report in portal.reports), "the result tried")
    machine.stop(agent, signal.SIGKILL)
    ordering.refuse = False
    if not ordering.results:
        agent = machine.start(portal.url, *own)
        until(lambda: ordering.results, "the result")
        machine.stop(agent)
    assert [(r["order"], r["ok"], r["detail"]) for r in ordering.results] == [(5, True, "tested 0")]
    assert machine.once(portal.url, *own).returncode == 0
    assert portal.accepted[-1]["results"] == []


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_an_order_under_which_the_agent_ends_has_failed_and_is_not_run_again(
    machine: Machine, portal: Portal, tmp_path: Path, how: signal.Signals
) -> None:
    card, runs = _first_card(portal, machine), tmp_path / "runs"
    ordering = Ordering(portal, order(9, card=card))
    own = ("--virtual-cards", "1", "--burn-in", f"sh -c 'echo $$ >> {runs}; exec sleep 30'")
    agent = machine.start(portal.url, *own)
    pid = until(lambda: runs.exists() and runs.read_text(), "the test under way").strip()
    boot = portal.accepted[-1]["boot_id"]
    machine.stop(agent, how)
    if how == signal.SIGTERM:
        until(lambda: not Path(f"/proc/{pid}").exists(), "the test ended with its agent")
    else:
        os.kill(int(pid), signal.SIGKILL)
    agent = machine.start(portal.url, *own)
    until(lambda: ordering.results, "the verdict")
    machine.stop(agent)
    (result,) = ordering.results
    assert result == {"order": 9, "ok": False, "seconds": 0.0, "detail": STOPPED}
    assert runs.read_text().split() == [pid]
    assert portal.accepted[-1]["boot_id"] == boot


def test_nothing_that_the_portal_says_becomes_a_command(machine: Machine, portal: Portal, tmp_path: Path) -> None:
    machine.set(h100(0))
    evil = tmp_path / "evil"
    words = f"touch {evil}"
    odd = order(1, card=GPU0) | {"command": words, "argv": words.split(), "burn_in": words}
    ordering = Ordering(portal, odd, order(2, card=f"{GPU0}; touch {evil}"), order(3, kind=words))
    agent = machine.start(portal.url)
    until(lambda: len(ordering.results) >= 2, "two results")
    machine.stop(agent)
    assert not evil.exists()
    assert all(not result["ok"] for result in ordering.results)
    assert "no test for NVIDIA cards is set here" in ordering.results[0]["detail"]


@pytest.mark.parametrize("answer", ["", "no JSON", "[" * 10_000, '{"orders": {}}', '"x"', "{}" + " " * (1 << 20)])
def test_an_odd_answer_is_an_accepted_report(machine: Machine, portal: Portal, answer: str) -> None:
    portal.answer = lambda report: (200, answer)
    assert machine.once(portal.url, "--virtual-cards", "1").returncode == 0
