"""The benchmark of quota, small: all that comes is placed and ends, on clean books, and nobody holds too much."""

from __future__ import annotations

import pytest
from django.db import connection

from ledger import invariants
from ledger.models import Allocation, AuditEvent, Job
from scheduler.models import Decision
from tests.bench import quota

SHARE = 0.02
MOST_HELD = """
WITH moments AS (SELECT DISTINCT lower(period) AS at FROM ledger_allocation)
SELECT max(held) FROM (SELECT m.at, n.labels[1], sum(s.memory_mib / s.card_memory_mib) AS held
    FROM moments m JOIN ledger_cardshare s ON s.period @> m.at JOIN ledger_node n ON n.id = s.node_id GROUP BY 1, 2) each
"""


def test_the_generator_is_kueues() -> None:
    coming = quota.arrivals(1.0)
    assert len(coming) == 15_000
    assert sum(one.kind.cards * one.kind.runs_s for one in coming) / 600 == pytest.approx(66.0)
    assert [one.at for one in coming] == sorted(one.at for one in coming)
    assert max(one.at for one in coming) == pytest.approx(58.8)


@pytest.mark.django_db(transaction=True)
@pytest.mark.breaks_books  # jobs past their writer, and no driver is asked
def test_all_that_comes_is_placed_and_ends() -> None:
    quota.lay_out()
    found = quota.play(quota.arrivals(SHARE))
    assert found["jobs"] == found["committed"] == 300
    assert found["stopped_for_others"] == 0
    assert 0 < found["usage_pct"] <= 100
    assert found["admission_s"].keys() == {"small", "medium", "large"}
    assert set(Job.objects.values_list("state", flat=True)) == {"succeeded"}
    assert Allocation.objects.count() == Decision.objects.exclude(attempt=None).count() == 300
    for verb in ("job.submitted", "job.placed", "job.stopping", "job.succeeded"):
        assert AuditEvent.objects.filter(verb=verb).count() == 300
    with connection.cursor() as cursor:
        cursor.execute(MOST_HELD)
        assert 0 < cursor.fetchone()[0] <= quota.QUEUES * quota.GUARANTEED
    assert not [finding for finding in invariants.check() if "quota" in finding.name]
