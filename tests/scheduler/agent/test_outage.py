"""The agent against a portal that is away: no fault is lost, none changes, the sequence only grows."""

from __future__ import annotations

import re
import resource
import signal
from itertools import pairwise

import pytest

from scheduler.agent.__main__ import arguments
from tests.scheduler.agent.conftest import TOKEN, Machine, Portal, h100, until

GPU0 = "GPU-00000000-1111-2222-3333-444444444444"


def test_a_report_goes_to_the_portal_with_the_token(machine: Machine, portal: Portal) -> None:
    machine.set(h100(0))
    done = machine.once(portal.url + "/")
    assert done.returncode == 0, done.stderr
    assert portal.requests == [("/api/v1/agents/reports/", f"Agent {TOKEN}")]
    assert portal.reports[0]["cards"][0]["uuid"] == GPU0


def test_once_fails_when_the_portal_is_away_and_keeps_the_fault(machine: Machine, portal: Portal) -> None:
    machine.xid(5, 79)
    portal.close()
    assert machine.once(portal.url, "--virtual-cards", "1").returncode == 1
    machine.kmsg.write_text("")  # the ring buffer has moved on meanwhile
    portal.open()
    assert machine.once(portal.url, "--virtual-cards", "1").returncode == 0
    assert portal.codes() == [79]


def test_an_outage_loses_no_fault_and_changes_none(machine: Machine, portal: Portal) -> None:
    machine.set(h100(0))
    machine.xid(10, 31)
    portal.answer = lambda report: (503, "restarting")
    agent = machine.start(portal.url)
    until(lambda: portal.reports, "a report during the outage")
    machine.xid(11, 43)
    until(lambda: {fault["code"] for report in portal.reports for fault in report["faults"]} >= {31, 43}, "both tried")
    portal.close()  # now nobody listens at all
    machine.set(h100(0, ecc_volatile=2))
    machine.xid(12, 79)
    portal.answer = lambda report: (202, "")
    portal.open()
    until(lambda: len(portal.faults()) == 4, "all four faults accepted")
    count = len(portal.accepted)
    until(lambda: len(portal.accepted) > count + 2, "reports after the outage")
    machine.stop(agent)
    assert portal.codes() == [31, 43, 79]
    assert all(report["faults"] == [] for report in portal.accepted[count:])


def test_a_fault_survives_kill_9_in_the_middle_of_an_outage(machine: Machine, portal: Portal) -> None:
    machine.set(h100(0))
    machine.xid(10, 31)
    portal.answer = lambda report: (500, "")
    agent = machine.start(portal.url)
    until(lambda: any(report["faults"] for report in portal.reports), "the fault tried")
    machine.stop(agent, signal.SIGKILL)
    tried = next(fault for report in portal.reports for fault in report["faults"])
    machine.kmsg.write_text("")
    machine.xid(11, 79)
    agent = machine.start(portal.url)
    count = len(portal.reports)
    until(lambda: len(portal.reports) > count, "a report of the second agent")
    machine.stop(agent, signal.SIGKILL)
    portal.answer = lambda report: (202, "")
    assert machine.once(portal.url).returncode == 0
    assert portal.codes() == [31, 79]
    assert portal.faults()[tried["id"]] == tried


def test_a_lost_reply_sends_the_same_fault_again(machine: Machine, portal: Portal) -> None:
    machine.xid(10, 31)
    portal.answer = lambda report: None
    assert machine.once(portal.url, "--virtual-cards", "1").returncode == 1
    portal.answer = lambda report: (200, "")
    assert machine.once(portal.url, "--virtual-cards", "1").returncode == 0
    assert portal.reports[0]["faults"] == portal.reports[1]["faults"] != []


def test_the_sequence_grows_across_restarts_and_kills(machine: Machine, portal: Portal) -> None:
    for how in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
        agent = machine.start(portal.url, "--virtual-cards", "1")
        count = len(portal.reports)
        until(lambda count=count: len(portal.reports) > count + 2, "three more reports")
        machine.stop(agent, how)
    sequences = [report["sequence"] for report in portal.reports]
    assert all(a < b for a, b in pairwise(sequences))


