"""Shares follow their allocation's period by key, and are found by the allocation. The planner took "this period" for the
rarer thing and read a whole index of all shares by it, for each allocation that closed. No statement looks for shares by
an equal period alone: so the planner is told that it would find them all.
"""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("ledger", "0013_projects")]
    operations = [
        migrations.RunSQL(
            "ALTER TABLE ledger_cardshare ALTER COLUMN period SET (n_distinct = 1)",
            "ALTER TABLE ledger_cardshare ALTER COLUMN period RESET (n_distinct)",
        ),
    ]
