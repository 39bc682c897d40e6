"""Versions of the health policy, their rules, what faults were answered with and refunds are kept: the application's
role deletes none of them, and changes no rule and no refund."""

from django.db import migrations

ROLE = "gpu_commons_app"
KEPT = "ledger_healthversion, ledger_healthrule, ledger_healthevent, ledger_refund"
WRITTEN_ONCE = "ledger_healthrule, ledger_refund"


class Migration(migrations.Migration):
    dependencies = [("portal", "0008_drills_are_kept"), ("ledger", "0026_health_policy")]
    operations = [
        migrations.RunSQL(
            f"REVOKE DELETE, TRUNCATE ON {KEPT} FROM {ROLE}", f"GRANT DELETE, TRUNCATE ON {KEPT} TO {ROLE}"
        ),
        migrations.RunSQL(f"REVOKE UPDATE ON {WRITTEN_ONCE} FROM {ROLE}", f"GRANT UPDATE ON {WRITTEN_ONCE} TO {ROLE}"),
    ]
