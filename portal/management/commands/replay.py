"""Submit jobs of a real trace to the simulated fleet, in real time or faster, and report how it went."""

from __future__ import annotations

import csv
import math
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ledger.models import Job, Membership, Project, User
from ledger.vocabulary import LIVE_JOB_STATES, ProjectRole
from portal.api.serializers import JobInput
from portal.outlook_words import refusal_words
from portal.replays import TRACES, job_of_row
from scheduler.queue import NeverRuns, submit

WAIT_LIMIT_S = 600
MOST_JOBS = 1_000_000


class Command(BaseCommand):
    help = "Replay TRACE (a pod list of openb 2023, or the name 'openb-default') on the simulated fleet."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("trace")
        parser.add_argument("--jobs", type=int, default=1000)
        parser.add_argument("--rate", type=float, default=20.0, help="submissions a second")
        parser.add_argument("--speed", type=float, default=100_000.0, help="how much faster than in the trace jobs run")
        parser.add_argument("--project", default="vision")

    def handle(self, *args: Any, **options: Any) -> None:
        if not (
            1 <= options["jobs"] <= MOST_JOBS and 0 < options["rate"] < math.inf and 0 < options["speed"] < math.inf
        ):
            raise CommandError(f"--jobs must lie between 1 and {MOST_JOBS}, --rate and --speed must be above 0")
        path = TRACES.get(options["trace"], Path(options["trace"]))
        try:
            rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise CommandError(f"{path}: {error}; bundled are {', '.join(TRACES)}") from None
        actor, project = self._actor(options["project"])
        try:
            specs = [job_of_row(rows[i % len(rows)], project.slug, options["speed"], i) for i in range(options["jobs"])]
        except (KeyError, ValueError, TypeError, ZeroDivisionError, OverflowError) as error:
            raise CommandError(f"{path}: this is no openb pod list: {error!r}") from None
        ids = self._submit(specs, actor, options["rate"])
        if not ids:
            self.stdout.write("no job was submitted")
            return
        self._wait(ids)
        self._report(ids)

    def _actor(self, slug: str) -> tuple[User, Project]:
        project = Project.objects.filter(slug=slug).first()
        if project is None:
            raise CommandError(f"there is no project {slug!r}")
        here = Membership.objects.filter(project=project, user__is_active=True).exclude(role=ProjectRole.VIEWER)
        member = here.select_related("user").first()
        if member is None:
            raise CommandError(f"project {slug!r} has no member who submits")
        return member.user, project

    def _submit(self, specs: list[dict[str, Any]], actor: User, rate: float) -> list[int]:
        ids: list[int] = []
        refused: list[str] = []
        started = time.monotonic()
        for index, spec in enumerate(specs):
            pause = started + index / rate - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            data = JobInput(data=spec, context={"user": actor})
            if not data.is_valid():
                raise CommandError(f"job {index}: {data.errors}")
            try:
                ids.append(submit(data=data.validated_data, actor=actor, via="replay").pk)
            except NeverRuns as never:
                refused.append(f"job {index}: {refusal_words(never)}")
            if (index + 1) % 100 == 0:
                took = time.monotonic() - started
                self.stdout.write(f"submitted {index + 1} of {len(specs)} after {took:.1f} s; {self._states(ids)}")
        if refused:
            self.stdout.write(f"refused {len(refused)}, because no state of this fleet could run them; {refused[0]}")
        return ids

    def _wait(self, ids: list[int]) -> None:
        until = time.monotonic() + WAIT_LIMIT_S
        while time.monotonic() < until:
            live = Job.objects.filter(pk__in=ids, state__in=LIVE_JOB_STATES).count()
            if not live:
                return
            self.stdout.write(f"{live} jobs are not over yet; {self._states(ids)}")
            time.sleep(2)
        raise CommandError(f"{live} jobs did not end within {WAIT_LIMIT_S} s")

    def _states(self, ids: list[int]) -> str:
        counts = Counter(Job.objects.filter(pk__in=ids).values_list("state", flat=True))
        return ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))

    def _report(self, ids: list[int]) -> None:
        waits = sorted(
            (placed - submitted).total_seconds()
            for submitted, placed in Job.objects.filter(pk__in=ids).values_list("submitted_at", "placed_at")
            if placed is not None
        )
        self.stdout.write(f"all {len(ids)} jobs have ended: {self._states(ids)}")
        if waits:
            ninth = waits[int(len(waits) * 0.9)]
            self.stdout.write(
                f"submit to placed: median {statistics.median(waits):.3f} s, 90 % {ninth:.3f} s, "
                f"longest {waits[-1]:.3f} s"
            )
