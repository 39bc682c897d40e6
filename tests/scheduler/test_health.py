"""Jobs that hardware hit end, are tried again elsewhere and get back what they used; the others go on. Nothing is
placed on what is held, nor on a card whose links are held but work on itself."""

from __future__ import annotations

import random
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from ledger import faults, invariants, inventory, quarters, quota, refunds
from ledger.acts import Act
from ledger.clock import database_now
from ledger.models import (
    Attempt,
    Card,
    CardShare,
    CardStatus,
    HealthEvent,
    Hold,
    Job,
    Node,
    NodeBoot,
    Project,
    QuotaGrant,
    Refund,
)
from ledger.quota import Terms
from ledger.vocabulary import FaultKind, HoldKind, JobState, Outcome, Resource, SiteRole
from scheduler import health, offers, placing, snapshot, standings
from scheduler.ending import end_attempt
from tests import factories
from tests.scheduler import flow

FULL = {"form": "container", "memory_mib": 0}


def count(
    node: Node, code: int | None, on: Card | None, kind: FaultKind = FaultKind.XID, message: str = ""
) -> HealthEvent:
    with transaction.atomic(durable=True):
        inventory.lock_node(node.pk)
        faults.count_inside(node=node, card=on, kind=kind, code=code, message=message, now=database_now())
    return HealthEvent.objects.order_by("-pk")[0]


def place_of(job: Job) -> tuple[Node, Card]:
    share = CardShare.objects.filter(allocation__attempt__job=job).latest("pk")
    return share.node, share.card


def followed() -> dict[str, Any]:
    found = health.follow_all()
    flow.turn()
    return found


