"""Rules, rungs and silences of alerts are kept: the application's role deletes none of them."""

from django.db import migrations

ROLE = "gpu_commons_app"
KEPT = "scheduler_alertrule, scheduler_alertrung, scheduler_silence"


class Migration(migrations.Migration):
    dependencies = [("portal", "0007_cases_are_kept"), ("scheduler", "0011_alerts")]
    operations = [
        migrations.RunSQL(
            f"REVOKE DELETE, TRUNCATE ON {KEPT} FROM {ROLE}", f"GRANT DELETE, TRUNCATE ON {KEPT} TO {ROLE}"
        ),
    ]
