"""The book against a small model: any order of steps gives the states and the free memory that the model says."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from ledger import book, invariants, inventory, opening
from ledger.errors import Conflict
from ledger.fields import Interval
from ledger.models import Attempt, CardSeat, CardShare, Hold, Job, Node, User
from ledger.opening import AttemptOrder, MemberOrder, ShareOrder
from ledger.vocabulary import AttemptState, CommandVerb, Form, HoldKind, JobState, Outcome, ProjectRole
from scheduler import ending, queue
from scheduler.models import Command
from tests import factories

NODES, CARDS, MIB = 3, 4, 16_000
PIECE = MIB // 4  # container shares come in quarters of a card
ENDED = (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)
WORLDS = itertools.count(1)  # each example has nodes of its own
OUTCOMES = (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.LOST)


@dataclass
class Member:
    node: int
    form: Form
    taken: set[tuple[int, int]]  # (card, quarter)
    active: bool = False
    gone: bool = False


@dataclass
class Work:
    """What the model knows of a job."""

    state: JobState = JobState.QUEUED
    attempt: AttemptState | None = None
    tries: int = 0
    outcome: Outcome | None = None
    cancelled: bool = False
    members: dict[int, Member] = field(default_factory=dict)  # allocation id → member


class BookMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        world = next(WORLDS)
        for n in range(NODES):
            factories.node(f"w{world}-n{n}", cards=CARDS, memory_mib=MIB, block=2)
        self.jobs: dict[int, Work] = {}
        self.held_nodes: dict[int, Hold] = {}
        self.held_cards: dict[tuple[int, int], Hold] = {}
        self.user = User.objects.get(username="researcher")
        self.nodes = list(Node.objects.filter(hostname__startswith=f"w{world}-").order_by("hostname"))
        self.seats = [list(CardSeat.objects.filter(node=node).order_by("slot")) for node in self.nodes]
        self.steps = itertools.count(1)

    # -- the model's own arithmetic -----------------------------------------------------------------------------------

    def on_node(self, node: int) -> list[Member]:
        return [m for w in self.jobs.values() for m in w.members.values() if m.node == node and not m.gone]

    def may_take(self, node: int, form: Form, wanted: set[tuple[int, int]]) -> bool:
        others = self.on_node(node)
        cards = {card for card, _ in wanted}
        if node in self.held_nodes or any((node, card) in self.held_cards for card in cards):
            return False
        if any(m.form != form for m in others) or (form == Form.WHOLE and others):
            return False
        return not any(m.taken & wanted for m in others)

    def some(self, number: int, *states: JobState) -> tuple[int, Work] | None:
        found = [(pk, work) for pk, work in sorted(self.jobs.items()) if work.state in states]
        return found[number % len(found)] if found else None

    def open_member(self, number: int) -> tuple[int, int, Work] | None:
        found = [
            (pk, key, work)
            for key, work in sorted(self.jobs.items())
            for pk, member in sorted(work.members.items())
            if not member.gone
        ]
        return found[number % len(found)] if found else None

    # -- steps --------------------------------------------------------------------------------------------------------

    @rule()
    @precondition(lambda self: sum(w.state not in ENDED for w in self.jobs.values()) < 12)
    def submit(self) -> None:
        job = factories.job(self.user, name=f"job {next(self.steps)}")
        self.jobs[job.pk] = Work()

    @rule(
        number=st.integers(0, 99),
        form=st.sampled_from(Form),
        node=st.integers(0, NODES - 1),
        gang=st.booleans(),
        card=st.integers(0, CARDS - 1),
        quarters=st.sets(st.integers(0, 3), min_size=1),
    )
    def place(self, number: int, form: Form, node: int, gang: bool, card: int, quarters: set[int]) -> None:
        picked = self.some(number, *JobState)
        if picked is None:
            return
        pk, work = picked
        nodes = [node, (node + 1) % NODES] if gang else [node]
        wanted = {n: self.pieces(form, card, quarters) for n in nodes}
        expected = all(self.may_take(n, form, wanted[n]) for n in nodes)
        try:
            with transaction.atomic(), transaction.atomic():
                opened = self.open(pk, form, nodes, wanted)
        except Conflict:
            assert work.state != JobState.QUEUED
            return
        except IntegrityError as error:
            assert not expected, error
            return
        assert expected
        assert work.state == JobState.QUEUED
        work.state, work.attempt, work.outcome = JobState.STARTING, AttemptState.STARTING, None
        work.tries += 1
        for allocation_id, n in zip(opened, nodes, strict=True):
            work.members[allocation_id] = Member(n, form, wanted[n])

    def pieces(self, form: Form, card: int, quarters: set[int]) -> set[tuple[int, int]]:
        if form == Form.CONTAINER:
            return {(card, quarter) for quarter in quarters}
        cards = range(CARDS) if form == Form.WHOLE else (0, 1) if card < 2 else (2, 3)
        return {(c, quarter) for c in cards for quarter in range(4)}

    def open(self, pk: int, form: Form, nodes: list[int], wanted: dict[int, Any]) -> list[int]:
        project_id = Job.objects.values_list("project_id", flat=True).get(pk=pk)
        now = opening.lock_for_opening([project_id], [self.nodes[n].pk for n in nodes])
        members = []
        for n in nodes:
            shares = []
            for card in sorted({card for card, _ in wanted[n]}):
                seat = self.seats[n][card]
                memory: list[Interval] = [
                    (quarter * PIECE, (quarter + 1) * PIECE) for c, quarter in sorted(wanted[n]) if c == card
                ]
                block = seat.block_id if form == Form.BLOCK else None
                compute = [] if form == Form.CONTAINER else [(0, 1000)]
                shares.append(ShareOrder(seat.pk, seat.card_id, MIB, block, memory, compute))
            zone_id = self.nodes[n].zone_periods.get().zone_id
            members.append(MemberOrder(self.nodes[n].pk, form, "simulated", zone_id, 100, 100, shares))
        opened = opening.open_attempt(AttemptOrder(pk, project_id, members), now=now)
        opening.record_opened([opened], now=now, via="test", reason="model")
        ids = [member.allocation_id for member in opened.members]
        Command.objects.bulk_create(
            Command(
                allocation_id=each,
                attempt_id=opened.attempt_id,
                driver="simulated",
                verb=CommandVerb.START,
                due_at=now,
                created_at=now,
            )
            for each in ids
        )
        return ids

    @rule(number=st.integers(0, 99))
    def activate(self, number: int) -> None:
        picked = self.open_member(number)
        if picked is None:
            return
        pk, _, work = picked
        began = ending.confirm_running([pk])
        if work.attempt == AttemptState.STOPPING:
            assert began == []
            return
        work.members[pk].active = True
        if all(m.active for m in work.members.values() if not m.gone):
            work.attempt, work.state = AttemptState.RUNNING, JobState.RUNNING
        elif work.attempt == AttemptState.UNKNOWN:
            work.attempt = AttemptState.STARTING

    @rule(number=st.integers(0, 99))
    def lose_the_answer(self, number: int) -> None:
        picked = self.open_member(number)
        if picked is None:
            return
        pk, _, work = picked
        marked = ending.note_unknown(allocation_id=pk, message="no answer")
        assert marked == (work.attempt in (AttemptState.STARTING, AttemptState.RUNNING))
        if marked:
            work.attempt = AttemptState.UNKNOWN

    @rule(number=st.integers(0, 99), outcome=st.sampled_from(OUTCOMES))
    def end(self, number: int, outcome: Outcome) -> None:
        picked = self.open_member(number)
        if picked is None:
            return
        pk, _, work = picked
        attempt = Attempt.objects.get(allocations=pk)
        begun = ending.end_attempt(attempt_id=attempt.pk, outcome=outcome)
        assert begun == (work.attempt != AttemptState.STOPPING)
        if begun:
            work.attempt, work.state, work.outcome = AttemptState.STOPPING, JobState.STOPPING, outcome

    @rule(number=st.integers(0, 99))
    def confirm_gone(self, number: int) -> None:
        picked = self.open_member(number)
        if picked is None:
            return
        pk, _, work = picked
        closed = ending.confirm_closed([pk])
        assert closed == ([pk] if work.attempt == AttemptState.STOPPING else [])
        assert ending.confirm_closed([pk]) == []
        if not closed:
            return
        work.members[pk].gone = True
        if all(m.gone for m in work.members.values()):
            work.attempt = None
            if work.outcome == Outcome.LOST and work.tries < book.MAX_ATTEMPTS and not work.cancelled:
                work.state = JobState.QUEUED
            elif work.cancelled:
                work.state = JobState.CANCELLED
            else:
                work.state = JobState.SUCCEEDED if work.outcome == Outcome.SUCCEEDED else JobState.FAILED

    @rule(number=st.integers(0, 99))
    def cancel(self, number: int) -> None:
        picked = self.some(number, *JobState)
        if picked is None:
            return
        pk, work = picked
        if work.state in ENDED:
            with pytest.raises(Conflict):
                queue.cancel(job_id=pk, actor=self.user, reason="", via="test")
            return
        queue.cancel(job_id=pk, actor=self.user, reason="", via="test")
        if work.state == JobState.QUEUED:
            work.state = JobState.CANCELLED
        elif work.state == JobState.STOPPING:
            work.cancelled = work.cancelled or work.outcome == Outcome.LOST
        else:
            work.attempt, work.state = AttemptState.STOPPING, JobState.STOPPING
            work.outcome, work.cancelled = Outcome.CANCELLED, True

    @rule(node=st.integers(0, NODES - 1), card=st.integers(-1, CARDS - 1))
    def hold_or_return(self, node: int, card: int) -> None:
        key: Any = node if card < 0 else (node, card)
        holds: dict[Any, Hold] = self.held_nodes if card < 0 else self.held_cards  # type: ignore[assignment]
        if key in holds:
            inventory.end_hold(hold_id=holds.pop(key).pk, reason="back", actor=None, via="test")
            return
        what = {"node": self.nodes[node]} if card < 0 else {"card": self.seats[node][card].card}
        holds[key] = inventory.place_hold(kind=HoldKind.DRILL, reason="drill", actor=None, via="test", **what)
        again = inventory.place_hold(kind=HoldKind.DRILL, reason="drill", actor=None, via="test", **what)
        assert again.pk == holds[key].pk

    # -- what must hold after each step -------------------------------------------------------------------------------

    @invariant()
    def states_agree(self) -> None:
        rows = Job.objects.filter(pk__in=self.jobs).values_list("pk", "state")
        assert dict(rows) == {pk: work.state for pk, work in self.jobs.items()}
        live = Attempt.objects.filter(job__in=self.jobs).exclude(state=AttemptState.ENDED)
        assert dict(live.values_list("job_id", "state")) == {
            pk: work.attempt for pk, work in self.jobs.items() if work.attempt
        }

    @invariant()
    def free_memory_agrees(self) -> None:
        taken: dict[tuple[int, int], int] = {}
        for share in CardShare.objects.filter(period__upper_inf=True, node__in=self.nodes):
            key = share.node_id, share.card_id
            taken[key] = taken.get(key, 0) + share.memory_mib
        expected: dict[tuple[int, int], int] = {}
        for n in range(NODES):
            for member in self.on_node(n):
                for card, _ in member.taken:
                    key = self.nodes[n].pk, self.seats[n][card].card_id
                    expected[key] = expected.get(key, 0) + PIECE
        assert taken == expected

    @invariant()
    def books_are_clean(self) -> None:
        if next(self.steps) % 5 == 0:
            assert invariants.check() == []


@pytest.mark.django_db
def test_the_book_does_what_the_model_says() -> None:
    factories.project("vision", researcher=ProjectRole.MEMBER)
    run_state_machine_as_test(
        BookMachine,
        settings=settings(
            max_examples=10,
            stateful_step_count=40,
            derandomize=True,
            deadline=None,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
