"""Samples of cards in daily partitions and their hours, what is wrong with telemetry itself, and cases: what was taken out
for its health, on its way back. On the way back faults of kinds that were not known before are gone.

Partitions are made and dropped by functions that run as their owner: the application's role makes no tables.
"""

import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models

import ledger.fields
import ledger.vocabulary

SAMPLES = """
CREATE TABLE ledger_cardsample (
  card_id bigint NOT NULL, boot_id bigint NOT NULL, sequence bigint NOT NULL, at timestamptz NOT NULL,
  temperature_c smallint, utilisation_pct smallint, tensor_pct smallint, memory_busy_pct smallint,
  power_mw integer, memory_used_mib integer,
  PRIMARY KEY (card_id, at, boot_id, sequence)
) PARTITION BY RANGE (at);

CREATE FUNCTION ledger_sample_days(first date, last date) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp SET client_min_messages = warning AS $$
DECLARE
  day date;
  part text;
  made integer := 0;
BEGIN
  IF last - first > 400 THEN
    RAISE EXCEPTION 'samples of % days at once', last - first USING ERRCODE = 'check_violation';
  END IF;
  FOR day IN SELECT generate_series(first, last, interval '1 day')::date LOOP
    part := 'ledger_cardsample_' || to_char(day, 'YYYYMMDD');
    CONTINUE WHEN to_regclass(part) IS NOT NULL;
    PERFORM pg_advisory_xact_lock(7130050);
    CONTINUE WHEN to_regclass(part) IS NOT NULL;
    EXECUTE format('CREATE TABLE %I (LIKE ledger_cardsample INCLUDING ALL)', part);
    EXECUTE format('ALTER TABLE ledger_cardsample ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', part,
      day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC');
    made := made + 1;
  END LOOP;
  RETURN made;
END $$;

CREATE FUNCTION ledger_drop_sample_days(before date) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp AS $$
DECLARE
  part text;
  gone integer := 0;
BEGIN
  FOR part IN SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'ledger_cardsample'::regclass
      AND c.relname < 'ledger_cardsample_' || to_char(before, 'YYYYMMDD') ORDER BY 1 LOOP
    EXECUTE format('DROP TABLE %I', part);
    gone := gone + 1;
  END LOOP;
  RETURN gone;
END $$;
"""
SAMPLES_BACK = """
DROP FUNCTION ledger_drop_sample_days(date); DROP FUNCTION ledger_sample_days(date, date); DROP TABLE ledger_cardsample;
"""
FORGET = """
DELETE FROM ledger_faultevent e USING ledger_fault f
  WHERE f.id = e.fault_id AND f.kind NOT IN ('xid', 'ecc', 'thermal', 'lost', 'clock', 'orphan');
DELETE FROM ledger_fault WHERE kind NOT IN ('xid', 'ecc', 'thermal', 'lost', 'clock', 'orphan');
"""


