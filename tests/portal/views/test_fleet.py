"""The pages of nodes and cards: real and simulated apart, names only to who may see them, life stories in pages."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from ledger import audit
from ledger.clock import database_now
from ledger.inventory import end_hold, place_hold
from ledger.models import Card, CardShare, CardStatus, Fault, Job, Node, NodeBoot, NodeZone, User
from ledger.vocabulary import HoldKind
from portal.views import cards as card_pages
from portal.views import nodes as node_pages
from tests import factories
from tests.portal.views.conftest import ClientAs


def rows(client_as: ClientAs, query: str) -> dict[str, Any]:
    found = client_as("researcher").get(f"/nodes/?{query}").context["t"]["rows"]
    return {row.node.hostname: row for _key, row in found}


@pytest.fixture
def fleet(running: Job) -> None:
    """n1 runs a container job; n2 is offline, n3 has a held card, r1 is real."""
    factories.node("n2", cards=2)
    factories.node("n3", cards=2, model="H100", rack="r9")
    factories.node("r1", cards=1, simulated=False)
    Node.objects.filter(hostname="n2").update(state="offline")
    place_hold(
        kind=HoldKind.FAULT, reason="XID 79", actor=None, via="test", card=Card.objects.get(uuid="n3-card-0"), node=None
    )


@pytest.mark.usefixtures("fleet")
class TestNodeList:
    def test_real_and_simulated_nodes_never_share_a_list(self, client_as: ClientAs) -> None:
        assert set(rows(client_as, "")) == {"r1"}
        assert set(rows(client_as, "hardware=simulated")) == {"n1", "n2", "n3"}

    def test_a_free_card_has_no_tenant_no_hold_and_a_node_that_is_up(self, client_as: ClientAs) -> None:
        free = {name: row.free_cards for name, row in rows(client_as, "hardware=simulated").items()}
        assert free == {"n1": 1, "n2": 0, "n3": 1}

    def test_the_free_memory_counts_what_is_left_of_a_shared_card(self, client_as: ClientAs) -> None:
        assert rows(client_as, "hardware=simulated")["n1"].free_mib == 2 * 16_000 - 1024

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("form=container", {"n1"}),
            ("form=none", {"n2", "n3"}),
            ("state=offline", {"n2"}),
            ("free=1", {"n1", "n3"}),
            ("free=2", set()),
            ("model=H100", {"n3"}),
            ("q=R9", {"n3"}),
            ("zone=flexible&q=n1", {"n1"}),
        ],
    )
    def test_filters(self, client_as: ClientAs, query: str, expected: set[str]) -> None:
        assert set(rows(client_as, f"hardware=simulated&{query}")) == expected

    def test_the_first_page_counts_the_same_free_cards(self, client_as: ClientAs) -> None:
        cells = client_as("researcher").get("/").context["offers"]
        counted = {(cell.simulated, cell.model): (cell.free_cards, cell.cards) for cell in cells}
        assert counted == {(True, "A100"): (1, 4), (True, "H100"): (1, 2), (False, "A100"): (1, 1)}

    def test_a_longer_list_asks_the_database_no_more_often(self, client_as: ClientAs) -> None:
        client = client_as("researcher")
        with CaptureQueriesContext(
            connection,
        ) as few:
            client.get("/nodes/?hardware=simulated")
        for number in range(5):
            factories.node(f"m{number}", cards=2)
        with CaptureQueriesContext(connection) as many:
            client.get("/nodes/?hardware=simulated")
        assert len(many) == len(few)


def test_an_empty_list_says_the_next_step(client_as: ClientAs) -> None:
    assert b"start the node agent" in client_as("researcher").get("/nodes/").content


def test_a_held_card_says_why(client_as: ClientAs, fleet: None) -> None:
    page = client_as("researcher").get("/nodes/n3/").content.decode()
    assert "held: fault" in page
    assert "XID 79" in page


@pytest.mark.parametrize("who", ["researcher", "member", "owner", "manager", "operator"])
def test_who_may_see_the_job_sees_who_holds_the_card(client_as: ClientAs, running: Job, who: str) -> None:
    page = client_as(who).get("/nodes/n1/").content.decode()
    assert f'href="/jobs/{running.pk}/"' in page
    assert "steady" in page


def test_an_outsider_sees_that_the_card_is_taken_but_not_by_whom(client_as: ClientAs, running: Job) -> None:
    page = client_as("outsider").get("/nodes/n1/").content.decode()
    assert "another project" in page
    assert "vision" not in page
    assert "steady" not in page


def test_virtual_cards_are_labelled(client_as: ClientAs, people: dict[str, User]) -> None:
    factories.node("v1", cards=1, simulated=False)
    Card.objects.filter(uuid="v1-card-0").update(virtual=True)
    client = client_as("researcher")
    for path in ("/nodes/", "/nodes/v1/"):
        assert ">virtual<" in client.get(path).content.decode()


@pytest.mark.usefixtures("fleet")
class TestNodeTable:
    def test_columns_are_chosen_and_exported(self, client_as: ClientAs) -> None:
        client = client_as("researcher")
        page = client.get("/nodes/?hardware=simulated&columns=node,labels,cpu")
        assert [head["column"].name for head in page.context["t"]["heads"]] == ["node", "cpu", "labels"]
        lines = _csv(client.get("/nodes/?hardware=simulated&columns=node,free,cards&export=csv"))
        assert lines[-4:] == [
            ["Node", "Free (cards)", "All (cards)"],
            ["n1", "1", "2"],
            ["n2", "0", "2"],
            ["n3", "1", "2"],
        ]

    def test_every_column_can_be_shown(self, client_as: ClientAs) -> None:
        names = ",".join(column.name for column in node_pages.COLUMNS)
        page = client_as("operator").get(f"/nodes/?hardware=simulated&columns={names}")
        assert len(page.context["t"]["heads"]) == len(node_pages.COLUMNS)

    def test_every_sorting_works_both_ways(self, client_as: ClientAs) -> None:
        client = client_as("researcher")
        for name in (f"{sign}{column.name}" for column in node_pages.COLUMNS if column.sort for sign in ("", "-")):
            t = client.get(f"/nodes/?hardware=simulated&sort={name}").context["t"]
            assert (t["table"].complaints, {key for key, _row in t["rows"]}) == ([], {"n1", "n2", "n3"}), name

    def test_sorting_by_free_cards(self, client_as: ClientAs) -> None:
        factories.node("n4", cards=3)
        found = list(rows(client_as, "hardware=simulated&sort=-free"))
        assert (found[0], found[-1]) == ("n4", "n2")

    @pytest.mark.parametrize(("who", "boxes"), [("researcher", 0), ("manager", 0), ("operator", 3), ("admin", 4)])
    def test_acts_on_many_are_offered_to_those_who_may(self, client_as: ClientAs, who: str, boxes: int) -> None:
        page = client_as(who).get("/nodes/?hardware=simulated").content.decode()
        assert page.count("formaction=") == boxes

    def test_a_bad_query_is_told_and_not_applied(self, client_as: ClientAs) -> None:
        page = client_as("researcher").get("/nodes/?hardware=simulated&sort=secret&columns=nope&page=-1")
        assert len(page.context["t"]["table"].complaints) == 3
        assert len(page.context["t"]["rows"]) == 3


@pytest.mark.usefixtures("fleet")
class TestCardTable:
    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("", {"n1-card-0", "n1-card-1", "n2-card-0", "n2-card-1", "n3-card-0", "n3-card-1"}),
            ("state=held", {"n3-card-0"}),
            ("state=faulty", {"n2-card-0"}),
            ("model=H100&state=free", {"n3-card-1"}),
            ("q=n2-CARD-1", {"n2-card-1"}),
            ("q=n3", {"n3-card-0", "n3-card-1"}),
            ("temperature=80", {"n2-card-1"}),
            ("zone=flexible&q=n1", {"n1-card-0", "n1-card-1"}),
        ],
    )
    def test_filters(self, client_as: ClientAs, query: str, expected: set[str]) -> None:
        _fault_and_heat()
        found = client_as("researcher").get(f"/cards/?hardware=simulated&{query}").context["t"]["rows"]
        assert {key for key, _row in found} == expected

    def test_taken_cards(self, client_as: ClientAs) -> None:
        found = client_as("researcher").get("/cards/?hardware=simulated&state=taken").context["t"]["rows"]
        assert [row.taken_mib for _key, row in found] == [1024]

    def test_every_column_is_shown_sorted_and_exported(self, client_as: ClientAs) -> None:
        _fault_and_heat()
        client = client_as("researcher")
        for name in (f"{sign}{column.name}" for column in card_pages.COLUMNS if column.sort for sign in ("", "-")):
            t = client.get(f"/cards/?hardware=simulated&sort={name}").context["t"]
            assert (t["table"].complaints, len(t["rows"])) == ([], 6), name
        names = [column.name for column in card_pages.COLUMNS]
        lines = _csv(client.get(f"/cards/?hardware=simulated&columns={','.join(names)}&export=csv"))
        assert [len(line) for line in lines[-7:]] == [len(names)] * 7

    def test_states_in_the_file(self, client_as: ClientAs) -> None:
        lines = _csv(client_as("researcher").get("/cards/?hardware=simulated&columns=card,state&export=csv"))
        states = dict(lines[-6:])
        assert (states["n2-card-0"], states["n3-card-0"], states["n3-card-1"]) == ("offline", "held: fault", "free")

    def test_real_and_simulated_cards_never_share_a_list(self, client_as: ClientAs) -> None:
        found = client_as("researcher").get("/cards/").context["t"]["rows"]
        assert [key for key, _row in found] == ["r1-card-0"]

    def test_a_longer_list_asks_the_database_no_more_often(self, client_as: ClientAs) -> None:
        client = client_as("researcher")
        with CaptureQueriesContext(connection) as few:
            client.get("/cards/?hardware=simulated")
        for number in range(5):
            factories.node(f"m{number}", cards=2)
        with CaptureQueriesContext(connection) as many:
            client.get("/cards/?hardware=simulated")
        assert len(many) == len(few)


def _csv(response: Any) -> list[list[str]]:
    text: str = b"".join(response.streaming_content).decode("utf-8-sig")
    return list(csv.reader(io.StringIO(text)))


def _fault_and_heat() -> None:
    """n2-card-0 has an open fault, n2-card-1 is hot."""
    now = database_now()
    first, second = Card.objects.get(uuid="n2-card-0"), Card.objects.get(uuid="n2-card-1")
    node = Node.objects.get(hostname="n2")
    Fault.objects.create(node=node, card=first, kind="xid", code=79, message="fell off", first_seen=now, last_seen=now)
    boot = NodeBoot.objects.create(node=node, boot_id="b", first_seen=now)
    CardStatus.objects.create(card=second, boot=boot, sequence=1, received_at=now, temperature_c=91)


def story(client: Client, path: str) -> list[str]:
    return [str(line.look.label) for line in client.get(path).context["story"].object_list]


class TestLifeStory:
    def test_a_node_tells_its_life_newest_first(
        self, client_as: ClientAs, running: Job, people: dict[str, User]
    ) -> None:
        _fault_and_more(people)
        told = story(client_as("operator"), "/nodes/n1/")
        assert told[:4] == ["enters zone whole", "fault XID 79", "returned to the pool", "held: maintenance"]
        assert told[4] == "work begins"
        assert sorted(told[5:]) == ["card into slot 0", "card into slot 1", "enters zone flexible"]

    def test_rows_of_the_trail_are_told_in_words(self, client_as: ClientAs, people: dict[str, User]) -> None:
        node = factories.node("n1", cards=4)
        facts: list[tuple[str, dict[str, Any] | None, dict[str, Any]]] = [
            ("node.registered", None, {"hostname": "n1", "cards": 4, "model": "T4", "zone": "flexible"}),
            ("node.blocks.cut", None, {"blocks": 2, "size": 2}),
            ("node.blocks.cut", None, {"blocks": 1, "size": 1}),
            ("node.resized", {"cpu_milli": 4000}, {"cpu_milli": 8000}),
            ("node.up", {"state": "offline"}, {"state": "up"}),
        ]
        for verb, before, after in facts:
            audit.record(actor=None, via="test", verb=verb, target=node, before=before, after=after)
        NodeBoot.objects.create(node=node, boot_id="5a4cde8a-1111-2222-3333-444455556666", first_seen=database_now())
        lines = client_as("operator").get("/nodes/n1/").context["story"].object_list
        told = {(str(line.look.label), line.detail) for line in lines}
        assert told >= {
            ("joins the fleet", "4 cards · T4"),
            ("cut into blocks", "2 blocks of 2 cards"),
            ("cut into blocks", "1 block of 1 card"),
            ("its size changes", "CPU cores: 4 → CPU cores: 8"),
            ("reports again", ""),
            ("first report after a boot", "boot 5a4cde8a…"),
        }

    def test_the_place_of_a_node_has_the_parts_that_are_known(self, client_as: ClientAs) -> None:
        node = factories.node("n1", cards=1)
        for parts, told in (
            ({"rack": "r7"}, "r7"),
            ({"site": "north", "rack": "r7"}, "north / r7"),
            ({"rack": ""}, "—"),
        ):
            Node.objects.filter(pk=node.pk).update(**({"site": "", "room": "", "rack": ""} | parts))
            assert f"<dt>Place</dt><dd>{told}</dd>" in client_as("researcher").get("/nodes/n1/").content.decode()

    def test_who_ended_a_hold_and_why_is_for_those_who_may_read_the_trail(
        self, client_as: ClientAs, running: Job, people: dict[str, User]
    ) -> None:
        _fault_and_more(people)
        assert "fans are in" in client_as("operator").get("/nodes/n1/").content.decode()
        assert "fans are in" not in client_as("outsider").get("/nodes/n1/").content.decode()

    def test_names_of_jobs_are_for_those_who_may_see_them(self, client_as: ClientAs, running: Job) -> None:
        uuid = CardShare.objects.get().card.uuid
        for path in ("/nodes/n1/", f"/cards/{uuid}/"):
            assert "steady" in client_as("researcher").get(path).content.decode()
            page = client_as("outsider").get(path).content.decode()
            assert "another project" in page
            assert "steady" not in page
            assert "vision" not in page

    def test_a_card_tells_its_shares_seats_and_holds(
        self, client_as: ClientAs, running: Job, turn: Callable[[], None]
    ) -> None:
        card = CardShare.objects.get().card
        place_hold(kind=HoldKind.DRILL, reason="x", actor=None, via="test", card=card)
        client_as("researcher").post(f"/jobs/{running.pk}/cancel/", {"reason": "enough"})
        for _ in range(3):
            turn()
        told = story(client_as("researcher"), f"/cards/{card.uuid}/")
        assert told == ["share is free again", "held: drill", "share taken", told[3]]
        assert told[3].startswith("card into slot")

    def test_a_long_life_comes_in_pages(self, client_as: ClientAs, people: dict[str, User]) -> None:
        card = Card.objects.get(seats__node=factories.node("n1", cards=1))
        for _ in range(20):
            hold = place_hold(kind=HoldKind.DRILL, reason="again", actor=people["operator"], via="test", card=card)
            end_hold(hold_id=hold.pk, reason="done", actor=people["operator"], via="test")
        client = client_as("operator")
        assert len(story(client, f"/cards/{card.uuid}/")) == 30
        assert len(story(client, f"/cards/{card.uuid}/?page=2")) == 11
        for page in ("-1", "x", "999999999", "9" * 50):
            assert client.get(f"/cards/{card.uuid}/?page={page}").status_code == 200

    @pytest.mark.parametrize("path", ["/nodes/n1/", "/cards/n1-card-0/"])
    def test_a_longer_life_asks_the_database_no_more_often(
        self, client_as: ClientAs, running: Job, people: dict[str, User], path: str, turn: Callable[[], None]
    ) -> None:
        _fault_and_more(people)
        card = Card.objects.get(uuid="n1-card-0")
        end_hold(hold_id=_held(card, people), reason="z", actor=people["operator"], via="test")
        client = client_as("operator")
        client.get(path)
        with CaptureQueriesContext(connection) as few:
            client.get(path)
        for _ in range(3):
            end_hold(hold_id=_held(card, people), reason="z", actor=people["operator"], via="test")
        _held(card, people)
        with CaptureQueriesContext(connection) as many:
            client.get(path)
        assert len(many) == len(few)

    def test_whose_boundary_it_was_at_a_moment(
        self, client_as: ClientAs, running: Job, turn: Callable[[], None]
    ) -> None:
        share = CardShare.objects.get()
        then = database_now()
        client_as("researcher").post(f"/jobs/{running.pk}/cancel/", {"reason": "enough"})
        for _ in range(3):
            turn()
        client, path = client_as("researcher"), f"/cards/{share.card.uuid}/"
        at = client.get(f"{path}?{urlencode({'at': then.isoformat()})}")
        assert [(holder.job, holder.share.memory) for holder in at.context["holders"]] == [(running, ((0, 1024),))]
        assert client.get(f"/nodes/n1/?{urlencode({'at': then.isoformat()})}").context["holders"]
        later = client.get(f"{path}?{urlencode({'at': database_now().isoformat()})}")
        assert later.context["holders"] == []
        assert "Nobody held any part of it" in later.content.decode()
        hidden = client_as("outsider").get(f"{path}?{urlencode({'at': then.isoformat()})}").content.decode()
        assert "steady" not in hidden

    def test_a_bad_moment_never_breaks_the_page(self, client_as: ClientAs, running: Job) -> None:
        client = client_as("researcher")
        for at in ("x", "0001-01-01T00:00", "9999-12-31T23:59", "\x00", "2026-02-30T00:00", "9" * 500):
            for path in ("/nodes/n1/", "/cards/n1-card-0/"):
                assert client.get(f"{path}?{urlencode({'at': at})}").status_code == 200, (path, at)


def _held(card: Card, people: dict[str, User]) -> int:
    return place_hold(kind=HoldKind.DRILL, reason="y", actor=people["operator"], via="test", card=card).pk


def _fault_and_more(people: dict[str, User]) -> None:
    """n1 was held and returned, had a fault, and went to another zone and, by the period, stands there."""
    node, now = Node.objects.get(hostname="n1"), database_now
    hold = place_hold(kind=HoldKind.MAINTENANCE, reason="new fans", actor=people["operator"], via="test", node=node)
    end_hold(hold_id=hold.pk, reason="fans are in", actor=people["operator"], via="test")
    card = Card.objects.get(uuid="n1-card-0")
    at = now()
    Fault.objects.create(node=node, card=card, kind="xid", code=79, message="fell off", first_seen=at, last_seen=at)
    old = NodeZone.objects.get(node=node)
    at = now()
    NodeZone.objects.filter(pk=old.pk).update(period=(old.period.lower, at))
    NodeZone.objects.create(node=node, zone=factories.zone("whole"), period=(at, None))


def test_a_machine_that_is_not_there_is_not_found(client_as: ClientAs, people: dict[str, User]) -> None:
    client = client_as("researcher")
    for name in ("nowhere", "x" * 2000, "%00", "💥", "..%2f..", "<script>"):
        for path in ("/cards/{}/", "/nodes/{}/"):
            assert client.get(path.format(name)).status_code == 404, (path, name)


@pytest.mark.parametrize(("who", "links"), [("researcher", 0), ("manager", 0), ("operator", 4), ("admin", 4)])
def test_acts_of_a_node_are_offered_to_those_who_may(client_as: ClientAs, running: Job, who: str, links: int) -> None:
    page = client_as(who).get("/nodes/n1/").content.decode()
    assert page.count("/machines/") == links
