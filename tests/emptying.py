"""How the database is emptied after a test with real transactions, in the place of `manage.py flush`: the few rows that
are there are deleted, for new files of every table and index take ten times as long. What migrations wrote stays where
no test changes it, so that content types and permissions aren't written anew."""

from __future__ import annotations

from graphlib import TopologicalSorter

import pytest
from django.db import connection, transaction

STAY = {"django_migrations", "django_content_type", "auth_permission", "ledger_statetransition"}
FEW = 2_000  # rows of a table up to which deleting is quicker


def empty(_command: object, **_options: object) -> None:
    """As the handler of the command. Most foreign keys are looked at when all is deleted, the rest at once."""
    rows = counts()
    with transaction.atomic(), connection.cursor() as cursor:
        if max(rows.values(), default=0) > FEW:
            cursor.execute(f"TRUNCATE {', '.join(rows)}")
        else:
            for table in sorted(rows, key=after_those_that_name_them().index):
                if rows[table]:
                    cursor.execute(f"DELETE FROM {table}")


def after_those_that_name_them() -> list[str]:
    """All tables, each after those with a foreign key to it that isn't deferred."""
    named_by: dict[str, set[str]] = {table: set() for table in connection.introspection.table_names()}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT conrelid::regclass::text, confrelid::regclass::text FROM pg_constraint"
            " WHERE contype = 'f' AND (NOT condeferrable OR confdeltype = 'r') AND conrelid <> confrelid"
        )
        for table, named in cursor.fetchall():
            named_by[named].add(table)
    return list(TopologicalSorter(named_by).static_order())


def counts() -> dict[str, int]:
    """Rows by table, counted to a little more than FEW."""
    tables = sorted({*connection.introspection.table_names()} - STAY)
    each = (f"SELECT count(*) FROM (SELECT FROM {table} LIMIT {FEW + 1}) AS {table}" for table in tables)
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(each))
        return dict(zip(tables, (row[0] for row in cursor.fetchall()), strict=True))


def replace_flush(patch: pytest.MonkeyPatch) -> None:
    from django.core.management.commands import flush

    patch.setattr(flush.Command, "handle", empty)
