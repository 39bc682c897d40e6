"""The now-board: its numbers are those of the books and the lists behind them, real and simulated apart."""

from __future__ import annotations

import datetime as dt
import re
from html import unescape
from typing import Any

import pytest
from django.test.utils import override_settings

from ledger.clock import database_now
from ledger.inventory import place_hold
from ledger.models import Card, Job, Node, Project, User
from ledger.vocabulary import HoldKind, ProjectState, SiteRole
from portal.views import ops_now, ops_waiting
from scheduler import placing, queue_control
from scheduler.models import Command, Drift, TaskRun
from scheduler.queue_control import Order
from tests import factories
from tests.portal.views.conftest import ClientAs


def accounts(simulated: bool) -> dict[str, float]:
    return {line.account: line.cards for line in ops_now.world_now(simulated=simulated).lines}


def drift(kind: str = "agent_silent", subject: str = "r1", **values: Any) -> Drift:
    now = database_now()
    moments = {"first_seen": now - dt.timedelta(hours=2), "last_seen": now}
    return Drift.objects.create(kind=kind, subject=subject, detail="d", fix="stop it", **moments | values)


def ran(name: str, ago_s: float, **values: Any) -> TaskRun:
    at = database_now() - dt.timedelta(seconds=ago_s)
    return TaskRun.objects.create(**{"name": name, "started_at": at, "ended_at": at, "ok": True, "runs": 1} | values)


class TestAccounts:
    def test_real_and_simulated_cards_are_counted_apart(self, running: Job) -> None:
        factories.node("r1", cards=3, simulated=False)
        simulated, real = accounts(True), accounts(False)
        assert (sum(simulated.values()), sum(real.values())) == (2.0, 3.0)
        assert (simulated["used"], simulated["stranded"], simulated["free"]) == (0.1, 0.9, 1.0)
        assert real == {"used": 0, "cleaning": 0, "held": 0, "headroom": 0, "stranded": 0, "free": 3.0}

    def test_a_held_card_is_held(self, running: Job) -> None:
        card = Card.objects.get(uuid="n1-card-1")
        place_hold(kind=HoldKind.FAULT, reason="XID 79", actor=None, via="test", card=card, node=None)
        assert accounts(True)["held"] == 1.0

    def test_parts_add_up_to_the_whole(self, running: Job) -> None:
        world = ops_now.world_now(simulated=True)
        assert (world.capacity, round(sum(line.part for line in world.lines), 6)) == (2.0, 100.0)

    def test_tenths_add_up_to_the_capacity(self, people: dict[str, User]) -> None:
        third = ops_now.Fraction(1, 3)
        tenths = ops_now._tenths({"free": third, "held": third, "used": third})
        assert (sum(tenths.values()), sorted(tenths.values())) == (10, [3, 3, 4])


class TestCauses:
    def lines(self, people: dict[str, User]) -> dict[str, tuple[int, int]]:
        found = ops_waiting.by_cause(people["operator"])
        return {line.cause: (line.real, line.simulated) for line in found}

    def test_each_waiting_job_has_one_cause(self, people: dict[str, User], queued: Job) -> None:
        factories.job(name="new")
        factories.job(name="real and new", simulated=False)
        held = factories.job(name="held")
        order = Order(actor=people["operator"], reason="why", via="test")
        queue_control.hold_jobs(job_ids=[held.pk], order=order)
        assert self.lines(people) == {"never": (0, 1), "unseen": (1, 1), "held_by_operator": (0, 1)}

    def test_what_would_have_to_change_first_is_the_cause(
        self, people: dict[str, User], running: Job, turn: Any
    ) -> None:
        factories.node("n2", cards=8, model="H100")
        ask = {"form": "container", "cards_per_node": 2, "memory_mib": 16_000, "model": "A100"}
        factories.job(name="waits for cards, though n2 has another model", asks=[ask])
        turn()
        assert self.lines(people) == {"card_memory_free": (0, 1)} or self.lines(people) == {"cards_free": (0, 1)}

    def test_a_job_of_an_ended_project_waits_for_its_project(self, people: dict[str, User], queued: Job) -> None:
        Project.objects.filter(slug="vision").update(state=ProjectState.ENDED)
        assert self.lines(people) == {"project_ended": (0, 1)}

    def test_causes_are_those_of_jobs_that_the_person_sees(self, people: dict[str, User], queued: Job) -> None:
        assert ops_waiting.by_cause(people["outsider"]) == []
        assert len(ops_waiting.by_cause(people["member"])) == 1

    def test_every_refusal_has_its_place_in_the_order(self) -> None:
        from ledger.vocabulary import Refusal
        from portal.ops_words import CAUSES, NEAREST

        assert set(NEAREST) == set(Refusal)
        assert len(NEAREST) == len(set(NEAREST))
        assert set(CAUSES) == {str(word) for word in Refusal} | {"unseen", "turn", "never"}


