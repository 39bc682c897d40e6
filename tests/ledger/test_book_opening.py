"""Opening many attempts at once: in order, each with its own number and fence, and all or none of what is asked for."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, transaction

from ledger import opening
from ledger.book import Ending, begin_close_many, close_many
from ledger.clock import database_now
from ledger.errors import Conflict
from ledger.models import Allocation, Attempt, CardSeat, CardShare, Job, Node
from ledger.opening import AttemptOrder, MemberOrder, ShareOrder
from ledger.vocabulary import Form, JobState, Outcome, ProjectRole
from tests import factories

pytestmark = [pytest.mark.django_db, pytest.mark.breaks_books]  # no audit, no commands: the callers write them
MIB = 16_000


@pytest.fixture
def node() -> Node:
    factories.project("vision", researcher=ProjectRole.MEMBER)
    return factories.node("n1", cards=4, memory_mib=MIB)


def _order(job: Job, node: Node, *slots: int) -> AttemptOrder:
    """Whole cards of one node for a container."""
    seats = CardSeat.objects.filter(node=node, slot__in=slots).order_by("slot")
    shares = [ShareOrder(seat.pk, seat.card_id, MIB, None, [(0, MIB)]) for seat in seats]
    zone_id = node.zone_periods.get().zone_id
    return AttemptOrder(
        job.pk, job.project_id, [MemberOrder(node.pk, Form.CONTAINER, "simulated", zone_id, 1, 1, shares)]
    )


def test_answers_come_in_the_order_of_the_orders(node: Node) -> None:
    jobs = [factories.job() for _ in range(3)]
    orders = [_order(job, node, slot) for job, slot in zip(reversed(jobs), (0, 1, 2), strict=True)]
    opened = opening.open_attempts(orders, now=database_now())
    assert [one.job_id for one in opened] == [job.pk for job in reversed(jobs)]
    assert dict(Attempt.objects.values_list("pk", "job_id")) == {one.attempt_id: one.job_id for one in opened}
    assert dict(Allocation.objects.values_list("pk", "attempt_id")) == {
        member.allocation_id: one.attempt_id for one in opened for member in one.members
    }
    assert Attempt.objects.values("fence").distinct().count() == 3
    shares = CardShare.objects.values_list("allocation__attempt__job_id", "seat__slot")
    assert set(shares) == {(order.job_id, slot) for order, slot in zip(orders, (0, 1, 2), strict=True)}


def test_jobs_that_no_longer_wait_are_left_out(node: Node) -> None:
    gone, waiting = factories.job(), factories.job()
    Job.objects.filter(pk=gone.pk).update(state=JobState.CANCELLED)
    orders = [_order(gone, node, 0), _order(waiting, node, 1)]
    opened = opening.open_attempts(orders, now=database_now())
    assert [one.job_id for one in opened] == [waiting.pk]
    assert Attempt.objects.count() == Allocation.objects.count() == 1
    with pytest.raises(Conflict):
        opening.open_attempt(orders[0], now=database_now())


def test_one_that_is_refused_takes_all_of_them_back(node: Node) -> None:
    jobs = [factories.job() for _ in range(3)]
    orders = [_order(job, node, slot) for job, slot in zip(jobs, (0, 1, 1), strict=True)]
    with pytest.raises(IntegrityError, match="card_never_double_booked"), transaction.atomic():
        opening.open_attempts(orders, now=database_now())
    assert not Attempt.objects.exists()
    assert set(Job.objects.values_list("state", flat=True)) == {JobState.QUEUED}


def test_a_second_try_has_the_next_number_and_a_higher_fence(node: Node) -> None:
    old, new = factories.job(), factories.job()
    first = opening.open_attempt(_order(old, node, 0), now=database_now())
    begin_close_many([Ending(first.attempt_id, Outcome.LOST)])
    close_many([member.allocation_id for member in first.members])
    opened = opening.open_attempts([_order(old, node, 1), _order(new, node, 2)], now=database_now())
    assert [one.n for one in opened] == [2, 1]
    fences = dict(Attempt.objects.values_list("pk", "fence"))
    assert min(fences[one.attempt_id] for one in opened) > fences[first.attempt_id]


@pytest.mark.django_db(transaction=True)
def test_nothing_is_opened_outside_a_transaction() -> None:
    with pytest.raises(RuntimeError, match="transaction"):
        opening.open_attempts([], now=database_now())
