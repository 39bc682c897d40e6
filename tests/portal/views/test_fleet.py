"""The pages of nodes and the free cards of the first page: real and simulated apart, names only to who may see them."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ledger.inventory import place_hold
from ledger.models import Card, Job, Node, User
from ledger.vocabulary import HoldKind
from tests import factories
from tests.portal.views.conftest import ClientAs


def rows(client_as: ClientAs, query: str) -> dict[str, Any]:
    found = client_as("researcher").get(f"/nodes/?{query}").context["rows"]
    return {row.node.hostname: row for row in found}


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
        cells = client_as("researcher").get("/").context["free"]
        counted = {(cell["simulated"], cell["model"]): (cell["free"], cell["cards"]) for cell in cells}
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
