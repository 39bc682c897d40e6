"""What attempts used that hardware failed, given back: the only writer of Refund. The book keeps it as used; budgets
and fair share count it no more. Once an attempt and exactly what it used: the database holds both.
"""

from __future__ import annotations

from typing import Final

from django.db import connection, transaction

# Ended by the health policy; or failed by itself within two minutes before its card's fault was counted, as programs do
# that lose their card, or within one after it.
DUE: Final = """
WITH due AS (
  SELECT t.id, (SELECT max(e.id) FROM ledger_healthevent e WHERE t.id = ANY (e.attempts)) AS event_id
  FROM ledger_attempt t WHERE t.outcome = 'hardware' AND t.state = 'ended'
    AND NOT EXISTS (SELECT FROM ledger_refund r WHERE r.attempt_id = t.id)
  UNION ALL
  SELECT t.id, max(e.id) FROM ledger_healthevent e
    JOIN ledger_cardshare s ON s.card_id = e.card_id AND s.period && tstzrange(e.at - interval '120 s', e.at)
    JOIN ledger_allocation a ON a.id = s.allocation_id JOIN ledger_attempt t ON t.id = a.attempt_id
  WHERE e.ends_jobs AND e.at > clock_timestamp() - interval '1 hour' AND t.outcome = 'failed' AND t.state = 'ended'
    AND (e.action <> 'restart_job' OR e.hit IS NULL OR e.hit = a.id)
    AND a.closing_at BETWEEN e.at - interval '120 s' AND e.at + interval '60 s'
    AND NOT EXISTS (SELECT FROM ledger_refund r WHERE r.attempt_id = t.id)
  GROUP BY t.id
)
INSERT INTO ledger_refund (attempt_id, project_id, at, card_milli_s, event_id)
SELECT d.id, j.project_id, clock_timestamp(), ledger_attempt_use(d.id), max(d.event_id)
FROM due d JOIN ledger_attempt t ON t.id = d.id JOIN ledger_job j ON j.id = t.job_id
GROUP BY d.id, j.project_id ORDER BY d.id LIMIT %s
ON CONFLICT (attempt_id) DO NOTHING RETURNING attempt_id
"""


def refund_due(limit: int = 500) -> int:
    """Give back what is due. Returns to how many attempts."""
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute(DUE, [limit])
        return len(cursor.fetchall())
