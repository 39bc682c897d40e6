"""Make-believe hardware for demos, replays and tests: durations, delays and failures drawn from a seed.

It is labelled as a simulation wherever it is shown. Its world lives in tables of its own (SimulatedMember and so on),
never in the ledger; the clock is the database's. The command `["simulate", "--seconds", "12", "--exit-code", "0"]`
fixes duration and exit status; anything else runs for a duration drawn from (seed, key).
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.db import transaction
from django.db.models import Q

from ledger.clock import database_now
from ledger.models import CardSeat, Node
from ledger.vocabulary import NodeState
from scheduler.drivers.base import (
    CardFacts,
    DriverError,
    EndReason,
    LogChunk,
    MemberSpec,
    NodeFacts,
    Observation,
    Phase,
    ReplyLost,
    StartRefused,
)
from scheduler.drivers.batch import StopOrder
from scheduler.models import SimulatedFault, SimulatedMember, SimulatedTombstone

FOREVER_S = 10 * 365 * 86_400


@dataclass(frozen=True)
class World:
    """How the make-believe hardware behaves. All draws come from `seed` and the member's key."""

    seed: int = 1
    start_delay_s: tuple[float, float] = (0.0, 0.2)
    duration_s: tuple[float, float] = (1.0, 10.0)
    fail_rate: float = 0.0  # exits with 1
    start_fail_rate: float = 0.0  # never starts
    lost_reply_rate: float = 0.0  # start or stop took effect, the answer got lost


class SimulatedDriver:
    name = "simulated"
    simulated = True

    def __init__(self, world: World | None = None) -> None:
        self.world = world or World()
        self._calls = random.Random(self.world.seed)  # noqa: S311  a simulation, not a secret

    def prepare(self, spec: MemberSpec) -> None:
        """Make-believe images need no pulling."""

    def start(self, spec: MemberSpec) -> Observation:
        answer = self.start_many([spec])[spec.key]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def start_many(self, specs: Sequence[MemberSpec]) -> dict[str, Observation | Exception]:
        """One transaction for all; a refused or failed member does not touch the others."""
        with transaction.atomic():
            fences = _lock_tombstones([spec.job_id for spec in specs])
            members = {m.key: m for m in SimulatedMember.objects.filter(key__in=[spec.key for spec in specs])}
            answers: dict[str, Observation | Exception] = {}
            fresh: dict[str, SimulatedMember] = {}
            now = database_now()
            for spec in specs:
                if spec.fence <= fences[spec.job_id]:
                    answers[spec.key] = StartRefused(
                        f"attempt with fence {spec.fence} of job {spec.job_id} was closed already"
                    )
                    continue
                try:
                    member = members.get(spec.key) or fresh.get(spec.key) or self._new(spec, now)
                    if (member.job, member.fence) != (spec.job_id, spec.fence):
                        raise DriverError(f"simulated: the key {spec.key} belongs to another attempt")
                    if spec.key not in members:
                        fresh[spec.key] = member
                    answers[spec.key] = _seen(member, now)
                except DriverError as error:
                    answers[spec.key] = error
            SimulatedMember.objects.bulk_create(fresh.values())
        return {key: self._maybe_lost(answer) for key, answer in answers.items()}

    def _new(self, spec: MemberSpec, now: dt.datetime) -> SimulatedMember:
        draw = random.Random(f"{self.world.seed}:{spec.key}")  # noqa: S311
        if draw.random() < self.world.start_fail_rate:
            raise DriverError("simulated: the node refused to start it")
        seconds, exit_code = _asked(list(spec.command))
        if seconds is None:
            seconds = draw.uniform(*self.world.duration_s)
        if draw.random() < self.world.fail_rate:
            exit_code = exit_code or 1
        runs_at = now + dt.timedelta(seconds=draw.uniform(*self.world.start_delay_s))
        return SimulatedMember(
            key=spec.key,
            job=spec.job_id,
            attempt=spec.attempt_id,
            fence=spec.fence,
            node=spec.node,
            runs_at=runs_at,
            ends_at=runs_at + dt.timedelta(seconds=min(seconds, FOREVER_S)),
            exit_code=exit_code,
        )

    def inspect(self, keys: Iterable[str]) -> dict[str, Observation]:
        wanted = list(keys)
        found = {m.key: m for m in SimulatedMember.objects.filter(key__in=wanted)}
        now = database_now()
        return {
            key: _seen(found[key], now) if key in found else Observation(key=key, phase=Phase.ABSENT) for key in wanted
        }

    def list_members(self) -> list[Observation]:
        now = database_now()
        live = SimulatedMember.objects.filter(
            Q(stopped_at=None) | Q(stopped_at__gt=now), cleaned=False, ends_at__gt=now
        )
        return [_seen(member, now) for member in live]

    def stop(self, *, key: str, job_id: int, fence: int, grace_s: int) -> Observation:
        self._entomb({job_id: fence}, [key])
        seen = self._maybe_lost(self.inspect([key])[key])
        if isinstance(seen, Exception):
            raise seen
        return seen

    def stop_many(self, orders: Sequence[StopOrder]) -> dict[str, bool | Exception]:
        fences: dict[int, int] = {}
        for order in orders:
            fences[order.job_id] = max(order.fence, fences.get(order.job_id, 0))
        self._entomb(fences, [order.key for order in orders], clean=True)
        answers = {order.key: self._maybe_lost(Observation(order.key, Phase.EXITED)) for order in orders}
        return {key: answer if isinstance(answer, Exception) else True for key, answer in answers.items()}

    def _entomb(self, fences: Mapping[int, int], keys: Sequence[str], clean: bool = False) -> None:
        """Leave the tombstones, then end what still runs."""
        with transaction.atomic():
            known = _lock_tombstones(list(fences))
            SimulatedTombstone.objects.bulk_update(
                [SimulatedTombstone(job=job, fence=max(fence, known[job])) for job, fence in fences.items()], ["fence"]
            )
            now = database_now()
            SimulatedMember.objects.filter(key__in=keys, stopped_at=None, ends_at__gt=now).update(
                stopped_at=now, end_reason=EndReason.STOPPED
            )
            if clean:
                SimulatedMember.objects.filter(key__in=keys).update(cleaned=True)

    def logs(self, key: str, cursor: int = 0, limit: int = 65_536) -> LogChunk:
        member = SimulatedMember.objects.filter(key=key).first()
        if member is None:
            return LogChunk(b"", cursor, True)
        seen = _seen(member, database_now())
        text = f"[simulated] {member.key} starts on {member.node} at {member.runs_at.isoformat()}\n"
        if seen.phase == Phase.EXITED:
            text += f"[simulated] {seen.end_reason} with exit code {seen.exit_code}\n"
        data = text.encode()[cursor : cursor + limit]
        return LogChunk(
            data, cursor + len(data), seen.phase == Phase.EXITED and cursor + len(data) >= len(text.encode())
        )

    def clean(self, *, key: str, node: str, whole: bool) -> bool:
        now = database_now()
        SimulatedMember.objects.filter(Q(stopped_at__lte=now) | Q(ends_at__lte=now), key=key).update(cleaned=True)
        return not SimulatedMember.objects.filter(key=key, cleaned=False).exists()

    def inventory(self) -> list[NodeFacts]:
        faults = set(SimulatedFault.objects.values_list("hostname", "card_uuid"))
        seats: dict[int, list[CardFacts]] = {}
        for seat in CardSeat.objects.filter(period__upper_inf=True, node__simulated=True).select_related(
            "card", "node"
        ):
            if (seat.node.hostname, seat.card.uuid) not in faults:
                seats.setdefault(seat.node_id, []).append(_card(seat))
        return [
            NodeFacts(
                hostname=node.hostname,
                cpu_milli=node.cpu_milli,
                host_memory_mib=node.host_memory_mib,
                cards=tuple(seats.get(node.pk, ())),
                online=(node.hostname, "") not in faults,
            )
            for node in Node.objects.filter(simulated=True).exclude(state=NodeState.RETIRED)
        ]

    def _maybe_lost(self, answer: Observation | Exception) -> Observation | Exception:
        if self.world.lost_reply_rate and self._calls.random() < self.world.lost_reply_rate:
            return ReplyLost("simulated: the answer got lost")
        return answer


