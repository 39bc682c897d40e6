"""The log of a job: what its newest attempt's member wrote, read from the driver with a byte cursor."""

from __future__ import annotations

from ledger.models import Allocation, Job
from scheduler.drivers.base import LogChunk
from scheduler.drivers.registry import driver


def read(job: Job, cursor: int = 0, rank: int = 0, limit: int = 65_536, attempt: int | None = None) -> LogChunk:
    """Bytes from `cursor` on of one member of attempt number `attempt` (default: the newest)."""
    allocations = Allocation.objects.filter(attempt__job=job, rank=rank)
    if attempt is not None:
        allocations = allocations.filter(attempt__n=attempt)
    allocation = allocations.order_by("-attempt__n").first()
    if allocation is None:
        return LogChunk(b"", cursor, job.ended_at is not None)
    return driver(allocation.driver).logs(allocation.key, cursor, limit)
