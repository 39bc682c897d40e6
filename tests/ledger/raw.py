"""Rows written in SQL past the Python code, to try the database's own guards and to lay out histories."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from psycopg.types.json import Jsonb


class Sql(str):
    """A value that is an SQL expression."""


NOW_ON = Sql("tstzrange(clock_timestamp(), NULL)")


def run(statement: str, *values: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchall() if cursor.description else []


def one(statement: str, *values: Any) -> Any:
    return run(statement, *values)[0][0]


def insert(table: str, **values: Any) -> int:
    """Insert a row and return its id. Values of type Sql stand in the statement as they are."""
    slots = ", ".join(str(value) if isinstance(value, Sql) else "%s" for value in values.values())
    plain = [value for value in values.values() if not isinstance(value, Sql)]
    plain = [Jsonb(value) if isinstance(value, dict | list) else value for value in plain]
    return int(one(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({slots}) RETURNING id", *plain))


@contextmanager
def refused(constraint: str, *, at_once: bool = False) -> Iterator[None]:
    """The database refuses what is inside, by the constraint of this name, at the latest at commit."""
    with pytest.raises(DatabaseError) as caught, transaction.atomic():
        yield
        if not at_once:
            run("SET CONSTRAINTS ALL IMMEDIATE")
    diagnosis = getattr(caught.value.__cause__, "diag", None)
    assert diagnosis is not None, caught.value
    assert diagnosis.constraint_name == constraint, f"{diagnosis.constraint_name}: {caught.value}"


@contextmanager
def undone() -> Iterator[None]:
    """What is inside is rolled back at its end, with the checks that wait for commit."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


@contextmanager
def accepted() -> Iterator[None]:
    """The database takes what is inside, also with the checks that wait for commit."""
    with transaction.atomic():
        yield
        run("SET CONSTRAINTS ALL IMMEDIATE")
        run("SET CONSTRAINTS ALL DEFERRED")


def job(project_id: int, by_id: int, **values: Any) -> int:
    now = Sql("clock_timestamp()")
    row = {
        "project_id": project_id, "by_id": by_id, "name": "raw", "kind": "other", "asks": [{}], "cpu_milli": 1,
        "host_memory_mib": 1, "interconnect": "any", "distance": "any", "labels": [], "environment": {},
        "command": ["simulate"], "image": "", "data_paths": [], "walltime_s": 60, "priority": 0, "preemptible": False,
        "checkpoint": "", "key_work": False, "reproducible": False, "simulated": True, "state": "queued", "message": "",
        "client_digest": "",
        "submitted_at": now, "queued_at": now, "cancel_reason": "", "held_reason": "",
    }  # fmt: skip
    return insert("ledger_job", **row | values)


def attempt(job_id: int, **values: Any) -> int:
    row = {
        "job_id": job_id, "n": 1, "fence": Sql("nextval('ledger_fence')"), "state": "starting", "outcome": "",
        "message": "", "opened_at": Sql("clock_timestamp()"),
    }  # fmt: skip
    return insert("ledger_attempt", **row | values)


def zone_of(node_id: int) -> int:
    return int(one("SELECT zone_id FROM ledger_nodezone WHERE node_id = %s AND upper_inf(period)", node_id))


def allocation(attempt_id: int, node_id: int, **values: Any) -> int:
    row = {
        "attempt_id": attempt_id,
        "project_id": Sql(f"(SELECT j.project_id FROM ledger_job j JOIN ledger_attempt a ON a.job_id = j.id "
                          f"WHERE a.id = {attempt_id})"),
        "node_id": node_id, "rank": 0, "form": "container", "driver": "simulated",
        "zone_then_id": Sql(f"(SELECT zone_id FROM ledger_nodezone WHERE node_id = {node_id} AND upper_inf(period))"),
        "cpu_milli": 1000, "host_memory_mib": 1000, "state": "opening", "period": NOW_ON,
    }  # fmt: skip
    return insert("ledger_allocation", **row | values)


def share(allocation_id: int, card_id: int, **values: Any) -> int:
    """All of the card and its compute, in its seat of now, unless told otherwise."""
    size = int(one("SELECT memory_mib FROM ledger_card WHERE id = %s", card_id))
    seat = "SELECT {} FROM ledger_cardseat WHERE card_id = " + str(card_id) + " AND upper_inf(period)"
    row = {
        "allocation_id": allocation_id, "card_id": card_id,
        "seat_id": Sql(f"({seat.format('id')})"), "node_id": Sql(f"({seat.format('node_id')})"),
        "card_memory_mib": size, "memory_mib": size, "mig_mode": False,
        "memory": f"{{[0,{size})}}", "compute": "{[0,1000)}",
        "period": Sql(f"(SELECT period FROM ledger_allocation WHERE id = {allocation_id})"),
    }  # fmt: skip
    return insert("ledger_cardshare", **row | values)
