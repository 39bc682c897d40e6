"""Every page with a large fleet and a long history: median time to answer and bytes before compression, as JSON.

    python -m tests.bench.pages [--cards 10000] [--jobs 100000] [--rounds 5] [--only /health/]

Starts a database of its own in a temporary folder (tests/services.py), fills it past the guards, and opens each page, and
each order that its table offers, in this process as an administrator and as a researcher. There is no limit in it: what a machine takes is for its reader.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import re
import statistics
import time
from html import unescape
from typing import Any, Final

from tests.services import TestServices

CARDS_A_NODE: Final = 8
LIVE: Final = 2_000  # jobs that run
WAITING: Final = 300
SORT_LINK: Final = re.compile(r'<a class="sort" href="([^"]+)"')
PLANNED: Final = 25  # every so manieth node is in a zone plan
ROLLED_UP: Final = dt.timedelta(hours=50)  # the window that the books open with, and the one before it
GUARDED: Final = ("ledger_job", "ledger_attempt", "ledger_allocation", "ledger_cardshare")

FILL: Final = """
INSERT INTO ledger_node (hostname, site, room, rack, leaf, cpu_milli, host_memory_mib, interconnect, network, labels,
    supply, managers, simulated, state, agent_digest)
  SELECT 'bench-' || n, 'one', 'r' || n %% 4, 'rack-' || n / 16, 'leaf-' || n / 64, 128000, 1048576, 'nvlink', '', '{}',
    'owned', '{"container": "local", "block": "local", "whole": "local"}', false, 'up', ''
  FROM generate_series(1, %(nodes)s) AS n;
INSERT INTO ledger_nodezone (node_id, zone_id, period)
  SELECT n.id, (SELECT min(id) FROM ledger_zone), tstzrange(now() - interval '90 days', NULL)
  FROM ledger_node n WHERE hostname LIKE 'bench-%%';
INSERT INTO ledger_card (uuid, model, memory_mib, memory_assumed, virtual, mig_layout)
  SELECT 'GPU-bench-' || n.id || '-' || s, CASE n.id %% 3 WHEN 0 THEN 'H100' ELSE 'A100' END, 81920, false, false, '[]'
  FROM ledger_node n, generate_series(0, %(width)s - 1) AS s WHERE hostname LIKE 'bench-%%';
INSERT INTO ledger_cardseat (card_id, node_id, slot, period)
  SELECT c.id, split_part(c.uuid, '-', 3)::bigint, split_part(c.uuid, '-', 4)::int,
    tstzrange(now() - interval '90 days', NULL) FROM ledger_card c WHERE c.uuid LIKE 'GPU-bench-%%';
CREATE TEMP TABLE work AS SELECT g AS n, g > %(jobs)s - %(waiting)s AS waits,
    g > %(jobs)s - %(waiting)s - %(live)s AND g <= %(jobs)s - %(waiting)s AS lives,
    now() - interval '60 days' + g * (interval '60 days' / %(jobs)s) AS at
  FROM generate_series(1, %(jobs)s) AS g;
INSERT INTO ledger_job (project_id, by_id, name, kind, asks, cpu_milli, host_memory_mib, interconnect, distance, labels,
    environment, command, image, data_paths, walltime_s, priority, preemptible, checkpoint, key_work, reproducible, simulated,
    state,
    message, client_key, client_digest, submitted_at, queued_at, placed_at, started_at, ended_at, cancel_reason,
    held_reason)
  SELECT p.id, p.owner_id, 'bench job ' || w.n, 'training',
    '[{"form": "container", "nodes": 1, "cards_per_node": 1, "memory_mib": 40960, "after_s": 0, "model": "", "compute_milli": 0}]',
    4000, 8192, 'any', 'any', '[]', '{}', '["work"]', '', '[]', 86400, 0, false, '', false, false, false,
    CASE WHEN w.waits THEN 'queued' WHEN w.lives THEN 'running' ELSE 'succeeded' END, '', 'bench-' || w.n, '', w.at, w.at,
    CASE WHEN NOT w.waits THEN w.at END, CASE WHEN NOT w.waits THEN w.at END,
    CASE WHEN NOT w.waits AND NOT w.lives THEN w.at + interval '20 minutes' END, '', ''
  FROM work w JOIN (SELECT id, owner_id, row_number() OVER (ORDER BY id) - 1 AS k, count(*) OVER () AS all_
    FROM ledger_project) p ON w.n %% p.all_ = p.k;
