"""Quota by card model and budgets over time, ceilings of departments, limits of members: all held at commit as quota is
held since 0010_quota_bound, by an upper bound that each row keeps and a sum where that says no.

What few projects have costs the others one look a statement. A budget sets aside the whole walltime of what is open and
counts what ended for what it took; its bound is good until the first open attempt outlives its walltime. Departments
form a tree, and nothing moves under a ceiling that it would break.
"""

from importlib import import_module
from typing import Any

import django.contrib.postgres.constraints as postgres
from django.conf import settings
from django.contrib.postgres.fields import DateTimeRangeField
from django.db import migrations, models
from django.db.models import CASCADE, PROTECT, Q

before = import_module("ledger.migrations.0010_quota_bound")
_between = import_module("ledger.migrations.0009_batched_guards")._between

AT_ONCE = ["card_memory_mib", "card_milli", "cpu_milli", "host_memory_mib", "whole_nodes"]
RESOURCES = ["card_milli", "card_memory_mib", "whole_nodes", "cpu_milli", "host_memory_mib", "card_milli_s"]
NOW = "clock_timestamp()"
MILLI = "((s.memory_mib::bigint * 1000 + s.card_memory_mib - 1) / s.card_memory_mib)"
OPEN = "a.project_id = ANY (projects) AND upper_inf(a.period)"
OF_MODEL = "(of_model = '' OR EXISTS (SELECT 1 FROM ledger_card c WHERE c.id = s.card_id AND c.model = of_model))"
SHARES = "FROM ledger_allocation a JOIN ledger_cardshare s ON s.allocation_id = a.id"
JOBS = "JOIN ledger_attempt y ON y.id = a.attempt_id JOIN ledger_job j ON j.id = y.job_id"
USED = f"""
CREATE FUNCTION ledger_seconds(d interval) RETURNS bigint LANGUAGE sql IMMUTABLE AS
  $$ SELECT ceil(extract(epoch FROM d))::bigint $$;
CREATE FUNCTION ledger_projects_use(projects bigint[], of text, of_model text, since timestamptz) RETURNS bigint
  LANGUAGE sql STABLE AS $$
  SELECT CASE of
    WHEN 'card_milli' THEN (SELECT coalesce(sum({MILLI}), 0)::bigint {SHARES}
        WHERE {OPEN} AND upper_inf(s.period) AND {OF_MODEL})
    WHEN 'card_memory_mib' THEN (SELECT coalesce(sum(s.memory_mib), 0)::bigint {SHARES}
        WHERE {OPEN} AND upper_inf(s.period) AND {OF_MODEL})
    WHEN 'whole_nodes' THEN (SELECT count(*) FROM ledger_allocation a WHERE {OPEN} AND a.form = 'whole')
    WHEN 'cpu_milli' THEN (SELECT coalesce(sum(a.cpu_milli), 0)::bigint FROM ledger_allocation a WHERE {OPEN})
    WHEN 'host_memory_mib' THEN
      (SELECT coalesce(sum(a.host_memory_mib), 0)::bigint FROM ledger_allocation a WHERE {OPEN})
    WHEN 'card_milli_s' THEN (SELECT coalesce(sum({MILLI} * CASE WHEN upper_inf(a.period)
          THEN greatest(ledger_seconds(coalesce(a.closing_at, {NOW}) - lower(a.period)), j.walltime_s)
          ELSE ledger_seconds(a.closing_at - lower(a.period)) END), 0)::bigint {SHARES} {JOBS}
        WHERE a.project_id = ANY (projects) AND a.period && tstzrange(since, NULL) AND {OF_MODEL})
  END
$$;
CREATE FUNCTION ledger_bound_until(projects bigint[]) RETURNS timestamptz LANGUAGE sql STABLE AS $$
  SELECT min(lower(a.period) + j.walltime_s * interval '1 second') FROM ledger_allocation a {JOBS}
    WHERE {OPEN} AND a.closing_at IS NULL
$$;
CREATE FUNCTION ledger_member_used(project bigint, member bigint, of text) RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT CASE of
    WHEN 'card_milli' THEN (SELECT coalesce(sum({MILLI}), 0)::bigint {SHARES} {JOBS}
        WHERE a.project_id = project AND upper_inf(a.period) AND upper_inf(s.period) AND j.by_id = member)
    WHEN 'card_memory_mib' THEN (SELECT coalesce(sum(s.memory_mib), 0)::bigint {SHARES} {JOBS}
        WHERE a.project_id = project AND upper_inf(a.period) AND upper_inf(s.period) AND j.by_id = member)
    ELSE (SELECT coalesce(sum(CASE of WHEN 'whole_nodes' THEN (a.form = 'whole')::integer WHEN 'cpu_milli'
          THEN a.cpu_milli ELSE a.host_memory_mib END), 0)::bigint FROM ledger_allocation a {JOBS}
        WHERE a.project_id = project AND upper_inf(a.period) AND j.by_id = member)
  END
$$;
CREATE FUNCTION ledger_department_chain(d bigint) RETURNS bigint[] LANGUAGE sql STABLE AS $$  -- the root first
  WITH RECURSIVE up AS (SELECT id, parent_id, 0 AS n FROM ledger_department WHERE id = d
    UNION ALL SELECT p.id, p.parent_id, n + 1 FROM up JOIN ledger_department p ON p.id = up.parent_id)
  SELECT coalesce(array_agg(id ORDER BY n DESC), '{{}}') FROM up
$$;
CREATE FUNCTION ledger_department_projects(d bigint) RETURNS bigint[] LANGUAGE sql STABLE AS $$
  WITH RECURSIVE down AS (SELECT d AS id UNION SELECT c.id FROM down JOIN ledger_department c ON c.parent_id = down.id)
  SELECT coalesce(array_agg(p.id), '{{}}') FROM ledger_project p WHERE p.department_id IN (SELECT id FROM down)
$$;
"""
USED_BACK = """
DROP FUNCTION ledger_department_projects(bigint); DROP FUNCTION ledger_department_chain(bigint);
DROP FUNCTION ledger_member_used(bigint, bigint, text); DROP FUNCTION ledger_bound_until(bigint[]);
DROP FUNCTION ledger_projects_use(bigint[], text, text, timestamptz); DROP FUNCTION ledger_seconds(interval);
"""
# `lasts`: of a budget, the shortest walltime in seconds among what is taken. What takes nothing is never refused.
TAKE = f"""
DROP FUNCTION ledger_take_quota(bigint, text, bigint);
CREATE FUNCTION ledger_take_quota(project bigint, of text, taken bigint, of_model text DEFAULT '',
    lasts bigint DEFAULT NULL) RETURNS void LANGUAGE plpgsql AS $$
DECLARE g record; used bigint; valid timestamptz;
BEGIN
  IF taken = 0 THEN RETURN; END IF;
  SELECT id, amount, used_at_most, bound_until, coalesce(counted_from, lower(period)) AS since INTO g
    FROM ledger_quotagrant q WHERE q.project_id = project AND q.resource = of AND q.model = of_model
    AND q.period @> {NOW} FOR NO KEY UPDATE;
  IF NOT FOUND THEN RETURN; END IF;
  used := g.used_at_most + taken;
  IF of = 'card_milli_s' THEN valid := least(g.bound_until, {NOW} + lasts * interval '1 second'); END IF;
  IF used IS NULL OR used > g.amount OR g.bound_until < {NOW} THEN
    IF of_model = '' AND of <> 'card_milli_s' THEN used := ledger_quota_used(project, of);
    ELSE used := ledger_projects_use(ARRAY[project], of, of_model, g.since);
    END IF;
    IF of = 'card_milli_s' THEN valid := ledger_bound_until(ARRAY[project]); END IF;
    IF used > g.amount THEN
      RAISE EXCEPTION 'quota of project %: % of % % would be used', project, used, g.amount, of
        USING ERRCODE = 'check_violation', CONSTRAINT = 'quota_never_exceeded';
    END IF;
  END IF;
  UPDATE ledger_quotagrant SET used_at_most = used, bound_until = valid WHERE id = g.id;
END $$;
CREATE FUNCTION ledger_take_ceilings(project bigint, of text, taken bigint, lasts bigint DEFAULT NULL) RETURNS void
  LANGUAGE plpgsql AS $$
DECLARE g record; used bigint; valid timestamptz; below bigint[];
BEGIN
  IF taken = 0 THEN RETURN; END IF;
  FOR g IN SELECT c.id, c.department_id, c.amount, c.used_at_most, c.bound_until,
      coalesce(c.counted_from, lower(c.period)) AS since FROM ledger_departmentceiling c
      JOIN ledger_project p ON p.id = project AND c.department_id = ANY (ledger_department_chain(p.department_id))
      WHERE c.resource = of AND c.period @> {NOW}
      ORDER BY array_position(ledger_department_chain(p.department_id), c.department_id)
      FOR NO KEY UPDATE OF c LOOP
    used := g.used_at_most + taken;
    valid := NULL;
    IF of = 'card_milli_s' THEN valid := least(g.bound_until, {NOW} + lasts * interval '1 second'); END IF;
    IF used IS NULL OR used > g.amount OR g.bound_until < {NOW} THEN
      below := ledger_department_projects(g.department_id);
      used := ledger_projects_use(below, of, '', g.since);
      IF of = 'card_milli_s' THEN valid := ledger_bound_until(below); END IF;
      IF used > g.amount THEN
        RAISE EXCEPTION 'ceiling of department %: % of % % would be used', g.department_id, used, g.amount, of
          USING ERRCODE = 'check_violation', CONSTRAINT = 'ceiling_never_exceeded';
      END IF;
    END IF;
    UPDATE ledger_departmentceiling SET used_at_most = used, bound_until = valid WHERE id = g.id;
  END LOOP;
END $$;
CREATE FUNCTION ledger_take_limit(project bigint, member bigint, of text, taken bigint) RETURNS void
  LANGUAGE plpgsql AS $$
DECLARE g record; used bigint;
BEGIN
  IF taken = 0 THEN RETURN; END IF;
  SELECT id, amount, used_at_most INTO g FROM ledger_memberlimit l
    WHERE l.project_id = project AND l.user_id = member AND l.resource = of FOR NO KEY UPDATE;
  IF NOT FOUND THEN RETURN; END IF;
  used := g.used_at_most + taken;
  IF used IS NULL OR used > g.amount THEN
    used := ledger_member_used(project, member, of);
    IF used > g.amount THEN
      RAISE EXCEPTION 'limit of person % in project %: % of % % would be used', member, project, used, g.amount, of
        USING ERRCODE = 'check_violation', CONSTRAINT = 'member_limit_never_exceeded';
    END IF;
  END IF;
  UPDATE ledger_memberlimit SET used_at_most = used WHERE id = g.id;
END $$;
"""
OLD_TAKE = _between(before.BOUND, "CREATE FUNCTION ledger_take_quota", "WHERE id = g.id;\nEND $$;")
TAKE_BACK = f"""
DROP FUNCTION ledger_take_limit(bigint, bigint, text, bigint);
DROP FUNCTION ledger_take_ceilings(bigint, text, bigint, bigint);
DROP FUNCTION ledger_take_quota(bigint, text, bigint, text, bigint);
{OLD_TAKE}
"""
CEILINGS = f"EXISTS (SELECT 1 FROM ledger_departmentceiling c WHERE c.period @> {NOW})"
LIMITS = "EXISTS (SELECT 1 FROM ledger_memberlimit l WHERE l.project_id = ANY (projects))"
FEW = f"""EXISTS (SELECT 1 FROM ledger_quotagrant q WHERE q.project_id = ANY (projects) AND q.period @> {NOW}
      AND (q.model <> '' OR q.resource = 'card_milli_s'))"""
