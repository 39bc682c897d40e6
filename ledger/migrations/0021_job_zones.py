"""A job may be kept inside some zones. The database holds it: no allocation of it begins on a node of another one."""

from importlib import import_module

import django.contrib.postgres.fields
from django.db import migrations, models

GUARD_BACK = import_module("ledger.migrations.0010_quota_bound").GUARD
AFTER = "THEN 'zone_takes_form'\n"
GUARD = GUARD_BACK.replace(
    AFTER, f"{AFTER}      WHEN x.zone_then_id <> ALL (j.zones) THEN 'zone_is_open_to_job'\n", 1
).replace(
    "      WHEN 'node_not_held' THEN format",
    "      WHEN 'zone_is_open_to_job' THEN format('job %s is kept out of the zone of node %s', bad.job_id, bad.hostname)\n"
    "      WHEN 'node_not_held' THEN format",
    1,
)


class Migration(migrations.Migration):
    dependencies = [("ledger", "0020_cheaper_shares")]
    operations = [
        migrations.AddField(
            model_name="job",
            name="zones",
            field=django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), null=True, size=None),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(("zones", []), _negated=True), name="job_is_open_to_some_zone"
            ),
        ),
        migrations.RunSQL(GUARD, GUARD_BACK),
    ]
