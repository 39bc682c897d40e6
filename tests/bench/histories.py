"""Thousands of random histories of quotas, ends and everything between, on real PostgreSQL: a proof, not a race.

    python -m tests.bench.histories [--count 10000] [--processes N] [--seed quota] [--first 0]

What one history is and what is held after each of its steps is told in tests/scheduler/histories.py. Each process has a
database of its own and rolls back what a history wrote; every hundredth is also looked at by all invariants of the
books. Prints one JSON object: how many there were, how often each step, and those that broke something with the steps
that led there. The exit status is 1 when one did. Progress goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from typing import Any, Final

from tests.services import TestServices

PORTION: Final = 250  # histories between two lines of progress
LOOKED_AT: Final = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", default="quota")
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
    services = TestServices()
    began = time.monotonic()
    try:
        services.reserve()
        services.start()
        found = campaign(asked)
    finally:
        services.stop()
    found["seconds"] = round(time.monotonic() - began, 1)
    print(json.dumps(found, indent=1))
    sys.exit(1 if found["broken"] else 0)


def campaign(asked: argparse.Namespace) -> dict[str, Any]:
    parts = [(asked.seed, asked.first + n, asked.count, asked.processes, n) for n in range(asked.processes)]
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
        done = pool.starmap(some, parts)
    steps: dict[str, int] = {}
    for one in done:
        for name, count in one["steps"].items():
            steps[name] = steps.get(name, 0) + count
    return {
        "count": sum(one["count"] for one in done),
        "seed": asked.seed,
        "processes": asked.processes,
        "steps": dict(sorted(steps.items())),
        "broken": [line for one in done for line in one["broken"]],
    }


def some(seed: str, first: int, count: int, stride: int, number: int) -> dict[str, Any]:
    """Every `stride`th history from `first` on, in a database of this process."""
    import django

    django.setup()
    from django.db import connection, transaction

    from scheduler.drivers.registry import driver
    from scheduler.drivers.simulated import World
    from tests import factories
    from tests.ledger import watch
    from tests.scheduler import histories

    connection.settings_dict["TEST"]["NAME"] = f"histories_{number}"
    connection.creation.create_test_db(verbosity=0, autoclobber=True)
    driver("simulated").world = World(start_delay_s=(0.0, 0.0))  # type: ignore[attr-defined]
    factories.constant_rows()
    histories.lay_out()
    told, broken = [], []
    for done, at in enumerate(range(first, first + count - number, stride), 1):
        whole = transaction.atomic()
        whole._from_testcase = True  # type: ignore[attr-defined]  # durable blocks may stand in it, as in Django's tests
        with whole:
            try:
                told.append(histories.tell(at, seed))
                if done % LOOKED_AT == 0 and not watch.small_and_clean():
                    broken.append(f"{at}: the books are broken after {told[-1].steps}")
            except histories.Broken as error:
                broken.append(f"{at}: {error}")
            transaction.set_rollback(True)
        if done % PORTION == 0:
            print(f"process {number}: {done} histories, {len(broken)} broken", file=sys.stderr, flush=True)
    connection.close()
    return {"count": len(told), "steps": histories.tally(told), "broken": broken}


if __name__ == "__main__":
    main()