OF_ADDED = "FROM added x JOIN ledger_allocation a ON a.id = x.allocation_id"
CARDS = MILLI.replace("s.", "x.")
TRIGGERS = f"""
CREATE OR REPLACE FUNCTION ledger_quota_of_allocations() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE t record; projects bigint[] := '{{}}'; ceilings boolean := {CEILINGS};
BEGIN
  FOR t IN SELECT x.project_id, count(*) FILTER (WHERE x.form = 'whole') AS whole_nodes,
      sum(x.cpu_milli)::bigint AS cpu_milli, sum(x.host_memory_mib)::bigint AS host_memory_mib
      FROM added x GROUP BY x.project_id ORDER BY x.project_id LOOP
    PERFORM 1 FROM ledger_project WHERE id = t.project_id FOR NO KEY UPDATE;
    PERFORM ledger_take_quota(t.project_id, 'whole_nodes', t.whole_nodes);
    PERFORM ledger_take_quota(t.project_id, 'cpu_milli', t.cpu_milli);
    PERFORM ledger_take_quota(t.project_id, 'host_memory_mib', t.host_memory_mib);
    projects := projects || t.project_id;
    IF ceilings THEN
      PERFORM ledger_take_ceilings(t.project_id, 'whole_nodes', t.whole_nodes);
      PERFORM ledger_take_ceilings(t.project_id, 'cpu_milli', t.cpu_milli);
      PERFORM ledger_take_ceilings(t.project_id, 'host_memory_mib', t.host_memory_mib);
    END IF;
  END LOOP;
  IF {LIMITS} THEN
    FOR t IN SELECT x.project_id, j.by_id, count(*) FILTER (WHERE x.form = 'whole') AS whole_nodes,
        sum(x.cpu_milli)::bigint AS cpu_milli, sum(x.host_memory_mib)::bigint AS host_memory_mib
        FROM added x {JOBS.replace("a.attempt_id", "x.attempt_id")} GROUP BY 1, 2 ORDER BY 1, 2 LOOP
      PERFORM ledger_take_limit(t.project_id, t.by_id, 'whole_nodes', t.whole_nodes);
      PERFORM ledger_take_limit(t.project_id, t.by_id, 'cpu_milli', t.cpu_milli);
      PERFORM ledger_take_limit(t.project_id, t.by_id, 'host_memory_mib', t.host_memory_mib);
    END LOOP;
  END IF;
  RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION ledger_quota_of_shares() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE t record; projects bigint[] := '{{}}'; ceilings boolean := {CEILINGS};
BEGIN
  FOR t IN SELECT a.project_id, sum(x.memory_mib) AS card_memory_mib, sum({CARDS})::bigint AS card_milli
      {OF_ADDED} GROUP BY a.project_id ORDER BY a.project_id LOOP
    PERFORM 1 FROM ledger_project WHERE id = t.project_id FOR NO KEY UPDATE;
    PERFORM ledger_take_quota(t.project_id, 'card_milli', t.card_milli);
    PERFORM ledger_take_quota(t.project_id, 'card_memory_mib', t.card_memory_mib);
    projects := projects || t.project_id;
    IF ceilings THEN
      PERFORM ledger_take_ceilings(t.project_id, 'card_milli', t.card_milli);
      PERFORM ledger_take_ceilings(t.project_id, 'card_memory_mib', t.card_memory_mib);
    END IF;
  END LOOP;
  IF ceilings OR {FEW} THEN
    FOR t IN SELECT a.project_id, coalesce(c.model, '') AS model, sum(x.memory_mib) AS card_memory_mib,
        sum({CARDS})::bigint AS card_milli, sum({CARDS} * j.walltime_s)::bigint AS card_milli_s,
        min(j.walltime_s)::bigint AS lasts {OF_ADDED} {JOBS} JOIN ledger_card c ON c.id = x.card_id
        GROUP BY GROUPING SETS ((a.project_id), (a.project_id, c.model)) ORDER BY 1, 2 LOOP
      PERFORM ledger_take_quota(t.project_id, 'card_milli_s', t.card_milli_s, t.model, t.lasts);
      IF t.model <> '' THEN
        PERFORM ledger_take_quota(t.project_id, 'card_milli', t.card_milli, t.model);
        PERFORM ledger_take_quota(t.project_id, 'card_memory_mib', t.card_memory_mib, t.model);
      ELSIF ceilings THEN
        PERFORM ledger_take_ceilings(t.project_id, 'card_milli_s', t.card_milli_s, t.lasts);
      END IF;
    END LOOP;
  END IF;
  IF {LIMITS} THEN
    FOR t IN SELECT a.project_id, j.by_id, sum(x.memory_mib) AS card_memory_mib, sum({CARDS})::bigint AS card_milli
        {OF_ADDED} {JOBS} GROUP BY 1, 2 ORDER BY 1, 2 LOOP
      PERFORM ledger_take_limit(t.project_id, t.by_id, 'card_milli', t.card_milli);
      PERFORM ledger_take_limit(t.project_id, t.by_id, 'card_memory_mib', t.card_memory_mib);
    END LOOP;
  END IF;
  RETURN NULL;
END $$;
"""
TRIGGERS_BACK = "".join(
    _between(before.BOUND, f"CREATE FUNCTION {name}()", "RETURN NULL;\nEND $$;").replace(
        "CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1
    )
    for name in ("ledger_quota_of_allocations", "ledger_quota_of_shares")
)
# What else could put the use above a bound makes it unknown.
FORGET = """
CREATE FUNCTION ledger_forget_bound() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.used_at_most := NULL;
  NEW.bound_until := NULL;
  RETURN NEW;
END $$;
DROP TRIGGER forget_quota_bound ON ledger_quotagrant;
CREATE TRIGGER forget_quota_bound BEFORE UPDATE OF project_id, resource, model, period, counted_from
  ON ledger_quotagrant FOR EACH ROW EXECUTE FUNCTION ledger_forget_bound();
CREATE TRIGGER forget_ceiling_bound BEFORE UPDATE OF department_id, resource, period, counted_from
  ON ledger_departmentceiling FOR EACH ROW EXECUTE FUNCTION ledger_forget_bound();
CREATE TRIGGER forget_limit_bound BEFORE UPDATE OF project_id, user_id, resource
  ON ledger_memberlimit FOR EACH ROW EXECUTE FUNCTION ledger_forget_quota_bound();
CREATE OR REPLACE FUNCTION ledger_forget_quota_bounds() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE ledger_departmentceiling SET used_at_most = NULL WHERE used_at_most IS NOT NULL;
  UPDATE ledger_quotagrant SET used_at_most = NULL WHERE used_at_most IS NOT NULL;
  UPDATE ledger_memberlimit SET used_at_most = NULL WHERE used_at_most IS NOT NULL;
  RETURN NULL;
END $$;
CREATE TRIGGER forget_quota_bounds AFTER UPDATE OF project_id, by_id ON ledger_job
  FOR EACH STATEMENT EXECUTE FUNCTION ledger_forget_quota_bounds();
CREATE TRIGGER forget_quota_bounds AFTER UPDATE OF model ON ledger_card
  FOR EACH STATEMENT EXECUTE FUNCTION ledger_forget_quota_bounds();
CREATE FUNCTION ledger_forget_budget_bounds() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE ledger_departmentceiling SET used_at_most = NULL WHERE resource = 'card_milli_s' AND used_at_most IS NOT NULL;
  UPDATE ledger_quotagrant SET used_at_most = NULL WHERE resource = 'card_milli_s' AND used_at_most IS NOT NULL;
  RETURN NULL;
END $$;
CREATE TRIGGER forget_budget_bounds AFTER UPDATE OF walltime_s ON ledger_job
  FOR EACH STATEMENT EXECUTE FUNCTION ledger_forget_budget_bounds();
"""
FORGET_BACK = f"""
DROP TRIGGER forget_budget_bounds ON ledger_job; DROP FUNCTION ledger_forget_budget_bounds();
DROP TRIGGER forget_quota_bounds ON ledger_card; DROP TRIGGER forget_quota_bounds ON ledger_job;
{_between(before.FORGET, "CREATE FUNCTION ledger_forget_quota_bounds()", "END $$;").replace("CREATE", "CREATE OR REPLACE", 1)}
DROP TRIGGER forget_limit_bound ON ledger_memberlimit; DROP TRIGGER forget_ceiling_bound ON ledger_departmentceiling;
DROP TRIGGER forget_quota_bound ON ledger_quotagrant; DROP FUNCTION ledger_forget_bound();
{_between(before.FORGET, "CREATE TRIGGER forget_quota_bound ", "ledger_forget_quota_bound();")}
"""
TREE = f"""
CREATE FUNCTION ledger_check_tree() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.parent_id IS NULL THEN RETURN NEW; END IF;
  PERFORM pg_advisory_xact_lock(7130901);  -- two moves at once could make a ring that neither sees
  IF NEW.id = NEW.parent_id OR NEW.id = ANY (ledger_department_chain(NEW.parent_id)) THEN
    RAISE EXCEPTION 'department % would stand below itself', NEW.slug
      USING ERRCODE = 'check_violation', CONSTRAINT = 'departments_form_a_tree';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER departments_form_a_tree BEFORE INSERT OR UPDATE OF parent_id ON ledger_department
  FOR EACH ROW EXECUTE FUNCTION ledger_check_tree();
CREATE FUNCTION ledger_check_move() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE g record; moved bigint[]; under bigint;
BEGIN
  UPDATE ledger_departmentceiling SET used_at_most = NULL WHERE used_at_most IS NOT NULL;
  IF TG_TABLE_NAME = 'ledger_project' THEN moved := ARRAY[NEW.id]; under := NEW.department_id;
  ELSE moved := ledger_department_projects(NEW.id); under := NEW.parent_id;
  END IF;
  FOR g IN SELECT c.department_id, c.resource, c.amount, coalesce(c.counted_from, lower(c.period)) AS since
      FROM ledger_departmentceiling c WHERE c.department_id = ANY (ledger_department_chain(under))
      AND c.period @> {NOW} ORDER BY c.id LOOP
    IF ledger_projects_use(moved, g.resource, '', g.since) > 0
        AND ledger_projects_use(ledger_department_projects(g.department_id), g.resource, '', g.since) > g.amount THEN
      RAISE EXCEPTION 'department % has no room for what moves there: % %', g.department_id, g.amount, g.resource
        USING ERRCODE = 'check_violation', CONSTRAINT = 'ceiling_never_exceeded';
    END IF;
  END LOOP;
  RETURN NULL;
END $$;
CREATE TRIGGER ceilings_hold_what_moves AFTER UPDATE OF department_id ON ledger_project FOR EACH ROW
  WHEN (NEW.department_id IS DISTINCT FROM OLD.department_id) EXECUTE FUNCTION ledger_check_move();
CREATE TRIGGER ceilings_hold_what_moves AFTER UPDATE OF parent_id ON ledger_department FOR EACH ROW
  WHEN (NEW.parent_id IS DISTINCT FROM OLD.parent_id) EXECUTE FUNCTION ledger_check_move();
"""
TREE_BACK = """
DROP TRIGGER ceilings_hold_what_moves ON ledger_department; DROP TRIGGER ceilings_hold_what_moves ON ledger_project;
DROP FUNCTION ledger_check_move();
DROP TRIGGER departments_form_a_tree ON ledger_department; DROP FUNCTION ledger_check_tree();
"""
OF_CARDS = Q(model="") | Q(resource__in=["card_memory_mib", "card_milli", "card_milli_s"])
LIMITED = ["project", "user", "resource"]
CHOICES = [(word, word) for word in RESOURCES]


