"""A promise is written once: the application's role may neither change nor delete it."""

from django.db import migrations

ROLE = "gpu_commons_app"
TABLE = "scheduler_promise"


class Migration(migrations.Migration):
    dependencies = [("portal", "0002_plans_are_kept"), ("scheduler", "0004_promise")]
    operations = [
        migrations.RunSQL(
            f"REVOKE UPDATE, DELETE, TRUNCATE ON {TABLE} FROM {ROLE}",
            f"GRANT UPDATE, DELETE, TRUNCATE ON {TABLE} TO {ROLE}",
        )
    ]
