"""The accounts of this instant are those of the balance over the second in which nothing happens."""

from __future__ import annotations

import datetime as dt
from collections import Counter

import pytest

from ledger import reports, standing
from ledger.clock import database_now
from ledger.inventory import place_hold
from ledger.models import Card, HeadroomReserve, Node, Zone
from ledger.vocabulary import HoldKind
from scheduler import queue
from tests import factories
from tests.scheduler import flow

pytestmark = pytest.mark.django_db
SECOND = dt.timedelta(seconds=1)


def by_the_books(simulated: bool = True) -> dict[tuple[str, int], int]:
    """MiB by (account, size) over one second that begins after everything that was done."""
    start = (database_now() + 2 * SECOND).replace(microsecond=0)
    found: Counter[tuple[str, int]] = Counter()
    for account, _project, _form, size, amount in reports.rows(start, start + SECOND, simulated=simulated):
        found[account, size] += amount
    return dict(found)


def reserve(mib: int, model: str = "A100", zone: str = "flexible") -> None:
    period = (database_now(), None)
    HeadroomReserve.objects.create(zone=Zone.objects.get(slug=zone), model=model, mib=mib, period=period)


@pytest.fixture
def busy() -> None:
    """Every account at once: shares, a block, cleaning, holds on a card in use and on a node, two sizes of a model."""
    flow.world(nodes=2, cards=4, memory_mib=16_000)
    factories.node("small", cards=4, memory_mib=8_000)
    factories.node("block", cards=4, block=2, model="H100")
    factories.node("held", cards=2)
    factories.node("real", cards=2, simulated=False)
    jobs = [flow.long_job(asks=[{"form": "container", "memory_mib": mib}]) for mib in (1_000, 9_000, 16_000)]
    jobs.append(flow.long_job(asks=[{"form": "block", "cards_per_node": 2, "model": "H100"}]))
    jobs.append(flow.long_job(asks=[{"form": "container", "cards_per_node": 2, "memory_mib": 3_000}]))
    flow.start(*jobs)
    queue.cancel(job_id=jobs[1].pk, actor=jobs[1].by, reason="done", via="test")
    hold = {"kind": HoldKind.MAINTENANCE, "reason": "fan", "actor": None, "via": "test"}
    place_hold(**hold, node=Node.objects.get(hostname="held"))
    place_hold(**hold, card=Card.objects.filter(shares__memory_mib=1_000).first())


def test_every_account_is_what_the_books_say(busy: None) -> None:
    found = standing.accounts(simulated=True)
    assert found == by_the_books()
    assert {account for account, _size in found} == {"used", "cleaning", "held", "stranded", "free"}
    assert sum(found.values()) == sum(
        Card.objects.exclude(seats__node__hostname="real").values_list("memory_mib", flat=True)
    )


@pytest.mark.parametrize("mib", [1, 5_000, 40_000, 90_000, 10**7])
def test_headroom_is_kept_from_free_memory_first(busy: None, mib: int) -> None:
    reserve(mib)
    found = standing.accounts(simulated=True)
    assert found == by_the_books()
    assert sum(amount for (account, _size), amount in found.items() if account == "headroom") > 0


def test_a_reserve_of_another_cell_takes_nothing(busy: None) -> None:
    factories.zone("other")
    reserve(10**6, zone="other")
    reserve(10**6, model="T4")
    assert standing.accounts(simulated=True) == by_the_books()


def test_real_and_simulated_cards_never_share_a_number(busy: None) -> None:
    assert standing.accounts(simulated=False) == {("free", 16_000): 32_000} == by_the_books(simulated=False)


def test_without_cards_there_is_nothing(db: None) -> None:
    assert standing.accounts(simulated=True) == {}
