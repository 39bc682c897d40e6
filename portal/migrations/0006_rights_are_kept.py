"""Extra rights and letters are kept: the application's role deletes none of them, so that no number of a right ever stands
for another, and changes no letter. That a right may only be ended early is held by a trigger."""

from django.db import migrations

ROLE = "gpu_commons_app"
KEPT = "ledger_oddgrant, ledger_letter"
WRITTEN_ONCE = "ledger_letter"


class Migration(migrations.Migration):
    dependencies = [("portal", "0005_policies_are_kept"), ("ledger", "0024_odd_grants")]
    operations = [
        migrations.RunSQL(
            f"REVOKE DELETE, TRUNCATE ON {KEPT} FROM {ROLE}", f"GRANT DELETE, TRUNCATE ON {KEPT} TO {ROLE}"
        ),
        migrations.RunSQL(f"REVOKE UPDATE ON {WRITTEN_ONCE} FROM {ROLE}", f"GRANT UPDATE ON {WRITTEN_ONCE} TO {ROLE}"),
    ]
