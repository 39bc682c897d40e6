"""How fast plans become rows: placements a second, a pass over a long queue, and how long a submitted job waits.

    python -m tests.bench.commit [--nodes 10000] [--jobs 5000] [--history 100000] [--batch N] [--rate 20] [--seconds 30]

Starts a database of its own in a temporary folder (tests/services.py), with the settings of `manage.py up`: every commit
is flushed to the disk. Prints one JSON object; progress goes to stderr. There is no limit in it: what a machine takes is
for its reader. Three parts, on one fleet of which nearly every card is half taken:

* `rate`: --jobs queued jobs of all forms that fit, and then as many whole machines as are left, each in one tick
* `pass`: ticks over --jobs queued jobs that nothing is free for: the first, idle ones, ones with a few new jobs, and one
  after so long a rest that all jobs are looked at, `whole`; the others look at the first of each kind where there are many
* `stream`: on top of that queue, --rate jobs a second are submitted for --seconds; the time from submit to placed
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import os
import re
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from tests.services import TestServices

WIDTH: Final = 8  # cards of a node
FREE: Final = 0.05  # of the nodes have no work
LAID_OUT_BY: Final = 4  # statements of pages.FILL: nodes, their zone, cards, seats
SHARE: Final = {"form": "container", "cards_per_node": 1, "memory_mib": 20_480}
# how many of 100 jobs ask for it
MIX: Final = (
    (45, SHARE),
    (25, {**SHARE, "memory_mib": 40_960}),
    (15, {**SHARE, "cards_per_node": 2, "memory_mib": 10_240}),
    (9, {**SHARE, "memory_mib": 0}),
    (2, {**SHARE, "cards_per_node": 4, "memory_mib": 0}),
    (2, {**SHARE, "nodes": 4}),
    (2, {"form": "whole"}),
)
WHOLE: Final = ((1, {"form": "whole"}),)
TOO_LARGE: Final = tuple((1, {**SHARE, "cards_per_node": 1 + n % WIDTH, "memory_mib": 41_000 + n}) for n in range(40))
NEWS: Final = 20  # new jobs before a pass that has news
PASSES: Final = 5
MOST_RESTS: Final = 300  # of a second each, until a pass looks at all jobs
STEPS: Final = ("queued_jobs", "over_quota", "read", "fleet_of", "stays_later", "commit_as_decided", "_record_waiting")
TABLE: Final = re.compile(r'^\W*(\w+)(?:.*?\b(?:FROM|INTO|UPDATE)\s+"?(\w+))?', re.DOTALL | re.IGNORECASE)
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = (("nodes", 10_000), ("jobs", 5_000), ("history", 100_000), ("rate", 20), ("seconds", 30))
    for name, default in numbers:
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--batch", type=int, help="placements in one transaction, instead of commit.BATCH")
    asked = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
    services = TestServices()
    try:
        services.reserve()
        if services.cluster is not None:
            services.cluster = dataclasses.replace(services.cluster, settings={})  # as safe as the product is
        services.start()
        print(json.dumps(measure(asked), indent=1))
    finally:
        services.stop()


def measure(asked: argparse.Namespace) -> Row:
    import django

    django.setup()
    from django.db import connection

    from scheduler import commit

    connection.creation.create_test_db(verbosity=0, autoclobber=True)
    fill(asked.nodes, asked.history)
    with patch.object(commit, "BATCH", asked.batch or commit.BATCH):
        found = {
            "nodes": asked.nodes,
            "cards": asked.nodes * WIDTH,
            "batch": commit.BATCH,
            "start_s": start(),
            "rate": rate(asked.jobs, asked.nodes),
            "pass": passes(asked.jobs),
            "stream": stream(asked.rate, asked.seconds),
        }
    connection.close()
    return found


# -- the fleet and its queue ------------------------------------------------------------------------------------------


def fill(nodes: int, history: int) -> None:
    """Nodes with a long history; on all but FREE of them running jobs have half of each card."""
    from django.db import connection

    from ledger.models import Project
    from ledger.vocabulary import Resource
    from tests import factories
    from tests.bench.pages import FILL, GUARDED

    factories.cast()
    factories.zone("pool")
    spare = int(nodes * FREE)
    live = (nodes - spare) * WIDTH
    numbers = {"nodes": nodes - spare, "width": WIDTH, "jobs": history + live, "live": live, "waiting": 0}
    statements = [statement for statement in FILL.split(";\n") if statement.strip()]
    lay_out = [statement.replace("bench-", "spare-") for statement in statements[:LAID_OUT_BY]]
    tell(f"writing {nodes} nodes and {history + live} jobs")
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for table in GUARDED:
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        for statement in statements:
            cursor.execute(statement, numbers)
        for statement in lay_out:
            cursor.execute(statement, numbers | {"nodes": spare})
        for table in GUARDED:
            cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")
        cursor.execute("VACUUM ANALYZE")  # as the server does by itself in time
    for project in Project.objects.all():
        factories.grant(project, Resource.CARD_MILLI, 10**9)  # worked out at each commit, never reached


def queue(count: int, mix: Sequence[tuple[int, Row]], priority: int = 0) -> None:
    """Write queued jobs of all projects in turn, as the mix has it."""
    from ledger.clock import database_now
    from ledger.models import Job, Project
    from scheduler.engine.types import Ask

    projects, now = list(Project.objects.order_by("pk")), database_now()
    asks = [dataclasses.asdict(Ask(**ask)) for times, ask in mix for _ in range(times)]
    Job.objects.bulk_create(
        Job(
            project=projects[n % len(projects)],
            by_id=projects[n % len(projects)].owner_id,
            name=f"queued {n}",
            asks=[asks[n * 37 % len(asks)]],
            cpu_milli=2_000,
            host_memory_mib=4_096,
            command=["work"],
            walltime_s=3_600,
            priority=priority,
            submitted_at=now,
            queued_at=now,
        )
        for n in range(count)
    )


def tell(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


# -- the three parts --------------------------------------------------------------------------------------------------


def start() -> float:
    """Seconds until a new process has its compiled code and knows the fleet."""
    from scheduler import snapshot
    from scheduler.engine.batch import warm

    began = time.perf_counter()
    warm()
    snapshot.stays_later(snapshot.fleet_of(snapshot.node_views()), 0.0)
    return round(time.perf_counter() - began, 3)


def rate(jobs: int, nodes: int) -> Row:
    """Ticks that place all that they look at."""
    found = {}
    for name, count, mix in (("mixed", jobs, MIX), ("whole_machines", int(nodes * FREE), WHOLE)):
        queue(count, mix)
        found[name] = tick()
        tell(f"{name}: {found[name]['placed']} placed at {found[name]['placements_per_s']} a second")
    return found


def passes(jobs: int) -> Row:
    """Ticks over a queue that nothing is free for."""
    from ledger.models import Job

    Job.objects.filter(state="queued").update(state="cancelled")
    queue(jobs, TOO_LARGE)
    found: Row = {"queued": jobs, "first": tick()}
    for name, news in (("idle", 0), ("with_news", NEWS)):
        rows = []
        for _ in range(PASSES):
            queue(news, ((1, SHARE),))
            rows.append(tick())
        worst = max(rows, key=lambda row: row["seconds"])
        found[name] = {"median_s": statistics.median(row["seconds"] for row in rows), "worst": worst}
        tell(f"{name}: a pass in {found[name]['median_s']} s, at worst {worst['seconds']}")
    found["whole"] = tick()
    for _ in range(MOST_RESTS):
        if found["whole"]["looked_at"] >= Job.objects.filter(state="queued").count():
            break
        time.sleep(1)
        found["whole"] = tick()
    else:
        raise RuntimeError("no pass looked at all queued jobs")
    tell(f"whole: a pass in {found['whole']['seconds']} s over {found['whole']['looked_at']} jobs")
    return found


def stream(a_second: int, seconds: int) -> Row:
    """Jobs come in through the writer of the pages and the API, from a process as the web's, while ticks follow each
    other."""
    from django.db import connection
    from django.db.models import F

    from ledger.models import Job
    from scheduler import placing

    last = Job.objects.latest("pk").pk
    connection.close()  # each process opens its own
    submitting = multiprocessing.get_context("fork").Process(target=_submit, args=(a_second, seconds))
    submitting.start()
    ticks = []
    while submitting.is_alive():
        began = time.perf_counter()
        placing.place_queued()
        ticks.append(time.perf_counter() - began)
    assert submitting.exitcode == 0
    placing.place_queued()
    came = Job.objects.filter(pk__gt=last)
    waited = came.exclude(placed_at=None).values_list(F("placed_at") - F("submitted_at"), flat=True)
    waits = sorted(wait.total_seconds() for wait in waited)
    return {
        "submitted": came.count(),
        "placed": len(waits),
        "p50_s": round(statistics.median(waits), 3),
        "p99_s": round(waits[min(len(waits) - 1, int(len(waits) * 0.99))], 3),
        "worst_s": round(waits[-1], 3),
        "ticks": len(ticks),
        "median_tick_s": round(statistics.median(ticks), 3),
        "worst_tick_s": round(max(ticks), 3),
    }


def _submit(a_second: int, seconds: int) -> None:
    """One job after the other, late ones at once."""
    from tests import factories

    begin = time.perf_counter()
    for number in range(a_second * seconds):
        time.sleep(max(0.0, begin + number / a_second - time.perf_counter()))
        factories.job(factories.user("researcher"), name=f"stream {number}", asks=[SHARE], simulated=False)


# -- watching one tick ------------------------------------------------------------------------------------------------


def tick() -> Row:
    """One call of placing.place_queued, and where its time went; `decide` goes on in a thread beside the commits."""
    from scheduler import placing

    with Watch() as watch:
        result = placing.place_queued()
    commit_s = watch.steps.get("commit_batch", 0.0)
    told = sum(ms for _, ms in watch.statements.values())
    return {
        **result,
        "seconds": round(watch.seconds, 3),
        "cpu_s": {name: round(seconds, 3) for name, seconds in watch.cpu.items()},
        "placements_per_s": round(result["placed"] / watch.seconds),
        "committed_per_s": round(result["placed"] / commit_s) if commit_s else None,
        "steps_s": {name: round(seconds, 3) for name, seconds in watch.steps.items()},
        "commit_ms": {
            name: [calls, round(ms, 1)]
            for name, (calls, ms) in sorted(watch.statements.items(), key=lambda item: -item[1][1])
        },
        "commit_python_ms": round(commit_s * 1000 - told, 1),
    }


def _cpu() -> dict[str, float]:
    """Seconds of processor so far: of this process, of this thread of it, and of the server process behind its connection
    (a server on this machine; elsewhere 0). The last two wait for each other, so that they add up."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        stat = Path(f"/proc/{cursor.fetchone()[0]}/stat")
    ticks = sum(map(int, stat.read_text().rpartition(")")[2].split()[11:13])) if stat.exists() else 0
    database = ticks / os.sysconf("SC_CLK_TCK")
    return {"python": time.process_time(), "committing": time.thread_time(), "database": database}


