"""A clock that moves: the database's clock_timestamp() as the ledger's functions and database_now() see it, inside the
transaction of a test. It goes on from where it was put."""

from __future__ import annotations

import datetime as dt

from django.db import connection

from ledger.clock import database_now

SETUP = """
CREATE SCHEMA IF NOT EXISTS moved;
CREATE OR REPLACE FUNCTION moved.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$
  SELECT pg_catalog.clock_timestamp() + current_setting('moved.by')::interval
$$;
SET LOCAL moved.by = '0';
SET LOCAL search_path = moved, public, pg_catalog;
"""


def move_to(moment: dt.datetime) -> None:
    """From now on it is that moment."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_schema()")
        if cursor.fetchone() != ("moved",):
            cursor.execute(SETUP)
        cursor.execute("SELECT current_setting('moved.by')::interval")
        (by,) = cursor.fetchone() or (dt.timedelta(),)
        by += moment - database_now()
        cursor.execute("SELECT set_config('moved.by', %s, true)", [f"{by / dt.timedelta(microseconds=1):.0f} us"])
