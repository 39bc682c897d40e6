"""The bound of a budget is good until the first open attempt outlives its walltime, counted from the attempt's own start
and not from when the trigger ran, which is later. And what moves inside the reach of a ceiling changes nothing for it:
one that is still draining holds up no such move."""

from importlib import import_module

from django.db import migrations

before = import_module("ledger.migrations.0015_quota")
_between = before._between


def _changed(text: str, *changes: tuple[str, str]) -> str:
    """With each of these replaced; KeyError where one is not there."""
    for old, new in changes:
        if old not in text:
            raise KeyError(old)
        text = text.replace(old, new)
    return text


AGAIN = ("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")
LASTS = [
    ("lasts bigint DEFAULT NULL", "lasts timestamptz DEFAULT NULL"),
    (f"least(g.bound_until, {before.NOW} + lasts * interval '1 second')", "least(g.bound_until, lasts)"),
]
OLD_QUOTA = _between(before.TAKE, "CREATE FUNCTION ledger_take_quota", "WHERE id = g.id;\nEND $$;")
OLD_CEILINGS = _between(before.TAKE, "CREATE FUNCTION ledger_take_ceilings", "END LOOP;\nEND $$;")
OLD_SHARES = before.TRIGGERS[before.TRIGGERS.index("CREATE OR REPLACE FUNCTION ledger_quota_of_shares") :]
TAKE = f"""
DROP FUNCTION ledger_take_quota(bigint, text, bigint, text, bigint);
DROP FUNCTION ledger_take_ceilings(bigint, text, bigint, bigint);
{_changed(OLD_QUOTA, *LASTS)}
{_changed(OLD_CEILINGS, *LASTS)}
{_changed(OLD_SHARES, ("min(j.walltime_s)::bigint AS", "min(lower(a.period) + j.walltime_s * interval '1 second') AS"))}
"""
TAKE_BACK = f"""
DROP FUNCTION ledger_take_quota(bigint, text, bigint, text, timestamptz);
DROP FUNCTION ledger_take_ceilings(bigint, text, bigint, timestamptz);
{OLD_QUOTA}
{OLD_CEILINGS}
{OLD_SHARES}
"""
OLD_MOVE = _between(before.TREE, "CREATE FUNCTION ledger_check_move", "CREATE TRIGGER ceilings_hold_what_moves")
OLD_MOVE = _changed(OLD_MOVE.removesuffix("CREATE TRIGGER ceilings_hold_what_moves"), AGAIN)
MOVE = _changed(
    OLD_MOVE,
    ("under bigint;", "under bigint; from_under bigint;"),
    ("under := NEW.department_id;", "under := NEW.department_id; from_under := OLD.department_id;"),
    ("under := NEW.parent_id;", "under := NEW.parent_id; from_under := OLD.parent_id;"),
    (
        "(ledger_department_chain(under))",
        "(ledger_department_chain(under))\n      AND c.department_id <> ALL (ledger_department_chain(from_under))",
    ),
)


class Migration(migrations.Migration):
    dependencies = [("ledger", "0018_heads_of_long_queues")]
    operations = [
        migrations.RunSQL(TAKE, TAKE_BACK),
        migrations.RunSQL(MOVE, OLD_MOVE),
    ]
