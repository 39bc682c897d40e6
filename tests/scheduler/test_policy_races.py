"""Two people who change one policy at once: both are kept in order, or the second is told; never two in force."""

from __future__ import annotations

import pytest

from ledger.acts import Act
from ledger.errors import Conflict
from ledger.models import AuditEvent
from scheduler.policy import Scope, Terms
from scheduler.policy_changes import NONE, put_version, withdraw
from scheduler.policy_rows import JobPolicy, PolicyVersion
from tests import factories
from tests.scheduler.test_races import THREADS, at_once

pytestmark = pytest.mark.django_db(transaction=True)


def test_versions_of_eight_at_once_follow_each_other() -> None:
    act = Act(factories.cast()["manager"], "test", "at once")
    works = [lambda n=n: put_version(scope=Scope(), terms=Terms(priority_default=n), act=act) for n in range(THREADS)]
    answers = at_once(works)
    assert all(isinstance(answer, PolicyVersion) for answer in answers), answers
    rows = list(PolicyVersion.objects.order_by("number"))
    assert [row.number for row in rows] == list(range(1, THREADS + 1))
    assert sum(1 for row in rows if row.period.upper is None) == JobPolicy.objects.count() == 1
    assert AuditEvent.objects.filter(verb="policy.set").count() == THREADS


def test_of_eight_who_saw_the_same_one_is_taken() -> None:
    people = factories.cast()
    act = Act(people["manager"], "test", "at once")
    scope = Scope(kind="training")
    works = [
        lambda n=n: put_version(scope=scope, terms=Terms(priority_default=n), act=act, shown=NONE)
        for n in range(THREADS)
    ]
    answers = at_once(works)
    assert sum(isinstance(answer, PolicyVersion) for answer in answers) == 1
    assert sum(isinstance(answer, Conflict) for answer in answers) == THREADS - 1
    both = at_once(
        [
            lambda: withdraw(scope=scope, act=act, shown=1),
            lambda: put_version(scope=scope, terms=Terms(priority_most=1), act=act, shown=1),
        ]
    )
    assert sum(isinstance(answer, Conflict) for answer in both) == 1, both
    assert [row.number for row in PolicyVersion.objects.order_by("number")] == [1, 2]
