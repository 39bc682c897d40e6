"""Zone plans and their moves are history: the application's role may not delete them."""

from django.db import migrations

ROLE = "gpu_commons_app"
TABLES = "scheduler_zoneplan, scheduler_zonemove"


class Migration(migrations.Migration):
    dependencies = [("portal", "0001_application_role"), ("scheduler", "0003_zone_plan")]
    operations = [
        migrations.RunSQL(
            f"REVOKE DELETE, TRUNCATE ON {TABLES} FROM {ROLE}", f"GRANT DELETE, TRUNCATE ON {TABLES} TO {ROLE}"
        )
    ]
