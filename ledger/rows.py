"""Many rows of one table in one statement, several times faster than bulk_create: the values travel as one JSON
document and PostgreSQL turns it into rows. Columns, types and defaults are the models' own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django.db import connection, models


def insert(model: type[models.Model], rows: Sequence[dict[str, Any]], **same: Any) -> list[int]:
    """Write these rows; all name the same fields by attname, with values as JSON has them or PostgreSQL reads them from
    text. `same` are the values that are equal in all rows; other fields get their defaults. Returns the keys in the
    order of the rows."""
    if not rows:
        return []
    meta = model._meta
    key = meta.pk
    fields = {field.attname: field for field in meta.concrete_fields if field is not key}
    each = [fields[name] for name in rows[0]]
    equal = {name: same.get(name, field.get_default()) for name, field in fields.items() if name not in rows[0]}
    columns = [field.column for field in each] + [fields[name].column for name in equal]
    typed = ", ".join(f"{_quoted(field.attname)} {field.db_type(connection)}" for field in each)
    values = [_quoted(field.attname) for field in each] + ["%s"] * len(equal)
    statement = (  # names and types of the models' columns, values as parameters
        f"INSERT INTO {_quoted(meta.db_table)} ({', '.join(map(_quoted, columns))}) SELECT {', '.join(values)} "  # noqa: S608
        f"FROM json_to_recordset(%s) AS rows ({typed}) RETURNING {_quoted(key.column)}"
    )
    parameters = [fields[name].get_db_prep_save(value, connection) for name, value in equal.items()]
    with connection.cursor() as cursor:
        cursor.execute(statement, [*parameters, json.dumps(rows, default=str)])
        return [pk for (pk,) in cursor.fetchall()]


def _quoted(name: str) -> str:
    return connection.ops.quote_name(name)
