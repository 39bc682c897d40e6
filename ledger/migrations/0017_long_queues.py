"""Shares follow their allocation's period by key, and are found by the allocation. The planner took "this period" for the
rarer thing and read a whole index of all shares by it, for each allocation that closed. No statement looks for shares by
an equal period alone: so the planner is told that it would find them all.

And the first few jobs of each kind are found in a long queue from line to line by an index. What statistics say of a queue
that is long now and empty then must not matter: only that index has the order, and sorting is switched off.
"""

from django.db import migrations, models

from ledger.vocabulary import JobState

LINE = "project_id, priority, jsonb_hash(asks)"
WAITS = "state = 'queued' AND held_at IS NULL"
HEADS = f"""
CREATE FUNCTION ledger_queue_heads(few integer, kinds integer) RETURNS bigint[] LANGUAGE sql STABLE
SET enable_sort = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
WITH RECURSIVE lines (project_id, priority, alike) AS (
    (SELECT {LINE} FROM ledger_job WHERE {WAITS} ORDER BY {LINE} LIMIT 1)
    UNION ALL
    SELECT following.* FROM lines l CROSS JOIN LATERAL (SELECT {LINE} FROM ledger_job WHERE {WAITS}
        AND ({LINE}) > (l.project_id, l.priority, l.alike) ORDER BY {LINE} LIMIT 1) following
)
SELECT ARRAY(SELECT head.id FROM (SELECT * FROM lines LIMIT kinds) l CROSS JOIN LATERAL (
    SELECT id FROM ledger_job WHERE {WAITS} AND ({LINE}) = (l.project_id, l.priority, l.alike)
    ORDER BY queued_at, id LIMIT few) head)
$$
"""


class Migration(migrations.Migration):
    dependencies = [("ledger", "0016_requests")]
    operations = [
        migrations.RunSQL(
            "ALTER TABLE ledger_cardshare ALTER COLUMN period SET (n_distinct = 1)",
            "ALTER TABLE ledger_cardshare ALTER COLUMN period RESET (n_distinct)",
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                models.F("project"),
                models.F("priority"),
                models.Func("asks", function="jsonb_hash", output_field=models.IntegerField()),
                models.F("queued_at"),
                models.F("id"),
                condition=models.Q(("held_at__isnull", True), ("state", JobState.QUEUED)),
                name="job_lines",
            ),
        ),
        migrations.RunSQL(HEADS, "DROP FUNCTION ledger_queue_heads(integer, integer)"),
    ]
