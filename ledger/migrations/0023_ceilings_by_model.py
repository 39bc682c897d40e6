"""Ceilings of departments for cards of one model, held at commit as those for every model are (0015_quota).

The functions are patched where they speak of it, as in 0022, whatever else is in them.
"""

from typing import Any

import django.contrib.postgres.constraints as postgres
from django.db import migrations, models
from django.db.models import Q

COLUMNS = "department_id, resource, period, counted_from, renews"
OLD_CALL = """      IF t.model <> '' THEN
        PERFORM ledger_take_quota(t.project_id, 'card_milli', t.card_milli, t.model);
        PERFORM ledger_take_quota(t.project_id, 'card_memory_mib', t.card_memory_mib, t.model);
      ELSIF ceilings THEN
        PERFORM ledger_take_ceilings(t.project_id, 'card_milli_s', t.card_milli_s, t.lasts);
      END IF;"""
NEW_CALL = """      IF t.model <> '' THEN
        PERFORM ledger_take_quota(t.project_id, 'card_milli', t.card_milli, t.model);
        PERFORM ledger_take_quota(t.project_id, 'card_memory_mib', t.card_memory_mib, t.model);
      END IF;
      IF ceilings THEN
        PERFORM ledger_take_ceilings(t.project_id, 'card_milli_s', t.card_milli_s, t.lasts, t.model);
        IF t.model <> '' THEN
          PERFORM ledger_take_ceilings(t.project_id, 'card_milli', t.card_milli, NULL, t.model);
          PERFORM ledger_take_ceilings(t.project_id, 'card_memory_mib', t.card_memory_mib, NULL, t.model);
        END IF;
      END IF;"""
INSTANT = "timestamp with time zone"
TAKE = [
    (
        f"lasts {INSTANT} DEFAULT NULL::{INSTANT})",
        f"lasts {INSTANT} DEFAULT NULL::{INSTANT}, of_model text DEFAULT ''::text)",
    ),
    ("c.resource = of AND", "c.resource = of AND c.model = of_model AND"),
    ("ledger_projects_use(below, of, '', g.since)", "ledger_projects_use(below, of, of_model, g.since)"),
]
MOVE = [
    ("c.department_id, c.resource, c.amount,", "c.department_id, c.resource, c.model, c.amount,"),
    ("ledger_projects_use(moved, g.resource, '', g.since)", "ledger_projects_use(moved, g.resource, g.model, g.since)"),
    (
        "ledger_projects_use(ledger_department_projects(g.department_id), g.resource, '', g.since)",
        "ledger_projects_use(ledger_department_projects(g.department_id), g.resource, g.model, g.since)",
    ),
]
SHARES = [(OLD_CALL, NEW_CALL)]


def _patch(name: str, changes: list[tuple[str, str]], drop: str = "") -> str:
    """Put new texts in place of old ones in the function; an error where one of them is not there."""
    steps = "".join(
        f"""
  IF position($t${old}$t$ IN said) = 0 THEN RAISE EXCEPTION '{name} does not say what is to be changed'; END IF;
  said := replace(said, $t${old}$t$, $t${new}$t$);"""
        for old, new in changes
    )
    return f"""
DO $patch$ DECLARE said text; BEGIN
  SELECT pg_get_functiondef(oid) INTO STRICT said FROM pg_proc WHERE proname = '{name}';{steps}
  {drop}
  EXECUTE said;
END $patch$;
"""


def _there_and_back(name: str, changes: list[tuple[str, str]], drops: tuple[str, str] = ("", "")) -> Any:
    back = [(new, old) for old, new in changes]
    return migrations.RunSQL(_patch(name, changes, drops[0]), _patch(name, back, drops[1]))


def _forgetting(more: str) -> str:
    return f"""
DROP TRIGGER forget_ceiling_bound ON ledger_departmentceiling;
CREATE TRIGGER forget_ceiling_bound BEFORE UPDATE OF {COLUMNS}{more}
  ON ledger_departmentceiling FOR EACH ROW EXECUTE FUNCTION ledger_forget_bound();
"""


def _once(*same: str) -> postgres.ExclusionConstraint:
    expressions = [*((field, "=") for field in same), ("period", "&&")]
    return postgres.ExclusionConstraint(name="one_ceiling_at_a_time", expressions=expressions)


class Migration(migrations.Migration):
    dependencies = [("ledger", "0022_renewing_budgets")]
    operations = [
        migrations.AddField("departmentceiling", "model", models.CharField(blank=True, default="", max_length=64)),
        migrations.RemoveConstraint("departmentceiling", "one_ceiling_at_a_time"),
        migrations.AddConstraint("departmentceiling", _once("department", "resource", "model")),
        migrations.AddConstraint(
            "departmentceiling",
            models.CheckConstraint(
                condition=Q(model="") | Q(resource__in=["card_memory_mib", "card_milli", "card_milli_s"]),
                name="ceiling_of_a_model_is_of_cards",
            ),
        ),
        _there_and_back(
            "ledger_take_ceilings",
            TAKE,
            (
                "DROP FUNCTION ledger_take_ceilings(bigint, text, bigint, timestamptz);",
                "DROP FUNCTION ledger_take_ceilings(bigint, text, bigint, timestamptz, text);",
            ),
        ),
        _there_and_back("ledger_quota_of_shares", SHARES),
        _there_and_back("ledger_check_move", MOVE),
        migrations.RunSQL(_forgetting(", model"), _forgetting("")),
        # the way back: what is about one model can't be told any more
        migrations.RunSQL(migrations.RunSQL.noop, "DELETE FROM ledger_departmentceiling WHERE model <> ''"),
    ]
