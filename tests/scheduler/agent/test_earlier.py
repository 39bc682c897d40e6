"""Samples of the time when the portal was away: kept in memory, bounded, sent once it is back, and never for ever."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from scheduler.agent.memory import Memory
from scheduler.agent.model import Fault
from scheduler.agent.order_book import Result
from scheduler.agent.outbox import MAX_EARLIER, MOST_KEPT, REST_AFTER_REFUSAL, Outbox, Parcel
from scheduler.agent.spool import Spool
from tests.scheduler.agent.conftest import Machine, Portal, h100, until

CARD = {"uuid": "GPU-a", "temperature_c": 41, "lost": False, "processes": [], "model": "H100"} | dict.fromkeys(
    ("utilisation_pct", "tensor_pct", "memory_busy_pct", "power_mw", "memory_used_mib")
)
BODY: dict[str, Any] = {"cards": [CARD]}


def fault(number: int) -> Fault:
    return Fault(f"boot-1:kmsg:{number}", "xid", 79, None, None, "2026-01-01T00:00:00+00:00", "")


def outbox(folder: Path, samples: int) -> Outbox:
    box = Outbox(Spool(folder, "boot-1"))
    for sequence in range(samples):
        box.keep(sequence, f"at {sequence}", BODY)
    return box


def sequences(parcel: Parcel) -> list[int]:
    return [sample["sequence"] for sample in parcel.earlier]


def test_the_newest_thousand_are_kept_and_go_a_hundred_a_report(tmp_path: Path) -> None:
    box, sent = outbox(tmp_path, MOST_KEPT + 50), []
    while box.more:
        parcel = box.pack()
        assert len(parcel.earlier) <= MAX_EARLIER
        sent += sequences(parcel)
        box.accepted(parcel)
    assert sent == list(range(50, MOST_KEPT + 50))
    assert box.pack() == Parcel()


def test_a_sample_holds_the_measures_of_cards_that_are_there(tmp_path: Path) -> None:
    box = Outbox(Spool(tmp_path, "boot-1"))
    box.keep(7, "then", {"cards": [CARD, CARD | {"uuid": "GPU-b", "lost": True}]})
    box.keep(8, "then", {"cards": []})
    (sample,) = box.pack().earlier
    assert (sample["sequence"], sample["sent_at"]) == (7, "then")
    assert sample["cards"] == [
        {name: value for name, value in CARD.items() if name not in ("lost", "processes", "model")}
    ]


def test_one_sample_that_the_portal_refuses_is_given_up_and_no_other(tmp_path: Path) -> None:
    box, taken = outbox(tmp_path, 60), []
    for _ in range(40):
        parcel = box.pack()
        if 33 in sequences(parcel):
            box.refused(parcel)
        else:
            taken += sequences(parcel)
            box.accepted(parcel)
    assert taken == [n for n in range(60) if n != 33]
    assert not box.more


def test_a_look_that_is_refused_for_itself_costs_one_sample_and_one_place_in_the_queue(tmp_path: Path) -> None:
    box = outbox(tmp_path, 200)
    for _ in range(30):
        box.refused(box.pack())
    assert box.pack() == Parcel()
    box.accepted(Parcel())
    left = []
    while box.more:
        parcel = box.pack()
        left += sequences(parcel)
        box.accepted(parcel)
    assert left == list(range(1, 200))


def test_results_that_are_refused_rest_and_block_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "boot-1")
    spool.record([fault(1)], Memory("boot-1"))
    spool.begin_order(5)
    spool.end_order(Result(5, True, 1.0, "odd"))
    box, refusals = Outbox(spool), 0
    for _ in range(REST_AFTER_REFUSAL):
        parcel = box.pack()
        if parcel.results:
            box.refused(parcel)
            refusals += 1
        else:
            box.accepted(parcel)
    assert (spool.pending, refusals) == (0, 2)  # once with the fault, once alone
    for _ in range(REST_AFTER_REFUSAL):
        box.accepted(box.pack())
    assert spool.orders.untold(1) == ()


def test_an_outage_of_the_portal_leaves_no_gap_in_the_history(machine: Machine, portal: Portal) -> None:
    machine.set(h100(0, temperature=50))
    portal.answer = lambda report: (503, "restarting")
    agent = machine.start(portal.url)
    until(lambda: len(portal.reports) >= 2, "reports that were not taken")
    portal.close()
    machine.set(h100(0, temperature=60))
    until(lambda: machine.looks() > 10, "looks while nobody listens")
    portal.answer = lambda report: (202, "")
    portal.open()
    until(lambda: portal.accepted and len(portal.accepted) > 3, "reports after the outage")
    machine.stop(agent)
    samples = [sample for report in portal.accepted for sample in report["earlier"]]
    told = sorted(sample["sequence"] for sample in [*samples, *portal.accepted])
    assert all(a + 1 == b for a, b in pairwise(told))  # each look once, from the first on
    assert told[0] == portal.reports[0]["sequence"]
    assert {sample["cards"][0]["temperature_c"] for sample in samples} == {50, 60}
    assert all(a["sent_at"] < b["sent_at"] for a, b in pairwise(samples))
    assert portal.accepted[-1]["earlier"] == []


def test_a_refused_report_is_not_sent_again_later(machine: Machine, portal: Portal) -> None:
    machine.set(h100(0))
    portal.answer = lambda report: (422, "wrong") if len(portal.reports) < 3 else (202, "")
    agent = machine.start(portal.url)
    until(lambda: len(portal.accepted) > 2, "accepted reports")
    machine.stop(agent)
    refused = {report["sequence"] for report in portal.reports[:2]}
    assert refused.isdisjoint(sample["sequence"] for report in portal.accepted for sample in report["earlier"])
