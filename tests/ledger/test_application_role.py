"""The role under which the portal works: it may do the ordinary work and may not rewrite history."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import pytest
from django.db import ProgrammingError, transaction

from ledger import audit, inventory, job_metrics, people, telemetry
from ledger.acts import Act
from ledger.clock import database_now
from ledger.models import AuditEvent, Card, Hold, Job, MetricSource, Node, Project, Receipt
from ledger.vocabulary import HoldKind, JobState, Outcome, Resource, SiteRole
from scheduler import (
    commands,
    dcgm,
    drills,
    observing,
    placing,
    policy_changes,
    queue,
    reclaim,
    reconcile,
    service,
    telling,
    watch,
)
from scheduler.models import TaskRun
from scheduler.policy import Scope, Terms
from tests import factories
from tests.ledger.raw import run
from tests.scheduler import flow, out

pytestmark = [pytest.mark.django_db, pytest.mark.breaks_books]
ROLE = "gpu_commons_app"
NEVER_DELETED = [
    "ledger_allocation",
    "ledger_cardshare",
    "ledger_attempt",
    "ledger_job",
    "ledger_hold",
    "ledger_cardseat",
    "ledger_card",
    "ledger_node",
    "ledger_nodezone",
    "ledger_project",
    "ledger_quotagrant",
    "ledger_headroomreserve",
    "scheduler_decision",
    "scheduler_command",
    "scheduler_promise",
    "ledger_receipt",
    "ledger_notice",
    "ledger_delivery",
    "scheduler_jobpolicy",
    "scheduler_policyversion",
    "scheduler_policyuse",
    "ledger_oddgrant",
    "ledger_letter",
    "ledger_case",
    "ledger_agentorder",
    "scheduler_drill",
    "scheduler_alertrule",
    "scheduler_alertrung",
    "scheduler_silence",
]
FORBIDDEN = [
    *(f"{verb} {table}" for table in NEVER_DELETED for verb in ("DELETE FROM", "TRUNCATE")),
    *(f"{verb} {table}" for table in ("ledger_auditevent", "ledger_auditseal") for verb in ("DELETE FROM", "TRUNCATE")),
    "UPDATE ledger_cardshare SET memory_mib = memory_mib",
    "UPDATE ledger_receipt SET took_s = 0",
    "UPDATE ledger_notice SET kind = 'over'",
    "UPDATE ledger_letter SET kind = 'invited'",
    "UPDATE scheduler_promise SET verdict = 'later'",
    "UPDATE scheduler_policyuse SET lines = '[]'",
    "UPDATE ledger_auditevent SET reason = 'nothing to see'",
    "UPDATE ledger_auditseal SET digest = ''",
    "INSERT INTO ledger_statetransition (entity, old, new) VALUES ('job', 'failed', 'succeeded')",
    "UPDATE ledger_statetransition SET new = 'succeeded'",
    "DELETE FROM ledger_statetransition",
    "ALTER TABLE ledger_allocation DISABLE TRIGGER ALL",
    "DROP TRIGGER guard_share ON ledger_cardshare",
    "CREATE OR REPLACE FUNCTION ledger_guard_share() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
    "SET session_replication_role = replica",
]


@contextmanager
def as_application() -> Iterator[None]:
    run(f"SET ROLE {ROLE}")
    try:
        yield
    finally:
        run("RESET ROLE")


@pytest.fixture
def application() -> Iterator[None]:
    factories.cast()
    factories.node(block=2)
    with as_application():
        yield


@pytest.mark.parametrize("statement", FORBIDDEN)
def test_the_application_may_not(application: None, statement: str) -> None:
    with pytest.raises(ProgrammingError, match="permission denied|must be owner"), transaction.atomic():
        run(statement)


@pytest.mark.parametrize("form", ["container", "block", "whole"])
def test_the_application_takes_a_job_from_submission_to_its_end(application: None, form: str) -> None:
    ask = {"form": form, "cards_per_node": 2} if form == "block" else {"form": form}
    job = factories.job(asks=[ask], command=["simulate", "--seconds", "0"])
    assert placing.place_queued()["placed"] == 1
    patience = monotonic() + 20
    while monotonic() < patience:
        commands.run_due()
        observing.observe_all()
        job.refresh_from_db()
        if job.state == JobState.SUCCEEDED:
            break
    assert job.state == JobState.SUCCEEDED
    assert AuditEvent.objects.filter(target_type="job", target_id=str(job.pk)).count() >= 4


def test_the_application_ends_a_project(application: None) -> None:
    project = Project.objects.get(slug="vision")
    factories.grant(project, Resource.CARD_MILLI, 1000)
    waiting = factories.job()
    reclaim.end_now(project=project, act=Act(factories.user("admin"), "test", "because"))
    assert reclaim.reclaim_all()["odd"] == {}
    telling.tell_due()
    waiting.refresh_from_db()
    assert (waiting.state, Receipt.objects.get().grants_ended) == (JobState.CANCELLED, 1)


def test_the_application_sets_a_policy_and_withdraws_it(application: None) -> None:
    act = Act(factories.user("admin"), "test", "as agreed")
    for default in (1, 2):
        policy_changes.put_version(scope=Scope(), terms=Terms(priority_default=default), act=act)
    assert factories.job().priority == 2
    policy_changes.withdraw(scope=Scope(), act=act)
    assert factories.job().priority == 0


def test_the_application_makes_a_drill_and_brings_the_place_back(
    application: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SIMULATED_SERVICE_S = 0
    out.without_alerts(monkeypatch)
    drill = drills.plan_drill(
        node=Node.objects.get(), act=Act(factories.user("operator", SiteRole.OPERATOR), "test", "drill")
    )
    for _ in range(4):
        drills.advance_all()
        service.advance_all()
    drill.refresh_from_db()
    assert (drill.verdict, drill.case.state) == ("partly", "returned")


def test_the_application_watches_processes_and_takes_what_applications_tell(application: None) -> None:
    job = factories.job(command=["simulate", "--seconds", "3600"])
    flow.start(job)
    node, card = Node.objects.get(), Card.objects.get(uuid="n1-card-0")
    greedy = {"pid": 1, "memory_mib": 15_000, "member": flow.open_allocations(job)[0].key, "name": "x"}
    for sequence in range(3):
        told = {"uuid": card.uuid, "slot": 0, "memory_mib": 16_000, "processes": [greedy, greedy | {"member": "a0"}]}
        report = {"boot_id": "b", "sequence": sequence, "sent_at": database_now(), "virtual": False, "node": {}}
        telemetry.ingest(node, report | {"cards": [told], "links": [], "faults": []})
        watch.look()
    job_metrics.record(job_id=job.pk, values={"p99_ms": 1}, source=MetricSource.PUSHED)
    assert flow.attempt_of(job).outcome == Outcome.OUT_OF_MEMORY
    assert Hold.objects.get(period__upper_inf=True).rule == "orphan/1"
    assert job_metrics.trim() == {"old": 0, "too_many": 0}
    with pytest.raises(ValueError, match="no card"):
        dcgm.take(node, "")


def test_the_application_does_its_other_writing(application: None) -> None:
    operator = factories.user("operator")
    waiting = factories.job()
    queue.cancel(job_id=waiting.pk, actor=operator, reason="", via="test")
    hold = inventory.place_hold(kind=HoldKind.DRILL, reason="x", actor=operator, via="test", node=Node.objects.get())
    inventory.end_hold(hold_id=hold.pk, reason="y", actor=operator, via="test")
    people.create_node_token(node=Node.objects.get(), actor=operator, via="test")
    secret = people.create_token(user=operator, label="", days=1, actor=operator, via="test")
    assert people.user_of_token(secret) is not None
    assert "error" not in reconcile.sync_inventory()
    reconcile.reconcile()
    TaskRun.objects.update_or_create(name="test", defaults={"started_at": database_now()})
    audit.seal()
    assert not Hold.objects.filter(period__upper_inf=True).exists()
    assert Job.objects.get().state == JobState.CANCELLED
