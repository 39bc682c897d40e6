"""The pages of zones and plans: who sees what, the lists, and no script in the page itself."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from ledger.models import Allocation, Job, User, Zone
from portal import sudo
from scheduler.models import MoveState, PlanState, ZoneMove, ZonePlan
from tests import factories
from tests.portal.views.conftest import ClientAs
from tests.portal.views.zone_tools import CONFIRM, HOSTILE, by_list, confirm, lay_out, token


@pytest.fixture
def fleet(running: Job) -> dict[str, Zone]:
    return lay_out()


class TestWhoSeesWhat:
    @pytest.mark.parametrize("who", ["researcher", "operator", "manager", "auditor", "outsider"])
    def test_only_admins_plan(self, client_as: ClientAs, fleet: dict[str, Zone], who: str) -> None:
        text = token(by_list(client_as("admin"), "n2"))
        client = client_as(who)
        codes = [
            client.get("/zones/plan/").status_code,
            by_list(client, "n2").status_code,
            client.post(CONFIRM, {"plan": text, "reason": "x"}).status_code,
        ]
        assert (codes, ZonePlan.objects.exists()) == ([403] * 3, False)
        assert "/zones/plan/" not in client.get("/zones/").content.decode()

    def test_an_outsider_sees_that_work_is_in_the_way_but_not_whose(
        self, client_as: ClientAs, fleet: dict[str, Zone], running: Job
    ) -> None:
        admin = client_as("admin")
        confirm(admin, by_list(admin, "n1"))
        path = f"/zones/plans/{ZonePlan.objects.get().pk}/"
        page = client_as("outsider").get(path).content.decode()
        assert "1 job of another project" in page
        assert "steady" not in page
        assert "steady" in client_as("researcher").get(path).content.decode()
        exported = client_as("outsider").get(f"{path}?export=csv").getvalue()
        assert b"steady" not in exported

    def test_without_a_fresh_proof_the_password_is_asked_and_the_form_kept(
        self, admin: Client, fleet: dict[str, Zone], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        preview = by_list(admin, "n2")
        monkeypatch.setattr(sudo, "FRESH_S", 0)
        asked = confirm(admin, preview)
        assert (asked.status_code, ZonePlan.objects.exists()) == (403, False)
        assert "more whole machines" in asked.content.decode()
        confirm(admin, preview, sudo_password=factories.PASSWORD)
        assert ZonePlan.objects.exists()

    def test_hostile_reasons_stay_texts(self, admin: Client, fleet: dict[str, Zone]) -> None:
        confirm(admin, by_list(admin, "n2"), reason=HOSTILE)
        plan = ZonePlan.objects.get()
        for path in ("/zones/", f"/zones/plans/{plan.pk}/", "/nodes/n2/"):
            assert "<script>alert" not in admin.get(path).content.decode()


class TestZoneList:
    def test_nodes_and_cards_are_counted_by_zone(self, admin: Client, fleet: dict[str, Zone]) -> None:
        factories.node("r1", cards=1, simulated=False)
        rows = admin.get("/zones/?hardware=simulated").context["rows"]
        counts = {row["zone"].slug: row["counts"] for row in rows}
        flexible = counts["flexible"]
        names = ("nodes", "container", "none", "cards", "free", "held")
        assert {name: flexible[name] for name in names} == {
            "nodes": 4,
            "container": 1,
            "none": 3,
            "cards": 8,
            "free": 7,
            "held": 0,
        }
        assert counts["whole"]["nodes"] == 0
        real = {row["zone"].slug: row["counts"]["nodes"] for row in admin.get("/zones/").context["rows"]}
        assert real == {"flexible": 1, "whole": 0}

    def test_draining_nodes_are_counted(self, admin: Client, fleet: dict[str, Zone]) -> None:
        confirm(admin, by_list(admin, "n1"))
        rows = admin.get("/zones/?hardware=simulated").context["rows"]
        assert [(row["counts"]["held"], row["counts"]["draining"]) for row in rows] == [(1, 1), (0, 0)]

    def test_plans_are_a_table_with_progress_and_files(self, admin: Client, fleet: dict[str, Zone]) -> None:
        confirm(admin, by_list(admin, "n1 n2"))
        page = admin.get("/zones/?hardware=simulated").content.decode()
        assert "1 of 2 moved · 1 draining" in page
        text = admin.get("/zones/?hardware=simulated&export=csv").getvalue().decode()
        assert "1 of 2 moved · 1 draining" in text
        assert "more whole machines" not in admin.get("/zones/").content.decode()  # real plans only

    @pytest.mark.parametrize(
        "path", ["/zones/?hardware=simulated", "/zones/plans/{}/", "/zones/plan/?hardware=simulated"]
    )
    def test_longer_lists_ask_the_database_no_more_often(
        self, admin: Client, fleet: dict[str, Zone], path: str, turn: Callable[[], None]
    ) -> None:
        confirm(admin, by_list(admin, "n1 n2"))
        first = ZonePlan.objects.get()
        admin.get(path.format(first.pk))
        with CaptureQueriesContext(connection) as few:
            admin.get(path.format(first.pk))
        for number in range(6):
            factories.node(f"m{number}", cards=2)
        factories.job(name="second", command=["simulate", "--seconds", "3600"])
        turn()
        confirm(admin, by_list(admin, " ".join(f"m{n}" for n in range(6))), override_reason="x")
        ZoneMove.objects.update(plan=first)
        with CaptureQueriesContext(connection) as many:
            admin.get(path.format(first.pk))
        assert len(many) == len(few), [q["sql"] for q in many.captured_queries]

    def test_previews_ask_the_database_no_more_often(self, admin: Client, fleet: dict[str, Zone]) -> None:
        by_list(admin, "n1 n2")
        with CaptureQueriesContext(connection) as few:
            by_list(admin, "n1 n2")
        for number in range(6):
            factories.node(f"m{number}", cards=2)
        with CaptureQueriesContext(connection) as many:
            by_list(admin, "n1 n2 " + " ".join(f"m{n}" for n in range(6)))
        assert len(many) == len(few)

    def test_every_state_of_a_move_and_plan_has_a_look(self, admin: Client, people: dict[str, User]) -> None:
        from portal import labels

        assert set(labels.TABLES["zone_plan"]) == set(PlanState)
        assert set(labels.TABLES["zone_move"]) == set(MoveState)


def test_pages_have_no_inline_script_or_handler(admin: Client, fleet: dict[str, Zone]) -> None:
    confirm(admin, by_list(admin, "n1 n2"))
    plan = ZonePlan.objects.get()
    pages = [
        admin.get(path)
        for path in (
            "/zones/",
            "/zones/plan/",
            f"/zones/plans/{plan.pk}/",
            "/cards/?hardware=simulated",
            "/cards/n1-card-0/",
            "/machines/nodes/hold/?key=n1",
        )
    ]
    for page in [*pages, by_list(admin, "n3")]:
        text = page.content.decode()
        assert page.status_code == 200
        assert all("src=" in tag or "application/json" in tag for tag in re.findall(r"<script\b[^>]*>", text))
        assert not re.search(r"<[^>]+\son[a-z]+\s*=", text)
    assert Allocation.objects.filter(period__upper_inf=True).exists()
