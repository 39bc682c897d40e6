"""How long quota, borrowing and fair share take over a stream of small work: Kueue's baseline generator, in real time.

    python -m tests.bench.quota [--share 1.0] [--min-run 600]

5 cohorts of 6 projects. Each project is guaranteed 20 cards and may borrow up to the 120 of its cohort; it submits 350
jobs of 1 card and 0.2 s (one every 0.1 s, priority 50), 100 of 5 cards and 0.5 s (every 0.5 s, priority 100) and 50 of 20
cards and 1 s (every 1.2 s, priority 200): 15,000 in all, whose work is 66.0 s of the 600 cards. Kueue publishes 351 s.

A cohort is a pool of its own by node label, two machines of 60 make-believe cards; no gang or topology is in it. Three processes, as in the product: one submits (rows and their audit rows, a
statement for what is due), one runs a scheduling round whenever the doorbell rings (scheduler.placing), one ends each job when its
time is over by the clock (scheduler.ending: what began to close, and then the confirmation that it is gone). Every
placement and every end is committed to a PostgreSQL with the settings of `manage.py up`. No driver is asked, so a job goes
from starting to its end without a row that says it runs.

Prints one JSON object; progress goes to stderr. Times are those of the rows in the database. `usage` is the work over all
cards and the time from the first submission to the last end.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.services import TestServices

COHORTS: Final = 5
QUEUES: Final = 6  # of a cohort
GUARANTEED: Final = 20  # cards of a queue
MACHINES: Final = 2  # of a cohort
CARDS: Final = QUEUES * GUARANTEED // MACHINES  # of a machine
MIB: Final = 1_000
PAUSE_S: Final = 0.002  # between looks at the clock
LOOK_S: Final = 0.1  # between looks for what was placed: nothing is over sooner
PART: Final = 200  # end in one transaction, as scheduler.observing has it
SWEEP_S: Final = 2.0  # so often the queue is looked at though nobody rang
FIRST: Final = 0.04  # of the jobs come once before what is measured
KUEUE_S: Final = 351.0


class Class(NamedTuple):
    name: str
    count: int  # of a queue
    every_s: float
    runs_s: float
    cards: int
    priority: int


CLASSES: Final = (
    Class("small", 350, 0.1, 0.2, 1, 50),
    Class("medium", 100, 0.5, 0.5, 5, 100),
    Class("large", 50, 1.2, 1.0, 20, 200),
)


class Arrival(NamedTuple):
    at: float  # seconds from the beginning
    cohort: int
    queue: int
    kind: Class


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="of each class so many jobs")
    parser.add_argument("--min-run", type=int, default=600, help="seconds before work may be stopped for others")
    asked = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
    os.environ["PREEMPT_MIN_RUN_S"] = str(asked.min_run)
    services = TestServices()
    try:
        services.reserve()
        if services.cluster is not None:
            services.cluster = dataclasses.replace(services.cluster, settings={})  # as safe as the product is
        services.start()
        print(json.dumps(measure(asked.share), indent=1))
    finally:
        services.stop()


def measure(share: float) -> dict[str, Any]:
    import django

    django.setup()
    from django.db import connection

    connection.creation.create_test_db(verbosity=0, autoclobber=True)
    lay_out()
    tell("a few first, so that the server knows its tables")
    play(arrivals(FIRST))
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")  # as the server does by itself in time
    found = play(arrivals(share))
    connection.close()
    return found


def arrivals(share: float) -> list[Arrival]:
    """In the order of their time."""
    return sorted(
        Arrival(number * kind.every_s, cohort, queue, kind)
        for kind in CLASSES
        for number in range(round(kind.count * share))
        for cohort in range(COHORTS)
        for queue in range(QUEUES)
    )


def lay_out() -> None:
    from ledger.models import Project
    from ledger.vocabulary import Form, Resource
    from tests import factories

    pool = factories.zone("pool", [Form.CONTAINER])
    for cohort in range(COHORTS):
        for machine in range(MACHINES):
            values = {"cpu_milli": 10**6, "host_memory_mib": 10**6, "labels": [label(cohort)], "in_zone": pool}
            factories.node(f"cohort-{cohort}-{machine}", CARDS, MIB, **values)
        for queue in range(QUEUES):
            factories.project(slug(cohort, queue))
            grant = factories.grant(Project.objects.latest("pk"), Resource.CARD_MILLI, 1000 * QUEUES * GUARANTEED)
            grant.guaranteed = 1000 * GUARANTEED
            grant.save(update_fields=["guaranteed"])


def label(cohort: int) -> str:
    return f"cohort-{cohort}"


def slug(cohort: int, queue: int) -> str:
    return f"queue-{cohort}-{queue}"


# -- the three processes ----------------------------------------------------------------------------------------------


def play(coming: list[Arrival]) -> dict[str, Any]:
    """All of it comes, is placed and ends."""
    from django.db import connection

    from ledger.models import Job
    from scheduler import placing, snapshot
    from scheduler.engine.batch import warm

    warm()
    snapshot.fleet_of(snapshot.node_views())
    last = Job.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    began, ready, database = time.perf_counter(), os.times(), database_cpu()
    context = multiprocessing.get_context("fork")
    connection.close()  # each process opens its own
    done = context.Event()
    others = [
        context.Process(target=submit_all, args=(coming,)),
        context.Process(target=end_all, args=(len(coming), done)),
    ]
    for process in others:
        process.start()
    rounds, longest, placed, told = 0, 0.0, 0, 0.0
    while not done.is_set() and all(process.exitcode in (None, 0) for process in others):
        before = time.perf_counter()
        placed += placing.place_queued()["placed"]
        longest = max(longest, time.perf_counter() - before)
        rounds += 1
        if time.perf_counter() - told > 5:
            told = time.perf_counter()
            tell(f"{told - began:.0f} s: {placed} of {len(coming)} placed in {rounds} rounds")
        wait_for_the_bell(SWEEP_S)
    for process in others:
        process.join(10)
    assert [process.exitcode for process in others] == [0, 0]
    assert Job.objects.exclude(state="succeeded").count() == 0
    cpu = os.times()
    return report(coming, last) | {
        "rounds": rounds,
        "longest_round_s": round(longest, 3),
        "seconds_by_this_clock": round(time.perf_counter() - began, 2),
        "python_cpu_s": {
            "placing": round(cpu.user + cpu.system - ready.user - ready.system, 1),
            "submitting_and_ending": round(cpu.children_user + cpu.children_system, 1),
        },
        "database_cpu_s": round(database_cpu() - database, 1),
        "load": [round(one, 1) for one in os.getloadavg()],
    }


def wait_for_the_bell(most_s: float) -> None:
    """Until something was submitted or ended, or a round rang for the next, as a worker waits for its message."""
    from scheduler import wake

    until = time.perf_counter() + most_s
    while time.perf_counter() < until and not wake.is_rung("scheduler.tick"):
        time.sleep(0.001)
    wake.answered("scheduler.tick")


def database_cpu() -> float:
    """Seconds of processor of the whole server, those of processes that are over included."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        server = _stat(cursor.fetchone()[0])[1]
    found = [_stat(int(folder.name)) for folder in Path("/proc").iterdir() if folder.name.isdecimal()]
    ticks = sum(sum(one[11:13]) for one in found if one and one[1] == server) + sum(_stat(server)[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[int]:
    """The numbers after the state of a process; nothing where it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return []
    return [0, *map(int, text.rpartition(")")[2].split()[1:])]


def submit_all(coming: list[Arrival]) -> None:
    """Each when its time comes; what is late at once."""
    from ledger.models import Project

    projects = {project.slug: project for project in Project.objects.all()}
    begin, at = time.perf_counter(), 0
    while at < len(coming):
        due = at
        now = time.perf_counter() - begin
        while due < len(coming) and coming[due].at <= now:
            due += 1
        if due > at:
            submit(coming[at:due], projects)
        at = due
        if at < len(coming):
            time.sleep(max(PAUSE_S, coming[at].at - (time.perf_counter() - begin)))


def submit(due: list[Arrival], projects: dict[str, Any]) -> None:
    from django.db import transaction

    from ledger import audit
    from ledger.clock import database_now
    from ledger.models import Job
    from ledger.vocabulary import AskForm
    from scheduler.engine.types import Ask
    from scheduler.wake import wake_after_commit

    with transaction.atomic(durable=True):
        now = database_now()
        jobs = Job.objects.bulk_create(
            Job(
                project=(project := projects[slug(one.cohort, one.queue)]),
                by_id=project.owner_id,
                name=one.kind.name,
                kind="training",
                asks=[dataclasses.asdict(Ask(AskForm.CONTAINER, cards_per_node=one.kind.cards))],
                labels=[label(one.cohort)],
                cpu_milli=0,
                host_memory_mib=0,
                command=["simulate", "--seconds", str(one.kind.runs_s)],
                walltime_s=60,
                priority=one.kind.priority,
                simulated=True,
                submitted_at=now,
                queued_at=now,
            )
            for one in due
        )
        audit.record_alike(
            [{"target_id": job.pk, "project_id": job.project_id, "actor_id": job.by_id} for job in jobs],
            target=Job,
            verb="job.submitted",
            after={"state": "queued"},
            via="bench",
            at=now,
        )
        wake_after_commit("scheduler.tick")


NEW: Final = """
SELECT t.id, a.id, extract(epoch FROM j.placed_at)::float8 + (j.command->>2)::float8 - extract(epoch FROM clock_timestamp())
FROM ledger_attempt t JOIN ledger_allocation a ON a.attempt_id = t.id JOIN ledger_job j ON j.id = t.job_id
WHERE t.state = 'starting' AND NOT t.id = ANY (%s)
"""


def end_all(count: int, done: Any) -> None:
    """What was placed runs its time from then on. Level by level: what is there and not known yet is looked for."""
    from django.db import connection

    from ledger.book import Ending
    from ledger.vocabulary import Outcome
    from scheduler.ending import confirm_closed, end_attempts

    running: dict[int, tuple[int, float]] = {}  # allocation, and when its time is over by this clock
    ended, looked = 0, 0.0
    while ended < count:
        now = time.perf_counter()
        if now - looked > LOOK_S:
            looked = now
            with connection.cursor() as cursor:
                cursor.execute(NEW, [list(running)])
                now = time.perf_counter()
                running |= {attempt: (allocation, now + left) for attempt, allocation, left in cursor.fetchall()}
        due = [attempt for attempt, (_, ends) in running.items() if ends <= now]
        for part in (due[at : at + PART] for at in range(0, len(due), PART)):
            end_attempts([Ending(attempt, Outcome.SUCCEEDED, 0) for attempt in part])
            ended += len(confirm_closed([running.pop(attempt)[0] for attempt in part]))
        if not due:
            time.sleep(PAUSE_S)
    done.set()


# -- what came of it --------------------------------------------------------------------------------------------------

WAITED: Final = """
SELECT name, count(*), avg(extract(epoch FROM placed_at - submitted_at))::float8,
    max(extract(epoch FROM placed_at - submitted_at))::float8 FROM ledger_job WHERE id > %s GROUP BY name
"""
TOTAL: Final = """
SELECT extract(epoch FROM max(ended.at) - min(j.submitted_at))::float8, count(*)
FROM ledger_job j, (SELECT max(upper(period)) AS at FROM ledger_allocation) ended WHERE j.id > %s
"""


def report(coming: list[Arrival], last: int) -> dict[str, Any]:
    from django.db import connection

    from ledger.models import Allocation
    from scheduler.models import PreemptionVictim

    with connection.cursor() as cursor:
        cursor.execute(TOTAL, [last])
        total, jobs = cursor.fetchone()
        cursor.execute(WAITED, [last])
        waited = {name: (mean, most) for name, _, mean, most in cursor.fetchall()}
    work = sum(one.kind.cards * one.kind.runs_s for one in coming)
    cards = COHORTS * MACHINES * CARDS
    return {
        "jobs": jobs,
        "seconds": round(total, 2),
        "floor_s": round(work / cards, 2),
        "kueue_s": KUEUE_S,
        "admission_s": {
            name: {"mean": round(mean, 2), "worst": round(most, 2)} for name, (mean, most) in waited.items()
        },
        "usage_pct": round(100 * work / cards / total, 1),
        "committed": Allocation.objects.filter(state="closed", attempt__job__gt=last).count(),
        "stopped_for_others": PreemptionVictim.objects.count(),
    }


def tell(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
