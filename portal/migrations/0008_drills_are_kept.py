"""Drills are kept: the application's role deletes none of them."""

from django.db import migrations

ROLE = "gpu_commons_app"


class Migration(migrations.Migration):
    dependencies = [("portal", "0007_cases_are_kept"), ("scheduler", "0012_drills")]
    operations = [
        migrations.RunSQL(
            f"REVOKE DELETE, TRUNCATE ON scheduler_drill FROM {ROLE}",
            f"GRANT DELETE, TRUNCATE ON scheduler_drill TO {ROLE}",
        ),
    ]
