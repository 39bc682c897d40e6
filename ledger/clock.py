"""The database's clock: the only one that the book believes."""

from __future__ import annotations

import datetime as dt

from django.db import connection


def database_now() -> dt.datetime:
    """clock_timestamp(), not now(): inside a transaction now() is its start, which gives false conflicts."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        row = cursor.fetchone()
    moment: dt.datetime = row[0]
    return moment
