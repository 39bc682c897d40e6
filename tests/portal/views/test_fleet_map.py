"""The fleet map: one JSON of all cards, whose they are only to who may see it, and the same by rack as a table."""

from __future__ import annotations

import json
from itertools import accumulate
from typing import Any
from urllib.parse import urlencode

import pytest

from ledger import fleet
from ledger.clock import database_now
from ledger.fleet_file import Fleet, FleetNode
from ledger.inventory import place_hold
from ledger.models import Allocation, Card, Fault, Job, Node, User
from ledger.vocabulary import Form, HoldKind, NodeState
from portal import map_words
from portal.ops_forms import COLOURS
from portal.views import fleet_cells
from portal.views.fleet_cells import NOBODY, OTHERS, SEVERAL, CardState
from scheduler import snapshot
from tests import factories
from tests.ledger import watch
from tests.portal.views.conftest import ClientAs

MOST_BYTES = 1_500_000
HOSTILE = "</script><b>r1"
GOLDEN_DATA, GOLDEN_PAGE = 13, 12


def cells(client_as: ClientAs, who: str = "researcher", **query: str) -> dict[str, Any]:
    response = client_as(who).get(f"/ops/map/cards.json?{urlencode({'hardware': 'simulated'} | query)}")
    assert response.status_code == 200
    found: dict[str, Any] = response.json()
    return found


def cards_of(found: dict[str, Any], hostname: str) -> list[dict[str, Any]]:
    """The cards of one node as rows, read as the script of the page reads them."""
    at = found["nodes"]["name"].index(hostname)
    ends = list(accumulate(found["nodes"]["cards"]))
    span = range(ends[at] - found["nodes"]["cards"][at], ends[at])
    return [{name: column[i] for name, column in found["cards"].items()} for i in span]


def states(found: dict[str, Any], hostname: str) -> list[CardState]:
    return [CardState(card["state"]) for card in cards_of(found, hostname)]


