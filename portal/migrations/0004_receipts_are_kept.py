"""A receipt is written once, notices and their deliveries are history: the application's role may not take them back."""

from django.db import migrations

ROLE = "gpu_commons_app"
ONCE, KEPT = "ledger_receipt, ledger_notice", "ledger_delivery"


class Migration(migrations.Migration):
    dependencies = [("portal", "0003_promises_are_kept"), ("ledger", "0014_project_end")]
    operations = [
        migrations.RunSQL(
            f"REVOKE UPDATE, DELETE, TRUNCATE ON {ONCE} FROM {ROLE}; REVOKE DELETE, TRUNCATE ON {KEPT} FROM {ROLE}",
            f"GRANT UPDATE, DELETE, TRUNCATE ON {ONCE} TO {ROLE}; GRANT DELETE, TRUNCATE ON {KEPT} TO {ROLE}",
        )
    ]