def used(project: str = "vision") -> int:
    """Of a budget, milli-card-seconds."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT ledger_projects_use(ARRAY[%s::bigint], 'card_milli_s', '', '-infinity')",
            [Project.objects.get(slug=project).pk],
        )
        return int(cursor.fetchone()[0])


def rewind(hours: int) -> None:
    """All has stood for so long; machines an hour longer."""
    with connection.cursor() as cursor:
        for table, more in (("cardseat", 1), ("nodezone", 1), ("allocation", 0)):
            cursor.execute(
                f"UPDATE ledger_{table} SET period = tstzrange(lower(period) - %s * interval '1 hour', NULL)",
                [hours + more],
            )


@pytest.mark.django_db
def test_a_job_on_a_bad_card_is_tried_again_elsewhere_and_refunded() -> None:
    flow.world(nodes=2, cards=1)
    job = flow.long_job(asks=[FULL])
    flow.start(job)
    node, card = place_of(job)
    event = count(node, 48, card)
    assert followed()["ended"] == 1
    flow.start(job)
    first, again = job.attempts.order_by("n")
    assert (first.outcome, job.state) == (Outcome.HARDWARE, JobState.RUNNING)
    assert "xid 48" in first.message
    assert place_of(job)[0] != node
    event.refresh_from_db()
    assert (event.attempts, event.done_at is not None) == ([first.pk], True)
    before = used()
    assert followed()["refunded"] == 1
    refund = Refund.objects.get()
    assert (refund.attempt, refund.event, refund.card_milli_s > 0) == (first, event, True)
    assert before - used() == pytest.approx(refund.card_milli_s, abs=2_000)
    for _ in range(3):
        assert followed()["refunded"] == 0
    assert Refund.objects.count() == 1
    assert again.outcome == ""


@pytest.mark.django_db
@pytest.mark.parametrize(("code", "ended"), [(63, 0), (74, 0), (9999, 0), (13, 0), (95, 2), (119, 2), (79, 2)])
def test_which_faults_end_what_runs_on_the_card(code: int, ended: int) -> None:
    flow.world(nodes=2, cards=1)
    flow.start(flow.long_job(asks=[FULL]))
    jobs = [flow.long_job(asks=[{"form": "container", "memory_mib": 7_000}]) for _ in range(2)]
    flow.start(*jobs)
    node, card = place_of(jobs[0])
    assert CardShare.objects.filter(card=card).count() == 2
    count(node, code, card)
    assert health.follow_all().get("ended", 0) == ended
    outcomes = Attempt.objects.filter(outcome=Outcome.HARDWARE)
    assert outcomes.count() == ended
    assert {share.card_id for one in outcomes for a in one.allocations.all() for share in a.shares.all()} <= {card.pk}


@pytest.mark.django_db
def test_of_a_contained_error_only_the_job_that_was_hit_ends() -> None:
    flow.world(nodes=1, cards=1)
    jobs = [flow.long_job(asks=[{"form": "container", "memory_mib": 1_000}]) for _ in range(3)]
    flow.start(*jobs)
    node, card = place_of(jobs[0])
    hit = flow.open_allocations(jobs[1])[0]
    boot = NodeBoot.objects.create(node=node, boot_id="b", first_seen=database_now())
    # as the local driver names them; what an agent lists may be nonsense or name work of another card
    odd = ["python", {"pid": 78, "member": None}, {"pid": 79, "member": "0123abcd-a999999"}]
    processes = [*odd, {"pid": 77, "member": f"0123abcd-{hit.key}"}]
    CardStatus.objects.create(card=card, boot=boot, sequence=1, received_at=database_now(), processes=processes)
    event = count(node, 94, card, message="NVRM: Xid (PCI:0000:1b:00): 94, pid=77, name=python, Contained")
    assert event.hit == hit.pk
    assert health.follow_all()["ended"] == 1
    assert Attempt.objects.get(outcome=Outcome.HARDWARE).job == jobs[1]
    other = count(node, 94, card, message="94, pid=79, name=python")
    assert other.hit is None
    assert health.follow_all()["ended"] == 2  # nobody can tell whose it was


@pytest.mark.django_db
def test_a_fault_of_a_node_that_names_no_card_lets_work_go_on() -> None:
    flow.world(nodes=1, cards=1)
    job = flow.long_job()
    flow.start(job)
    event = count(Node.objects.get(), 79, None)
    assert health.follow_all().get("ended", 0) == 0
    event.refresh_from_db()
    assert (event.attempts, event.done_at is not None) == ([], True)


@pytest.mark.django_db
def test_a_gang_ends_as_a_whole_and_other_work_on_a_held_node_goes_on() -> None:
    flow.world(nodes=2, cards=2)
    gang = flow.long_job(asks=[{"form": "container", "memory_mib": 16_000, "nodes": 2}])
    other = flow.long_job(asks=[FULL])
    flow.start(gang, other)
    node = place_of(other)[0]
    card = CardShare.objects.get(allocation__attempt__job=gang, node=node).card
    count(node, 79, card)
    assert health.follow_all()["ended"] == 1
    gang.refresh_from_db()
    other.refresh_from_db()
    assert (gang.state, other.state) == (JobState.STOPPING, JobState.RUNNING)


@pytest.mark.django_db
def test_what_failed_by_itself_just_before_its_card_was_known_bad_is_refunded_too() -> None:
    flow.world(nodes=1, cards=2)
    bad, fine = flow.long_job(asks=[FULL]), flow.long_job(asks=[FULL])
    flow.start(bad, fine)
    for job in (bad, fine):
        end_attempt(attempt_id=flow.attempt_of(job).pk, outcome=Outcome.FAILED, exit_code=1)
    flow.turn()
    node, card = place_of(bad)
    event = count(node, 48, card)
    assert health.follow_all()["refunded"] == 1
    refund = Refund.objects.get()
    assert (refund.attempt, refund.event) == (flow.attempt_of(bad), event)


@pytest.mark.django_db
def test_a_refund_is_what_was_used_and_never_twice() -> None:
    flow.world(nodes=1, cards=1)
    job = flow.long_job(asks=[FULL])
    flow.start(job)
    attempt, project = flow.attempt_of(job), job.project
    amount = {"attempt": attempt, "project": project, "at": database_now()}

    def refused(**more: Any) -> str:
        with pytest.raises(IntegrityError) as error, transaction.atomic():
            Refund.objects.create(**{**amount, "card_milli_s": 0} | more)
        return str(error.value)

    assert "did not use" in refused()  # it runs
    end_attempt(attempt_id=attempt.pk, outcome=Outcome.CANCELLED)
    flow.turn()
    with connection.cursor() as cursor:
        cursor.execute("SELECT ledger_attempt_use(%s)", [attempt.pk])
        (right,) = cursor.fetchone()
    assert right > 0
    assert "did not use" in refused(card_milli_s=right)  # its own doing
    Attempt.objects.filter(pk=attempt.pk).update(outcome=Outcome.HARDWARE)
    assert "did not use" in refused(card_milli_s=right + 1)
    assert "did not use" in refused(card_milli_s=right - 1)
    assert refunds.refund_due() == 1
    assert "attempt" in refused(card_milli_s=right)
    for change in ({"card_milli_s": 0}, {"project": factories.project("other")}):
        with pytest.raises(IntegrityError), transaction.atomic():
            Refund.objects.update(**change)


@pytest.mark.django_db
def test_refunded_time_counts_against_no_budget_and_no_fair_share() -> None:
    flow.world(nodes=1, cards=1)
    project = Project.objects.get(slug="vision")
    act = Act(factories.user("admin", SiteRole.ADMIN), "test", "a budget")
    quota.set_grant(project=project, terms=Terms(Resource.CARD_MILLI_S, 10**9), act=act)
    job = flow.long_job(asks=[FULL])
    flow.start(job)
    rewind(2)
    node, card = place_of(job)
    count(node, 95, card)
    followed()
    standings.forget()
    assert standings.usage()[project.pk, True] > 7_000_000
    assert used() > 7_000_000
    assert health.follow_all().get("refunded", 0) + Refund.objects.count() >= 1
    assert used() == 0
    standings.forget()
    assert standings.usage().get((project.pk, True), 0) < 10_000
    assert invariants.check() == []
    assert QuotaGrant.objects.get().amount == 10**9


# -- nothing is placed on what is held ---------------------------------------------------------------------------------


@pytest.mark.django_db
def test_held_links_leave_single_cards_for_sale_and_nothing_else() -> None:
    flow.world(nodes=1, cards=2)
    node, card = Node.objects.get(), Card.objects.order_by("pk")[0]
    event = count(node, 74, card)
    assert event.hold is not None
    assert event.hold.kind == HoldKind.LINK
    snapshot.forget()
    [offer] = offers.offers(snapshot.node_views())
    assert (offer.free_cards, offer.machines) == (2, 0)
    whole, pair = flow.long_job(asks=[{"form": "whole"}]), flow.long_job(asks=[FULL | {"cards_per_node": 2}])
    single = [flow.long_job(asks=[FULL]) for _ in range(2)]
    flow.start(whole, pair, *single)
    assert [job.state for job in (whole, pair, *single)] == ["queued", "queued", "running", "running"]
    assert invariants.check() == []


@pytest.mark.django_db
def test_the_database_refuses_a_gang_on_a_card_whose_links_are_held() -> None:
    flow.world(nodes=1, cards=2)
    job = flow.long_job(asks=[FULL | {"cards_per_node": 2}])
    snapshot.forget()
    views = snapshot.node_views()
    inventory.place_hold(kind=HoldKind.LINK, reason="x", actor=None, via="test", card=Card.objects.order_by("pk")[0])
    original, snapshot.node_views = snapshot.node_views, lambda: views
    try:
        result = placing.place_queued()
    finally:
        snapshot.node_views = original
    job.refresh_from_db()
    assert (result["placed"], job.state) == (0, JobState.QUEUED)
    assert not CardShare.objects.exists()


@pytest.mark.django_db
def test_random_holds_and_placements_through_the_database_never_meet() -> None:
    flow.world(nodes=3, cards=4)
    dice, cards, nodes = random.Random(1), list(Card.objects.all()), list(Node.objects.all())
    asks = [
        {"form": "container", "memory_mib": 4_000},
        FULL,
        FULL | {"cards_per_node": 2},
        {"form": "whole"},
        {"form": "container", "memory_mib": 4_000, "nodes": 2},
    ]
    placed = 0
    for _ in range(30):
        if dice.random() < 0.7:
            count(dice.choice(nodes), dice.choice((48, 63, 74, 79, 119, 9999)), None) if dice.random() < 0.1 else count(
                *_seated(dice.choice(cards), dice.choice((48, 63, 74, 74, 119, 9999)))
            )
        else:
            for hold in Hold.objects.filter(period__upper_inf=True)[:2]:
                inventory.end_hold(hold_id=hold.pk, reason="back", actor=None, via="test")
        for _ in range(3):
            flow.long_job(asks=[dice.choice(asks)])
        placed += placing.place_queued()["placed"]
        if dice.random() < 0.3:
            health.follow_all()
            flow.turn()
        assert invariants.check() == []
    assert placed > 15


def _seated(card: Card, code: int) -> tuple[Node, int, Card]:
    return card.seats.get(period__upper_inf=True).node, code, card


@pytest.mark.django_db(transaction=True)
def test_rolled_up_quarters_of_a_refunded_attempt_count_no_more() -> None:
    flow.world(nodes=1, cards=1)
    job = flow.long_job(asks=[FULL])
    flow.start(job)
    rewind(3)
    quarters.roll_up()
    quarters.roll_up()
    node, card = place_of(job)
    count(node, 95, card)
    for _ in range(3):
        followed()
    standings.forget()
    assert Refund.objects.count() == 1
    assert standings.usage().get((job.project_id, True), 0) < 200_000