class Watch:
    """Seconds of each step of a tick, and calls and milliseconds of each kind of statement of the commits."""

    def __init__(self) -> None:
        self.steps: dict[str, float] = defaultdict(float)
        self.statements: dict[str, tuple[int, float]] = {}
        self.seconds, self._began = 0.0, 0.0
        self.cpu: dict[str, float] = {}
        self._patches = ExitStack()

    def __enter__(self) -> Watch:
        from scheduler import placing, snapshot
        from scheduler.commit import _Work

        owners = [(placing if hasattr(placing, name) else snapshot, name) for name in STEPS]
        for owner, name in (*owners, (_Work, "commit_batch")):
            around = self._statements if name == "commit_batch" else ExitStack
            self._patches.enter_context(patch.object(owner, name, self._timed(name, getattr(owner, name), around)))
        following = self._timed("decide", next, ExitStack)
        self._patches.enter_context(patch("scheduler.commit.next", following, create=True))
        self.cpu = _cpu()
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._began
        self.cpu = {name: seconds - self.cpu[name] for name, seconds in _cpu().items()}
        self._patches.close()

    def _timed(self, name: str, act: Callable[..., Any], around: Callable[[], Any]) -> Callable[..., Any]:
        def run(*args: Any, **values: Any) -> Any:
            began = time.perf_counter()
            try:
                with around():
                    return act(*args, **values)
            finally:
                self.steps[name] += time.perf_counter() - began

        return run

    @contextmanager
    def _statements(self) -> Iterator[None]:
        from django.db import connection

        commit = connection._commit  # type: ignore[attr-defined]  # where deferred foreign keys are checked

        def execute(call: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
            kind = " ".join(filter(None, TABLE.findall(sql)[0])).lower()
            return self._counted(kind, lambda: call(sql, params, many, context))

        flush = patch.object(connection, "_commit", lambda: self._counted("commit", commit))
        with connection.execute_wrapper(execute), flush:
            yield

    def _counted(self, name: str, act: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        try:
            return act()
        finally:
            calls, ms = self.statements.get(name, (0, 0.0))
            self.statements[name] = (calls + 1, ms + 1000 * (time.perf_counter() - began))


if __name__ == "__main__":
    main()