def _once(name: str, *same: str) -> postgres.ExclusionConstraint:
    return postgres.ExclusionConstraint(name=name, expressions=[*((field, "=") for field in same), ("period", "&&")])


def _to(model: str, **options: Any) -> Any:
    values: dict[str, Any] = {"to": model, "on_delete": PROTECT, "related_name": "+"}
    return models.ForeignKey(**values | options)


def _fields(**own: Any) -> list[tuple[str, Any]]:
    """Of a table of amounts."""
    key: Any = models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")
    same = {
        "resource": models.CharField(choices=CHOICES, max_length=24),
        "amount": models.BigIntegerField(),
        "reason": models.CharField(max_length=500),
        "used_at_most": models.BigIntegerField(editable=False, null=True),
        "by": _to(settings.AUTH_USER_MODEL),
    }
    return [("id", key), *same.items(), *own.items()]


def _check(name: str, condition: Q) -> models.CheckConstraint:
    return models.CheckConstraint(name=name, condition=condition)


class Migration(migrations.Migration):
    dependencies = [("ledger", "0014_project_end")]
    operations = [
        migrations.RemoveConstraint("quotagrant", "one_grant_at_a_time"),
        migrations.RemoveConstraint("quotagrant", "grant_resource_known"),
        migrations.AddField("quotagrant", "model", models.CharField(blank=True, default="", max_length=64)),
        migrations.AddField("quotagrant", "counted_from", models.DateTimeField(null=True)),
        migrations.AddField("quotagrant", "drain_at", models.DateTimeField(null=True)),
        migrations.AddField("quotagrant", "bound_until", models.DateTimeField(editable=False, null=True)),
        migrations.AlterField("quotagrant", "resource", models.CharField(choices=CHOICES, max_length=24)),
        migrations.AddConstraint("quotagrant", _once("one_grant_at_a_time", "project", "resource", "model")),
        migrations.AddConstraint("quotagrant", _check("grant_resource_known", Q(resource__in=RESOURCES))),
        migrations.AddConstraint("quotagrant", _check("grant_of_a_model_is_of_cards", OF_CARDS)),
        migrations.CreateModel(
            "DepartmentCeiling",
            _fields(
                department=_to("ledger.department", related_name="ceilings"),
                period=DateTimeRangeField(),
                counted_from=models.DateTimeField(null=True),
                drain_at=models.DateTimeField(null=True),
                bound_until=models.DateTimeField(editable=False, null=True),
            ),
            {
                "constraints": [
                    _once("one_ceiling_at_a_time", "department", "resource"),
                    _check("ceiling_not_negative", Q(amount__gte=0)),
                    _check("ceiling_resource_known", Q(resource__in=RESOURCES)),
                    _check("ceiling_period_not_empty", Q(period__isempty=False)),
                ]
            },
        ),
        migrations.CreateModel(
            "MemberLimit",
            _fields(
                project=_to("ledger.project", related_name="member_limits", on_delete=CASCADE, db_index=False),
                user=_to(settings.AUTH_USER_MODEL, on_delete=CASCADE),
                since=models.DateTimeField(),
            ),
            {
                "constraints": [
                    models.UniqueConstraint(fields=LIMITED, name="one_limit_a_member_and_resource"),
                    _check("member_limit_not_negative", Q(amount__gte=0)),
                    _check("member_limit_is_at_once", Q(resource__in=AT_ONCE)),
                ]
            },
        ),
        migrations.RunSQL(USED, USED_BACK),
        migrations.RunSQL(TAKE, TAKE_BACK),
        migrations.RunSQL(TRIGGERS, TRIGGERS_BACK),
        migrations.RunSQL(FORGET, FORGET_BACK),
        migrations.RunSQL(TREE, TREE_BACK),
        migrations.RunSQL("", "DELETE FROM ledger_quotagrant WHERE model <> '' OR resource = 'card_milli_s'"),
    ]
