"""Cases and orders of agents are kept: the application's role deletes none of them."""

from django.db import migrations

ROLE = "gpu_commons_app"
KEPT = "ledger_case, ledger_agentorder"


class Migration(migrations.Migration):
    dependencies = [("portal", "0006_rights_are_kept"), ("ledger", "0025_telemetry")]
    operations = [
        migrations.RunSQL(
            f"REVOKE DELETE, TRUNCATE ON {KEPT} FROM {ROLE}", f"GRANT DELETE, TRUNCATE ON {KEPT} TO {ROLE}"
        ),
    ]
