"""When what stands on nodes now is expected to be gone: at its time limit, counted from the start of its members.
Reads only; what it means for anybody is decided by whoever asks.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from django.db import connection

LIVE: Final = """
SELECT a.id, a.node_id, t.job_id, a.project_id, a.form, a.cpu_milli, a.host_memory_mib,
       coalesce(a.closing_at, coalesce(a.active_at, lower(a.period)) + make_interval(secs => j.walltime_s))
FROM ledger_allocation a JOIN ledger_attempt t ON t.id = a.attempt_id JOIN ledger_job j ON j.id = t.job_id
WHERE upper_inf(a.period) AND (%(nodes)s::bigint[] IS NULL OR a.node_id = ANY (%(nodes)s::bigint[]))
"""


@dataclass(frozen=True, slots=True)
class Live:
    """An open allocation. `ends_at`: when it began to close, else its time limit, which may lie in the past."""

    pk: int
    node_id: int
    job_id: int
    project_id: int
    form: str
    cpu_milli: int
    host_memory_mib: int
    ends_at: dt.datetime


def live(nodes: Collection[int] | None = None) -> list[Live]:
    """Every open allocation, of these nodes alone if they are given."""
    with connection.cursor() as cursor:
        cursor.execute(LIVE, {"nodes": None if nodes is None else list(nodes)})
        return [Live(*row) for row in cursor.fetchall()]
