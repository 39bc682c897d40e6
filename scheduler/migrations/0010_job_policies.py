"""Policies of jobs in versions that are never changed: a version ends when the next one begins, and that is all."""

import django.contrib.postgres.constraints
import django.contrib.postgres.fields
import django.contrib.postgres.fields.ranges
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import ledger.vocabulary

GUARD = """
CREATE FUNCTION scheduler_policy_is_never_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_TABLE_NAME = 'scheduler_policyversion' THEN
    IF to_jsonb(OLD) - 'period' = to_jsonb(NEW) - 'period' AND lower(OLD.period) = lower(NEW.period)
        AND upper_inf(OLD.period) AND NOT upper_inf(NEW.period) THEN
      RETURN NEW;
    END IF;
  END IF;
  RAISE EXCEPTION 'rows of % are never changed', TG_TABLE_NAME
    USING ERRCODE = 'check_violation', CONSTRAINT = 'policy_is_never_changed';
END $$;
""" + "".join(
    f"CREATE TRIGGER policy_is_never_changed BEFORE UPDATE ON scheduler_{table} "
    "FOR EACH ROW EXECUTE FUNCTION scheduler_policy_is_never_changed();"
    for table in ("jobpolicy", "policyversion", "policyuse")
)
GUARD_BACK = "DROP FUNCTION scheduler_policy_is_never_changed() CASCADE"


class Migration(migrations.Migration):
    dependencies = [
        ("ledger", "0021_job_zones"),
        ("scheduler", "0009_preemption"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="JobPolicy",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(default="", max_length=16)),
                (
                    "department",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="job_policies",
                        to="ledger.department",
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="job_policies",
                        to="ledger.project",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="PolicyUse",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("rule", models.CharField(max_length=64)),
                ("asked", models.JSONField()),
                ("lines", models.JSONField()),
                (
                    "job",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT, related_name="policy_use", to="ledger.job"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="PolicyVersion",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveIntegerField()),
                ("period", django.contrib.postgres.fields.ranges.DateTimeRangeField()),
                ("withdrawn", models.BooleanField(default=False)),
                (
                    "forms",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=16), null=True, size=None
                    ),
                ),
                ("fallback_wait_s", models.PositiveIntegerField(null=True)),
                (
                    "zones",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), null=True, size=None
                    ),
                ),
                ("priority_default", models.SmallIntegerField(null=True)),
                ("priority_most", models.SmallIntegerField(null=True)),
                ("walltime_default_s", models.PositiveIntegerField(null=True)),
                ("walltime_most_s", models.PositiveIntegerField(null=True)),
                ("reason", models.CharField(max_length=500)),
                (
                    "by",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "policy",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="versions",
                        to="scheduler.jobpolicy",
                    ),
                ),
            ],
        ),
        migrations.AddConstraint(
            model_name="jobpolicy",
            constraint=models.UniqueConstraint(
                fields=("project", "department", "kind"), name="one_policy_a_scope", nulls_distinct=False
            ),
        ),
        migrations.AddConstraint(
            model_name="jobpolicy",
            constraint=models.CheckConstraint(
                condition=models.Q(("project__isnull", True), ("department__isnull", True), _connector="OR"),
                name="policy_of_project_or_department",
            ),
        ),
        migrations.AddConstraint(
            model_name="jobpolicy",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "kind__in",
                        [
                            "",
                            ledger.vocabulary.JobKind["TRAINING"],
                            ledger.vocabulary.JobKind["INFERENCE"],
                            ledger.vocabulary.JobKind["DATA"],
                            ledger.vocabulary.JobKind["INTERACTIVE"],
                            ledger.vocabulary.JobKind["OTHER"],
                        ],
                    )
                ),
                name="policy_kind_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="policyversion",
            constraint=django.contrib.postgres.constraints.ExclusionConstraint(
                expressions=[("policy", "="), ("period", "&&")], name="one_policy_version_at_a_time"
            ),
        ),
        migrations.AddConstraint(
            model_name="policyversion",
            constraint=models.UniqueConstraint(fields=("policy", "number"), name="policy_version_number_once"),
        ),
        migrations.AddConstraint(
            model_name="policyversion",
            constraint=models.CheckConstraint(
                condition=models.Q(("period__isempty", False)), name="policy_period_not_empty"
            ),
        ),
        migrations.AddConstraint(
            model_name="policyversion",
            constraint=models.CheckConstraint(
                condition=models.Q(("reason", ""), _negated=True), name="policy_version_has_a_reason"
            ),
        ),
        migrations.AddConstraint(
            model_name="policyversion",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("withdrawn", True),
                        ("fallback_wait_s__isnull", True),
                        ("forms__isnull", True),
                        ("priority_default__isnull", True),
                        ("priority_most__isnull", True),
                        ("walltime_default_s__isnull", True),
                        ("walltime_most_s__isnull", True),
                        ("zones__isnull", True),
                    ),
                    models.Q(
                        ("withdrawn", False),
                        models.Q(
                            ("fallback_wait_s__isnull", True),
                            ("forms__isnull", True),
                            ("priority_default__isnull", True),
                            ("priority_most__isnull", True),
                            ("walltime_default_s__isnull", True),
                            ("walltime_most_s__isnull", True),
                            ("zones__isnull", True),
                            _negated=True,
                        ),
                    ),
                    _connector="OR",
                ),
                name="policy_says_something",
            ),
        ),
        migrations.AddConstraint(
            model_name="policyversion",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("forms__isnull", True),
                    models.Q(
                        models.Q(("forms", []), _negated=True), ("forms__contained_by", ["container", "block", "whole"])
                    ),
                    _connector="OR",
                ),
                name="policy_forms_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="policyversion",
            constraint=models.CheckConstraint(
                condition=models.Q(("zones__isnull", True), models.Q(("zones", []), _negated=True), _connector="OR"),
                name="policy_zones_not_empty",
            ),
        ),
        migrations.AddConstraint(
            model_name="policyversion",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("fallback_wait_s__isnull", True), ("fallback_wait_s__lte", 31622400), _connector="OR"
                ),
                name="policy_wait_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="policyversion",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("priority_default__isnull", True), ("priority_default__range", (-100, 100)), _connector="OR"
                ),
                name="policy_priority_default",
            ),
        ),
        migrations.AddConstraint(
            model_name="policyversion",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("priority_most__isnull", True), ("priority_most__range", (-100, 100)), _connector="OR"
                ),
                name="policy_priority_most",
            ),
        ),
        migrations.AddConstraint(
            model_name="policyversion",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("walltime_default_s__isnull", True), ("walltime_default_s__range", (1, 31622400)), _connector="OR"
                ),
                name="policy_walltime_default_s",
            ),
        ),
        migrations.AddConstraint(
            model_name="policyversion",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("walltime_most_s__isnull", True), ("walltime_most_s__range", (1, 31622400)), _connector="OR"
                ),
                name="policy_walltime_most_s",
            ),
        ),
        migrations.AddConstraint(
            model_name="policyversion",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("priority_default__isnull", True),
                    ("priority_most__isnull", True),
                    ("priority_default__lte", models.F("priority_most")),
                    _connector="OR",
                ),
                name="policy_priority_within",
            ),
        ),
        migrations.AddConstraint(
            model_name="policyversion",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("walltime_default_s__isnull", True),
                    ("walltime_most_s__isnull", True),
                    ("walltime_default_s__lte", models.F("walltime_most_s")),
                    _connector="OR",
                ),
                name="policy_walltime_within",
            ),
        ),
        migrations.RunSQL(GUARD, GUARD_BACK),
    ]
