"""Over-use and strays through real reports: what counts, who is ended, what is held and until when."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from django.db.models import Q

from ledger import cases, telemetry
from ledger.clock import database_now
from ledger.holds import end_one
from ledger.inventory import hold_inside
from ledger.models import AgentOrder, Allocation, AuditEvent, Card, CardWatch, Fault, Hold, Job, Node, ShareUse
from ledger.vocabulary import FaultKind, HoldKind, JobState, Need, OrderKind, Outcome, SiteRole
from scheduler import strays, watch
from scheduler.models import SimulatedMember
from tests import factories
from tests.scheduler import flow

pytestmark = pytest.mark.django_db
GIB = 1024
SEQUENCE = itertools.count(1)


@pytest.fixture(autouse=True)
def exact(settings: Any) -> None:
    settings.OVERUSE_TOLERANCE_PERCENT, settings.OVERUSE_TOLERANCE_MIB = 0, 64


def shared(n: int = 2, **values: Any) -> list[Job]:
    """Jobs that share the one card of n1, 4 GiB each."""
    flow.world(cards=1, memory_mib=16 * GIB)
    jobs = [flow.long_job(asks=[{"form": "container", "memory_mib": 4 * GIB} | values]) for _ in range(n)]
    flow.start(*jobs)
    return jobs


def member(job: Job) -> str:
    return flow.open_allocations(job)[0].key


def proc(of: str | None, mib: int | None = 100, pid: int = 7, name: str = "python") -> dict[str, Any]:
    return {"pid": pid, "memory_mib": mib, "member": of, "name": name}


def sample(*processes: dict[str, Any], sequence: int | None = None, boot: str = "b1", told: bool = True) -> bool:
    """A report of the agent of n1, and a pass."""
    node = Node.objects.get(hostname="n1")
    card = {"uuid": "n1-card-0", "slot": 0, "model": "A100", "memory_mib": 16 * GIB, "temperature_c": 40}
    report = {
        "hostname": "n1", "boot_id": boot, "sequence": next(SEQUENCE) if sequence is None else sequence,
        "sent_at": database_now(), "virtual": False, "node": {}, "links": [], "faults": [],
        "cards": [card | ({"processes": list(processes)} if told else {"processes": None})],
    }  # fmt: skip
    taken = telemetry.ingest(node, report).accepted
    watch.look()
    return taken


def use(job: Job) -> ShareUse:
    return ShareUse.objects.get(share__allocation__attempt__job=job)


def open_fault(kind: FaultKind) -> Fault | None:
    return Fault.objects.filter(kind=kind, cleared_at=None).first()


def state(job: Job) -> str:
    return str(Job.objects.get(pk=job.pk).state)


# -- memory over-use ---------------------------------------------------------------------------------------------------


def test_above_its_promise_twice_is_warned_and_a_third_time_ended() -> None:
    offender, neighbour = shared()
    greedy, modest = proc(member(offender), 5 * GIB), proc(member(neighbour), 4 * GIB)
    sample(greedy, modest)
    assert (use(offender).over, use(offender).warned_at, open_fault(FaultKind.OVERUSE)) == (1, None, None)
    sample(greedy, modest)
    fault = open_fault(FaultKind.OVERUSE)
    assert fault is not None
    assert fault.message == "5120 of 4096 MiB"
    told = AuditEvent.objects.get(verb="job.over_memory")
    assert (told.target_id, told.after["used_mib"], told.after["promised_mib"]) == (str(offender.pk), 5120, 4096)
    assert state(offender) == JobState.RUNNING
    sample(greedy, modest)
    attempt = flow.attempt_of(offender)
    assert (state(offender), attempt.outcome) == (JobState.STOPPING, Outcome.OUT_OF_MEMORY)
    assert attempt.message == (
        "it held 5120 MiB of the card in slot 0 of n1, where it was promised 4096 MiB, in 3 samples in a row; it was "
        "ended to protect the work beside it"
    )
    assert (state(neighbour), use(neighbour).over, use(neighbour).used_mib) == (JobState.RUNNING, 0, 4096)
    flow.turn()
    assert (state(offender), state(neighbour)) == (JobState.FAILED, JobState.RUNNING)
    sample(modest)
    assert open_fault(FaultKind.OVERUSE) is None


def test_it_is_ended_once_and_its_end_needs_a_sample_after_the_warning() -> None:
    offender, _ = shared()
    greedy = proc(member(offender), 5 * GIB)
    sample(greedy)
    sample(greedy)
    for _ in range(3):
        watch.look()  # nothing new came
    assert (state(offender), use(offender).over) == (JobState.RUNNING, 2)
    sample(greedy)
    sample(greedy)
    assert AuditEvent.objects.filter(verb="job.stopping", target_id=str(offender.pk)).count() == 1


def test_a_pass_that_was_killed_before_it_warned_is_made_good_without_skipping_the_warning() -> None:
    offender, _ = shared()
    greedy = proc(member(offender), 5 * GIB)
    for _ in range(3):
        sample(greedy)
        ShareUse.objects.update(warned_at=None)
        assert state(offender) == JobState.RUNNING
    watch.look()
    assert use(offender).warned_at is not None
    assert state(offender) == JobState.RUNNING
    sample(greedy)
    assert state(offender) == JobState.STOPPING


def test_the_same_sample_again_and_an_older_one_never_count() -> None:
    offender, _ = shared()
    greedy = proc(member(offender), 5 * GIB)
    sample(greedy, sequence=10**6)
    assert not sample(greedy, sequence=10**6)
    assert not sample(greedy, sequence=10**6 - 5)
    assert use(offender).over == 1
    sample(greedy, sequence=10**6 + 1)
    assert use(offender).over == 2


def test_a_sample_below_begins_anew() -> None:
    offender, _ = shared()
    greedy, modest = proc(member(offender), 5 * GIB), proc(member(offender), GIB)
    for one in (greedy, greedy, modest, greedy, greedy):
        sample(one)
    assert (state(offender), use(offender).over) == (JobState.RUNNING, 2)
    assert AuditEvent.objects.filter(verb="job.over_memory").count() == 2
    assert Fault.objects.get(kind=FaultKind.OVERUSE, cleared_at=None).count == 1


def test_unknown_memory_never_counts_as_over() -> None:
    offender, _ = shared()
    for _ in range(4):
        sample(proc(member(offender), None), proc(member(offender), 100, pid=8))
    assert (use(offender).over, use(offender).used_mib) == (0, None)
    for _ in range(4):
        sample(told=False)
    assert state(offender) == JobState.RUNNING
    assert use(offender).over == 0


@pytest.mark.parametrize(("mib", "over"), [(4 * GIB + 64, 0), (4 * GIB + 65, 1)])
def test_the_tolerance(mib: int, over: int) -> None:
    offender, _ = shared()
    sample(proc(member(offender), mib))
    assert use(offender).over == over


def test_the_larger_tolerance_counts(settings: Any) -> None:
    settings.OVERUSE_TOLERANCE_PERCENT = 5
    assert (watch.tolerance_mib(10_000), watch.tolerance_mib(100)) == (500, 64)


def test_what_was_used_is_forgotten_a_day_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    job, _ = shared()
    sample(proc(member(job), GIB))
    SimulatedMember.objects.update(ends_at=database_now())
    flow.turn()
    flow.turn()
    watch.look()
    assert ShareUse.objects.count() == 2
    monkeypatch.setattr(watch, "KEPT", watch.KEPT * 0)
    watch.look()
    assert not ShareUse.objects.exists()


# -- processes without an allocation -----------------------------------------------------------------------------------


def held() -> Hold | None:
    return Hold.objects.filter(card__uuid="n1-card-0", period__upper_inf=True).first()


def test_a_process_of_no_allocation_takes_the_card_out_until_two_samples_show_it_gone() -> None:
    shared(1)
    stranger = proc("a999999", pid=4711)
    sample(stranger)
    hold, fault = held(), open_fault(FaultKind.ORPHAN)
    assert hold is not None
    assert fault is not None
    assert (hold.kind, hold.rule, hold.by) == (HoldKind.FAULT, "orphan/1", None)
    assert hold.reason == fault.message == "processes without an allocation: 4711 python of a999999"
    waiting = flow.long_job(asks=[{"form": "container", "memory_mib": GIB}])
    flow.turn()
    assert state(waiting) == JobState.QUEUED
    sample()
    watch.look()
    assert held() is not None  # one sample is not enough, however often it is looked at
    sample(told=False)
    assert held() is not None  # nor is one that does not tell
    sample()
    assert (held(), open_fault(FaultKind.ORPHAN)) == (None, None)
    flow.turn()
    assert state(waiting) != JobState.QUEUED


def test_a_silent_agent_ends_nothing() -> None:
    shared(1)
    sample(proc("a999999"))
    sample()
    for _ in range(5):
        watch.look()
    assert held() is not None


def test_a_process_without_a_name_takes_two_samples_on_a_shared_card() -> None:
    shared(1)
    sample(proc(None))
    assert held() is None
    sample(proc(None))
    assert held() is not None


def test_a_process_without_a_name_is_of_who_has_the_whole_card() -> None:
    shared(1, memory_mib=0)
    sample(proc(None))
    sample(proc(None))
    assert held() is None


def test_just_closed_has_its_grace_and_no_more(settings: Any) -> None:
    job, _ = shared()
    key = member(job)
    SimulatedMember.objects.filter(key=key).update(ends_at=database_now())
    flow.turn()
    flow.turn()
    assert not Allocation.objects.filter(Q(period__upper_inf=True), attempt__job=job).exists()
    sample(proc(key))
    assert held() is None
    settings.ORPHAN_GRACE_S = 0
    sample(proc(key))
    assert held() is not None


def test_a_person_who_returns_the_card_too_early_finds_it_held_again() -> None:
    shared(1)
    sample(proc("a999999"))
    hold = held()
    assert hold is not None
    end_one(hold=hold, reason="looks fine", actor=factories.user("operator", SiteRole.OPERATOR), via="test")
    watch.look()
    again = held()
    assert again is not None
    assert again.pk != hold.pk


def test_a_hold_that_became_a_case_is_left_to_it() -> None:
    shared(1)
    sample(proc("a999999"))
    hold = held()
    assert hold is not None
    card = Card.objects.get(uuid="n1-card-0")
    node = Node.objects.get(hostname="n1")
    case = cases.open_inside(node=node, card=card, hold=hold, need=Need.RESET, by_hand=False, now=database_now())
    sample()
    sample()
    assert held() is not None
    assert open_fault(FaultKind.ORPHAN) is None
    assert strays.cards_to_act_on() == []
    assert case.hold_id == hold.pk


def test_a_hold_for_another_fault_stays_when_the_process_is_gone() -> None:
    shared(1)
    card = Card.objects.get(uuid="n1-card-0")
    hold_inside(kind=HoldKind.FAULT, reason="XID 79", actor=None, via="task", card=card, rule="health/1")
    sample(proc("a999999"))
    assert open_fault(FaultKind.ORPHAN) is not None
    sample()
    sample()
    hold = held()
    assert hold is not None
    assert hold.rule == "health/1"
    assert open_fault(FaultKind.ORPHAN) is None


def test_a_test_that_the_agent_was_asked_for_is_no_stray() -> None:
    shared(1)
    card, node = Card.objects.get(uuid="n1-card-0"), Node.objects.get(hostname="n1")
    hold = hold_inside(kind=HoldKind.DRILL, reason="drill", actor=None, via="task", card=card, rule="drill/1")
    case = cases.open_inside(node=node, card=card, hold=hold, need=Need.NOTHING, by_hand=False, now=database_now())
    AgentOrder.objects.create(node=node, card=card, case=case, kind=OrderKind.BURN_IN, issued_at=database_now())
    sample(proc(None))
    sample(proc(None))
    assert open_fault(FaultKind.ORPHAN) is None


@pytest.mark.parametrize("nonsense", [[], ["x"], [None, 3, {"pid": "x", "member": 5, "memory_mib": "9"}]])
def test_nonsense_in_the_list_stops_nobody(nonsense: list[Any]) -> None:
    (job,) = shared(1, memory_mib=0)
    sample(*nonsense)
    assert (state(job), CardWatch.objects.get().strays) == (JobState.RUNNING, [])
