"""The quota at commit without a sum over all open shares: each grant keeps an upper bound of what is used of it.

What is placed is added to the bound under the project's lock; what ends is not taken off, so the bound is never below
what is used. Only when it would pass the grant, or nothing is known, is the use summed, and that is the new bound.

What asks for no compute is left out of the index that keeps compute from being given twice: an empty multirange
overlaps with nothing.
"""

from importlib import import_module
from typing import Any

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import RangeOperators
from django.db import migrations, models
from django.db.models.lookups import Exact

before = import_module("ledger.migrations.0009_batched_guards")

# What is used of a node is summed once for all its rows of a statement.
BY_ROW = """      CROSS JOIN LATERAL (SELECT sum(a.cpu_milli) AS cpu_milli, sum(a.host_memory_mib) AS host_memory_mib
        FROM ledger_allocation a WHERE a.node_id = x.node_id AND upper_inf(a.period)) AS used
"""
BY_NODE = """      LEFT JOIN used ON used.node_id = x.node_id
"""
USED = """  WITH used AS MATERIALIZED (
    SELECT a.node_id, sum(a.cpu_milli) AS cpu_milli, sum(a.host_memory_mib) AS host_memory_mib
    FROM ledger_allocation a WHERE a.node_id = ANY (ARRAY(SELECT node_id FROM added)) AND upper_inf(a.period)
    GROUP BY a.node_id
  ), checked AS ("""
GUARD_BACK = before._between(before.ALLOCATIONS, "CREATE FUNCTION ledger_guard_allocations()", "END $$;").replace(
    "CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1
)
GUARD = GUARD_BACK.replace(BY_ROW, BY_NODE).replace("  WITH checked AS (", USED)
BOUND = """
CREATE FUNCTION ledger_take_quota(project bigint, of text, taken bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE g record; used bigint;
BEGIN
  SELECT id, amount, used_at_most INTO g FROM ledger_quotagrant q
    WHERE q.project_id = project AND q.resource = of AND q.period @> clock_timestamp() FOR NO KEY UPDATE;
  IF NOT FOUND THEN RETURN; END IF;
  used := g.used_at_most + taken;
  IF used IS NULL OR used > g.amount THEN
    used := ledger_quota_used(project, of);
    IF used > g.amount THEN
      RAISE EXCEPTION 'quota of project %: % of % % would be used', project, used, g.amount, of
        USING ERRCODE = 'check_violation', CONSTRAINT = 'quota_never_exceeded';
    END IF;
  END IF;
  UPDATE ledger_quotagrant SET used_at_most = used WHERE id = g.id;
END $$;
CREATE FUNCTION ledger_quota_of_allocations() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE t record;
BEGIN
  FOR t IN SELECT x.project_id, count(*) FILTER (WHERE x.form = 'whole') AS whole_nodes, sum(x.cpu_milli) AS cpu_milli,
      sum(x.host_memory_mib) AS host_memory_mib FROM added x GROUP BY x.project_id ORDER BY x.project_id LOOP
    PERFORM 1 FROM ledger_project WHERE id = t.project_id FOR NO KEY UPDATE;
    PERFORM ledger_take_quota(t.project_id, 'whole_nodes', t.whole_nodes);
    PERFORM ledger_take_quota(t.project_id, 'cpu_milli', t.cpu_milli::bigint);
    PERFORM ledger_take_quota(t.project_id, 'host_memory_mib', t.host_memory_mib::bigint);
  END LOOP;
  RETURN NULL;
END $$;
CREATE FUNCTION ledger_quota_of_shares() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE t record;
BEGIN
  FOR t IN SELECT a.project_id, sum(x.memory_mib) AS card_memory_mib,
      sum((x.memory_mib::bigint * 1000 + x.card_memory_mib - 1) / x.card_memory_mib) AS card_milli
      FROM added x JOIN ledger_allocation a ON a.id = x.allocation_id GROUP BY a.project_id ORDER BY a.project_id LOOP
    PERFORM 1 FROM ledger_project WHERE id = t.project_id FOR NO KEY UPDATE;
    PERFORM ledger_take_quota(t.project_id, 'card_milli', t.card_milli::bigint);
    PERFORM ledger_take_quota(t.project_id, 'card_memory_mib', t.card_memory_mib);
  END LOOP;
  RETURN NULL;
END $$;
DROP TRIGGER quota_never_exceeded ON ledger_allocation;
DROP TRIGGER quota_never_exceeded ON ledger_cardshare;
DROP FUNCTION ledger_check_quota();
CREATE TRIGGER quota_never_exceeded AFTER INSERT ON ledger_allocation REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION ledger_quota_of_allocations();
CREATE TRIGGER quota_never_exceeded AFTER INSERT ON ledger_cardshare REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION ledger_quota_of_shares();
"""
# What else could put the use above the bound makes it unknown.
FORGET = """
CREATE FUNCTION ledger_forget_quota_bound() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.used_at_most := NULL;
  RETURN NEW;
END $$;
CREATE TRIGGER forget_quota_bound BEFORE UPDATE OF project_id, resource, period ON ledger_quotagrant
  FOR EACH ROW EXECUTE FUNCTION ledger_forget_quota_bound();
CREATE FUNCTION ledger_forget_quota_bounds() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE ledger_quotagrant SET used_at_most = NULL WHERE used_at_most IS NOT NULL;
  RETURN NULL;
END $$;
CREATE TRIGGER forget_quota_bounds AFTER UPDATE OF project_id, form, cpu_milli, host_memory_mib ON ledger_allocation
  FOR EACH STATEMENT EXECUTE FUNCTION ledger_forget_quota_bounds();
CREATE TRIGGER forget_quota_bounds AFTER UPDATE OF memory_mib, card_memory_mib ON ledger_cardshare
  FOR EACH STATEMENT EXECUTE FUNCTION ledger_forget_quota_bounds();
"""
FORGET_BACK = """
DROP TRIGGER forget_quota_bounds ON ledger_cardshare;
DROP TRIGGER forget_quota_bounds ON ledger_allocation;
DROP TRIGGER forget_quota_bound ON ledger_quotagrant;
DROP FUNCTION ledger_forget_quota_bounds();
DROP FUNCTION ledger_forget_quota_bound();
"""
BOUND_BACK = (
    before._between(
        before.QUOTA, "CREATE OR REPLACE FUNCTION ledger_check_quota()", "('card_milli', 'card_memory_mib');"
    )
    + """
DROP FUNCTION ledger_quota_of_shares();
DROP FUNCTION ledger_quota_of_allocations();
DROP FUNCTION ledger_take_quota(bigint, text, bigint);
"""
)
SOME_COMPUTE = models.Q(
    Exact(models.Func(models.F("compute"), function="isempty", output_field=models.BooleanField()), False)
)