class TestCards:
    def test_columns_have_one_length_and_follow_the_nodes(self, client_as: ClientAs, running: Job) -> None:
        factories.node("n0", cards=3)
        factories.node("bare", cards=0)
        found = cells(client_as)
        assert {len(column) for column in found["nodes"].values()} == {3}
        assert {len(column) for column in found["cards"].values()} == {5}
        assert dict(zip(found["nodes"]["name"], found["nodes"]["cards"], strict=True)) == {"n0": 3, "n1": 2, "bare": 0}
        assert [card["slot"] for card in cards_of(found, "n0")] == [0, 1, 2]

    def test_how_full_a_card_is(self, client_as: ClientAs, running: Job, turn: Any) -> None:
        found = cells(client_as)
        assert states(found, "n1") == [CardState.PARTLY, CardState.FREE]
        assert [card["given"] for card in cards_of(found, "n1")] == [1024, 0]
        factories.job(
            asks=[{"form": "container", "memory_mib": 16_000 - 1024}], command=["simulate", "--seconds", "99"]
        )
        turn()
        assert states(cells(client_as), "n1")[0] == CardState.USED

    def test_free_cards_of_a_node_in_use_as_blocks_are_stranded(
        self, client_as: ClientAs, people: dict[str, User], turn: Any
    ) -> None:
        factories.node("b1", cards=4, block=2)
        factories.job(asks=[{"form": "block", "cards_per_node": 2}], command=["simulate", "--seconds", "99"])
        turn()
        found = sorted(states(cells(client_as), "b1"))
        assert found == [CardState.USED] * 2 + [CardState.STRANDED] * 2
        assert cells(client_as)["nodes"]["form"] == ["block"]

    def test_held_cards_held_nodes_and_nodes_out_of_reach(self, client_as: ClientAs, running: Job) -> None:
        hold = {"kind": HoldKind.MAINTENANCE, "reason": "fan", "actor": None, "via": "test"}
        place_hold(**hold, card=Card.objects.get(uuid="n1-card-0"))
        place_hold(**hold, card=Card.objects.get(uuid="n1-card-1"))
        factories.node("n2", cards=1)
        place_hold(**hold, node=Node.objects.get(hostname="n2"))
        factories.node("n3", cards=1)
        Node.objects.filter(hostname="n3").update(state=NodeState.OFFLINE)
        factories.node("n4", cards=1)
        Node.objects.filter(hostname="n4").update(state=NodeState.RETIRED)
        found = cells(client_as)
        assert states(found, "n1") == [CardState.HELD_IN_USE, CardState.HELD]
        assert (states(found, "n2"), states(found, "n3")) == ([CardState.HELD], [CardState.OFFLINE])
        assert cards_of(found, "n1")[1]["hold"] == "maintenance"
        assert found["nodes"]["hold"][found["nodes"]["name"].index("n2")] == "maintenance"
        assert "n4" not in found["nodes"]["name"]

    def test_a_card_whose_tenants_all_leave_is_being_cleaned(self, client_as: ClientAs, running: Job) -> None:
        from scheduler import queue

        queue.cancel(job_id=running.pk, actor=running.by, reason="done", via="test")
        assert Allocation.objects.get().state == "closing"
        assert states(cells(client_as), "n1") == [CardState.CLEANING, CardState.FREE]

    def test_open_faults_are_counted_on_cards_and_nodes(self, client_as: ClientAs, running: Job) -> None:
        node, card, now = Node.objects.get(hostname="n1"), Card.objects.get(uuid="n1-card-0"), database_now()
        for code in (48, 79):
            Fault.objects.create(node=node, card=card, kind="xid", code=code, first_seen=now, last_seen=now)
        Fault.objects.create(node=node, kind="clock", first_seen=now, last_seen=now)
        Fault.objects.create(node=node, kind="ecc", first_seen=now, last_seen=now, cleared_at=now)
        found = cells(client_as)
        assert [card["faults"] for card in cards_of(found, "n1")] == [2, 0]
        assert found["nodes"]["faults"] == [1]

    def test_what_a_card_does_not_tell_is_null_and_not_nought(self, client_as: ClientAs, running: Job) -> None:
        card = cards_of(cells(client_as), "n1")[0]
        assert (card["temperature"], card["used"], card["load"]) == (None, None, None)

    def test_real_and_simulated_cards_never_share_a_map(self, client_as: ClientAs, running: Job) -> None:
        factories.node("r1", cards=1, simulated=False)
        assert cells(client_as)["nodes"]["name"] == ["n1"]
        assert cells(client_as, hardware="real")["nodes"]["name"] == ["r1"]


class TestOwners:
    @pytest.mark.parametrize("who", ["researcher", "member", "operator", "auditor"])
    def test_who_sees_the_project_sees_its_cards(self, client_as: ClientAs, running: Job, who: str) -> None:
        found = cells(client_as, who)
        owners = [card["owner"] for card in cards_of(found, "n1")]
        assert (found["projects"][owners[0]], owners[1]) == ("vision", NOBODY)

    def test_others_see_that_a_card_is_taken_but_not_by_whom(self, client_as: ClientAs, running: Job) -> None:
        found = cells(client_as, "outsider")
        assert [card["owner"] for card in cards_of(found, "n1")] == [OTHERS, NOBODY]
        assert found["projects"] == ["outside"]
        assert "vision" not in json.dumps(found)
        assert "steady" not in json.dumps(found)

    def test_a_card_of_two_projects_is_of_several(
        self, client_as: ClientAs, people: dict[str, User], running: Job, turn: Any
    ) -> None:
        Card.objects.get(uuid="n1-card-1")
        ask = [{"form": "container", "memory_mib": 9_000}]
        for name in ("one", "two"):
            long = ["simulate", "--seconds", "3600"]
            factories.job(people["outsider"], project="outside", name=name, asks=ask, command=long)
        turn()
        assert SEVERAL in [card["owner"] for card in cards_of(cells(client_as), "n1")]


