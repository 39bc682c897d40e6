"""Hold, drain and return from the pages, one or many, with preview and reason; the next job avoids what is held."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from ledger import holds, inventory
from ledger.errors import Forbidden
from ledger.models import Allocation, AuditEvent, Card, Hold, Job, Node, User
from ledger.vocabulary import Form, HoldKind
from portal import sudo
from scheduler import placing, zones
from scheduler.zone_proposals import propose_list
from tests import factories
from tests.portal.views.conftest import ClientAs

NODES, CARDS = "/machines/nodes/{}/", "/machines/cards/{}/"


@pytest.fixture
def operator(client_as: ClientAs) -> Client:
    return client_as("operator")


@pytest.fixture
def fleet(running: Job) -> None:
    """n1 runs the job `steady` on one of its two cards; n2 and n3 are idle."""
    factories.node("n2", cards=2)
    factories.node("n3", cards=2)


def act(client: Client, path: str, keys: list[str], **values: str) -> Any:
    return client.post(path, {"key": keys, "confirm": "yes", "reason": "new fans"} | values)


def held() -> set[tuple[str, str]]:
    rows = Hold.objects.filter(period__upper_inf=True).select_related("node", "card")
    return {(hold.node.hostname if hold.node else hold.card.uuid if hold.card else "", hold.kind) for hold in rows}


@pytest.mark.usefixtures("fleet")
class TestActs:
    def test_a_preview_changes_nothing_and_shows_what_stands_there(self, operator: Client, running: Job) -> None:
        response = operator.post(NODES.format("hold"), {"key": ["n1", "n2"]})
        page = response.content.decode()
        assert (response.status_code, held()) == (200, set())
        assert f'href="/jobs/{running.pk}/"' in page
        assert "what runs on it goes on" in page
        assert "nothing runs on it" in page

    def test_the_act_wants_a_fresh_password_and_its_preview_does_not(
        self, operator: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sudo, "is_fresh", lambda request: False)
        assert operator.post(NODES.format("hold"), {"key": ["n1"]}).status_code == 200
        asked = act(operator, NODES.format("hold"), ["n1", "n2"], kind="maintenance")
        assert (asked.status_code, held()) == (403, set())
        assert [name for name, _text in asked.context["kept"]].count("key") == 2
        act(operator, NODES.format("hold"), ["n1", "n2"], kind="maintenance", sudo_password=factories.PASSWORD)
        assert held() == {("n1", "maintenance"), ("n2", "maintenance")}

    def test_what_is_not_held_can_not_be_returned(self, operator: Client) -> None:
        page = operator.get(f"{NODES.format('return')}?key=n2").content.decode()
        assert "Nothing here can be returned." in page
        assert 'name="confirm"' not in page
        act(operator, NODES.format("hold"), ["n2"], kind="maintenance")
        page = operator.get(f"{NODES.format('return')}?key=n1&key=n2").content.decode()
        assert ("Nothing here can be returned." in page, 'name="confirm"' in page) == (False, True)

    def test_what_a_rule_holds_can_not_be_returned_by_a_person(self, operator: Client) -> None:
        zones.make_plan(
            proposal=propose_list(hostnames=["n1"], to_zone=factories.zone("whole", [Form.WHOLE])),
            reason="x",
            actor=User.objects.get(username="admin"),
            via="test",
        )
        page = operator.get(f"{NODES.format('return')}?key=n1").content.decode()
        assert ("stays:" in page, "Nothing here can be returned." in page) == (True, True)
        refused = act(operator, NODES.format("return"), ["n1"])
        assert (refused.status_code, "alert-danger" in refused.content.decode()) == (422, True)

    @pytest.mark.parametrize(("path", "keys", "told"), [(NODES, ["n1"], "1 node"), (CARDS, ["n1-card-0"], "1 card")])
    def test_a_preview_counts_what_it_is_about(self, operator: Client, path: str, keys: list[str], told: str) -> None:
        page = operator.post(path.format("hold"), {"key": keys}).content.decode()
        assert f">{told}</span>" in page
        assert ">maintenance</option>" in page

    def test_hold_two_nodes(self, operator: Client, people: dict[str, User]) -> None:
        response = act(operator, NODES.format("hold"), ["n1", "n2"], kind="maintenance")
        assert (response.status_code, response["Location"]) == (302, "/nodes/?hardware=simulated")
        assert held() == {("n1", "maintenance"), ("n2", "maintenance")}
        events = AuditEvent.objects.filter(verb="hold.placed")
        assert {(event.actor, event.via, event.reason) for event in events} == {
            (people["operator"], "page", "new fans")
        }
        assert Allocation.objects.get().period.upper_inf

    def test_drain_then_return(self, operator: Client) -> None:
        response = act(operator, NODES.format("drain"), ["n1"])
        assert (response["Location"], held()) == ("/nodes/n1/", {("n1", "drain")})
        preview = operator.get(NODES.format("return") + "?key=n1").content.decode()
        assert "ends:" in preview
        act(operator, NODES.format("return"), ["n1"])
        assert held() == set()

    def test_return_ends_every_hold_that_a_person_may_end(self, operator: Client) -> None:
        act(operator, NODES.format("hold"), ["n2"], kind="fault")
        act(operator, NODES.format("drain"), ["n2"])
        node = Node.objects.get(hostname="n2")
        inventory.place_hold(
            kind=HoldKind.OFFLINE, reason="", actor=None, via="test", node=node, rule=inventory.SYNC_RULE
        )
        assert "it ends by itself" in operator.get(NODES.format("return") + "?key=n2").content.decode()
        act(operator, NODES.format("return"), ["n2"])
        assert held() == {("n2", "offline")}

    def test_the_drain_of_a_zone_plan_is_left_to_the_plan(self, operator: Client, people: dict[str, User]) -> None:
        proposal = propose_list(hostnames=["n1"], to_zone=factories.zone("whole", [Form.WHOLE]))
        zones.make_plan(proposal=proposal, reason="x", actor=people["admin"], via="test")
        response = act(operator, NODES.format("return"), ["n1"])
        assert (response.status_code, held()) == (422, {("n1", "drain")})

    def test_a_held_card_is_avoided_by_the_next_job(self, operator: Client, people: dict[str, User]) -> None:
        """n1 and n2 are held as nodes and one card of n3 as a card: only the other one is left."""
        act(operator, NODES.format("hold"), ["n1", "n2"], kind="drill")
        act(operator, CARDS.format("hold"), ["n3-card-0"], kind="fault")
        first = factories.job(asks=[{"form": "container", "memory_mib": 0}])
        second = factories.job(asks=[{"form": "container", "memory_mib": 0}])
        placing.place_queued()
        shares = Allocation.objects.get(attempt__job=first).shares.all()
        assert [share.card.uuid for share in shares] == ["n3-card-1"]
        assert not Allocation.objects.filter(attempt__job=second).exists()
        act(operator, CARDS.format("return"), ["n3-card-0"])
        placing.place_queued()
        assert Allocation.objects.get(attempt__job=second).shares.get().card.uuid == "n3-card-0"

    def test_a_held_card_keeps_its_running_job(self, operator: Client, running: Job, turn: Callable[[], None]) -> None:
        uuid = Allocation.objects.get().shares.get().card.uuid
        preview = operator.get(CARDS.format("hold") + f"?key={uuid}").content.decode()
        assert f'href="/jobs/{running.pk}/"' in preview
        response = act(operator, CARDS.format("hold"), [uuid], kind="fault")
        turn()
        running.refresh_from_db()
        assert (response["Location"], running.state, held()) == (f"/cards/{uuid}/", "running", {(uuid, "fault")})

    def test_a_card_that_nobody_holds_is_idle_in_the_preview(self, operator: Client) -> None:
        free = Card.objects.exclude(shares__period__upper_inf=True).filter(seats__node__hostname="n1").get()
        page = operator.get(CARDS.format("hold") + f"?key={free.uuid}").content.decode()
        assert "nothing runs on it" in page


@pytest.mark.usefixtures("fleet")
class TestBadInput:
    @pytest.mark.parametrize("path", [NODES.format("hold"), CARDS.format("return")])
    def test_nothing_chosen(self, operator: Client, path: str) -> None:
        response = act(operator, path, [])
        assert (response.status_code, b"Nothing was chosen" in response.content) == (422, True)

    @pytest.mark.parametrize("key", ["nowhere", "\x00", "x" * 10_000, "<script>alert(1)</script>", "n1-card-0"])
    def test_an_unknown_node_stops_all(self, operator: Client, key: str) -> None:
        response = act(operator, NODES.format("hold"), ["n1", key], kind="drill")
        assert (response.status_code, held()) == (422, set())
        assert "<script>alert" not in response.content.decode()
        assert "are not registered" in response.content.decode()

    def test_too_many_at_once(self, operator: Client) -> None:
        response = act(operator, NODES.format("hold"), [f"m{n}" for n in range(600)], kind="drill")
        assert (response.status_code, b"At most 500" in response.content) == (422, True)

    @pytest.mark.parametrize("reason", ["", "  ", "x" * 501, "x" * 10_000])
    def test_a_reason_that_is_not_right(self, operator: Client, reason: str) -> None:
        response = act(operator, NODES.format("drain"), ["n2"], reason=reason)
        assert (response.status_code, list(response.context["form"].errors), held()) == (422, ["reason"], set())

    @pytest.mark.parametrize("kind", ["", "lost", "offline", "drain", "x"])
    def test_a_kind_that_is_not_a_persons(self, operator: Client, kind: str) -> None:
        response = act(operator, NODES.format("hold"), ["n2"], kind=kind)
        assert (response.status_code, list(response.context["form"].errors), held()) == (422, ["kind"], set())

    def test_what_changes_nothing_is_refused(self, operator: Client) -> None:
        assert act(operator, NODES.format("return"), ["n2"]).status_code == 422
        act(operator, NODES.format("hold"), ["n2"], kind="drill")
        response = act(operator, NODES.format("hold"), ["n2"], kind="drill")
        assert (response.status_code, b"nothing would change" in response.content) == (422, True)

    def test_those_that_are_held_already_do_not_stop_the_others(self, operator: Client) -> None:
        act(operator, NODES.format("hold"), ["n2"], kind="drill")
        assert act(operator, NODES.format("hold"), ["n2", "n3"], kind="drill").status_code == 302
        assert held() == {("n2", "drill"), ("n3", "drill")}

    @pytest.mark.parametrize("who", ["researcher", "owner", "manager", "auditor", "outsider"])
    def test_only_operators_and_admins_act(self, client_as: ClientAs, who: str) -> None:
        client = client_as(who)
        assert act(client, NODES.format("hold"), ["n2"], kind="drill").status_code == 403
        assert client.get(CARDS.format("hold") + "?key=n1-card-0").status_code == 403
        assert "/machines/" not in client.get("/nodes/n1/").content.decode()
        assert held() == set()

    def test_the_writers_know_who_may(self, people: dict[str, User]) -> None:
        nodes = list(Node.objects.all())
        for name in ("researcher", "manager", "auditor"):
            with pytest.raises(Forbidden):
                holds.hold_many(kind=HoldKind.DRILL, reason="x", actor=people[name], via="test", nodes=nodes)
            with pytest.raises(Forbidden):
                holds.return_many(reason="x", actor=people[name], via="test", nodes=nodes)

    def test_a_preview_of_more_asks_the_database_no_more_often(self, operator: Client) -> None:
        operator.post(NODES.format("hold"), {"key": ["n1"]})
        with CaptureQueriesContext(connection) as few:
            operator.post(NODES.format("hold"), {"key": ["n1"]})
        with CaptureQueriesContext(connection) as many:
            operator.post(NODES.format("hold"), {"key": ["n1", "n2", "n3"]})
        assert len(many) == len(few)