class TestTasks:
    def line(self, name: str) -> ops_now.TaskLine:
        return next(line for line in ops_now.task_lines(database_now()) if line.name == name)

    def test_every_task_of_beat_is_listed_with_its_meaning(self, db: None, settings: Any) -> None:
        lines = ops_now.task_lines(database_now())
        assert {line.name for line in lines} == {e["task"] for e in settings.CELERY_BEAT_SCHEDULE.values()}
        assert [line.name for line in lines if line.what == line.name] == []
        assert all(line.every_s > 0 for line in lines)

    def test_a_task_that_never_ran_is_late(self, db: None) -> None:
        line = self.line("scheduler.tick")
        assert (line.run, line.late, line.age_s, line.result) == (None, True, None, "")

    @pytest.mark.parametrize(("ago", "late"), [(1, False), (11, False), (13, True), (3600, True)])
    def test_a_task_is_late_after_three_runs_and_ten_seconds(self, db: None, ago: int, late: bool) -> None:
        ran("scheduler.tick", ago)
        assert self.line("scheduler.tick").late is late

    def test_a_task_that_began_after_its_last_end_runs_now(self, db: None) -> None:
        run = ran("scheduler.tick", 5, result={"placed": 3})
        TaskRun.objects.update(started_at=database_now())
        line = self.line("scheduler.tick")
        assert (line.running, line.duration_ms, line.failed, run.pk) == (True, None, False, "scheduler.tick")

    def test_a_failed_run_is_told(self, db: None) -> None:
        ran("scheduler.tick", 1, ok=False)
        assert self.line("scheduler.tick").failed


class TestProof:
    def proof(self) -> ops_now.Proof:
        return ops_now.proof(ops_now.task_lines(database_now()))

    def test_no_proof_yet_is_not_clean(self, db: None) -> None:
        assert (self.proof().at, self.proof().clean) == (None, False)

    def test_a_clean_proof_has_its_time(self, db: None) -> None:
        run = ran("ledger.check_books", 20, result={"broken": {}})
        assert (self.proof().at, self.proof().clean, self.proof().late) == (run.ended_at, True, False)

    def test_a_broken_invariant_is_named(self, db: None, client_as: ClientAs) -> None:
        ran("ledger.check_books", 20, result={"broken": {"I1-card-once": [["1", "2"]]}})
        assert (self.proof().broken, self.proof().clean) == (["I1-card-once"], False)
        page = client_as("operator").get("/ops/").content.decode()
        assert "1 invariant is broken" in page
        assert "I1-card-once" in page
        assert "all invariants hold" not in page

    def test_an_old_proof_is_late_and_a_failed_one_proves_nothing(self, db: None) -> None:
        ran("ledger.check_books", 600, result={"broken": {}}, ok=False)
        assert (self.proof().late, self.proof().failed, self.proof().clean) == (True, True, False)