def _lock_tombstones(jobs: Sequence[int]) -> dict[int, int]:
    """job → highest closed fence (0 = none), under lock and in order."""
    wanted = sorted(set(jobs))
    SimulatedTombstone.objects.bulk_create(
        [SimulatedTombstone(job=job, fence=0) for job in wanted], ignore_conflicts=True
    )
    rows = SimulatedTombstone.objects.filter(job__in=wanted).order_by("job").select_for_update()
    return {row.job: row.fence for row in rows}


def _card(seat: CardSeat) -> CardFacts:
    return CardFacts(
        uuid=seat.card.uuid,
        slot=seat.slot,
        model=seat.card.model,
        memory_mib=seat.card.memory_mib,
        virtual=seat.card.virtual,
        memory_assumed=seat.card.memory_assumed,
    )


def _asked(command: list[str]) -> tuple[float | None, int]:
    """The duration in seconds and the exit code that a `simulate` command asks for."""
    if not command or command[0] != "simulate":
        return None, 0
    options = dict(zip(command[1::2], command[2::2], strict=False))
    try:
        seconds = float(options["--seconds"]) if "--seconds" in options else None
        code = int(options.get("--exit-code", "0"))
    except ValueError:
        raise DriverError("simulate takes --seconds NUMBER and --exit-code INTEGER") from None
    if seconds is not None and not 0 <= seconds <= FOREVER_S:
        raise DriverError("simulate: --seconds must lie between 0 and ten years")
    if not 0 <= code <= 255:
        raise DriverError("simulate: --exit-code must lie between 0 and 255")
    return seconds, code


def _seen(member: SimulatedMember, now: dt.datetime) -> Observation:
    stopped = member.stopped_at is not None and member.stopped_at <= now
    ended = stopped or member.ends_at <= now
    phase = Phase.EXITED if ended else Phase.RUNNING if member.runs_at <= now else Phase.STARTING
    return Observation(
        key=member.key,
        phase=phase,
        job_id=member.job,
        fence=member.fence,
        exit_code=(143 if stopped else member.exit_code) if ended else None,
        end_reason=(EndReason.STOPPED if stopped else EndReason.EXIT) if ended else None,
        message="simulated",
        started_at=member.runs_at if member.runs_at <= now else None,
        ended_at=(member.stopped_at if stopped else member.ends_at) if ended else None,
    )