INSERT INTO ledger_attempt (job_id, n, fence, state, outcome, message, opened_at, ended_at)
  SELECT j.id, 1, nextval('ledger_fence'), CASE j.state WHEN 'running' THEN 'running' ELSE 'ended' END,
    CASE j.state WHEN 'running' THEN '' ELSE 'succeeded' END, '', j.submitted_at, j.ended_at
  FROM ledger_job j WHERE j.client_key LIKE 'bench-%%' AND j.state <> 'queued';
CREATE TEMP TABLE seated AS SELECT c.id AS card_id, s.id AS seat_id, s.node_id, row_number() OVER (ORDER BY c.id) - 1 AS k
  FROM ledger_card c JOIN ledger_cardseat s ON s.card_id = c.id WHERE c.uuid LIKE 'GPU-bench-%%';
ANALYZE;
CREATE TEMP TABLE place AS SELECT t.id AS attempt_id, j.project_id, j.submitted_at, j.ended_at, c.*
  FROM ledger_attempt t JOIN ledger_job j ON j.id = t.job_id
  JOIN seated c ON split_part(j.client_key, '-', 2)::int %% (SELECT count(*) FROM seated) = c.k
  WHERE j.client_key LIKE 'bench-%%';
INSERT INTO ledger_allocation (attempt_id, project_id, node_id, rank, form, driver, zone_then_id, cpu_milli,
    host_memory_mib, state, active_at, closing_at, period)
  SELECT attempt_id, project_id, node_id, 0, 'container', 'local', (SELECT min(id) FROM ledger_zone), 4000, 8192,
    CASE WHEN ended_at IS NULL THEN 'active' ELSE 'closed' END, submitted_at, ended_at,
    tstzrange(submitted_at, ended_at) FROM place;
INSERT INTO ledger_cardshare (allocation_id, seat_id, node_id, card_id, card_memory_mib, memory, compute, memory_mib,
    mig_mode, period)
  SELECT a.id, p.seat_id, p.node_id, p.card_id, 81920, '{[0,40960)}', '{}', 40960, false, a.period
  FROM place p JOIN ledger_allocation a ON a.attempt_id = p.attempt_id;
INSERT INTO ledger_auditevent (at, actor_id, via, verb, target_type, target_id, project_id, reason, request_id)
  SELECT j.submitted_at, j.by_id, 'bench', 'job.submitted', 'job', j.id::text, j.project_id, '', ''
  FROM ledger_job j WHERE j.client_key LIKE 'bench-%%';
