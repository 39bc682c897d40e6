"""What is out of the pool on its pages and over the API: the list by age, the case, acts with reason; drills likewise."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.test import Client

from ledger import odd_grants
from ledger.acts import Act
from ledger.clock import database_now
from ledger.inventory import place_hold
from ledger.models import AuditEvent, Card, Case, Fault, Hold, User
from ledger.vocabulary import CaseState, HoldKind, Need
from portal import out_words, sudo
from scheduler import drills, service
from scheduler.drill_rows import Drill, DrillState
from tests import factories
from tests.portal.api.client import api
from tests.portal.views.conftest import ClientAs
from tests.scheduler import out


@pytest.fixture
def operator(client_as: ClientAs) -> Client:
    return client_as("operator")


@pytest.fixture
def case(people: dict[str, User], settings: Any) -> Case:
    """Of a card of n1, which a person releases."""
    settings.SIMULATED_SERVICE_S = 0
    factories.node("n1", cards=2)
    return out.case(card(), need=Need.INSPECTION, by_hand=True)


def card() -> Card:
    return Card.objects.get(uuid="n1-card-0")


def text(response: Any) -> str:
    content: str = response.content.decode()
    return content


class TestTheList:
    def test_every_hold_with_its_next_step_and_who_must_act_the_oldest_first(
        self, operator: Client, case: Case
    ) -> None:
        node = factories.node("n2", cards=1)
        place_hold(kind=HoldKind.MAINTENANCE, reason="new fans", actor=None, via="test", node=node, rule="orphan/1")
        service.advance_all()
        page = text(operator.get("/health/out/"))
        assert f'href="/health/out/{case.pk}/"' in page
        assert "somebody inspects it and says so" in page
        assert "somebody at the machine" in page
        assert "the rule that placed it ends it" in page
        assert page.index("XID 62") < page.index("new fans")

    def test_what_is_out_for_too_long_is_marked_and_filtered(self, operator: Client, case: Case, settings: Any) -> None:
        assert "<span>too long<" not in text(operator.get("/health/out/"))
        settings.CASE_DWELL_HOURS = 0
        page = text(operator.get("/health/out/?late=on"))
        assert "<span>too long<" in page
        assert "1 is out for more than 0 hours" in page

    def test_filters_and_the_file(self, operator: Client, case: Case) -> None:
        for query, shown in (("q=n1", True), ("q=n9", False), ("hardware=real", False), ("kind=fault", True)):
            assert ("XID 62" in text(operator.get(f"/health/out/?{query}"))) == shown, query
        file = b"".join(operator.get("/health/out/?export=csv")).decode()  # type: ignore[call-overload]
        assert "n1-card-0" in file

    def test_who_operates_a_zone_sees_what_is_in_it(self, people: dict[str, User], case: Case) -> None:
        other = factories.node("n2", cards=1, in_zone=factories.zone("other"))
        out.case(node=other)
        until = database_now() + dt.timedelta(days=1)
        act = Act(people["admin"], "test", "helps")
        odd_grants.give(user=people["researcher"], place=factories.zone("other"), until=until, act=act)
        browser = Client()
        browser.force_login(User.objects.get(username="researcher"))
        page = text(browser.get("/health/out/"))
        assert ('href="/nodes/n2/"' in page, "n1-card-0" in page) == (True, False)
        assert browser.get(f"/health/out/{case.pk}/").status_code == 404
        assert browser.post(f"/health/out/{case.pk}/scrap/", {"reason": "x"}).status_code == 404


class TestTheCase:
    def test_from_the_inspection_to_the_release(self, operator: Client, case: Case) -> None:
        service.advance_all()
        page = text(operator.get(f"/health/out/{case.pk}/"))
        assert "It is done: test it" in page
        assert "XID 62" in page
        assert operator.post(f"/health/out/{case.pk}/done/", {"reason": ""}).status_code == 422
        assert operator.post(f"/health/out/{case.pk}/release/", {"reason": "x"}).status_code == 409
        assert operator.post(f"/health/out/{case.pk}/done/", {"reason": "fan changed"}).status_code == 302
        for _ in range(2):
            service.advance_all()
        page = text(operator.get(f"/health/out/{case.pk}/"))
        assert "simulated: burn_in passed" in page
        assert operator.post(f"/health/out/{case.pk}/release/", {"reason": "looks good"}).status_code == 302
        case.refresh_from_db()
        assert (case.state, Hold.objects.filter(period__upper_inf=True).exists()) == (CaseState.RETURNED, False)
        assert "looks good" in text(operator.get(f"/health/out/{case.pk}/"))

    def test_its_open_faults_have_the_names_that_they_have_elsewhere(self, operator: Client, case: Case) -> None:
        now = database_now()
        Fault.objects.create(node=case.node, card=case.card, kind="xid", code=48, first_seen=now, last_seen=now)
        page = text(operator.get(f"/health/out/{case.pk}/"))
        assert "<td>XID 48 " in page

    def test_an_act_wants_a_fresh_password(self, operator: Client, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sudo, "is_fresh", lambda request: False)
        assert operator.post(f"/health/out/{case.pk}/scrap/", {"reason": "x"}).status_code == 403
        case.refresh_from_db()
        assert case.ended_at is None

    def test_over_the_api(self, people: dict[str, User], case: Case) -> None:
        service.advance_all()
        caller = api(people["operator"])
        row = caller.get("health/out/").json()["results"][0]
        assert (row["case"], row["waits_for"], row["who_acts"]) == (case.pk, "inspection", "hands")
        path = f"health/cases/{case.pk}/"
        assert caller.get(path).json()["state"] == "needed"
        assert caller.post(f"{path}acts/", {"act": "burn", "reason": "x"}).status_code == 400
        told = caller.post(f"{path}acts/", {"act": "done", "reason": "fan changed"})
        assert (told.status_code, told.json()["note"]) == (200, "done: fan changed")
        assert caller.post(f"{path}acts/", {"act": "release", "reason": "x"}).status_code == 409


class TestDrills:
    def test_from_the_page_with_preview_to_the_verdict(
        self, operator: Client, people: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings.SIMULATED_SERVICE_S = 0
        out.without_alerts(monkeypatch)
        factories.node("n1", cards=2)
        preview = text(operator.get("/health/drills/new/?place=n1-card-0"))
        assert "Preview: nothing has changed yet." in preview
        assert not Drill.objects.exists()
        usual = {"place": "n1-card-0", "hold_s": "5", "avoid_s": "10", "alert_s": "120", "return_s": "3600"}
        assert operator.post("/health/drills/new/", usual).status_code == 422
        answer = operator.post("/health/drills/new/", usual | {"reason": "monthly"})
        drill = Drill.objects.get()
        assert answer["Location"] == f"/health/drills/{drill.pk}/"
        assert 'hx-trigger="every 2s"' in text(operator.get(answer["Location"]))
        for _ in range(4):
            drills.advance_all()
            service.advance_all()
        page = text(operator.get(answer["Location"]))
        assert "nothing missed, not all measured" in page
        assert "no channel: its alert leaves the portal by none" in page
        assert "hx-trigger" not in page.partition('id="drill"')[2].partition("<section")[0]
        assert "nothing missed" in text(operator.get("/health/drills/"))

    def test_the_preview_names_the_work_on_it(self, operator: Client, running: Any) -> None:
        busy = Card.objects.get(shares__period__upper_inf=True)
        page = text(operator.get(f"/health/drills/new/?place={busy.uuid}"))
        assert f'href="/jobs/{running.pk}/"' in page
        form = {"place": busy.uuid, "hold_s": 5, "avoid_s": 1, "alert_s": 1, "return_s": 9, "reason": "x"}
        answer = operator.post("/health/drills/new/", form)
        assert (answer.status_code, "Confirm that it may drain" in text(answer)) == (422, True)
        assert operator.post("/health/drills/new/", form | {"drain": "on"}).status_code == 302

    @pytest.mark.parametrize("place", ["nowhere", "a\x00b", " ", "x" * 300])
    def test_a_place_that_is_not_there(self, operator: Client, people: Any, place: str) -> None:
        assert operator.get("/health/drills/new/", {"place": place}).status_code in (200, 422)
        assert operator.post("/health/drills/new/", {"place": place, "reason": "x"}).status_code == 422

    def test_abort_from_the_page(self, operator: Client, case: Case) -> None:
        drill = drills.plan_drill(card=Card.objects.get(uuid="n1-card-1"), act=out.operator("drill"))
        drills.advance_all()
        assert operator.post(f"/health/drills/{drill.pk}/abort/", {"reason": ""}).status_code == 422
        assert operator.post(f"/health/drills/{drill.pk}/abort/", {"reason": "enough"}).status_code == 302
        drill.refresh_from_db()
        assert drill.state == DrillState.ENDED
        assert operator.post(f"/health/drills/{drill.pk}/abort/", {"reason": "enough"}).status_code == 409

    def test_when_each_zone_had_its_last(self, operator: Client, people: Any, settings: Any) -> None:
        factories.node("n1", cards=1)
        assert "in time" in text(operator.get("/health/drills/"))
        settings.DRILL_EVERY_DAYS = 0
        assert "overdue" in text(operator.get("/health/drills/"))

    def test_over_the_api(self, people: dict[str, User], settings: Any) -> None:
        factories.node("n1", cards=1)
        caller = api(people["operator"])
        for body, field in (
            ({"reason": "x"}, "node"),
            ({"node": "n1", "card": "n1-card-0", "reason": "x"}, "node"),
            ({"node": "n9", "reason": "x"}, "node"),
            ({"node": "n1", "reason": "x", "hold_s": -1}, "hold_s"),
            ({"node": "n1", "reason": "x", "due_at": "2999-01-01T00:00:00Z"}, "due_at"),
            ({"node": "n1"}, "reason"),
        ):
            answer = caller.post("health/drills/", body)
            assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, field), body
        made = caller.post("health/drills/", {"card": "n1-card-0", "reason": "monthly", "return_s": 60})
        assert made.status_code == 201
        told = caller.get(made["Location"]).json()
        assert (told["card"], told["state"]) == ("n1-card-0", "planned")
        assert caller.post("health/drills/", {"card": "n1-card-0", "reason": "again"}).status_code == 409
        ended = caller.post(f"health/drills/{told['id']}/abort/", {"reason": "enough"}).json()
        assert ended["verdict"] == "aborted"
        assert caller.get("health/drills/").json()["results"][0]["verdict"] == "aborted"


@pytest.mark.django_db
def test_every_step_of_a_case_is_told_in_the_readers_language(
    people: dict[str, User], settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a case and a drill say of themselves has its words here."""
    settings.SIMULATED_SERVICE_S = 0
    out.without_alerts(monkeypatch)
    factories.node("n1", cards=3)
    out.case(card(), need=Need.REBOOT)
    out.case(Card.objects.get(uuid="n1-card-1"), need=Need.RESET, by_hand=True)
    drills.plan_drill(card=Card.objects.get(uuid="n1-card-2"), act=out.operator("drill"))
    for _ in range(5):
        drills.advance_all()
        service.advance_all()
    said = set(AuditEvent.objects.filter(target_type="case").values_list("after__why", flat=True))
    assert len(said) > 6
    known = {*out_words.STORY}
    left = {why for why in said if why not in known and not why.startswith((*out_words.PREFIXES, "drill "))}
    assert left == set()


def test_every_word_has_its_label() -> None:
    from ledger.dwell import Waits, Who
    from ledger.vocabulary import OrderKind
    from scheduler.drill_rows import DrillVerdict
    from scheduler.drill_verdict import Said

    for words, table in (
        (CaseState, out_words.CASES),
        (Need, out_words.NEEDS),
        (OrderKind, out_words.ORDERS),
        (Waits, out_words.WAITS),
        (Who, out_words.WHO),
        (DrillState, out_words.DRILLS),
        (DrillVerdict, out_words.VERDICTS),
        (Said, out_words.SAID),
    ):
        assert {str(word) for word in words} == {str(word) for word in table}
