"""The health board: every card in one table whatever its form, how it stands, its counted faults, and whose it is only
for who may see that."""

from __future__ import annotations

import csv
import datetime as dt
import io
from typing import Any
from urllib.parse import urlencode

import pytest

from ledger.clock import database_now
from ledger.inventory import place_hold
from ledger.models import Card, CardStatus, Fault, Job, Node, QualityCount, User
from ledger.vocabulary import HoldKind, NodeState
from portal.health_words import Health
from portal.views import fleet_cells, health_rows
from tests import factories, sampled
from tests.portal.views.conftest import ClientAs

pytestmark = pytest.mark.django_db
MOST_QUERIES = 12


@pytest.fixture
def cards(people: dict[str, User]) -> dict[str, Card]:
    """One node of two cards, a node of one: n1-card-0 …"""
    factories.node("n1", cards=2, memory_mib=16_000, rack="r1", simulated=False)
    factories.node("n2", cards=1, memory_mib=40_000, rack="r2", simulated=False, model="H100")
    return {card.uuid: card for card in Card.objects.all()}


def fault(card: Card | None, node: str = "n1", *, kind: str = "xid", code: int | None = 48, **values: Any) -> Fault:
    now = database_now()
    about = {"first_seen": now, "last_seen": now} | values
    return Fault.objects.create(node=Node.objects.get(hostname=node), card=card, kind=kind, code=code, **about)


def hold(kind: HoldKind, **place: Any) -> None:
    place_hold(kind=kind, reason="because", actor=None, via="test", **place)


def rows(client_as: ClientAs, who: str = "operator", **query: str) -> list[dict[str, str]]:
    """The board's file, as its rows."""
    response = client_as(who).get(f"/health/?{urlencode({'export': 'csv'} | query)}")
    text = b"".join(response.streaming_content).decode("utf-8-sig")  # type: ignore[attr-defined]
    lines = text.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith(('"Card"', "Card")))
    return list(csv.DictReader(io.StringIO("\n".join(lines[start:]))))


def shown(client_as: ClientAs, **query: str) -> list[str]:
    response = client_as("operator").get(f"/health/?{urlencode(query)}")
    return [row.card.uuid for _key, row in response.context["t"]["rows"]]


class TestHealth:
    """In the database, on the map and in one word."""

    def standing(self, uuid: str) -> Health:
        now = database_now()
        user = factories.user("researcher")
        seats = health_rows.filtered({}, user, simulated=False, now=now)
        found = Health(seats.get(card__uuid=uuid).health)
        cells = fleet_cells.read_cells(user, simulated=False)
        order = [
            f"{name}-card-{slot}"
            for name, n in zip(cells.nodes["name"], cells.nodes["cards"], strict=True)
            for slot in range(n)
        ]
        assert cells.cards["health"][order.index(uuid)] == found, "the map says something else"
        return found

    def test_a_card_that_never_reported_is_unknown(self, cards: dict[str, Card]) -> None:
        assert self.standing("n1-card-0") == Health.UNKNOWN

    def test_a_card_that_reports_and_has_nothing_is_ok(self, cards: dict[str, Card]) -> None:
        sampled.status(cards["n1-card-0"])
        fault(cards["n1-card-0"], cleared_at=database_now())
        fault(cards["n1-card-1"])
        assert self.standing("n1-card-0") == Health.OK

    @pytest.mark.parametrize("of_node", [True, False])
    def test_an_open_fault_of_its_own_or_of_its_node_is_watched(self, cards: dict[str, Card], of_node: bool) -> None:
        sampled.status(cards["n1-card-0"])
        fault(None if of_node else cards["n1-card-0"], kind="storage" if of_node else "correctable", code=None)
        assert self.standing("n1-card-0") == Health.WATCH

    @pytest.mark.parametrize("of_node", [True, False])
    @pytest.mark.parametrize(
        ("kind", "expected"),
        [
            (HoldKind.FAULT, Health.FAULT),
            (HoldKind.LOST, Health.FAULT),
            (HoldKind.MAINTENANCE, Health.HELD),
            (HoldKind.DRILL, Health.HELD),
            (HoldKind.DRAIN, Health.HELD),
        ],
    )
    def test_a_hold_of_the_card_or_its_node(
        self, cards: dict[str, Card], kind: HoldKind, expected: Health, of_node: bool
    ) -> None:
        sampled.status(cards["n1-card-0"])
        fault(cards["n1-card-0"])
        hold(kind, **({"node": Node.objects.get(hostname="n1")} if of_node else {"card": cards["n1-card-0"]}))
        assert self.standing("n1-card-0") == expected

    def test_silence_comes_before_all(self, cards: dict[str, Card]) -> None:
        card = cards["n1-card-0"]
        hold(HoldKind.FAULT, card=card)
        sampled.status(card, received_at=database_now() - dt.timedelta(minutes=5))
        assert self.standing("n1-card-0") == Health.SILENT
        sampled.status(card)
        assert self.standing("n1-card-0") == Health.FAULT
        fault(None, kind="silent", code=None)
        assert self.standing("n1-card-0") == Health.SILENT
        Node.objects.filter(hostname="n2").update(state=NodeState.OFFLINE)
        assert self.standing("n2-card-0") == Health.SILENT