def test_more_faults_than_fit_in_a_report_go_in_order(machine: Machine, portal: Portal) -> None:
    for sequence in range(10, 1210):
        machine.xid(sequence, 31)
    agent = machine.start(portal.url, "--virtual-cards", "1")
    until(lambda: len(portal.faults()) == 1200, "all faults accepted")
    machine.stop(agent)
    assert [len(report["faults"]) for report in portal.accepted[:3]] == [500, 500, 200]
    order = [int(name.rsplit(":", 1)[1]) for name in portal.faults()]
    assert order == sorted(order)


def test_one_fault_the_portal_refuses_blocks_neither_others_nor_samples(machine: Machine, portal: Portal) -> None:
    for sequence, code in ((10, 666), (11, 31), (12, 79)):
        machine.xid(sequence, code)

    def answer(report: dict[str, object]) -> tuple[int, str]:
        return (422, "no such code") if '"code": 666' in _text(report) else (202, "")

    portal.answer = answer
    agent = machine.start(portal.url, "--virtual-cards", "1")
    until(lambda: portal.codes() == [31, 79], "the two good faults")
    count = len(portal.accepted)
    until(lambda: len(portal.accepted) > count, "a sample past the bad fault")
    log = machine.stop(agent)
    assert "the portal refused the report: 422 no such code" in log
    portal.answer = lambda report: (202, "")
    assert machine.once(portal.url, "--virtual-cards", "1").returncode == 0
    assert portal.codes() == [31, 79, 666]


def _text(report: dict[str, object]) -> str:
    return str(report).replace("'", '"')


def test_a_lost_card_is_one_fault_each_time_it_is_lost(machine: Machine, portal: Portal) -> None:
    machine.set(h100(0), h100(1))
    agent = machine.start(portal.url)
    until(lambda: portal.accepted, "a first report")
    for number in (1, 2):
        machine.set(h100(0, open="!15"), h100(1))
        until(lambda number=number: len(portal.faults()) == number, "the loss")
        until(lambda: portal.accepted[-1]["cards"][0]["lost"], "the card lost")
        count = len(portal.accepted)
        until(lambda count=count: len(portal.accepted) > count + 1, "more reports while it is lost")
        machine.set(h100(0), h100(1))
        until(lambda: not portal.accepted[-1]["cards"][0]["lost"], "the card back")
    machine.stop(agent)
    lost = next(report for report in portal.accepted if report["cards"][0]["lost"])["cards"]
    assert [(card["uuid"], card["lost"], card["memory_mib"]) for card in lost] == [
        (GPU0, True, 81559),
        (GPU0.replace("00000000", "00000001", 1), False, 81559),
    ]
    assert [fault["id"].split(":nvml:")[1] for fault in portal.faults().values()] == [
        f"{GPU0}:lost:1",
        f"{GPU0}:lost:2",
    ]


def test_a_card_that_is_no_longer_listed_is_lost_also_after_a_restart(machine: Machine, portal: Portal) -> None:
    machine.set(h100(0), h100(1))
    assert machine.once(portal.url).returncode == 0
    machine.set({key.replace("1.", "0.", 1): value for key, value in h100(1).items()})
    assert machine.once(portal.url).returncode == 0
    assert machine.once(portal.url).returncode == 0
    lost = {card["uuid"]: card["lost"] for card in portal.accepted[-1]["cards"]}
    assert lost == {GPU0: True, GPU0.replace("00000000", "00000001", 1): False}
    assert [fault["card_uuid"] for fault in portal.faults().values()] == [GPU0]