UPDATE ledger_inventoryversion SET version = version + 1;
ANALYZE;
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="pages whose address contains this")
    for name, default in (("cards", 10_000), ("jobs", 100_000), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
    services = TestServices()
    try:
        services.reserve()
        services.start()
        print(json.dumps(measure(asked), indent=1))
    finally:
        services.stop()


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """{"cards", "jobs", "worst_median_ms", "largest_bytes", "largest_with_files", "pages": {who: {address: {"status",
    "median_ms", "slowest_ms", "bytes", "with_files", "queries"}}}}."""
    import django

    django.setup()
    from django.db import connection

    connection.creation.create_test_db(verbosity=0, autoclobber=True)
    people = _fill(asked.cards, asked.jobs)
    found = {user.username: _measured(user, asked.rounds, only=asked.only) for user in people}
    connection.close()
    rows = [row for pages in found.values() for row in pages.values()]
    return {
        "cards": asked.cards,
        "jobs": asked.jobs,
        "worst_median_ms": max(row["median_ms"] for row in rows),
        "largest_bytes": max(row["bytes"] for row in rows),
        "largest_with_files": max(row["with_files"] for row in rows),
        "pages": found,
    }


def _fill(cards: int, jobs: int) -> list[Any]:
    """Fill the empty database; the people who look at it."""
    from django.db import connection

    from tests import factories, sampled

    people = factories.cast()
    factories.zone("pool")
    live, waiting = min(LIVE, jobs // 4), min(WAITING, jobs // 10)
    numbers = {"nodes": cards // CARDS_A_NODE, "width": CARDS_A_NODE, "jobs": jobs, "live": live, "waiting": waiting}
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for table in GUARDED:
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        for statement in FILL.split(";\n"):
            if statement.strip():
                cursor.execute(statement, numbers)
        for table in GUARDED:
            cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")
    sampled.fill()
    _faults()
    _roll_up()
    _plan(people["admin"], cards // CARDS_A_NODE)
    return [people["admin"], people["researcher"]]


def _faults() -> None:
    """Of every seventh card, some many times; every fortieth is held for it."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("""INSERT INTO ledger_fault (node_id, card_id, kind, code, message, first_seen, last_seen, count)
          SELECT s.node_id, s.card_id, 'xid', 48, 'bench', now() - interval '3 days', now(), s.card_id % 90 + 1
          FROM ledger_cardseat s WHERE upper_inf(s.period) AND s.card_id % 7 = 0""")
        cursor.execute("""INSERT INTO ledger_hold (card_id, kind, period, reason, rule)
          SELECT card_id, 'fault', tstzrange(now(), NULL), 'XID 48', 'bench' FROM ledger_cardseat
          WHERE upper_inf(period) AND card_id % 40 = 0""")


def _plan(by: Any, nodes: int) -> None:
    """One zone plan under way, of a part of the nodes."""
    from scheduler.zone_proposals import propose_list
    from scheduler.zones import make_plan
    from tests import factories

    names = [f"bench-{n}" for n in range(1, nodes + 1, PLANNED)]
    make_plan(
        proposal=propose_list(hostnames=names, to_zone=factories.zone("other")), reason="bench", actor=by, via="bench"
    )


def _roll_up() -> None:
    """As the tasks of a portal that runs leave it: everything up to the last quarter, as far back as the books look."""
    from ledger import quarters
    from ledger.clock import database_now
    from ledger.models import RollUp

    until = quarters.floor(database_now())
    since = until - ROLLED_UP
    RollUp.objects.create(pk=1, since=since, until=until)
    quarters.redo(since, until)


def _measured(user: Any, rounds: int, *, orders: bool = True, only: str = "") -> dict[str, dict[str, Any]]:
    """By address; addresses that are not theirs or take POST alone are left out. With `orders` each that a table offers."""
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    from portal.sample_pages import sample_addresses

    client = Client(raise_request_exception=False)
    client.force_login(user)
    rows: dict[str, dict[str, Any]] = {}
    waiting = [address for address in sample_addresses(user) if only in address]
    while waiting:
        address = waiting.pop(0)
        with CaptureQueriesContext(connection) as seen:
            status, body = _get(client, address)
        queries = len(seen)  # now: the next request empties the log
        if status in (403, 405):
            continue
        times = []
        for _ in range(rounds):
            start = time.perf_counter()
            _get(client, address)
            times.append((time.perf_counter() - start) * 1000)
        page = body.decode()
        rows[address] = {
            "status": status,
            "median_ms": round(statistics.median(times), 1),
            "slowest_ms": round(max(times), 1),
            "bytes": len(body),
            "with_files": len(body) + _files(page),
            "queries": queries,
        }
        if orders and "?" not in address:
            waiting += [address + unescape(query) for query in SORT_LINK.findall(page)]
    return rows


def _get(client: Any, address: str) -> tuple[int, bytes]:
    """Status and the whole answer."""
    response = client.get(address)
    return response.status_code, b"".join(response.streaming_content) if response.streaming else response.content


def _files(page: str) -> int:
    """Bytes, before compression, of the scripts, styles and pictures of ours that a page names."""
    from django.contrib.staticfiles import finders

    named = set(re.findall(r'(?:src|href)="/static/([^"?#]+)', page))
    found = [finders.find(name) for name in named]
    assert all(found), named
    return sum(os.path.getsize(path) for path in found if path)


if __name__ == "__main__":
    main()
