"""Promises: what the submit page told of a job's place and company before it was queued."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("ledger", "0006_audit_indexes"), ("scheduler", "0003_zone_plan")]

    operations = [
        migrations.CreateModel(
            name="Promise",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("made_at", models.DateTimeField()),
                ("verdict", models.CharField(max_length=8)),
                ("spots", models.JSONField(default=list)),
                ("neighbours", models.JSONField(default=list)),
                ("expected_at", models.DateTimeField(null=True)),
                (
                    "job",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT, related_name="promise", to="ledger.job"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("verdict__in", ["now", "later", "never", "barred"])),
                        name="promise_verdict_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(models.Q(("verdict", "now"), _negated=True))
                        | models.Q(models.Q(("spots", []), _negated=True)),
                        name="promise_of_now_names_a_place",
                    ),
                ]
            },
        ),
    ]