class TestRacks:
    @pytest.fixture
    def racks(self, running: Job) -> None:
        factories.node("a1", cards=2, site="east", room="1", rack="r1")
        factories.node("a2", cards=2, site="east", room="1", rack="r1")
        factories.node("b1", cards=4, site="east", room="1", rack=HOSTILE)

    def test_nodes_stand_in_the_order_of_their_place(self, client_as: ClientAs, racks: None) -> None:
        found = cells(client_as)
        assert [found["places"][i] for i in found["nodes"]["place"]] == [
            "",
            f"east / 1 / {HOSTILE}",
            "east / 1 / r1",
            "east / 1 / r1",
        ]

    def test_one_rack_alone(self, client_as: ClientAs, racks: None) -> None:
        assert cells(client_as, rack="east\t1\tr1")["nodes"]["name"] == ["a1", "a2"]
        assert cells(client_as, rack="\t\t")["nodes"]["name"] == ["n1"]
        assert len(cells(client_as, rack="nowhere")["nodes"]["name"]) == 4

    def test_the_table_beside_the_map_has_the_same_counts(self, client_as: ClientAs, racks: None) -> None:
        response = client_as("researcher").get("/ops/map/?hardware=simulated")
        lines = {row["line"].name: row for row in response.context["lines"]}
        assert {name: (row["line"].nodes, row["line"].cards) for name, row in lines.items()} == {
            "": (1, 2),
            "east / 1 / r1": (2, 4),
            f"east / 1 / {HOSTILE}": (1, 4),
        }
        counted = dict(zip(CardState, lines[""]["counts"], strict=True))
        assert (counted[CardState.PARTLY], counted[CardState.FREE], sum(counted.values())) == (1, 1, 2)
        assert lines["east / 1 / r1"]["nodes"] == "/nodes/?hardware=simulated&q=r1"
        one = client_as("researcher").get(lines["east / 1 / r1"]["map"])
        assert [row["line"].name for row in one.context["lines"]] == ["east / 1 / r1"]

    def test_hostile_names_stay_text(self, client_as: ClientAs, racks: None) -> None:
        page = client_as("researcher").get("/ops/map/?hardware=simulated").content.decode()
        assert "</script><b>" not in page
        assert "<b>r1" not in page

    def test_a_rack_that_is_not_there_is_named_beside_its_field(self, client_as: ClientAs, racks: None) -> None:
        response = client_as("researcher").get("/ops/map/?hardware=simulated&rack=nowhere&colour=taste")
        assert set(response.context["form"].errors) == {"rack", "colour"}
        assert response.context["cards"] == 10
        assert response.context["colour"] == "state"