class TestCounts:
    def test_drift_by_kind(self, db: None) -> None:
        drift()
        drift(subject="r2")
        drift("orphan_member", "a1", simulated=True)
        drift("inventory", "gone", resolved_at=database_now())
        lines = {line.kind: (line.real, line.simulated) for line in ops_now.drift_lines()}
        assert lines == {"agent_silent": (2, 0), "orphan_member": (0, 1)}

    def test_nodes_offline_and_held_and_cards_held(self, running: Job) -> None:
        factories.node("r1", cards=2, simulated=False)
        factories.node("n2", cards=2)
        Node.objects.filter(hostname="r1").update(state="offline")
        hold = {"kind": HoldKind.MAINTENANCE, "reason": "fan", "actor": None, "via": "test"}
        place_hold(**hold, node=Node.objects.get(hostname="n2"))
        place_hold(**hold, card=Card.objects.get(uuid="n1-card-1"))
        found = ops_now.node_counts()
        assert found == {"all": (1, 2), "offline": (1, 0), "held": (0, 1), "cards": (0, 1)}

    def test_commands_that_wait_and_those_after_a_failed_try(self, people: dict[str, User]) -> None:
        factories.node("n1", cards=2)
        for _ in range(2):
            factories.job()
        placing.place_queued()
        first = Command.objects.earliest("pk")
        later = database_now() + dt.timedelta(seconds=30)
        Command.objects.filter(pk=first.pk).update(tries=2, due_at=later)
        counts = ops_now.command_counts(database_now())
        assert (counts["real"], counts["simulated"]) == (0, 2)
        assert (counts["backoff_real"], counts["backoff_simulated"], counts["since"]) == (0, 1, first.created_at)

    def test_an_empty_portal_has_a_board_too(self, client_as: ClientAs) -> None:
        page = client_as("admin").get("/ops/").content.decode()
        for text in (
            "No real card is registered.",
            "No simulated card is registered.",
            "No job waits.",
            "has never run",
        ):
            assert text in page


@pytest.fixture
def full(people: dict[str, User], queued: Job) -> Job:
    factories.node("r1", cards=2, simulated=False)
    Node.objects.filter(hostname="r1").update(state="offline")
    drift(simulated=True)
    ran("scheduler.tick", 1)
    return queued


class TestPage:
    def test_each_number_leads_to_its_list(self, client_as: ClientAs, full: Job) -> None:
        client = client_as("operator")
        page = client.get("/ops/").content.decode()
        links = {unescape(link) for link in re.findall(r'<a [^>]*href="(/[^"]*)"', page)}
        assert len(links) > 20
        assert {link: client.get(link).status_code for link in links} == dict.fromkeys(links, 200)
        causes = client.get("/ops/queue/?hardware=simulated&cause=never").context["t"]["page"].paginator.count
        assert ("/ops/queue/?hardware=simulated&cause=never" in links, causes) == (True, 1)
        assert "/ops/drift/?state=open&hardware=simulated&kind=agent_silent" in links

    def test_the_part_asks_for_itself_again_and_is_no_whole_page(self, client_as: ClientAs, full: Job) -> None:
        part = client_as("auditor").get("/ops/now/", headers={"HX-Request": "true"}).content.decode()
        assert 'hx-get="/ops/now/"' in part
        assert "every 5s" in part
        assert "<html" not in part

    @pytest.mark.parametrize("who", [r.value for r in SiteRole if r != SiteRole.RESEARCHER])
    def test_site_roles_open_it(self, client_as: ClientAs, full: Job, who: str) -> None:
        assert client_as(who).get("/ops/").status_code == 200

    @pytest.mark.parametrize("who", ["researcher", "owner", "outsider"])
    def test_others_are_told_that_their_role_does_not_allow_it(self, client_as: ClientAs, full: Job, who: str) -> None:
        response = client_as(who).get("/ops/")
        assert response.status_code == 403
        assert b"Your role does not allow this" in response.content

    def test_in_chinese(self, client_as: ClientAs, people: dict[str, User], full: Job) -> None:
        User.objects.filter(username="operator").update(locale="zh-hans")
        assert client_as("operator").get("/ops/").status_code == 200

    def test_the_number_of_queries_is_fixed(
        self, client_as: ClientAs, full: Job, django_assert_num_queries: Any
    ) -> None:
        client = client_as("operator")
        client.get("/ops/")
        with django_assert_num_queries(GOLDEN):
            client.get("/ops/")
        for n in range(5):
            factories.node(f"m{n}", cards=2)
            factories.job(name=f"more {n}")
            drift(subject=f"s{n}")
        with django_assert_num_queries(GOLDEN):
            client.get("/ops/")

    @override_settings(CELERY_BEAT_SCHEDULE={})
    def test_without_a_schedule_it_still_answers(self, client_as: ClientAs, full: Job) -> None:
        assert client_as("operator").get("/ops/").status_code == 200


GOLDEN = 15
