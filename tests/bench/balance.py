"""How much faster a long balance is from the 15-minute roll-up than from the book itself.

    python -m tests.bench.balance [--cards 400] [--jobs 20000] [--days 30] [--repeat 3]

Starts a database of its own in a temporary folder (tests/services.py), writes a synthetic history, rolls it up, and
prints one JSON object: medians in milliseconds, `ratio` = book / roll-up, and whether both said the same. There is no
limit in it: what a machine takes is for its reader to judge.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from tests.services import TestServices


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("cards", 400), ("jobs", 20_000), ("days", 30), ("repeat", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
    services = TestServices()
    try:
        services.reserve()
        services.start()
        print(json.dumps(measure(asked), indent=2))
    finally:
        services.stop()


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    import django

    django.setup()
    from django.db import connection

    connection.creation.create_test_db(verbosity=0, autoclobber=True)
    from tests.bench import history

    history.write(cards=asked.cards, jobs=asked.jobs, days=asked.days)
    seconds = _rolled_up()
    found = _compared(asked)
    connection.close()
    return {"cards": asked.cards, "jobs": asked.jobs, "days": asked.days, "roll_up_s": round(seconds, 1), **found}


def _rolled_up() -> float:
    from django.db import connection

    from ledger import quarters
    from ledger.models import RollUp

    began = time.perf_counter()
    quarters.roll_up()  # sets the fence
    while not RollUp.objects.filter(fence=None).exists():
        quarters.roll_up()
    seconds = time.perf_counter() - began
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE ledger_usagequarter")  # as the server does by itself in time
    return seconds


def _compared(asked: argparse.Namespace) -> dict[str, Any]:
    from ledger import lines, reports
    from ledger.balance import Cut
    from ledger.clock import database_now

    end = database_now().replace(microsecond=0)
    window, cut = (end - timedelta(days=asked.days), end), Cut(simulated=True)
    chosen = lines.Chosen(*window, cut, account="used")
    book_ms, book = _timed(asked.repeat, lambda: reports._sums([window], cut, long=False))
    rolled_ms, rolled = _timed(asked.repeat, lambda: reports._sums([window], cut, long=True))
    lines_ms, told = _timed(asked.repeat, lambda: _totals(lines.LineSet(chosen)))
    used = sum(amount for cell, amount in rolled[0].items() if cell.account == "used")
    return {
        "book_ms": book_ms,
        "roll_up_ms": rolled_ms,
        "ratio": round(book_ms / rolled_ms, 1),
        "equal": {k: v for k, v in book[0].items() if v} == {k: v for k, v in rolled[0].items() if v},
        "lines_ms": lines_ms,
        "lines": told[0],
        "lines_equal": told[1] == used,
    }


def _totals(some: Any) -> tuple[int, int]:
    return some.count(), some.amount


def _timed(repeat: int, act: Callable[[], Any]) -> tuple[float, Any]:
    """Median milliseconds, and the last answer."""
    taken, answer = [], None
    for _ in range(repeat):
        began = time.perf_counter()
        answer = act()
        taken.append(1000 * (time.perf_counter() - began))
    return round(statistics.median(taken), 1), answer


if __name__ == "__main__":
    main()
