"""The health policy: versions with their rules, what each counted fault was answered with, and refunds of what hardware
spoilt. A card whose links alone are held is still given to work on that one card.

Versions and rules are never changed but that a version ends. A refund is exactly what its attempt used, once; what is
refunded counts no more against budgets. Functions that others wrote are patched where they say it.
"""

from importlib import import_module

import django.contrib.postgres.constraints
import django.contrib.postgres.fields
import django.contrib.postgres.fields.ranges
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import ledger.vocabulary

_patch = import_module("ledger.migrations.0022_renewing_budgets")._patch
CARD_HELD = (
    """WHEN EXISTS (SELECT 1 FROM ledger_hold h WHERE h.card_id = x.card_id
        AND h.period && tstzrange(lower(x.period), clock_timestamp(), '[]')) THEN""",
    """WHEN EXISTS (SELECT 1 FROM ledger_hold h WHERE h.card_id = x.card_id
        AND h.period && tstzrange(lower(x.period), clock_timestamp(), '[]')
        AND (h.kind <> 'link' OR a.form <> 'container' OR 1 < (SELECT count(*) FROM ledger_allocation b
          JOIN ledger_cardshare y ON y.allocation_id = b.id WHERE b.attempt_id = a.attempt_id))) THEN""",
)
COUNTED = (
    "AND a.period && tstzrange(since, NULL)",
    "AND NOT EXISTS (SELECT 1 FROM ledger_refund f WHERE f.attempt_id = a.attempt_id)"
    " AND a.period && tstzrange(since, NULL)",
)
REFUNDS = """
CREATE FUNCTION ledger_attempt_use(attempt bigint) RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT coalesce(sum(((s.memory_mib::bigint * 1000 + s.card_memory_mib - 1) / s.card_memory_mib)
      * ledger_seconds(a.closing_at - lower(a.period))), 0)::bigint
  FROM ledger_allocation a JOIN ledger_cardshare s ON s.allocation_id = a.id WHERE a.attempt_id = attempt
$$;
CREATE FUNCTION ledger_check_refund() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'UPDATE' THEN
    RAISE EXCEPTION 'refunds are never changed' USING ERRCODE = 'check_violation', CONSTRAINT = 'refund_is_never_changed';
  END IF;
  IF NOT EXISTS (SELECT FROM ledger_attempt t JOIN ledger_job j ON j.id = t.job_id WHERE t.id = NEW.attempt_id
      AND t.state = 'ended' AND t.outcome IN ('hardware', 'failed') AND j.project_id = NEW.project_id)
      OR NEW.card_milli_s <> ledger_attempt_use(NEW.attempt_id) THEN
    RAISE EXCEPTION 'attempt % did not use % milli-card-seconds that hardware spoilt', NEW.attempt_id, NEW.card_milli_s
      USING ERRCODE = 'check_violation', CONSTRAINT = 'refund_is_what_was_used';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER refund_is_what_was_used BEFORE INSERT OR UPDATE ON ledger_refund
  FOR EACH ROW EXECUTE FUNCTION ledger_check_refund();
"""
REFUNDS_BACK = """
DROP TRIGGER refund_is_what_was_used ON ledger_refund; DROP FUNCTION ledger_check_refund();
DROP FUNCTION ledger_attempt_use(bigint);
"""
NEVER_CHANGED = """
CREATE FUNCTION ledger_health_policy_is_never_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_TABLE_NAME = 'ledger_healthversion' THEN
    IF to_jsonb(OLD) - 'period' = to_jsonb(NEW) - 'period' AND lower(OLD.period) = lower(NEW.period)
        AND upper_inf(OLD.period) AND NOT upper_inf(NEW.period) THEN
      RETURN NEW;
    END IF;
  END IF;
  RAISE EXCEPTION 'rows of % are never changed', TG_TABLE_NAME
    USING ERRCODE = 'check_violation', CONSTRAINT = 'health_policy_is_never_changed';
END $$;
""" + "".join(
    f"CREATE TRIGGER health_policy_is_never_changed BEFORE UPDATE ON ledger_{table} "
    "FOR EACH ROW EXECUTE FUNCTION ledger_health_policy_is_never_changed();"
    for table in ("healthversion", "healthrule")
)
NEVER_CHANGED_BACK = "DROP FUNCTION ledger_health_policy_is_never_changed() CASCADE"
# the way back: a hold of links becomes one of the whole card
WITHOUT_LINKS = """
UPDATE ledger_hold SET kind = 'fault' WHERE kind = 'link' AND NOT EXISTS (SELECT FROM ledger_hold f
  WHERE f.kind = 'fault' AND f.card_id = ledger_hold.card_id AND f.period && ledger_hold.period);
UPDATE ledger_hold SET kind = 'drain' WHERE kind = 'link';
"""


