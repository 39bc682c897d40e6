"""The first few jobs of each kind by their own index, whatever the planner thinks of a queue that is long now and empty
in its statistics: that rows are equal is said by comparing them, which only that index can answer in its order."""

from importlib import import_module

from django.db import migrations

before = import_module("ledger.migrations.0017_long_queues")
LINE, WAITS = before.LINE, before.WAITS
REPLACED = before.HEADS.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1)
OF_A_LINE = f"AND ({LINE}) = (l.project_id, l.priority, l.alike)\n    ORDER BY queued_at, id"
HEADS = REPLACED.replace(
    OF_A_LINE,
    f"AND ({LINE}) >= (l.project_id, l.priority, l.alike)\n"
    f"    AND ({LINE}) <= (l.project_id, l.priority, l.alike) ORDER BY {LINE}, queued_at, id",
)


class Migration(migrations.Migration):
    dependencies = [("ledger", "0017_long_queues")]
    operations = [migrations.RunSQL(HEADS, REPLACED)]
