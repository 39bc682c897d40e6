"""`manage.py redo_quarters`: mends a roll-up that check_books found wrong, and names what it can't read."""

from __future__ import annotations

import pytest
from django.core.management.base import CommandError

from ledger import quarters
from ledger.models import RollUp, UsageQuarter
from tests.ledger.balance_reference import at, lay_out
from tests.portal.commands import run

pytestmark = [pytest.mark.django_db, pytest.mark.breaks_books]
EDGE = quarters.floor(at(0))


def test_it_mends_a_quarter() -> None:
    lay_out(4)
    RollUp.objects.create(pk=1, since=EDGE, until=EDGE, fence=1, fence_at=EDGE + 2 * quarters.QUARTER)
    assert quarters.roll_up() == 2
    UsageQuarter.objects.update(mib_seconds=1)
    both = quarters.windows(EDGE, EDGE + 2 * quarters.QUARTER)
    assert quarters.differences(both, 5)
    told = run("redo_quarters", EDGE.isoformat(), (EDGE + 2 * quarters.QUARTER).isoformat())
    assert told == "2 quarters rolled up again\n"
    assert quarters.differences(both, 5) == []


@pytest.mark.parametrize(
    ("since", "until", "words"),
    [
        ("yesterday", "2026-01-01T00:00:00Z", "since: 'yesterday'"),
        ("2026-01-01T00:00:00", "2026-01-02T00:00:00Z", "no time with a time zone"),
        ("2026-01-01T00:00:00Z", "2026-13-01T00:00:00Z", "until:"),
        ("2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z", "TO must lie after FROM"),
    ],
)
def test_nonsense_is_named(since: str, until: str, words: str) -> None:
    with pytest.raises(CommandError, match=words):
        run("redo_quarters", since, until)
