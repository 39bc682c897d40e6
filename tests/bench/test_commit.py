"""The benchmark of commits, small: all that fits is placed, on clean books, and its parts say what they measured."""

from __future__ import annotations

import pytest

from ledger.models import Allocation, AuditEvent, CardShare, Job
from scheduler.models import Command, Decision
from tests.bench import commit

NODES, JOBS = 40, 60


@pytest.mark.django_db(transaction=True)
@pytest.mark.breaks_books  # rows past the book: no audit of each start, no commands
def test_the_parts_of_the_benchmark_do_what_they_say() -> None:
    commit.fill(NODES, history=80)
    assert commit.start() > 0
    before = Allocation.objects.count()
    rates = commit.rate(JOBS, NODES)
    first = rates["mixed"]
    assert (first["looked_at"], first["refused"]) == (JOBS, {})
    assert first["placed"] >= 0.95 * JOBS  # of 40 nodes only two are free for whole machines
    placed = Job.objects.filter(state="starting")
    allocations = Allocation.objects.filter(attempt__job__in=placed)
    assert allocations.count() == Allocation.objects.count() - before == Command.objects.filter(verb="start").count()
    assert placed.count() == Decision.objects.exclude(attempt=None).count()
    assert placed.count() == AuditEvent.objects.filter(verb="job.placed").count()
    assert CardShare.objects.filter(allocation__in=allocations).count() >= placed.count()
    assert first["commit_ms"]["insert ledger_cardshare"][0] == first["commit_ms"]["commit"][0] == 1

    found = commit.passes(JOBS)
    assert found["first"]["placed"] < 0.2 * JOBS  # what was left free for it
    assert found["idle"]["worst"]["placed"] == 0
    assert found["with_news"]["worst"]["placed"] == commit.NEWS
    assert found["idle"]["worst"]["reloads"] == found["with_news"]["worst"]["reloads"] == 0

    came = commit.stream(20, 1)
    assert came["placed"] == came["submitted"] == 20
