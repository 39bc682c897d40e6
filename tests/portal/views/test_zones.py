"""The pages of zones and plans: choose, preview, confirm, watch, cancel, undo; the window; bad input writes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.core import signing
from django.test import Client

from ledger.models import AuditEvent, Hold, Job, Zone
from portal.views import plan_parts
from scheduler import zones
from scheduler.models import PlanState, ZonePlan
from tests import factories
from tests.portal.views.zone_tools import CONFIRM, HOSTILE, by_list, by_ratio, confirm, lay_out, token, where


@pytest.fixture
def fleet(running: Job) -> dict[str, Zone]:
    return lay_out()


class TestTheWay:
    def test_preview_shows_what_flips_what_drains_and_the_numbers(
        self, admin: Client, fleet: dict[str, Zone], running: Job
    ) -> None:
        response = by_list(admin, "n1, n2\nn3")
        page = response.content.decode()
        assert [row.node.hostname for row in response.context["idle"]] == ["n2", "n3"]
        assert [row.node.hostname for row in response.context["busy"]] == ["n1"]
        assert f'href="/jobs/{running.pk}/"' in page
        counted = {
            row["zone"].slug: (row["nodes_before"], row["nodes_after"]) for row in response.context["effect"]["zones"]
        }
        assert counted == {"flexible": (4, 1), "whole": (0, 3)}
        assert not ZonePlan.objects.exists()

    def test_the_preview_says_when_the_last_job_ends_at_the_latest(
        self, admin: Client, fleet: dict[str, Zone], running: Job
    ) -> None:
        last = by_list(admin, "n1").context["last"]
        assert running.started_at is not None
        assert (last - running.started_at).total_seconds() == running.walltime_s

    def test_three_nodes_move_and_the_next_plan_is_stopped_by_the_window(
        self, admin: Client, fleet: dict[str, Zone]
    ) -> None:
        response = confirm(admin, by_list(admin, "n2 n3 n4"))
        plan = ZonePlan.objects.get()
        assert response["Location"] == f"/zones/plans/{plan.pk}/"
        assert (plan.state, plan.reason, where("n2"), where("n4")) == ("done", "more whole machines", "whole", "whole")
        assert 'name="override_reason"' not in response.content.decode()
        again = by_list(admin, "n2", "flexible")
        assert f"Plan {plan.pk} changed the same zones" in again.content.decode()
        assert again.context["form"].fields["override_reason"].required
        assert 'Reason for not waiting<span class="required"' in again.content.decode()
        refused = confirm(admin, again)
        assert (refused.status_code, list(refused.context["form"].errors)) == (422, ["override_reason"])
        assert "more whole machines" in refused.content.decode()
        assert (where("n2"), ZonePlan.objects.count()) == ("whole", 1)
        assert confirm(admin, again, override_reason="a deadline").status_code == 302
        assert (where("n2"), ZonePlan.objects.latest("pk").override_reason) == ("flexible", "a deadline")

    def test_by_ratio(self, admin: Client, fleet: dict[str, Zone]) -> None:
        confirm(admin, by_ratio(admin, zone_whole="2"))
        plan = ZonePlan.objects.get()
        assert (plan.kind, plan.targets, plan.moves.count()) == ("ratio", {"whole": 2}, 2)
        Zone.objects.filter(slug="whole").update(title="Whole machines")
        page = admin.get(f"/zones/plans/{plan.pk}/").content.decode()
        assert re.search(r"Whole machines: <span[^>]*>2<", page)
        assert 'title="Whole machines">Whole machines</span>' in page  # where each of the nodes goes
        assert (where("n1"), where("n2"), where("n3"), where("n4")) == ("flexible", "whole", "whole", "flexible")

    def test_zones_of_one_title_are_told_apart_where_one_is_chosen(self, admin: Client, fleet: dict[str, Zone]) -> None:
        Zone.objects.filter(slug="whole").update(title="Spare machines")
        Zone.objects.filter(slug="flexible").update(title="spare machines")
        page = admin.get("/zones/plan/").content.decode()
        for name in ("Spare machines (whole)", "spare machines (flexible)"):
            assert page.count(name) == 2, name  # by list and by ratio
        Zone.objects.filter(slug="flexible").update(title="Flexible")
        assert "(whole)" not in admin.get("/zones/plan/").content.decode()

    def test_by_percent(self, admin: Client, fleet: dict[str, Zone]) -> None:
        confirm(admin, by_ratio(admin, unit="percent", zone_whole="50", zone_flexible="50"))
        assert ZonePlan.objects.get().moves.count() == 2

    def test_a_busy_node_is_followed_to_its_end(
        self, admin: Client, fleet: dict[str, Zone], running: Job, turn: Callable[[], None]
    ) -> None:
        confirm(admin, by_list(admin, "n1 n2"))
        plan = ZonePlan.objects.get()
        page = admin.get(f"/zones/plans/{plan.pk}/")
        assert dict(page.context["parts"]) == {"planned": 0, "draining": 1, "moved": 1, "dropped": 0}
        assert 'hx-trigger="every 5s"' in page.content.decode()
        assert f'href="/jobs/{running.pk}/"' in page.content.decode()
        admin.post(f"/jobs/{running.pk}/cancel/", {"reason": "make room"})
        for _ in range(3):
            turn()
        zones.advance_all()
        assert where("n1") == "whole"
        assert "hx-get" not in admin.get(f"/zones/plans/{plan.pk}/").content.decode()

    def test_cancel_and_undo(self, admin: Client, fleet: dict[str, Zone]) -> None:
        confirm(admin, by_list(admin, "n1 n2"))
        plan = ZonePlan.objects.get()
        admin.post(f"/zones/plans/{plan.pk}/cancel/", {"reason": "wrong machines"})
        plan.refresh_from_db()
        assert (plan.state, plan.end_reason, where("n2")) == ("cancelled", "wrong machines", "whole")
        assert not Hold.objects.filter(period__upper_inf=True).exists()
        preview = admin.get(f"/zones/plans/{plan.pk}/undo/")
        assert [row.node.hostname for row in preview.context["idle"]] == ["n2"]
        confirm(admin, preview, override_reason="it was wrong")
        undo = ZonePlan.objects.latest("pk")
        assert (undo.undoes, where("n2")) == (plan, "flexible")
        assert f"/zones/plans/{undo.pk}/" in admin.get(f"/zones/plans/{plan.pk}/").content.decode()

    def test_nothing_to_undo_is_told(self, admin: Client, fleet: dict[str, Zone]) -> None:
        confirm(admin, by_list(admin, "n2"))
        plan = ZonePlan.objects.get()
        confirm(admin, admin.get(f"/zones/plans/{plan.pk}/undo/"), override_reason="x")
        response = admin.get(f"/zones/plans/{plan.pk}/undo/", follow=True)
        assert "nothing to undo" in response.content.decode()

    def test_rows_chosen_in_the_list_of_nodes_fill_the_form(self, admin: Client, fleet: dict[str, Zone]) -> None:
        response = admin.post("/zones/plan/", {"key": ["n2", "n3"]})
        assert (response.status_code, response.context["by_list"]["nodes"].value()) == (200, "n2\nn3")

    def test_a_node_without_a_driver_for_its_new_zone_is_told(self, admin: Client, fleet: dict[str, Zone]) -> None:
        node = factories.node("odd", cards=1)
        node.managers = {"container": "simulated", "block": "local"}
        node.save(update_fields=["managers"])
        assert "has no driver for every form" in by_list(admin, "odd").content.decode()
        assert "has no driver" not in by_list(admin, "n2").content.decode()

    def test_the_act_is_audited_with_its_request(self, admin: Client, fleet: dict[str, Zone], people: Any) -> None:
        preview = by_list(admin, "n2")
        admin.post(CONFIRM, {"plan": token(preview), "reason": "why"}, headers={"X-Request-ID": "abc-1"})
        event = AuditEvent.objects.get(verb="zone.plan.made")
        assert (event.actor, event.via, event.reason, event.request_id) == (people["admin"], "page", "why", "abc-1")


class TestBadInput:
    @pytest.mark.parametrize(
        ("nodes", "zone", "field"),
        [
            ("", "whole", "nodes"),
            (" ,; \n", "whole", "nodes"),
            ("nowhere", "whole", "nodes"),
            (HOSTILE, "whole", "nodes"),
            ("n2 " * 100_000, "whole", "nodes"),
            (" ".join(f"m{n}" for n in range(6000)), "whole", "nodes"),
            ("n2\x00", "whole", "nodes"),
            ("n2", "nowhere", "to_zone"),
            ("n2", "", "to_zone"),
            ("n2", "flexible", "nodes"),
        ],
    )
    def test_by_list_names_the_field(
        self, admin: Client, fleet: dict[str, Zone], nodes: str, zone: str, field: str
    ) -> None:
        response = by_list(admin, nodes, zone)
        assert (response.status_code, field in response.context["by_list"].errors) == (422, True)
        assert "<script>alert" not in response.content.decode()
        assert not ZonePlan.objects.exists()

    @pytest.mark.parametrize(
        ("values", "field"),
        [
            ({}, "__all__"),
            ({"zone_whole": "0"}, "__all__"),
            ({"zone_flexible": "0"}, "zone-flexible"),
            ({"zone_whole": "1000000000"}, "zone-whole"),
            ({"zone_whole": "9" * 5000}, "zone-whole"),
            ({"zone_whole": "-1"}, "zone-whole"),
            ({"zone_whole": "1.5"}, "zone-whole"),
            ({"zone_whole": "٣x"}, "zone-whole"),
            ({"unit": "percent", "zone_whole": "-5"}, "zone-whole"),
            ({"unit": "percent", "zone_whole": "60", "zone_flexible": "50"}, "__all__"),
            ({"zone_whole": "3", "zone_flexible": "3"}, "__all__"),
            ({"zone_flexible": "4"}, "__all__"),
            ({"unit": "cards", "zone_whole": "1"}, "unit"),
            ({"hardware": "imagined", "zone_whole": "1"}, "hardware"),
            ({"hardware": "real", "zone_whole": "1"}, "model"),
            ({"model": "nothing", "zone_whole": "1"}, "model"),
        ],
    )
    def test_by_ratio_names_the_field(
        self, admin: Client, fleet: dict[str, Zone], values: dict[str, str], field: str
    ) -> None:
        response = by_ratio(admin, **values)
        assert (response.status_code, list(response.context["by_ratio"].errors)) == (422, [field])
        assert not ZonePlan.objects.exists()

    def test_what_was_typed_is_still_there(self, admin: Client, fleet: dict[str, Zone]) -> None:
        page = by_ratio(admin, unit="percent", zone_whole="60", zone_flexible="50").content.decode()
        assert 'value="60"' in page
        assert "n2, nowhere" in by_list(admin, "n2, nowhere").content.decode()

    @pytest.mark.parametrize("reason", ["", "   ", "x" * 501, "x" * 10_000])
    def test_a_reason_that_is_not_right(self, admin: Client, fleet: dict[str, Zone], reason: str) -> None:
        response = confirm(admin, by_list(admin, "n2"), reason=reason)
        assert (response.status_code, list(response.context["form"].errors)) == (422, ["reason"])
        assert not ZonePlan.objects.exists()

    @pytest.mark.parametrize("reason", ["", "x" * 10_000])
    def test_a_cancel_without_a_good_reason(self, admin: Client, fleet: dict[str, Zone], reason: str) -> None:
        confirm(admin, by_list(admin, "n1"))
        plan = ZonePlan.objects.get()
        response = admin.post(f"/zones/plans/{plan.pk}/cancel/", {"reason": reason})
        plan.refresh_from_db()
        assert (response.status_code, plan.state) == (422, PlanState.RUNNING)

    def test_a_preview_that_is_not_ours(self, admin: Client, fleet: dict[str, Zone]) -> None:
        for bad in ("", "nonsense", "a:b:c", "x" * 2_000, "\x00"):
            assert admin.post(CONFIRM, {"plan": bad, "reason": "x"}).status_code == 422, bad
        assert not ZonePlan.objects.exists()

    def test_a_preview_that_somebody_changed(self, admin: Client, fleet: dict[str, Zone]) -> None:
        preview = by_list(admin, "n2")
        forged = signing.dumps({"kind": "list"}, salt="something else", compress=True)
        for text in (forged, token(preview)[:-2] + "xx"):
            assert admin.post(CONFIRM, {"plan": text, "reason": "x"}).status_code == 422
        assert not ZonePlan.objects.exists()

    def test_an_old_preview_is_told(
        self, admin: Client, fleet: dict[str, Zone], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        preview = by_list(admin, "n2")
        monkeypatch.setattr(plan_parts, "KEPT_FOR", -1)
        response = confirm(admin, preview)
        assert (response.status_code, b"older than an hour" in response.content) == (422, True)

    def test_a_world_that_moved_on_since_the_preview_is_a_conflict(self, admin: Client, fleet: dict[str, Zone]) -> None:
        mine, other = by_list(admin, "n2"), by_list(admin, "n2 n3")
        confirm(admin, other)
        response = confirm(admin, mine, override_reason="x")
        assert (response.status_code, b"since the preview" in response.content) == (409, True)
        assert ZonePlan.objects.count() == 1

    def test_a_plan_made_meanwhile_is_shown_and_may_then_be_overridden(
        self, admin: Client, fleet: dict[str, Zone]
    ) -> None:
        mine, other = by_list(admin, "n2"), by_list(admin, "n3")
        confirm(admin, other)
        response = confirm(admin, mine, override_reason="knows nothing of the other")
        assert (response.status_code, where("n2")) == (409, "flexible")
        assert confirm(admin, response, override_reason="knows it now").status_code == 302
        assert where("n2") == "whole"

    def test_a_plan_that_is_not_there(self, admin: Client) -> None:
        for number in ("999999999", "99999999999999999999", "9" * 400):
            assert admin.get(f"/zones/plans/{number}/").status_code == 404, number

    def test_a_bad_query_never_breaks_a_page(self, admin: Client, fleet: dict[str, Zone]) -> None:
        confirm(admin, by_list(admin, "n2"))
        plan = ZonePlan.objects.get()
        for query in ("sort=x", "page=-1", "columns=x", "export=x", "hardware=x", "page=1000000000"):
            for path in ("/zones/", "/zones/plan/", f"/zones/plans/{plan.pk}/"):
                assert admin.get(f"{path}?{query}").status_code == 200, (path, query)
