"""A promise says what was told before submitting; the book says whether it was kept."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, transaction

from ledger import inventory
from ledger.clock import database_now
from ledger.models import Allocation, Job, Node, Project, User
from ledger.vocabulary import HoldKind
from scheduler import placing, promises, queue, whatif
from scheduler.models import Promise
from scheduler.promises import Breach
from scheduler.whatif import Outlook
from tests import factories
from tests.scheduler.flow import turn

pytestmark = pytest.mark.django_db
SHARE = [{"form": "container", "memory_mib": 1000}]


@pytest.fixture(autouse=True)
def people() -> dict[str, User]:
    return factories.cast()


def submitted(asks: list[dict[str, Any]]) -> Job:
    """A job of `researcher` in vision, submitted as the page does: what it would get is told first."""
    researcher = factories.user("researcher")
    data = factories.job_data(researcher, asks=asks, command=["simulate", "--seconds", "3600"])
    told = whatif.outlook(whatif.candidate(data, Project.objects.get(slug="vision")))
    return queue.submit(data=data, actor=researcher, via="page", outlook=told)


def stranger(asks: list[dict[str, Any]] | None = None) -> Job:
    return factories.job(
        factories.user("outsider"), project="outside", asks=asks or SHARE, command=["simulate", "--seconds", "3600"]
    )


def checked(job: Job) -> tuple[list[Breach], list[promises.Guest]]:
    members = list(Allocation.objects.filter(attempt__job=job).select_related("node"))
    company = promises.guests(members[0].attempt_id if members else None)
    return promises.breaches(Promise.objects.get(job=job), members, company), company


def test_it_is_kept_when_the_job_goes_where_it_was_told() -> None:
    factories.node("n1", cards=2)
    stranger()
    placing.place_queued()
    job = submitted(SHARE)
    promise = Promise.objects.get(job=job)
    assert (promise.verdict, promise.neighbours) == ("now", ["outside"])
    assert [(spot["node"], spot["form"]) for spot in promise.spots] == [("n1", "container")]
    assert checked(job) == ([], [])  # it waits: nothing is broken yet
    placing.place_queued()
    broken, (guest,) = checked(job)
    assert broken == []
    assert (guest.project, guest.node, guest.until, guest.at_placement, guest.own) == (
        "outside",
        "n1",
        None,
        True,
        False,
    )


def test_whoever_comes_later_to_a_shared_machine_is_named_and_breaks_nothing() -> None:
    factories.node("n1", cards=2)
    job = submitted(SHARE)
    placing.place_queued()
    stranger()
    placing.place_queued()
    broken, (guest,) = checked(job)
    assert broken == []
    assert (guest.project, guest.at_placement) == ("outside", False)
    assert guest.since > Allocation.objects.get(attempt__job=job).period.lower


def test_a_stranger_who_was_faster_breaks_it() -> None:
    factories.node("n1", cards=2)
    job = submitted(SHARE)
    assert Promise.objects.get(job=job).neighbours == []
    stranger()
    placing.place_queued()  # both in one round: the stranger is there at the same instant
    broken, company = checked(job)
    assert broken == [Breach.COMPANY]
    assert promises.strangers(Promise.objects.get(job=job), company) == {"outside"}


def test_work_of_the_own_project_is_no_stranger() -> None:
    factories.node("n1", cards=2)
    job = submitted(SHARE)
    factories.job(factories.user("member"), asks=SHARE)
    placing.place_queued()
    broken, (guest,) = checked(job)
    assert (broken, guest.project, guest.own) == ([], "vision", True)


def test_another_node_and_another_form_break_it() -> None:
    factories.node("n1", cards=1)
    job = submitted([{"form": "whole"}, {"form": "container", "memory_mib": 1000, "after_s": 0}])
    assert {spot["form"] for spot in Promise.objects.get(job=job).spots} == {"whole"}
    inventory.place_hold(
        node=Node.objects.get(hostname="n1"), kind=HoldKind.DRILL, reason="drill", actor=None, via="test"
    )
    factories.node("n2", cards=1)
    stranger(SHARE)
    Job.objects.filter(project__slug="outside").update(priority=5)
    placing.place_queued()
    broken, company = checked(job)
    assert Allocation.objects.get(attempt__job=job).form == "container"
    assert set(broken) == {Breach.PLACE, Breach.FORM, Breach.COMPANY, Breach.ALONE}
    assert [guest.project for guest in company] == ["outside"]


def test_what_was_told_to_wait_promises_no_place() -> None:
    factories.node("n1", cards=1)
    stranger([{"form": "whole"}])
    turn()
    job = submitted([{"form": "whole"}])
    promise = Promise.objects.get(job=job)
    assert promise.verdict == "later"
    assert promise.expected_at is not None
    assert promise.expected_at > database_now()
    assert checked(job) == ([], [])


def test_without_an_outlook_there_is_no_promise() -> None:
    job = factories.job(asks=SHARE)
    assert not Promise.objects.filter(job=job).exists()
    assert promises.guests(None) == []


def test_a_second_sending_keeps_the_first_promise() -> None:
    factories.node("n1", cards=1)
    researcher = factories.user("researcher")
    data = factories.job_data(researcher, asks=SHARE)
    told = whatif.outlook(whatif.candidate(data, Project.objects.get(slug="vision")))
    first = queue.submit(data=data, actor=researcher, via="page", client_key="k", outlook=told)
    never = Outlook("never", None, (), (), (), 0)
    assert queue.submit(data=data, actor=researcher, via="page", client_key="k", outlook=never).pk == first.pk
    assert [p.verdict for p in Promise.objects.all()] == ["now"]


def test_a_refused_job_leaves_no_promise() -> None:
    factories.node("n1", cards=1)
    data = factories.job_data(factories.user("researcher"), asks=SHARE) | {"project": "outside"}
    told = Outlook("never", None, (), (), (), 0)
    with pytest.raises(queue.Refused):
        queue.submit(data=data, actor=factories.user("researcher"), via="page", outlook=told)
    assert Promise.objects.count() == Job.objects.count() == 0


@pytest.mark.parametrize(
    ("constraint", "values"),
    [
        ("promise_verdict_known", {"verdict": "perhaps"}),
        ("promise_of_now_names_a_place", {"verdict": "now", "spots": []}),
    ],
)
def test_the_database_refuses_a_promise_of_nothing(constraint: str, values: dict[str, Any]) -> None:
    job = factories.job(asks=SHARE)
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        Promise.objects.create(job=job, made_at=database_now(), **{"verdict": "never", **values})


def test_the_guests_of_a_gang_cost_one_query(django_assert_num_queries: Any) -> None:
    factories.node("n1", cards=1)
    factories.node("n2", cards=1)
    job = submitted([{"form": "container", "nodes": 2, "memory_mib": 1000}])
    placing.place_queued()
    stranger()
    placing.place_queued()
    members = Allocation.objects.filter(attempt__job=job)
    assert members.count() == 2
    attempt_id = members[0].attempt_id
    with django_assert_num_queries(1):
        assert [guest.project for guest in promises.guests(attempt_id)] == ["outside"]
