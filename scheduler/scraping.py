"""Reads text that Prometheus would read: exporters of nodes and applications of jobs, several at once, each within its
own time, and all of it within a pass's. What was not reached comes first in the next pass.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Hashable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from concurrent.futures import TimeoutError as NoneDone
from typing import Any, Final, TypeVar

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from scheduler import outbound
from scheduler.scrape_rows import Scrape

AT_ONCE: Final = 16
TIMEOUT_S: Final = 3.0
PASS_S: Final = 5.0
FIRST_WAIT_S: Final = 10  # before what has failed is tried again; doubles each time
LONGEST_WAIT_S: Final = 300
MOST_BYTES: Final = 4 * 1024 * 1024
LONGEST_ERROR: Final = 300
Key = TypeVar("Key", bound=Hashable)


class Unreadable(Exception):
    """It answered, and not in the text format of Prometheus."""


def scrape_all() -> dict[str, Any]:
    """One pass over nodes and jobs. Returns counts for the task's record."""
    from scheduler import applications, dcgm  # they read by this module

    return {"nodes": dcgm.scrape_nodes(), "jobs": applications.scrape_jobs()}


def is_due(row: Scrape | None, now: dt.datetime) -> bool:
    """False while what has failed waits: a dead address must not hold up every pass."""
    if row is None or not row.failures:
        return True
    wait = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** min(row.failures - 1, 20))
    return now - row.tried_at >= dt.timedelta(seconds=wait)


def fetch_all(
    urls: Mapping[Key, str], most_bytes: int = MOST_BYTES, within_s: float = PASS_S
) -> Iterator[tuple[Key, str | Exception]]:
    """What each address answers, as it comes, or why not. Those that are not through in time are left out."""
    if not urls:
        return
    deadline = time.monotonic() + within_s
    pool = ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="scrape")
    waiting: dict[Future[str], Key] = {pool.submit(_fetch, url, most_bytes, deadline): key for key, url in urls.items()}
    try:
        for done in as_completed(waiting, timeout=max(0.0, deadline - time.monotonic())):
            error = done.exception()
            if not isinstance(error, OutOfTime):
                yield waiting[done], error if isinstance(error, Exception) else done.result()
    except NoneDone:
        pass
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


class OutOfTime(Exception):
    """Its turn did not come in this pass."""


def _fetch(url: str, most_bytes: int, deadline: float) -> str:
    left = deadline - time.monotonic()
    if left < 0.1:
        raise OutOfTime
    return outbound.get(url, timeout_s=min(TIMEOUT_S, left), most_bytes=most_bytes).body.decode("utf-8", "replace")


def words_of(error: Exception) -> str:
    """Why it could not be read, printable and bounded: it may hold what the other side sent."""
    text = str(error) or type(error).__name__
    return "".join(c if c.isprintable() else "?" for c in text[:LONGEST_ERROR])


def samples_of(text: str) -> list[Sample]:
    """Every sample of a text. Raises Unreadable."""
    try:
        return [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    except Exception as error:  # of many kinds: the parser trusts its input
        raise Unreadable(f"no text of Prometheus: {error}") from error
