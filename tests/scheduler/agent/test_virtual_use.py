"""What virtual cards are used for: real members of the local driver, as the agent sees them."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.agent import processes
from scheduler.agent.machine import virtual_cards
from scheduler.agent.model import Card
from scheduler.agent.processes import take_census
from scheduler.agent.virtual import VirtualUse
from scheduler.drivers import local_shim, process_tree
from scheduler.drivers import member_folder as files
from scheduler.drivers.base import GrantedCard, MemberSpec
from tests.scheduler.agent.conftest import Machine, until
from tests.scheduler.drivers.local_machine import NODE, Box

HOLD = "import sys, time; held = bytearray(int(sys.argv[1]) << 20); print('held', flush=True); time.sleep(600)"
SPIN = "while True: pass"


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    box = Box(tmp_path / "data", {})
    yield box
    box.close()


@pytest.fixture
def cards() -> tuple[Card, ...]:
    return virtual_cards("n001", 3, 1024)


def run(box: Box, key: str, grants: dict[Card, int], *command: str, cpu_milli: int = 500) -> None:
    granted = tuple(GrantedCard(card.uuid, card.slot, mib, 0, virtual=True) for card, mib in grants.items())
    box.driver().start(
        MemberSpec(
            key=key,
            job_id=int(key[1:]),
            attempt_id=1,
            fence=1,
            node=NODE,
            form="container",
            command=("python3", "-c", *command),
            cards=granted,
            cpu_milli=cpu_milli,
            host_memory_mib=64,
        )
    )


def output(box: Box, key: str) -> bytes:
    return box.driver().logs(key).data


def test_a_share_of_two_cards_is_told_on_both_as_it_was_given(box: Box, cards: tuple[Card, ...]) -> None:
    run(box, "a1", {cards[0]: 300, cards[1]: 100}, HOLD, "200")
    until(lambda: b"held" in output(box, "a1"), "the memory held")
    found = VirtualUse(box.data / "jobs").read(cards)
    used = [card.memory_used_mib or 0 for card in found]
    assert used[2] == 0
    assert 150 <= used[0] <= 190  # three quarters of 200 MiB and of what Python itself needs
    assert abs(used[0] - 3 * used[1]) <= 6
    (holder,) = [p for p in found[0].processes or () if (p.memory_mib or 0) > 100]
    assert holder.member == f"{box.instance}-a1"
    assert holder.name is not None
    assert holder.name.startswith("python")
    assert {p.member for p in found[1].processes or ()} == {f"{box.instance}-a1"}
    assert found[2].processes == ()


def test_use_is_cpu_time_of_what_was_given(box: Box, cards: tuple[Card, ...]) -> None:
    run(box, "a1", {cards[0]: 256}, SPIN, cpu_milli=500)
    run(box, "a2", {cards[1]: 256}, HOLD, "1")
    until(lambda: b"held" in output(box, "a2"), "both run")
    use = VirtualUse(box.data / "jobs")
    first = use.read(cards)
    assert [card.utilisation_pct for card in first] == [None, None, 0]  # a difference needs two looks
    time.sleep(1.5)
    busy, idle, empty = (card.utilisation_pct for card in use.read(cards))
    assert (busy or 0) > 30
    assert (idle, empty) == (0, 0)


def test_a_member_without_cards_uses_none(box: Box, cards: tuple[Card, ...]) -> None:
    run(box, "a1", {}, HOLD, "1")
    until(lambda: b"held" in output(box, "a1"), "it runs")
    assert all(card.processes == () for card in VirtualUse(box.data / "jobs").read(cards))


def test_a_member_can_not_say_that_it_holds_another_card(box: Box, cards: tuple[Card, ...]) -> None:
    lie = f"import os; os.execve('/bin/sleep', ['sleep', '600'], {{'CUDA_VISIBLE_DEVICES': '{cards[1].uuid}'}})"
    run(box, "a1", {cards[0]: 256}, lie)
    found = until(lambda: [c for c in VirtualUse(box.data / "jobs").read(cards) if _names(c, "sleep")], "the lie")
    assert [card.uuid for card in found] == [cards[0].uuid]


def _names(card: Card, name: str) -> bool:
    return any(process.name == name for process in card.processes or ())


def test_members_of_another_portal_are_not_ours(box: Box, cards: tuple[Card, ...], tmp_path: Path) -> None:
    run(box, "a1", {cards[0]: 256}, HOLD, "50")
    until(lambda: b"held" in output(box, "a1"), "the memory held")
    assert VirtualUse(tmp_path / "other" / "jobs").read(cards)[0].processes == ()
    assert VirtualUse(None).read(cards)[0].processes != ()


def test_a_process_that_no_member_owns_and_that_names_a_card_is_on_it(cards: tuple[Card, ...], tmp_path: Path) -> None:
    stranger = {"CUDA_VISIBLE_DEVICES": f"{cards[1].uuid},GPU-none"}
    left = stranger | {"GPU_COMMONS_MEMBER": f"{processes._instance(tmp_path / 'jobs')}-a9"}
    with (
        subprocess.Popen(["sleep", "60"], env=stranger) as first,
        subprocess.Popen(["sleep", "60"], env=left) as second,
    ):
        until(lambda: _names(VirtualUse(tmp_path / "jobs").read(cards)[1], "sleep"), "they run")
        found = VirtualUse(tmp_path / "jobs").read(cards)
        for process in (first, second):
            process.kill()
    members = {process.pid: process.member for process in found[1].processes or ()}
    assert (members[first.pid], members[second.pid]) == (None, left["GPU_COMMONS_MEMBER"])
    assert found[1].utilisation_pct == 0  # no member is on it
    assert found[0].processes == ()


def test_a_virtual_card_is_never_fuller_than_full(box: Box) -> None:
    (small,) = virtual_cards("n001", 1, 20)
    run(box, "a1", {small: 300}, HOLD, "100")
    until(lambda: b"held" in output(box, "a1"), "the memory held")
    (found,) = VirtualUse(box.data / "jobs").read([small])
    assert found.memory_used_mib == 20
    assert sum(process.memory_mib or 0 for process in found.processes or ()) > 90


def test_the_report_has_it_too(box: Box, machine: Machine) -> None:
    machine.jobs = box.data / "jobs"
    mine = machine.print("--virtual-cards", "2", "--virtual-memory-mib", "1024")["cards"]
    card = Card(**{name: mine[1][name] for name in ("uuid", "slot", "serial", "pci", "model", "memory_mib")})
    run(box, "a1", {card: 512}, HOLD, "100")
    until(lambda: b"held" in output(box, "a1"), "the memory held")
    empty, full = machine.print("--virtual-cards", "2", "--virtual-memory-mib", "1024")["cards"]
    assert (empty["memory_used_mib"], empty["processes"]) == (0, [])
    assert 100 <= full["memory_used_mib"] <= 200
    assert {process["member"] for process in full["processes"]} == {f"{box.instance}-a1"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_another_users_process_is_not_believed_to_be_a_shim(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    claim = '{"name": "x-a1", "spec": {"cards": [], "cpu_milli": 1}}'
    (tmp_path / files.SPEC).write_text(claim)
    words = ["/bin/sh", "-c", "read line", "-m", processes.SHIM.decode(), str(tmp_path)]
    waiting = subprocess.PIPE
    with subprocess.Popen(words, stdin=waiting, user=65_534) as false, subprocess.Popen(words, stdin=waiting) as true:
        until(lambda: processes._member(true.pid), "a shim of our own")
        assert processes._member(false.pid) is None
        for process in (false, true):
            process.kill()


def test_the_agent_knows_the_drivers_names_without_importing_them() -> None:
    assert processes.MARKER == process_tree.MARKER
    assert processes.SHIM.decode() == local_shim.__name__
    assert processes.CLAIM == files.SPEC


def test_a_census_knows_this_process() -> None:
    found = take_census().processes[os.getpid()]
    assert (found.parent, found.cpu_ticks > 0) == (os.getppid(), True)