class TestTable:
    def test_what_a_card_does_not_tell_is_empty_and_not_nought(
        self, client_as: ClientAs, cards: dict[str, Card]
    ) -> None:
        sampled.status(cards["n1-card-0"], temperature_c=61, utilisation_pct=0, memory_used_mib=5, power_mw=249_600)
        found = {row["Card"]: row for row in rows(client_as)}
        told = found["n1-card-0"]
        assert [told[name] for name in ("Temperature (°C)", "Load (%)", "Tensor cores (%)", "Power (W)")] == [
            "61",
            "0",
            "",
            "250",
        ]
        assert found["n2-card-0"]["Memory used (MiB)"] == ""
        page = client_as("operator").get("/health/?q=n2").content.decode()
        assert '<td class="num">—</td>' in page

    def test_faults_are_counted(self, client_as: ClientAs, cards: dict[str, Card]) -> None:
        first = database_now() - dt.timedelta(hours=2)
        fault(cards["n1-card-0"], count=17, first_seen=first, last_seen=first)
        fault(cards["n1-card-0"], code=63, count=2)
        fault(cards["n1-card-0"], code=79, cleared_at=first, last_seen=first)
        fault(cards["n1-card-1"], kind="remap_pending", code=None, cleared_at=database_now())
        found = {row["Card"]: row for row in rows(client_as)}
        assert [found["n1-card-0"][name] for name in ("Open faults", "Counted (times)")] == ["2", "19"]
        assert found["n1-card-0"]["Last fault"].startswith("XID 63 ")
        assert [found["n1-card-1"][name] for name in ("Open faults", "Counted (times)")] == ["0", "0"]
        assert found["n1-card-1"]["Last fault"].startswith("REMAP PENDING ")

    def test_it_is_sorted_by_any_column_with_the_untold_below(
        self, client_as: ClientAs, cards: dict[str, Card]
    ) -> None:
        sampled.status(cards["n1-card-1"], temperature_c=40, power_mw=1)
        sampled.status(cards["n2-card-0"], temperature_c=90, power_mw=2)
        fault(cards["n1-card-0"], count=5)
        assert shown(client_as, sort="-temperature") == ["n2-card-0", "n1-card-1", "n1-card-0"]
        assert shown(client_as, sort="temperature")[0] == "n1-card-0"
        assert shown(client_as, sort="-times")[0] == "n1-card-0"
        assert shown(client_as, sort="-memory")[0] == "n2-card-0"
        links = client_as("operator").get("/health/").context["t"]["heads"]
        assert [head["column"].name for head in links if not head["column"].sort] == []
        for head in links:
            for direction in ("", "-"):
                assert len(shown(client_as, sort=f"{direction}{head['column'].name}")) == 3, head["column"].name

    def test_the_worst_stand_first(self, client_as: ClientAs, cards: dict[str, Card]) -> None:
        for card in cards.values():
            sampled.status(card)
        fault(cards["n2-card-0"], node="n2")
        hold(HoldKind.LOST, card=cards["n1-card-1"])
        assert shown(client_as) == ["n1-card-1", "n2-card-0", "n1-card-0"]

    def test_filters(self, client_as: ClientAs, cards: dict[str, Card]) -> None:
        sampled.status(cards["n1-card-0"])
        assert shown(client_as, model="H100") == ["n2-card-0"]
        assert shown(client_as, rack="\t\tr2") == ["n2-card-0"]
        assert shown(client_as, health="ok") == ["n1-card-0"]
        assert shown(client_as, health="unknown", q="n1") == ["n1-card-1"]
        assert shown(client_as, form="none", zone="flexible", q="card-0") == ["n1-card-0", "n2-card-0"][::-1]
        assert shown(client_as, form="whole") == []
        assert shown(client_as, hardware="simulated") == []

    def test_nonsense_is_told_and_not_applied(self, client_as: ClientAs, cards: dict[str, Card]) -> None:
        query = urlencode({"rack": "\x00", "health": "so-so", "zone": "x" * 999, "form": "round", "colour": "taste"})
        response = client_as("operator").get(f"/health/?{query}")
        assert set(response.context["form"].errors) == {"rack", "health", "zone", "form"}
        assert response.context["colour"] == "health"
        assert len(response.context["t"]["rows"]) == 3


