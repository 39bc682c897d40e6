"""How busy cards were by zone and project, and who holds whole cards half used: from the hours of cards."""

from __future__ import annotations

import datetime as dt

import pytest

from ledger import card_use, half_used
from ledger.clock import database_now
from ledger.half_used import HalfUsed
from ledger.models import Card, CardSeat, NodeZone
from tests import factories, sampled

pytestmark = pytest.mark.django_db
START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)
Span = tuple[dt.datetime, dt.datetime]


@pytest.fixture
def span() -> Span:
    """The two whole hours before this one; what there is stood there already."""
    factories.node("n1", cards=2, in_zone=factories.zone("pool"))
    until = database_now().replace(minute=0, second=0, microsecond=0)
    for table in (CardSeat, NodeZone):
        table.objects.update(period=(until - dt.timedelta(days=2), None))
    return until - 2 * HOUR, until


def cards() -> list[Card]:
    return list(Card.objects.order_by("uuid"))


def test_the_load_of_a_zone_is_the_mean_of_its_card_hours_that_tell(span: Span) -> None:
    first, second = cards()
    sampled.hour(first, span[0], utilisation_pct=[0, 20, 99])
    sampled.hour(first, span[0] + HOUR, utilisation_pct=[0, 60, 99])
    sampled.hour(second, span[0], utilisation_pct=None)
    sampled.hour(second, span[1], utilisation_pct=[9, 99, 99])  # after the window
    (zone,) = card_use.by_zone(*span, simulated=True)
    assert (zone.slug, zone.hours, zone.quiet, zone.load) == ("pool", 2, 1, 40.0)
    assert card_use.by_zone(*span, simulated=False) == []


@pytest.mark.parametrize(
    ("minutes", "load", "memory", "found"),
    [
        (31, 39.9, 100.0, True),
        (31, 40.0, 50.0, False),
        (31, 90.0, 49.9, True),
        (30, 0.0, 0.0, False),
        (31, None, None, False),
        (31, None, 10.0, True),
    ],
)
def test_the_rule_of_half_used_cards(minutes: int, load: float | None, memory: float | None, found: bool) -> None:
    assert half_used.is_half_used(dt.timedelta(minutes=minutes), load, memory) is found


@pytest.mark.parametrize(
    ("memory", "enough"), [(10.0, 10_240), (0.0, 1024), (82.0, 80_896), (84.0, None), (None, None)]
)
def test_what_would_have_been_enough_is_whole_gibibytes_with_a_fifth_to_spare(
    memory: float | None, enough: int | None
) -> None:
    assert HalfUsed(1, 1, 81_920, START, 10.0, memory).enough_mib == enough
