"""A process of its own: migrate the database of DATABASE_URL forward, our applications back to nothing, and forward again.
Prints what the schema was at each of the three stops, as JSON. Used by test_migrations_back.py.
"""

from __future__ import annotations

import datetime as dt
import gc
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import django
from django.apps import apps
from django.conf import settings
from django.db import connection, transaction
from django.db.migrations.executor import MigrationExecutor

# Of everything in the schema `public` that no extension brought along; each query gives lines of text.
OWN: Final = "NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid = {oid} AND d.deptype = 'e')"
PUBLIC: Final = "'public'::regnamespace"
ACL: Final = "(SELECT string_agg(entry::text, ' ' ORDER BY entry::text) FROM unnest({acl}) AS entry)"
SCHEMA: Final = {
    "relations": f"SELECT relname, relkind::text, relrowsecurity, reloptions::text, {ACL.format(acl='relacl')}, "
    f"CASE WHEN relkind IN ('v', 'm') THEN pg_get_viewdef(c.oid) END FROM pg_class c WHERE relnamespace = {PUBLIC} "
    f"AND relkind IN ('r', 'p', 'v', 'm', 'S', 'f') AND {OWN.format(oid='c.oid')}",
    "columns": "SELECT c.relname, a.attname, a.attnum, format_type(a.atttypid, a.atttypmod), a.attnotnull, "
    f"a.attidentity::text, a.attgenerated::text, pg_get_expr(d.adbin, d.adrelid), {ACL.format(acl='attacl')} "
    "FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid LEFT JOIN pg_attrdef d ON d.adrelid = c.oid "
    f"AND d.adnum = a.attnum WHERE relnamespace = {PUBLIC} AND relkind IN ('r', 'p', 'v', 'm') AND a.attnum > 0 "
    "AND NOT a.attisdropped",
    "constraints": "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid), convalidated "
    f"FROM pg_constraint WHERE connamespace = {PUBLIC}",
    "indexes": "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "triggers": "SELECT pg_get_triggerdef(t.oid), tgenabled::text FROM pg_trigger t JOIN pg_class c "
    f"ON c.oid = t.tgrelid WHERE relnamespace = {PUBLIC} AND NOT tgisinternal",
    "policies": "SELECT tablename, policyname, cmd, roles::text, qual, with_check FROM pg_policies",
    "functions": f"SELECT pg_get_functiondef(p.oid), {ACL.format(acl='proacl')} FROM pg_proc p "
    f"WHERE pronamespace = {PUBLIC} AND prokind IN ('f', 'p') AND {OWN.format(oid='p.oid')}",
    "types": f"SELECT typname, typtype::text FROM pg_type t WHERE typnamespace = {PUBLIC} AND typtype IN ('e', 'd') "
    f"AND {OWN.format(oid='t.oid')}",
    "sequences": "SELECT sequencename, data_type::text, start_value, min_value, max_value, increment_by, cycle "
    "FROM pg_sequences WHERE schemaname = 'public'",
    "extensions": "SELECT extname FROM pg_extension",
    "default rights": f"SELECT defaclobjtype::text, {ACL.format(acl='defaclacl')} FROM pg_default_acl",
}


def ours() -> list[str]:
    """The applications of this repository that have migrations."""
    own = (app for app in apps.get_app_configs() if Path(app.path).parent == Path(settings.BASE_DIR))
    return [app.label for app in own if (Path(app.path) / "migrations").is_dir()]


def stop() -> dict[str, list[str]]:
    """The schema, and how many rows the migrations have written into each table of ours."""
    found = {name: _lines(query) for name, query in SCHEMA.items()}
    tables = [table for table in connection.introspection.table_names() if table.split("_")[0] in ours()]
    found["rows"] = sorted(f"{table}: {_lines(f'SELECT count(*) FROM {table}')[0]}" for table in tables)
    return found


def _lines(query: str) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return sorted(" | ".join("" if value is None else str(value) for value in row) for row in cursor.fetchall())


def migrate(targets: Sequence[tuple[str, str | None]] = ()) -> dict[str, list[str]]:
    """To these targets, by default to the newest migrations; the stop there."""
    executor = MigrationExecutor(connection)
    executor.migrate(list(targets) or executor.loader.graph.leaf_nodes())
    return stop()


def forget_days() -> None:
    """The days of samples that other tests have left in the database that this one was copied from."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT ledger_drop_sample_days('9999-01-01')")


def fill() -> None:
    """Rows that only the newest version can tell: on the way back they must neither be in the way nor be taken for
    something else."""
    from ledger.models import Department, DepartmentCeiling, Project, QuotaGrant, User

    now = dt.datetime.now(dt.UTC)
    owner = User.objects.create(username="there")
    house = Department.objects.create(slug="there", title="There")
    with transaction.atomic():
        project = Project.objects.create(
            slug="there", title="There", owner=owner, department=house, starts_on=now.date()
        )
        project.memberships.create(user=owner, role="owner")
    same = {"amount": 5, "period": (now, None), "reason": "test", "by": owner}
    for model in ("", "A100", "H100"):
        DepartmentCeiling.objects.create(department=house, resource="card_milli", model=model, **same)
        QuotaGrant.objects.create(project=project, resource="card_milli", model=model, **same)
    budget = {"resource": "card_milli_s", "renews": "month", **same}
    DepartmentCeiling.objects.create(department=house, **budget)
    QuotaGrant.objects.create(project=project, **budget)


def main() -> None:
    gc.disable()  # the states of models between migrations are one large graph that lives to the end
    django.setup()
    migrate()
    forget_days()
    stops: dict[str, Any] = {"applications": ours(), "before": stop()}
    fill()
    stops["zero"] = migrate([(label, None) for label in ours()])
    stops["after"] = migrate()
    print(json.dumps(stops))


if __name__ == "__main__":
    main()