class Migration(migrations.Migration):
    dependencies = [
        ("ledger", "0024_odd_grants"),
    ]

    operations = [
        migrations.RunSQL(SAMPLES, SAMPLES_BACK),
        migrations.CreateModel(
            name="CardSample",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "card", "at", "boot", "sequence", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("sequence", models.BigIntegerField()),
                ("at", models.DateTimeField()),
                ("temperature_c", models.SmallIntegerField(null=True)),
                ("utilisation_pct", models.SmallIntegerField(null=True)),
                ("tensor_pct", models.SmallIntegerField(null=True)),
                ("memory_busy_pct", models.SmallIntegerField(null=True)),
                ("power_mw", models.IntegerField(null=True)),
                ("memory_used_mib", models.IntegerField(null=True)),
            ],
            options={
                "db_table": "ledger_cardsample",
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="AgentOrder",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            (ledger.vocabulary.OrderKind["BURN_IN"], ledger.vocabulary.OrderKind["BURN_IN"]),
                            (ledger.vocabulary.OrderKind["RESET"], ledger.vocabulary.OrderKind["RESET"]),
                        ],
                        max_length=16,
                    ),
                ),
                ("issued_at", models.DateTimeField()),
                ("sent_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                ("ok", models.BooleanField(null=True)),
                ("seconds", models.FloatField(null=True)),
                ("detail", models.CharField(default="", max_length=500)),
            ],
        ),
        migrations.CreateModel(
            name="CardHour",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("hour", models.DateTimeField()),
                ("samples", models.PositiveIntegerField()),
                (
                    "temperature_c",
                    django.contrib.postgres.fields.ArrayField(base_field=models.FloatField(), null=True, size=3),
                ),
                (
                    "utilisation_pct",
                    django.contrib.postgres.fields.ArrayField(base_field=models.FloatField(), null=True, size=3),
                ),
                (
                    "tensor_pct",
                    django.contrib.postgres.fields.ArrayField(base_field=models.FloatField(), null=True, size=3),
                ),
                (
                    "memory_busy_pct",
                    django.contrib.postgres.fields.ArrayField(base_field=models.FloatField(), null=True, size=3),
                ),
                (
                    "power_mw",
                    django.contrib.postgres.fields.ArrayField(base_field=models.FloatField(), null=True, size=3),
                ),
                (
                    "memory_used_mib",
                    django.contrib.postgres.fields.ArrayField(base_field=models.FloatField(), null=True, size=3),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Case",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("action", models.CharField(default="", max_length=16)),
                ("rule", models.CharField(default="", max_length=64)),
                (
                    "need",
                    models.CharField(
                        choices=[
                            (ledger.vocabulary.Need["NOTHING"], ledger.vocabulary.Need["NOTHING"]),
                            (ledger.vocabulary.Need["RESET"], ledger.vocabulary.Need["RESET"]),
                            (ledger.vocabulary.Need["REBOOT"], ledger.vocabulary.Need["REBOOT"]),
                            (ledger.vocabulary.Need["INSPECTION"], ledger.vocabulary.Need["INSPECTION"]),
                            (ledger.vocabulary.Need["REPLACEMENT"], ledger.vocabulary.Need["REPLACEMENT"]),
                        ],
                        max_length=16,
                    ),
                ),
                ("by_hand", models.BooleanField()),
                (
                    "state",
                    models.CharField(
                        choices=[
                            (ledger.vocabulary.CaseState["WAITING"], ledger.vocabulary.CaseState["WAITING"]),
                            (ledger.vocabulary.CaseState["NEEDED"], ledger.vocabulary.CaseState["NEEDED"]),
                            (ledger.vocabulary.CaseState["TESTING"], ledger.vocabulary.CaseState["TESTING"]),
                            (ledger.vocabulary.CaseState["PASSED"], ledger.vocabulary.CaseState["PASSED"]),
                            (ledger.vocabulary.CaseState["FAILED"], ledger.vocabulary.CaseState["FAILED"]),
                            (ledger.vocabulary.CaseState["RETURNED"], ledger.vocabulary.CaseState["RETURNED"]),
                            (ledger.vocabulary.CaseState["SCRAPPED"], ledger.vocabulary.CaseState["SCRAPPED"]),
                            (ledger.vocabulary.CaseState["ABORTED"], ledger.vocabulary.CaseState["ABORTED"]),
                        ],
                        max_length=16,
                    ),
                ),
                ("opened_at", models.DateTimeField()),
                ("idle_at", models.DateTimeField(null=True)),
                ("done_at", models.DateTimeField(null=True)),
                ("tested_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                ("resets", models.PositiveSmallIntegerField(default=0)),
                ("reboots", models.PositiveSmallIntegerField(default=0)),
                ("note", models.CharField(default="", max_length=500)),
            ],
        ),
        migrations.CreateModel(
            name="OpenHour",
            fields=[
                ("hour", models.DateTimeField(primary_key=True, serialize=False)),
            ],
        ),
        migrations.CreateModel(
            name="QualityCount",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            (ledger.vocabulary.QualityKind["DUPLICATE"], ledger.vocabulary.QualityKind["DUPLICATE"]),
                            (ledger.vocabulary.QualityKind["REORDERED"], ledger.vocabulary.QualityKind["REORDERED"]),
                            (ledger.vocabulary.QualityKind["LATE"], ledger.vocabulary.QualityKind["LATE"]),
                            (ledger.vocabulary.QualityKind["TOO_OLD"], ledger.vocabulary.QualityKind["TOO_OLD"]),
                            (ledger.vocabulary.QualityKind["FUTURE"], ledger.vocabulary.QualityKind["FUTURE"]),
                            (ledger.vocabulary.QualityKind["BEHIND"], ledger.vocabulary.QualityKind["BEHIND"]),
                            (ledger.vocabulary.QualityKind["IMPOSSIBLE"], ledger.vocabulary.QualityKind["IMPOSSIBLE"]),
                            (
                                ledger.vocabulary.QualityKind["UNKNOWN_CARD"],
                                ledger.vocabulary.QualityKind["UNKNOWN_CARD"],
                            ),
                            (
                                ledger.vocabulary.QualityKind["FOREIGN_CARD"],
                                ledger.vocabulary.QualityKind["FOREIGN_CARD"],
                            ),
                            (ledger.vocabulary.QualityKind["WRONG_NODE"], ledger.vocabulary.QualityKind["WRONG_NODE"]),
                            (
                                ledger.vocabulary.QualityKind["UNKNOWN_TOKEN"],
                                ledger.vocabulary.QualityKind["UNKNOWN_TOKEN"],
                            ),
                            (ledger.vocabulary.QualityKind["MALFORMED"], ledger.vocabulary.QualityKind["MALFORMED"]),
                            (ledger.vocabulary.QualityKind["TOO_LARGE"], ledger.vocabulary.QualityKind["TOO_LARGE"]),
                            (ledger.vocabulary.QualityKind["FLOOD"], ledger.vocabulary.QualityKind["FLOOD"]),
                            (
                                ledger.vocabulary.QualityKind["SCRAPE_FAILED"],
                                ledger.vocabulary.QualityKind["SCRAPE_FAILED"],
                            ),
                        ],
                        max_length=16,
                    ),
                ),
                ("day", models.DateField()),
                ("count", models.PositiveBigIntegerField(default=1)),
                ("first_seen", models.DateTimeField()),
                ("last_seen", models.DateTimeField()),
                ("detail", models.CharField(default="", max_length=200)),
            ],
        ),
        migrations.CreateModel(
            name="SampleBatch",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("sequence", models.BigIntegerField()),
                ("at", models.DateTimeField()),
                ("samples", models.JSONField()),
            ],
        ),
        migrations.RemoveConstraint(
            model_name="fault",
            name="fault_kind_known",
        ),
        migrations.AddField(
            model_name="cardstatus",
            name="memory_busy_pct",
            field=models.SmallIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="cardstatus",
            name="nvlink_errors",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="cardstatus",
            name="slowdown",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=16), null=True, size=None
            ),
        ),
        migrations.AddField(
            model_name="cardstatus",
            name="tensor_pct",
            field=models.SmallIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="nodeboot",
            name="taken",
            field=ledger.fields.Int8MultiRangeField(default=tuple),
        ),
        migrations.AlterField(
            model_name="fault",
            name="kind",
            field=models.CharField(
                choices=[
                    (ledger.vocabulary.FaultKind["XID"], ledger.vocabulary.FaultKind["XID"]),
                    (ledger.vocabulary.FaultKind["ECC"], ledger.vocabulary.FaultKind["ECC"]),
                    (ledger.vocabulary.FaultKind["THERMAL"], ledger.vocabulary.FaultKind["THERMAL"]),
                    (ledger.vocabulary.FaultKind["LOST"], ledger.vocabulary.FaultKind["LOST"]),
                    (ledger.vocabulary.FaultKind["CLOCK"], ledger.vocabulary.FaultKind["CLOCK"]),
                    (ledger.vocabulary.FaultKind["ORPHAN"], ledger.vocabulary.FaultKind["ORPHAN"]),
                    (ledger.vocabulary.FaultKind["OVERUSE"], ledger.vocabulary.FaultKind["OVERUSE"]),
                    (ledger.vocabulary.FaultKind["CORRECTABLE"], ledger.vocabulary.FaultKind["CORRECTABLE"]),
                    (ledger.vocabulary.FaultKind["REMAP_PENDING"], ledger.vocabulary.FaultKind["REMAP_PENDING"]),
                    (ledger.vocabulary.FaultKind["REMAP_FAILED"], ledger.vocabulary.FaultKind["REMAP_FAILED"]),
                    (ledger.vocabulary.FaultKind["RESET_REQUIRED"], ledger.vocabulary.FaultKind["RESET_REQUIRED"]),
                    (ledger.vocabulary.FaultKind["NVLINK"], ledger.vocabulary.FaultKind["NVLINK"]),
                    (ledger.vocabulary.FaultKind["POWER"], ledger.vocabulary.FaultKind["POWER"]),
                    (ledger.vocabulary.FaultKind["MISSING"], ledger.vocabulary.FaultKind["MISSING"]),
                    (ledger.vocabulary.FaultKind["STORAGE"], ledger.vocabulary.FaultKind["STORAGE"]),
                    (ledger.vocabulary.FaultKind["SILENT"], ledger.vocabulary.FaultKind["SILENT"]),
                ],
                max_length=16,
            ),
        ),
        migrations.AddConstraint(
            model_name="fault",
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
                name="fault_kind_known",
            ),
        ),
        migrations.AddField(
            model_name="agentorder",
            name="card",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="orders", to="ledger.card"
            ),
        ),
        migrations.AddField(
            model_name="agentorder",
            name="node",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="orders", to="ledger.node"
            ),
        ),
        migrations.AddField(
            model_name="cardhour",
            name="card",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="hours",
                to="ledger.card",
            ),
        ),
        migrations.AddField(
            model_name="case",
            name="boot",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="ledger.nodeboot"
            ),
        ),
        migrations.AddField(
            model_name="case",
            name="card",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="cases", to="ledger.card"
            ),
        ),
        migrations.AddField(
            model_name="case",
            name="fault",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="cases", to="ledger.fault"
            ),
        ),
        migrations.AddField(
            model_name="case",
            name="hold",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="cases", to="ledger.hold"
            ),
        ),
        migrations.AddField(
            model_name="case",
            name="node",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="cases", to="ledger.node"
            ),
        ),
        migrations.AddField(
            model_name="agentorder",
            name="case",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="orders", to="ledger.case"
            ),
        ),
        migrations.AddField(
            model_name="qualitycount",
            name="card",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.CASCADE, related_name="quality", to="ledger.card"
            ),
        ),
        migrations.AddField(
            model_name="qualitycount",
            name="node",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.CASCADE, related_name="quality", to="ledger.node"
            ),
        ),
        migrations.AddField(
            model_name="samplebatch",
            name="boot",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="+",
                to="ledger.nodeboot",
            ),
        ),
        migrations.AddIndex(
            model_name="cardhour",
            index=models.Index(fields=["hour"], name="card_hour_by_hour"),
        ),
        migrations.AddConstraint(
            model_name="cardhour",
            constraint=models.UniqueConstraint(fields=("card", "hour"), name="one_row_a_card_and_hour"),
        ),
        migrations.AddConstraint(
            model_name="case",
            constraint=models.UniqueConstraint(
                condition=models.Q(("ended_at__isnull", True)),
                fields=("node", "card"),
                name="one_open_case_a_place",
                nulls_distinct=False,
            ),
        ),
        migrations.AddConstraint(
            model_name="case",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "state__in",
                        [
                            ledger.vocabulary.CaseState["WAITING"],
                            ledger.vocabulary.CaseState["NEEDED"],
                            ledger.vocabulary.CaseState["TESTING"],
                            ledger.vocabulary.CaseState["PASSED"],
                            ledger.vocabulary.CaseState["FAILED"],
                            ledger.vocabulary.CaseState["RETURNED"],
                            ledger.vocabulary.CaseState["SCRAPPED"],
                            ledger.vocabulary.CaseState["ABORTED"],
                        ],
                    )
                ),
                name="case_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="case",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "need__in",
                        [
                            ledger.vocabulary.Need["NOTHING"],
                            ledger.vocabulary.Need["RESET"],
                            ledger.vocabulary.Need["REBOOT"],
                            ledger.vocabulary.Need["INSPECTION"],
                            ledger.vocabulary.Need["REPLACEMENT"],
                        ],
                    )
                ),
                name="case_need_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="case",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "action__in",
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
                name="case_action_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="case",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("ended_at__isnull", True),
                        (
                            "state__in",
                            [
                                ledger.vocabulary.CaseState["FAILED"],
                                ledger.vocabulary.CaseState["NEEDED"],
                                ledger.vocabulary.CaseState["PASSED"],
                                ledger.vocabulary.CaseState["TESTING"],
                                ledger.vocabulary.CaseState["WAITING"],
                            ],
                        ),
                    ),
                    models.Q(
                        ("ended_at__isnull", False),
                        models.Q(
                            (
                                "state__in",
                                [
                                    ledger.vocabulary.CaseState["FAILED"],
                                    ledger.vocabulary.CaseState["NEEDED"],
                                    ledger.vocabulary.CaseState["PASSED"],
                                    ledger.vocabulary.CaseState["TESTING"],
                                    ledger.vocabulary.CaseState["WAITING"],
                                ],
                            ),
                            _negated=True,
                        ),
                    ),
                    _connector="OR",
                ),
                name="case_open_until_it_ends",
            ),
        ),
        migrations.AddConstraint(
            model_name="case",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("action__gt", ""), ("state", "returned"), _negated=True),
                    ("tested_at__isnull", False),
                    ("by_hand", True),
                    _connector="OR",
                ),
                name="case_returns_on_evidence",
            ),
        ),
        migrations.AddIndex(
            model_name="agentorder",
            index=models.Index(condition=models.Q(("ended_at__isnull", True)), fields=["node"], name="open_orders"),
        ),
        migrations.AddConstraint(
            model_name="agentorder",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("kind__in", [ledger.vocabulary.OrderKind["BURN_IN"], ledger.vocabulary.OrderKind["RESET"]])
                ),
                name="order_kind_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="agentorder",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("ended_at__isnull", True), ("ok__isnull", True)),
                    models.Q(("ended_at__isnull", False), ("ok__isnull", False)),
                    _connector="OR",
                ),
                name="order_ends_with_a_verdict",
            ),
        ),
        migrations.AddConstraint(
            model_name="qualitycount",
            constraint=models.UniqueConstraint(
                fields=("day", "node", "card", "kind"), name="one_quality_count_a_day", nulls_distinct=False
            ),
        ),
        migrations.AddConstraint(
            model_name="qualitycount",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "kind__in",
                        [
                            ledger.vocabulary.QualityKind["DUPLICATE"],
                            ledger.vocabulary.QualityKind["REORDERED"],
                            ledger.vocabulary.QualityKind["LATE"],
                            ledger.vocabulary.QualityKind["TOO_OLD"],
                            ledger.vocabulary.QualityKind["FUTURE"],
                            ledger.vocabulary.QualityKind["BEHIND"],
                            ledger.vocabulary.QualityKind["IMPOSSIBLE"],
                            ledger.vocabulary.QualityKind["UNKNOWN_CARD"],
                            ledger.vocabulary.QualityKind["FOREIGN_CARD"],
                            ledger.vocabulary.QualityKind["WRONG_NODE"],
                            ledger.vocabulary.QualityKind["UNKNOWN_TOKEN"],
                            ledger.vocabulary.QualityKind["MALFORMED"],
                            ledger.vocabulary.QualityKind["TOO_LARGE"],
                            ledger.vocabulary.QualityKind["FLOOD"],
                            ledger.vocabulary.QualityKind["SCRAPE_FAILED"],
                        ],
                    )
                ),
                name="quality_kind_known",
            ),
        ),
        migrations.RunSQL(migrations.RunSQL.noop, FORGET),
    ]
