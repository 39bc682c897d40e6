"""Every migration of ours can be taken back, and what it builds the second time is what it built the first time.

The way back and forth is gone in a process and a database of its own (tests/portal/round_trip.py), so a new migration
is covered without a word here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from django.db import connection
from psycopg import sql

ROOT = Path(__file__).parents[2]
SCRATCH = "there_and_back"
WRITTEN = {"ledger_inventoryversion", "ledger_statetransition"}  # tables in which the migrations write rows


@pytest.fixture
def scratch(django_db_setup: None) -> Iterator[str]:
    """The URL of a copy of the tests' database; of an empty one where that is in use, which takes longer."""
    url, name = os.environ["DATABASE_URL"], sql.Identifier(SCRATCH)
    drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name)
    create = sql.SQL("CREATE DATABASE {}").format(name)
    copy = create + sql.SQL(" TEMPLATE {}").format(sql.Identifier(connection.settings_dict["NAME"]))
    connection.close()
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(drop)
        try:
            owner.execute(copy)
        except psycopg.errors.ObjectInUse:
            owner.execute(create)
        yield urlsplit(url)._replace(path=f"/{SCRATCH}").geturl()
        owner.execute(drop)


def gone_through(url: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.portal.round_trip"],
        cwd=ROOT,
        env=os.environ | {"DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "portal.settings"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_every_migration_goes_back_and_builds_the_same_again(scratch: str) -> None:
    stops = gone_through(scratch)
    assert {"ledger", "scheduler", "portal"} <= set(stops["applications"])
    before, zero, after = stops["before"], stops["zero"], stops["after"]
    for kind in before.keys() - {"rows"}:  # other tests may have emptied the tables that were copied
        assert after[kind] == before[kind], kind
    assert any(line.startswith("ledger_job | r") for line in before["relations"])
    assert len(before["triggers"]) > 10
    assert {line.partition(":")[0] for line in after["rows"] if not line.endswith(": 0")} == WRITTEN
    ours = tuple(f"{label}_" for label in stops["applications"])
    assert [line for line in zero["relations"] if line.startswith(ours)] == []
    for kind in ("triggers", "functions", "types", "policies", "default rights", "rows"):
        assert zero[kind] == [], kind