class TestOwners:
    def test_whose_a_card_is_only_who_sees_the_job(self, client_as: ClientAs, running: Job) -> None:
        of = {who: rows(client_as, who, hardware="simulated") for who in ("researcher", "auditor", "outsider")}
        owners = {who: {row["Card"]: row["Owner now"] for row in found} for who, found in of.items()}
        assert owners["researcher"]["n1-card-0"] == owners["auditor"]["n1-card-0"] == "vision"
        assert owners["outsider"] == {"n1-card-0": "another project", "n1-card-1": ""}
        page = client_as("outsider").get("/health/?hardware=simulated&sort=-owner").content.decode()
        assert "steady" not in page
        assert "vision" not in page
        assert {row["Form in use"] for row in of["outsider"]} == {"container"}


class TestSummary:
    def test_by_health_by_rack_and_in_all(self, client_as: ClientAs, cards: dict[str, Card]) -> None:
        old = database_now() - dt.timedelta(minutes=9)
        sampled.status(cards["n1-card-0"], temperature_c=50, utilisation_pct=30, memory_used_mib=4_000)
        sampled.status(cards["n1-card-1"], temperature_c=71, utilisation_pct=None, memory_used_mib=None)
        sampled.status(cards["n2-card-0"], temperature_c=80, utilisation_pct=90, received_at=old)
        fault(cards["n1-card-1"], count=3)
        fault(None, kind="storage", code=None)
        context = client_as("operator").get("/health/").context
        counts = {health: n for health, _meaning, n in context["counts"]}
        assert counts == dict.fromkeys(Health, 0) | {Health.WATCH: 2, Health.SILENT: 1}
        total = context["total"]
        assert (total.cards, total.hottest, total.load, total.faults, total.times) == (3, 80, 60.0, 2, 4)
        assert (context["silent_nodes"], total.oldest) == (1, old)
        first, second = (row["line"] for row in context["lines"])
        assert (first.name, first.cards, first.temperature, first.load, first.memory) == ("r1", 2, 60.5, 30.0, 25.0)
        assert (second.name, second.hottest, second.memory, second.faults) == ("r2", 80, None, 0)

    def test_bad_telemetry_of_today_is_for_who_reads_that_page(
        self, client_as: ClientAs, cards: dict[str, Card]
    ) -> None:
        now = database_now()
        day = now.astimezone(dt.UTC).date()
        for back, n in ((0, 3), (1, 50)):
            about = {"kind": "late", "first_seen": now, "last_seen": now, "count": n}
            QualityCount.objects.create(day=day - dt.timedelta(days=back), **about)
        assert client_as("operator").get("/health/").context["quality"] == 3
        assert client_as("researcher").get("/health/").context["quality"] is None

    def test_no_card_says_what_to_do(self, client_as: ClientAs, people: dict[str, User]) -> None:
        page = client_as("researcher").get("/health/").content.decode()
        assert "No card matches." in page
        assert 'id="map-view"' not in page


class TestPart:
    def test_it_has_what_changes_and_asks_again_for_the_same(self, client_as: ClientAs, cards: dict[str, Card]) -> None:
        page = client_as("operator").get("/health/part/?q=n1&sort=-temperature").content.decode()
        assert 'hx-get="/health/part/?q=n1&amp;sort=-temperature"' in page
        assert page.count('hx-swap-oob="true"') == 2
        assert "map-view" not in page
        assert "n2-card-0" not in page

    def test_the_number_of_queries_is_small_and_does_not_grow(
        self, client_as: ClientAs, cards: dict[str, Card], django_assert_max_num_queries: Any
    ) -> None:
        for who in ("admin", "researcher"):
            client = client_as(who)
            client.get("/health/")
            with django_assert_max_num_queries(MOST_QUERIES):
                client.get("/health/")
        for n in range(5):
            node = factories.node(f"more-{n}", cards=2, simulated=False, rack=f"r{n}")
            hold(HoldKind.FAULT, node=node)
            for card in Card.objects.filter(uuid__startswith=f"more-{n}"):
                sampled.status(card)
                fault(card, node=node.hostname)
        assert CardStatus.objects.count() == 10
        with django_assert_max_num_queries(MOST_QUERIES):
            client.get("/health/")