def _compute_once(**condition: Any) -> ExclusionConstraint:
    return ExclusionConstraint(
        name="compute_never_double_booked",
        expressions=[
            ("card", RangeOperators.EQUAL),
            ("compute", RangeOperators.OVERLAPS),
            ("period", RangeOperators.OVERLAPS),
        ],
        **condition,
    )


# Indexes of keys whose first column is that of a unique constraint: one index is enough. By name: Django would drop
# every index of the column alone.
DOUBLE: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("cardshare", "allocation", "shares", "ledger_cardshare_allocation_id_54eef0e4", {"db_constraint": False}),
    ("allocation", "attempt", "allocations", "ledger_allocation_attempt_id_0377016e", {}),
    ("attempt", "job", "attempts", "ledger_attempt_job_id_b6d68890", {}),
)


def _without_double(table: str, to: str, name: str, index: str, options: Any) -> Any:
    field = models.ForeignKey(f"ledger.{to}", on_delete=models.PROTECT, related_name=name, db_index=False, **options)
    return migrations.SeparateDatabaseAndState(
        [migrations.RunSQL(f"DROP INDEX {index}", f"CREATE INDEX {index} ON ledger_{table} ({to}_id)")],
        [migrations.AlterField(table, to, field)],
    )


class Migration(migrations.Migration):
    dependencies = [("ledger", "0009_batched_guards")]
    operations = [
        migrations.AddField(
            model_name="quotagrant", name="used_at_most", field=models.BigIntegerField(editable=False, null=True)
        ),
        migrations.RunSQL(GUARD, GUARD_BACK),
        migrations.RunSQL(BOUND, BOUND_BACK),
        migrations.RunSQL(FORGET, FORGET_BACK),
        migrations.RemoveConstraint("cardshare", "compute_never_double_booked"),
        migrations.AddConstraint("cardshare", _compute_once(condition=SOME_COMPUTE)),
        *(_without_double(*each) for each in DOUBLE),
    ]
