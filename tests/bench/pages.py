"""Every page with a large fleet and a long history: median time to answer and bytes before compression, as JSON.

`manage.py bench pages [cards=10000] [jobs=100000] [rounds=5]`. It makes a database of its own on the same server, fills
it past the guards (that needs the owner's rights), opens each page in this process as an administrator and as a
researcher, and drops the database again.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import override_settings

CARDS_A_NODE: Final = 8
LIVE: Final = 2_000  # jobs that run
WAITING: Final = 300

FILL: Final = """
SET session_replication_role = replica;
INSERT INTO ledger_node (hostname, site, room, rack, leaf, cpu_milli, host_memory_mib, interconnect, network, labels,
    supply, managers, simulated, state, agent_digest)
  SELECT 'bench-' || n, 'one', 'r' || n %% 4, 'rack-' || n / 16, 'leaf-' || n / 64, 128000, 1048576, 'nvlink', '', '{}',
    'owned', '{"container": "simulated", "block": "simulated", "whole": "simulated"}', true, 'up', ''
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
    environment, command, image, data_paths, walltime_s, priority, preemptible, checkpoint, key_work, simulated, state,
    message, client_key, client_digest, submitted_at, queued_at, placed_at, started_at, ended_at, cancel_reason)
  SELECT p.id, p.owner_id, 'bench job ' || w.n, 'training',
    '[{"form": "container", "nodes": 1, "cards_per_node": 1, "memory_mib": 40960, "after_s": 0, "model": "", "compute_milli": 0}]',
    4000, 8192, 'any', 'any', '[]', '{}', '["simulate"]', '', '[]', 86400, 0, false, '', false, true,
    CASE WHEN w.waits THEN 'queued' WHEN w.lives THEN 'running' ELSE 'succeeded' END, '', 'bench-' || w.n, '', w.at, w.at,
    CASE WHEN NOT w.waits THEN w.at END, CASE WHEN NOT w.waits THEN w.at END,
    CASE WHEN NOT w.waits AND NOT w.lives THEN w.at + interval '20 minutes' END, ''
  FROM work w JOIN (SELECT id, owner_id, row_number() OVER (ORDER BY id) - 1 AS k, count(*) OVER () AS all_
    FROM ledger_project) p ON w.n %% p.all_ = p.k;
INSERT INTO ledger_attempt (job_id, n, fence, state, outcome, message, opened_at, ended_at)
  SELECT j.id, 1, nextval('ledger_fence'), CASE j.state WHEN 'running' THEN 'running' ELSE 'ended' END,
    CASE j.state WHEN 'running' THEN '' ELSE 'succeeded' END, '', j.submitted_at, j.ended_at
  FROM ledger_job j WHERE j.client_key LIKE 'bench-%%' AND j.state <> 'queued';
CREATE TEMP TABLE place AS SELECT t.id AS attempt_id, j.project_id, j.submitted_at, j.ended_at,
    c.id AS card_id, s.id AS seat_id, s.node_id
  FROM ledger_attempt t JOIN ledger_job j ON j.id = t.job_id
  JOIN (SELECT id, row_number() OVER (ORDER BY id) - 1 AS k, count(*) OVER () AS all_ FROM ledger_card
    WHERE uuid LIKE 'GPU-bench-%%') c ON split_part(j.client_key, '-', 2)::int %% c.all_ = c.k
  JOIN ledger_cardseat s ON s.card_id = c.id WHERE j.client_key LIKE 'bench-%%';
INSERT INTO ledger_allocation (attempt_id, project_id, node_id, rank, form, driver, zone_then_id, cpu_milli,
    host_memory_mib, state, active_at, closing_at, period)
  SELECT attempt_id, project_id, node_id, 0, 'container', 'simulated', (SELECT min(id) FROM ledger_zone), 4000, 8192,
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
SET session_replication_role = origin;
ANALYZE;
"""


def run(cards: int = 10_000, jobs: int = 100_000, rounds: int = 5) -> str:
    """JSON: {"cards", "jobs", "pages": {who: {address: {"median_ms", "slowest_ms", "bytes", "queries"}}}, "worst_ms"}."""
    with _own_database():
        call_command("migrate", verbosity=0)
        call_command("seed", verbosity=0)
        _fill(cards, jobs)
        with override_settings(ALLOWED_HOSTS=["testserver"]):
            found = {who: _measured(who, rounds) for who in ("admin", "researcher")}
    slowest = max(row["median_ms"] for rows in found.values() for row in rows.values())
    largest = max(row["bytes"] for rows in found.values() for row in rows.values())
    return json.dumps(
        {"cards": cards, "jobs": jobs, "worst_median_ms": slowest, "largest_bytes": largest, "pages": found}, indent=1
    )


@contextmanager
def _own_database() -> Iterator[None]:
    """The connection points at a new, empty database inside; it is dropped at the end."""
    old, new = str(settings.DATABASES["default"]["NAME"]), f"bench_{time.time_ns()}"
    with connection.cursor() as cursor:
        cursor.execute("RESET ROLE")
        cursor.execute(f"CREATE DATABASE {new}")
    _point_at(new)
    try:
        yield
    finally:
        _point_at(old)
        with connection.cursor() as cursor:
            cursor.execute("RESET ROLE")
            cursor.execute(f"DROP DATABASE {new} WITH (FORCE)")


def _point_at(name: str) -> None:
    from scheduler import snapshot

    connection.close()
    connection.settings_dict["NAME"] = name
    snapshot.forget()


def _fill(cards: int, jobs: int) -> None:
    live, waiting = min(LIVE, jobs // 4), min(WAITING, jobs // 10)
    numbers = {"nodes": cards // CARDS_A_NODE, "width": CARDS_A_NODE, "jobs": jobs, "live": live, "waiting": waiting}
    with connection.cursor() as cursor:
        cursor.execute("RESET ROLE")
        for statement in FILL.split(";\n"):
            if statement.strip():
                cursor.execute(statement, numbers)


def _measured(who: str, rounds: int) -> dict[str, dict[str, Any]]:
    from django.test.utils import CaptureQueriesContext

    from ledger.models import User
    from portal.sample_pages import sample_addresses

    user = User.objects.get(username=who)
    client = Client(raise_request_exception=False)
    client.force_login(user)
    rows: dict[str, dict[str, Any]] = {}
    for address in sample_addresses(user):
        with CaptureQueriesContext(connection) as seen:
            first = client.get(address)
        if first.status_code in (403, 405):  # not theirs, or for POST alone
            continue
        size = len(b"".join(first.streaming_content) if first.streaming else first.content)
        times = []
        for _ in range(rounds):
            start = time.perf_counter()
            response = client.get(address)
            if response.streaming:
                b"".join(response.streaming_content)
            times.append((time.perf_counter() - start) * 1000)
        rows[address] = {
            "status": first.status_code,
            "median_ms": round(statistics.median(times), 1),
            "slowest_ms": round(max(times), 1),
            "bytes": size,
            "queries": len(seen),
        }
    return rows