def test_a_hanging_driver_leaves_known_cards_unknown_but_not_lost(machine: Machine, portal: Portal) -> None:
    machine.set(h100(0))
    agent = machine.start(portal.url, "--nvml-timeout", "0.2")
    until(lambda: portal.accepted and portal.accepted[-1]["cards"], "a first report")
    machine.set(h100(0), hang=60)
    until(lambda: portal.accepted[-1]["cards"][0]["error"], "a report that says so")
    card = portal.accepted[-1]["cards"][0]
    machine.stop(agent)
    assert (card["uuid"], card["lost"], card["temperature_c"]) == (GPU0, False, None)
    assert card["error"] == "NVML did not answer within 0.2 s"
    assert portal.faults() == {}


def test_sigterm_ends_it_cleanly_even_while_the_portal_keeps_it_waiting(machine: Machine, portal: Portal) -> None:
    def answer(report: dict[str, object]) -> tuple[int, str]:
        until(lambda: agent.poll() is not None, "the agent gone")
        return 202, ""

    portal.answer = answer
    agent = machine.start(portal.url, "--virtual-cards", "1")
    until(lambda: portal.reports, "a report under way")
    log = machine.stop(agent)
    assert agent.returncode == 0
    assert "stopped while waiting" in log
    assert "Traceback" not in log


def test_a_full_disk_delays_a_fault_and_does_not_lose_it(machine: Machine, portal: Portal) -> None:
    agent = machine.start(portal.url, "--virtual-cards", "1")
    until(lambda: portal.accepted, "a first report")
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.prlimit(agent.pid, resource.RLIMIT_FSIZE, (0, hard))
    machine.xid(10, 79)
    assert agent.stdout is not None
    while "this look failed" not in agent.stdout.readline():
        assert agent.poll() is None
    assert portal.codes() == []
    resource.prlimit(agent.pid, resource.RLIMIT_FSIZE, (hard, hard))
    until(lambda: portal.codes() == [79], "the fault accepted")
    machine.stop(agent)


def test_the_token_never_reaches_a_log(machine: Machine, portal: Portal) -> None:
    portal.answer = lambda report: (400, f"bad header Agent {TOKEN}")
    refused = machine.once(portal.url, "--virtual-cards", "1")
    portal.close()
    away = machine.once(portal.url, "--virtual-cards", "1")
    machine.token_file.write_text(f"{TOKEN}\nsecond line {TOKEN}\n")
    broken = machine.once(portal.url, "--virtual-cards", "1")
    assert (refused.returncode, away.returncode, broken.returncode) == (1, 1, 1)
    assert "bad header Agent ***" in refused.stderr
    assert "no usable token" in broken.stderr
    for done in (refused, away, broken):
        assert TOKEN not in done.stdout + done.stderr
    assert all(TOKEN not in path.read_text() for path in machine.spool.iterdir())


def test_a_redirect_is_not_followed(machine: Machine, portal: Portal) -> None:
    elsewhere = Portal().open()
    portal.location = elsewhere.url + "/api/v1/agents/reports/"
    portal.answer = lambda report: (307, "")
    assert machine.once(portal.url, "--virtual-cards", "1").returncode == 1
    elsewhere.close()
    assert elsewhere.requests == []


def test_a_second_agent_on_the_same_spool_is_refused(machine: Machine, portal: Portal) -> None:
    agent = machine.start(portal.url, "--virtual-cards", "1")
    until(lambda: portal.accepted, "a first report")
    second = machine.once(portal.url, "--virtual-cards", "1")
    assert agent.poll() is None
    assert (second.returncode, "another agent is using" in second.stderr) == (2, True)


def test_a_new_token_works_without_a_restart(machine: Machine, portal: Portal) -> None:
    agent = machine.start(portal.url, "--virtual-cards", "1")
    until(lambda: portal.accepted, "a first report")
    machine.token_file.write_text("fresh\n")
    until(lambda: portal.requests[-1][1] == "Agent fresh", "the new token used")
    machine.stop(agent)


@pytest.mark.parametrize("argv", [["--once"], ["--print", "--virtual-cards", "-1"], ["--print", "--interval", "nan"]])
def test_wrong_arguments_are_explained(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        arguments(argv)
    assert re.search(r"error: .*(needed|must be)", capsys.readouterr().err)
