"""A long synthetic history for measurements, written in SQL past the book: cards that are shared, given out whole, held
and idle over many days. Nothing here is random, so two runs measure the same rows."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.db import connection, transaction

from ledger.clock import database_now
from ledger.models import Project
from tests import factories
from tests.ledger.balance_reference import lift_guards
from tests.ledger.raw import run

CARDS_PER_NODE: Final = 8
MODELS: Final = ("A100", "H100", "L40S")
ZONES: Final = ("alpha", "beta", "gamma", "delta")
PROJECTS: Final = tuple(f"project-{number:02}" for number in range(12))
CARD_MIB: Final = 80 * 1024


def write(*, cards: int, jobs: int, days: int) -> datetime:
    """Fill an empty database; the time at which the history begins. Every fourth node is given out whole."""
    start = database_now().replace(microsecond=0) - timedelta(days=days, minutes=7)
    for slug in PROJECTS:
        factories.project(slug)
    zones = [factories.zone(slug) for slug in ZONES]
    for number in range(max(1, cards // CARDS_PER_NODE)):
        factories.node(
            f"bench-{number:04}",
            cards=CARDS_PER_NODE,
            memory_mib=CARD_MIB,
            model=MODELS[number % len(MODELS)],
            in_zone=zones[number % len(zones)],
        )
    with transaction.atomic():
        lift_guards()
        for table in ("ledger_cardseat", "ledger_nodezone"):
            run(f"UPDATE {table} SET period = tstzrange(%s, NULL)", start)
        _jobs(jobs, start, days)
        run("SET CONSTRAINTS ALL IMMEDIATE")
        for table in ("ledger_allocation", "ledger_cardshare", "ledger_hold"):
            run(f"ALTER TABLE {table} ENABLE TRIGGER USER")
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    return start


def _jobs(jobs: int, start: datetime, days: int) -> None:
    """Jobs one after the other on each card (or whole node), each with its attempt, allocation, shares and end."""
    project = Project.objects.order_by("id").first()
    assert project is not None
    run(
        "INSERT INTO ledger_job (project_id, by_id, name, kind, asks, cpu_milli, host_memory_mib, interconnect, distance, "
        "labels, environment, command, image, data_paths, walltime_s, priority, preemptible, checkpoint, key_work, "
        "reproducible, simulated, state, message, client_digest, submitted_at, queued_at, ended_at, cancel_reason, held_reason) "
        "SELECT %s + n %% %s, %s, 'bench ' || n, 'other', '[{}]', 1, 1, 'any', 'any', '[]', '{}', '[\"simulate\"]', '', "
        "'[]', 60, 0, false, '', false, false, true, 'succeeded', '', '', now(), now(), now(), '', '' "
        "FROM generate_series(0, %s - 1) AS n",
        project.pk, len(PROJECTS), project.owner_id, jobs,
    )  # fmt: skip
    run(
        "INSERT INTO ledger_attempt (job_id, n, fence, state, outcome, message, opened_at, ended_at) "
        "SELECT id, 1, nextval('ledger_fence'), 'ended', 'succeeded', '', now(), now() FROM ledger_job"
    )
    run(
        "CREATE TEMPORARY TABLE bench ON COMMIT DROP AS WITH place AS ("
        "  SELECT s.node_id, CASE WHEN s.node_id %% 4 = 0 THEN NULL ELSE s.id END AS seat_id, "
        "    row_number() OVER (ORDER BY s.node_id, min(s.slot)) - 1 AS p FROM ledger_cardseat s "
        "  GROUP BY 1, 2), job AS ("
        "  SELECT j.id, j.project_id, t.id AS attempt_id, row_number() OVER (ORDER BY j.id) - 1 AS n FROM ledger_job j "
        "  JOIN ledger_attempt t ON t.job_id = j.id), places AS (SELECT count(*) AS n FROM place) "
        "SELECT job.attempt_id, job.project_id, place.node_id, place.seat_id, %s::timestamptz "
        "  + make_interval(secs => (job.n / places.n) * (%s::float / ceil(%s::float / places.n)) + place.p %% 997) AS lo, "
        "  %s::float / ceil(%s::float / places.n) * (0.5 + (job.n * 7919 %% 40) / 100.0) AS secs, "
        "  CASE WHEN place.seat_id IS NULL THEN %s ELSE %s / (1 + job.n %% 4) END AS mib "
        "FROM job CROSS JOIN places JOIN place ON place.p = job.n %% places.n",
        start, days * 86_400, jobs, days * 86_400, jobs, CARD_MIB, CARD_MIB,
    )  # fmt: skip
    run(
        "INSERT INTO ledger_allocation (attempt_id, project_id, node_id, rank, form, driver, cpu_milli, host_memory_mib, "
        "state, period, closing_at) SELECT attempt_id, project_id, node_id, 0, "
        "CASE WHEN seat_id IS NULL THEN 'whole' ELSE 'container' END, 'simulated', 1, 1, 'closed', "
        "tstzrange(lo, lo + make_interval(secs => secs)), lo + make_interval(secs => secs * 0.98) FROM bench"
    )
    run(
        "INSERT INTO ledger_cardshare (allocation_id, seat_id, node_id, card_id, card_memory_mib, memory, compute, "
        "memory_mib, mig_mode, period) SELECT a.id, s.id, s.node_id, s.card_id, %s, "
        "int4multirange(int4range(0, b.mib::int)), '{}', b.mib, false, a.period FROM bench b JOIN ledger_allocation a "
        "ON a.attempt_id = b.attempt_id JOIN ledger_cardseat s ON s.node_id = b.node_id "
        "AND (b.seat_id IS NULL OR s.id = b.seat_id)",
        CARD_MIB,
    )
    run(
        "INSERT INTO ledger_hold (node_id, kind, period, reason, rule) SELECT id, 'maintenance', "
        "tstzrange(%s::timestamptz + make_interval(hours => (id * 5)::int), %s::timestamptz + "
        "make_interval(hours => (id * 5 + 9)::int)), 'bench', '' FROM ledger_node",
        start, start,
    )  # fmt: skip
    run(
        "INSERT INTO ledger_headroomreserve (zone_id, model, mib, period) SELECT z.id, m, %s, tstzrange(%s, NULL) "
        "FROM ledger_zone z CROSS JOIN unnest(%s::text[]) AS m",
        4 * CARD_MIB, start, list(MODELS),
    )  # fmt: skip