def _put(function: str, old: str, new: str) -> str:
    return str(_patch((function,), f"replace(said, $t${old}$t$, $t${new}$t$)"))


def _patched(function: str, change: tuple[str, str]) -> migrations.RunSQL:
    return migrations.RunSQL(_put(function, *change), _put(function, *change[::-1]))


class Migration(migrations.Migration):
    dependencies = [
        ("ledger", "0025_telemetry"),
    ]

    operations = [
        migrations.CreateModel(
            name="HealthEvent",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            (ledger.vocabulary.FaultKind["XID"], ledger.vocabulary.FaultKind["XID"]),
                            (ledger.vocabulary.FaultKind["ECC"], ledger.vocabulary.FaultKind["ECC"]),
                            (ledger.vocabulary.FaultKind["THERMAL"], ledger.vocabulary.FaultKind["THERMAL"]),
                            (ledger.vocabulary.FaultKind["LOST"], ledger.vocabulary.FaultKind["LOST"]),
                            (ledger.vocabulary.FaultKind["CLOCK"], ledger.vocabulary.FaultKind["CLOCK"]),
                            (ledger.vocabulary.FaultKind["ORPHAN"], ledger.vocabulary.FaultKind["ORPHAN"]),
                            (ledger.vocabulary.FaultKind["OVERUSE"], ledger.vocabulary.FaultKind["OVERUSE"]),
                            (ledger.vocabulary.FaultKind["CORRECTABLE"], ledger.vocabulary.FaultKind["CORRECTABLE"]),
                            (
                                ledger.vocabulary.FaultKind["REMAP_PENDING"],
                                ledger.vocabulary.FaultKind["REMAP_PENDING"],
                            ),
                            (ledger.vocabulary.FaultKind["REMAP_FAILED"], ledger.vocabulary.FaultKind["REMAP_FAILED"]),
                            (
                                ledger.vocabulary.FaultKind["RESET_REQUIRED"],
                                ledger.vocabulary.FaultKind["RESET_REQUIRED"],
                            ),
                            (ledger.vocabulary.FaultKind["NVLINK"], ledger.vocabulary.FaultKind["NVLINK"]),
                            (ledger.vocabulary.FaultKind["POWER"], ledger.vocabulary.FaultKind["POWER"]),
                            (ledger.vocabulary.FaultKind["MISSING"], ledger.vocabulary.FaultKind["MISSING"]),
                            (ledger.vocabulary.FaultKind["STORAGE"], ledger.vocabulary.FaultKind["STORAGE"]),
                            (ledger.vocabulary.FaultKind["SILENT"], ledger.vocabulary.FaultKind["SILENT"]),
                        ],
                        max_length=16,
                    ),
                ),
                ("code", models.IntegerField(null=True)),
                ("at", models.DateTimeField()),
                ("version", models.PositiveIntegerField()),
                ("rule", models.CharField(max_length=64)),
                (
                    "action",
                    models.CharField(
                        choices=[
                            (ledger.vocabulary.HealthAction["LOG"], ledger.vocabulary.HealthAction["LOG"]),
                            (ledger.vocabulary.HealthAction["WATCH"], ledger.vocabulary.HealthAction["WATCH"]),
                            (ledger.vocabulary.HealthAction["NO_GANG"], ledger.vocabulary.HealthAction["NO_GANG"]),
                            (
                                ledger.vocabulary.HealthAction["DRAIN_SOFT"],
                                ledger.vocabulary.HealthAction["DRAIN_SOFT"],
                            ),
                            (
                                ledger.vocabulary.HealthAction["RESTART_JOB"],
                                ledger.vocabulary.HealthAction["RESTART_JOB"],
                            ),
                            (ledger.vocabulary.HealthAction["ASK"], ledger.vocabulary.HealthAction["ASK"]),
                            (ledger.vocabulary.HealthAction["DRAIN_NOW"], ledger.vocabulary.HealthAction["DRAIN_NOW"]),
                            (ledger.vocabulary.HealthAction["RESET"], ledger.vocabulary.HealthAction["RESET"]),
                            (ledger.vocabulary.HealthAction["REBOOT"], ledger.vocabulary.HealthAction["REBOOT"]),
                            (ledger.vocabulary.HealthAction["HOLD_NODE"], ledger.vocabulary.HealthAction["HOLD_NODE"]),
                            (ledger.vocabulary.HealthAction["RMA"], ledger.vocabulary.HealthAction["RMA"]),
                        ],
                        max_length=16,
                    ),
                ),
                ("escalated", models.BooleanField(default=False)),
                ("why", models.CharField(max_length=300)),
                ("began", models.BooleanField()),
                (
                    "users",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), default=list, size=None
                    ),
                ),
                ("hit", models.BigIntegerField(null=True)),
                ("ends_jobs", models.BooleanField(default=False)),
                ("done_at", models.DateTimeField(null=True)),
                (
                    "attempts",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), default=list, size=None
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="HealthRule",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            (ledger.vocabulary.FaultKind["XID"], ledger.vocabulary.FaultKind["XID"]),
                            (ledger.vocabulary.FaultKind["ECC"], ledger.vocabulary.FaultKind["ECC"]),
                            (ledger.vocabulary.FaultKind["THERMAL"], ledger.vocabulary.FaultKind["THERMAL"]),
                            (ledger.vocabulary.FaultKind["LOST"], ledger.vocabulary.FaultKind["LOST"]),
                            (ledger.vocabulary.FaultKind["CLOCK"], ledger.vocabulary.FaultKind["CLOCK"]),
                            (ledger.vocabulary.FaultKind["ORPHAN"], ledger.vocabulary.FaultKind["ORPHAN"]),
                            (ledger.vocabulary.FaultKind["OVERUSE"], ledger.vocabulary.FaultKind["OVERUSE"]),
                            (ledger.vocabulary.FaultKind["CORRECTABLE"], ledger.vocabulary.FaultKind["CORRECTABLE"]),
                            (
                                ledger.vocabulary.FaultKind["REMAP_PENDING"],
                                ledger.vocabulary.FaultKind["REMAP_PENDING"],
                            ),
                            (ledger.vocabulary.FaultKind["REMAP_FAILED"], ledger.vocabulary.FaultKind["REMAP_FAILED"]),
                            (
                                ledger.vocabulary.FaultKind["RESET_REQUIRED"],
                                ledger.vocabulary.FaultKind["RESET_REQUIRED"],
                            ),
                            (ledger.vocabulary.FaultKind["NVLINK"], ledger.vocabulary.FaultKind["NVLINK"]),
                            (ledger.vocabulary.FaultKind["POWER"], ledger.vocabulary.FaultKind["POWER"]),
                            (ledger.vocabulary.FaultKind["MISSING"], ledger.vocabulary.FaultKind["MISSING"]),
                            (ledger.vocabulary.FaultKind["STORAGE"], ledger.vocabulary.FaultKind["STORAGE"]),
                            (ledger.vocabulary.FaultKind["SILENT"], ledger.vocabulary.FaultKind["SILENT"]),
                        ],
                        max_length=16,
                    ),
                ),
                ("code", models.IntegerField(null=True)),
                (
                    "action",
                    models.CharField(
                        choices=[
                            (ledger.vocabulary.HealthAction["LOG"], ledger.vocabulary.HealthAction["LOG"]),
                            (ledger.vocabulary.HealthAction["WATCH"], ledger.vocabulary.HealthAction["WATCH"]),
                            (ledger.vocabulary.HealthAction["NO_GANG"], ledger.vocabulary.HealthAction["NO_GANG"]),
                            (
                                ledger.vocabulary.HealthAction["DRAIN_SOFT"],
                                ledger.vocabulary.HealthAction["DRAIN_SOFT"],
                            ),
                            (
                                ledger.vocabulary.HealthAction["RESTART_JOB"],
                                ledger.vocabulary.HealthAction["RESTART_JOB"],
                            ),
                            (ledger.vocabulary.HealthAction["ASK"], ledger.vocabulary.HealthAction["ASK"]),
                            (ledger.vocabulary.HealthAction["DRAIN_NOW"], ledger.vocabulary.HealthAction["DRAIN_NOW"]),
                            (ledger.vocabulary.HealthAction["RESET"], ledger.vocabulary.HealthAction["RESET"]),
                            (ledger.vocabulary.HealthAction["REBOOT"], ledger.vocabulary.HealthAction["REBOOT"]),
                            (ledger.vocabulary.HealthAction["HOLD_NODE"], ledger.vocabulary.HealthAction["HOLD_NODE"]),
                            (ledger.vocabulary.HealthAction["RMA"], ledger.vocabulary.HealthAction["RMA"]),
                        ],
                        max_length=16,
                    ),
                ),
                (
                    "then",
                    models.CharField(
                        choices=[
                            (ledger.vocabulary.HealthAction["LOG"], ledger.vocabulary.HealthAction["LOG"]),
                            (ledger.vocabulary.HealthAction["WATCH"], ledger.vocabulary.HealthAction["WATCH"]),
                            (ledger.vocabulary.HealthAction["NO_GANG"], ledger.vocabulary.HealthAction["NO_GANG"]),
                            (
                                ledger.vocabulary.HealthAction["DRAIN_SOFT"],
                                ledger.vocabulary.HealthAction["DRAIN_SOFT"],
                            ),
                            (
                                ledger.vocabulary.HealthAction["RESTART_JOB"],
                                ledger.vocabulary.HealthAction["RESTART_JOB"],
                            ),
                            (ledger.vocabulary.HealthAction["ASK"], ledger.vocabulary.HealthAction["ASK"]),
                            (ledger.vocabulary.HealthAction["DRAIN_NOW"], ledger.vocabulary.HealthAction["DRAIN_NOW"]),
                            (ledger.vocabulary.HealthAction["RESET"], ledger.vocabulary.HealthAction["RESET"]),
                            (ledger.vocabulary.HealthAction["REBOOT"], ledger.vocabulary.HealthAction["REBOOT"]),
                            (ledger.vocabulary.HealthAction["HOLD_NODE"], ledger.vocabulary.HealthAction["HOLD_NODE"]),
                            (ledger.vocabulary.HealthAction["RMA"], ledger.vocabulary.HealthAction["RMA"]),
                        ],
                        default="",
                        max_length=16,
                    ),
                ),
                ("repeats", models.PositiveSmallIntegerField(default=0)),
                ("window_s", models.PositiveIntegerField(default=0)),
                ("by_users", models.BooleanField(default=False)),
                ("by_hand", models.BooleanField(default=False)),
                ("note", models.CharField(default="", max_length=200)),
            ],
        ),
        migrations.CreateModel(
            name="HealthVersion",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveIntegerField(unique=True)),
                ("site", models.CharField(default="", max_length=64)),
                ("period", django.contrib.postgres.fields.ranges.DateTimeRangeField()),
                ("withdrawn", models.BooleanField(default=False)),
                ("inspect_after", models.PositiveSmallIntegerField()),
                ("inspect_window_s", models.PositiveIntegerField()),
                ("reason", models.CharField(max_length=500)),
            ],
        ),
        migrations.CreateModel(
            name="Refund",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField()),
                ("card_milli_s", models.BigIntegerField()),
            ],
        ),
        migrations.RemoveConstraint(
            model_name="hold",
            name="hold_kind_known",
        ),
        migrations.AlterField(
            model_name="hold",
            name="kind",
            field=models.CharField(
                choices=[
                    (ledger.vocabulary.HoldKind["FAULT"], ledger.vocabulary.HoldKind["FAULT"]),
                    (ledger.vocabulary.HoldKind["MAINTENANCE"], ledger.vocabulary.HoldKind["MAINTENANCE"]),
                    (ledger.vocabulary.HoldKind["DRILL"], ledger.vocabulary.HoldKind["DRILL"]),
                    (ledger.vocabulary.HoldKind["LOST"], ledger.vocabulary.HoldKind["LOST"]),
                    (ledger.vocabulary.HoldKind["OFFLINE"], ledger.vocabulary.HoldKind["OFFLINE"]),
                    (ledger.vocabulary.HoldKind["DRAIN"], ledger.vocabulary.HoldKind["DRAIN"]),
                    (ledger.vocabulary.HoldKind["LINK"], ledger.vocabulary.HoldKind["LINK"]),
                ],
                max_length=16,
            ),
        ),
        migrations.AddIndex(
            model_name="attempt",
            index=models.Index(
                condition=models.Q(("outcome", ledger.vocabulary.Outcome["HARDWARE"])),
                fields=["id"],
                name="attempt_failed_by_hardware",
            ),
        ),
        migrations.AddConstraint(
            model_name="hold",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "kind__in",
                        [
                            ledger.vocabulary.HoldKind["FAULT"],
                            ledger.vocabulary.HoldKind["MAINTENANCE"],
                            ledger.vocabulary.HoldKind["DRILL"],
                            ledger.vocabulary.HoldKind["LOST"],
                            ledger.vocabulary.HoldKind["OFFLINE"],
                            ledger.vocabulary.HoldKind["DRAIN"],
                            ledger.vocabulary.HoldKind["LINK"],
                        ],
                    )
                ),
                name="hold_kind_known",
            ),
        ),
        migrations.AddField(
            model_name="healthevent",
            name="card",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="ledger.card",
            ),
        ),
        migrations.AddField(
            model_name="healthevent",
            name="case",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="events", to="ledger.case"
            ),
        ),
        migrations.AddField(
            model_name="healthevent",
            name="fault",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="answers", to="ledger.fault"
            ),
        ),
        migrations.AddField(
            model_name="healthevent",
            name="hold",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="ledger.hold"
            ),
        ),
        migrations.AddField(
            model_name="healthevent",
            name="node",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="ledger.node"
            ),
        ),
        migrations.AddField(
            model_name="healthversion",
            name="by",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
            ),
        ),
        migrations.AddField(
            model_name="healthrule",
            name="version",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="rules",
                to="ledger.healthversion",
            ),
        ),
        migrations.AddField(
            model_name="refund",
            name="attempt",
            field=models.OneToOneField(
                on_delete=django.db.models.deletion.PROTECT, related_name="refund", to="ledger.attempt"
            ),
        ),
        migrations.AddField(
            model_name="refund",
            name="event",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="refunds", to="ledger.healthevent"
            ),
        ),
        migrations.AddField(
            model_name="refund",
            name="project",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="refunds", to="ledger.project"
            ),
        ),
        migrations.AddIndex(
            model_name="healthevent",
            index=models.Index(fields=["node", "-at"], name="health_event_of_node"),
        ),
        migrations.AddIndex(
            model_name="healthevent",
            index=models.Index(fields=["card", "-at"], name="health_event_of_card"),
        ),
        migrations.AddIndex(
            model_name="healthevent",
            index=models.Index(
                condition=models.Q(("done_at__isnull", True), ("ends_jobs", True)),
                fields=["at"],
                name="health_events_to_do",
            ),
        ),
        migrations.AddConstraint(
            model_name="healthevent",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "action__in",
                        [
                            ledger.vocabulary.HealthAction["LOG"],
                            ledger.vocabulary.HealthAction["WATCH"],
                            ledger.vocabulary.HealthAction["NO_GANG"],
                            ledger.vocabulary.HealthAction["DRAIN_SOFT"],
                            ledger.vocabulary.HealthAction["RESTART_JOB"],
                            ledger.vocabulary.HealthAction["ASK"],
                            ledger.vocabulary.HealthAction["DRAIN_NOW"],
                            ledger.vocabulary.HealthAction["RESET"],
                            ledger.vocabulary.HealthAction["REBOOT"],
                            ledger.vocabulary.HealthAction["HOLD_NODE"],
                            ledger.vocabulary.HealthAction["RMA"],
                        ],
                    )
                ),
                name="health_event_action_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="healthevent",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("ends_jobs", True), models.Q(("attempts", []), ("done_at__isnull", True)), _connector="OR"
                ),
                name="health_event_ends_jobs",
            ),
        ),
        migrations.AddConstraint(
            model_name="healthversion",
            constraint=django.contrib.postgres.constraints.ExclusionConstraint(
                expressions=[("site", "="), ("period", "&&")], name="one_health_policy_a_site"
            ),
        ),
        migrations.AddConstraint(
            model_name="healthversion",
            constraint=models.CheckConstraint(
                condition=models.Q(("period__isempty", False)), name="health_period_not_empty"
            ),
        ),
        migrations.AddConstraint(
            model_name="healthversion",
            constraint=models.CheckConstraint(
                condition=models.Q(("reason", ""), _negated=True), name="health_version_has_a_reason"
            ),
        ),
        migrations.AddConstraint(
            model_name="healthversion",
            constraint=models.CheckConstraint(condition=models.Q(("number__gt", 0)), name="health_version_from_one"),
        ),
        migrations.AddConstraint(
            model_name="healthversion",
            constraint=models.CheckConstraint(
                condition=models.Q(("inspect_after__gte", 1), ("inspect_window_s__gte", 1)),
                name="health_inspection_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="healthrule",
            constraint=models.UniqueConstraint(
                fields=("version", "kind", "code"), name="one_health_rule_a_code", nulls_distinct=False
            ),
        ),
        migrations.AddConstraint(
            model_name="healthrule",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "kind__in",
                        [
                            ledger.vocabulary.FaultKind["XID"],
                            ledger.vocabulary.FaultKind["ECC"],
                            ledger.vocabulary.FaultKind["THERMAL"],
                            ledger.vocabulary.FaultKind["LOST"],
                            ledger.vocabulary.FaultKind["CLOCK"],
                            ledger.vocabulary.FaultKind["ORPHAN"],
                            ledger.vocabulary.FaultKind["OVERUSE"],
                            ledger.vocabulary.FaultKind["CORRECTABLE"],
                            ledger.vocabulary.FaultKind["REMAP_PENDING"],
                            ledger.vocabulary.FaultKind["REMAP_FAILED"],
                            ledger.vocabulary.FaultKind["RESET_REQUIRED"],
                            ledger.vocabulary.FaultKind["NVLINK"],
                            ledger.vocabulary.FaultKind["POWER"],
                            ledger.vocabulary.FaultKind["MISSING"],
                            ledger.vocabulary.FaultKind["STORAGE"],
                            ledger.vocabulary.FaultKind["SILENT"],
                        ],
                    )
                ),
                name="health_rule_kind_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="healthrule",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "action__in",
                        [
                            ledger.vocabulary.HealthAction["LOG"],
                            ledger.vocabulary.HealthAction["WATCH"],
                            ledger.vocabulary.HealthAction["NO_GANG"],
                            ledger.vocabulary.HealthAction["DRAIN_SOFT"],
                            ledger.vocabulary.HealthAction["RESTART_JOB"],
                            ledger.vocabulary.HealthAction["ASK"],
                            ledger.vocabulary.HealthAction["DRAIN_NOW"],
                            ledger.vocabulary.HealthAction["RESET"],
                            ledger.vocabulary.HealthAction["REBOOT"],
                            ledger.vocabulary.HealthAction["HOLD_NODE"],
                            ledger.vocabulary.HealthAction["RMA"],
                        ],
                    )
                ),
                name="health_rule_action_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="healthrule",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "then__in",
                        [
                            "",
                            ledger.vocabulary.HealthAction["LOG"],
                            ledger.vocabulary.HealthAction["WATCH"],
                            ledger.vocabulary.HealthAction["NO_GANG"],
                            ledger.vocabulary.HealthAction["DRAIN_SOFT"],
                            ledger.vocabulary.HealthAction["RESTART_JOB"],
                            ledger.vocabulary.HealthAction["ASK"],
                            ledger.vocabulary.HealthAction["DRAIN_NOW"],
                            ledger.vocabulary.HealthAction["RESET"],
                            ledger.vocabulary.HealthAction["REBOOT"],
                            ledger.vocabulary.HealthAction["HOLD_NODE"],
                            ledger.vocabulary.HealthAction["RMA"],
                        ],
                    )
                ),
                name="health_rule_then_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="healthrule",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("by_users", False), ("repeats", 0), ("then", ""), ("window_s", 0)),
                    models.Q(
                        models.Q(("then", ""), _negated=True),
                        models.Q(("then", models.F("action")), _negated=True),
                        ("repeats__gte", 2),
                        ("window_s__gte", 1),
                    ),
                    _connector="OR",
                ),
                name="health_rule_says_when_it_escalates",
            ),
        ),
        migrations.AddConstraint(
            model_name="refund",
            constraint=models.CheckConstraint(condition=models.Q(("card_milli_s__gte", 0)), name="refund_not_negative"),
        ),
        _patched("ledger_guard_shares", CARD_HELD),
        _patched("ledger_projects_use", COUNTED),
        migrations.RunSQL(REFUNDS, REFUNDS_BACK),
        migrations.RunSQL(NEVER_CHANGED, NEVER_CHANGED_BACK),
        migrations.RunSQL(migrations.RunSQL.noop, WITHOUT_LINKS),
    ]