class TestAnswer:
    def test_a_map_that_did_not_change_is_not_sent_again(self, client_as: ClientAs, running: Job) -> None:
        client = client_as("researcher")
        first = client.get("/ops/map/cards.json?hardware=simulated")
        again = client.get("/ops/map/cards.json?hardware=simulated", headers={"If-None-Match": first["ETag"]})
        assert (again.status_code, again.content, again["ETag"]) == (304, b"", first["ETag"])
        assert first["Cache-Control"] == "private, no-cache"
        factories.node("n2", cards=1)
        changed = client.get("/ops/map/cards.json?hardware=simulated", headers={"If-None-Match": first["ETag"]})
        assert (changed.status_code, changed["ETag"] != first["ETag"]) == (200, True)

    def test_each_person_has_an_etag_of_what_they_see(self, client_as: ClientAs, running: Job) -> None:
        tags = {client_as(who).get("/ops/map/cards.json?hardware=simulated")["ETag"] for who in ("member", "outsider")}
        assert len(tags) == 2

    @pytest.mark.slow
    def test_ten_thousand_cards_are_small_enough(self, client_as: ClientAs, people: dict[str, User]) -> None:
        factories.zone()
        nodes = [
            FleetNode(
                line=n,
                hostname=f"gpu-node-with-a-long-name-{n:04d}.east.example.org",
                site="east",
                room=f"room-{n // 500}",
                rack=f"rack-{n // 8:03d}",
                zone="flexible",
                cards=8,
                model="NVIDIA H200 141GB HBM3e",
                card_memory_mib=143_771,
                cpu_milli=192_000,
                host_memory_mib=2_000_000,
                simulated=True,
            )
            for n in range(1_250)
        ]
        fleet.apply(Fleet(nodes=nodes), actor=None, via="test")
        watch.analyze()
        snapshot.forget()
        client = client_as("operator")
        for page in ("/ops/map/cards.json?hardware=simulated", "/ops/map/?hardware=simulated"):
            response = client.get(page)
            assert len(response.content) < MOST_BYTES, page
        assert len(client.get("/ops/map/cards.json?hardware=simulated").json()["cards"]["slot"]) == 10_000

    def test_the_number_of_queries_does_not_grow(
        self, client_as: ClientAs, running: Job, django_assert_num_queries: Any
    ) -> None:
        client = client_as("researcher")
        golden = {"/ops/map/cards.json?hardware=simulated": GOLDEN_DATA, "/ops/map/?hardware=simulated": GOLDEN_PAGE}
        for page, number in golden.items():
            client.get(page)
            with django_assert_num_queries(number):
                client.get(page)
        for n in range(4):
            factories.node(f"m{n}", cards=2, rack=f"r{n}")
        for page, number in golden.items():
            with django_assert_num_queries(number):
                client.get(page)


class TestPage:
    def test_it_says_what_to_do_when_there_is_no_card(self, client_as: ClientAs, people: dict[str, User]) -> None:
        client = client_as("researcher")
        assert b"Start the node agent on a machine" in client.get("/ops/map/").content
        assert b"Import a fleet file" in client.get("/ops/map/?hardware=simulated").content

    def test_the_texts_of_the_script_are_those_of_the_reader(self, client_as: ClientAs, running: Job) -> None:
        page = client_as("researcher").get("/ops/map/?hardware=simulated").content.decode()
        source = page.split('<script id="map-texts" type="application/json">')[1].split("</script>")[0]
        assert set(json.loads(source)["legends"]) == {name for name, _label in COLOURS}


def test_every_choice_of_colour_has_a_legend_without_twins() -> None:
    legends = map_words.legends()
    assert set(legends) == {name for name, _label in COLOURS}
    for name, legend in legends.items():
        marks = [(entry["fill"], entry["pattern"]) for entry in legend["entries"]]
        labels = [entry["label"] for entry in legend["entries"]]
        assert len(set(marks)) == len(marks), name
        assert len(set(labels)) == len(labels), name
    assert {entry["key"] for entry in legends["state"]["entries"]} == {int(state) for state in CardState}
    assert {entry["key"] for entry in legends["form"]["entries"]} == {"", *(str(form) for form in Form)}
    assert {entry["key"] for entry in legends["owner"]["entries"]} == {NOBODY, OTHERS, SEVERAL}


def test_every_fill_has_its_colour_in_both_themes(settings: Any) -> None:
    css = (settings.BASE_DIR / "static" / "css" / "ops.css").read_text()
    light, dark = css.split('[data-bs-theme="dark"]')[0], css.split('[data-bs-theme="dark"]')[1].split("}")[0]
    fills = {entry["fill"] for legend in map_words.legends().values() for entry in legend["entries"]}
    for fill in fills | {f"p{n}" for n in range(map_words.PALETTE)} | {"line", "ink", "pale"}:
        assert f"--map-{fill}: #" in light, fill
        assert f"--map-{fill}: #" in dark, fill


def test_places_are_named_by_what_they_have() -> None:
    assert fleet_cells.place_name(("east", "", "r1")) == "east / r1"
    assert fleet_cells.place_name(("", "", "")) == ""
