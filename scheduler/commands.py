"""The command runner: the only caller of drivers' start and stop. Claim → act → record, each safe to repeat.

A claim is a lease in the row (due_at moves ahead), so a killed worker's command comes up again by itself.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.db.models import F

from ledger.clock import database_now
from ledger.models import Allocation, CardShare
from ledger.vocabulary import CommandState, CommandVerb, Form, Outcome
from scheduler.drivers.base import Driver, DriverError, GrantedCard, MemberSpec, Phase
from scheduler.drivers.batch import StopOrder, start_many, stop_many
from scheduler.drivers.registry import driver
from scheduler.ending import confirm_closed, confirm_running, end_attempt, note_unknown
from scheduler.models import Command

log = logging.getLogger(__name__)
LEASE_S = 10
BATCH = 50
FIRST_BACK_OFF_S = 0.5
LONGEST_BACK_OFF_S = 20.0
STOP_POLL_S = 0.5


def run_due(limit: int = 500) -> dict[str, int]:
    """Run every command that is due. Returns counts for the task's record."""
    done = {"start": 0, "stop": 0, "failed": 0}
    while sum(done.values()) < limit:
        claimed = _claim(BATCH)
        if not claimed:
            break
        groups: dict[tuple[str, str], list[Command]] = defaultdict(list)
        for command in claimed:
            groups[command.driver, command.verb].append(command)
        for (name, verb), commands in groups.items():
            act = _start if verb == CommandVerb.START else _stop
            good = act(driver(name), commands)
            done[verb] += good
            done["failed"] += len(commands) - good
    return done


def _claim(limit: int) -> list[Command]:
    with transaction.atomic(durable=True):
        now = database_now()
        rows = list(
            Command.objects.filter(state=CommandState.PENDING, due_at__lte=now)
            .order_by("due_at", "pk")
            .select_for_update(skip_locked=True, of=("self",))
            .select_related("allocation__attempt__job", "allocation__node")[:limit]
        )
        for row in rows:
            row.tries += 1
        Command.objects.filter(pk__in=[row.pk for row in rows]).update(due_at=now + dt.timedelta(seconds=LEASE_S))
    return rows


def _start(target: Driver, commands: Sequence[Command]) -> int:
    """Start these members. Returns how many the driver took."""
    specs = member_specs([command.allocation_id for command in commands])
    answers = start_many(target, [specs[command.allocation_id] for command in commands])
    taken, running = [], []
    for command in commands:
        answer = answers[command.allocation.key]
        if isinstance(answer, Exception):
            _start_failed(command, answer)
            continue
        taken.append(command)
        if answer.phase == Phase.RUNNING:
            running.append(command.allocation_id)
    _finish(taken)
    if running:
        confirm_running(running)
    return len(taken)


def _start_failed(command: Command, error: Exception) -> None:
    if not isinstance(error, DriverError):
        log.warning("start of allocation %s: no answer (%s)", command.allocation_id, error)
        note_unknown(allocation_id=command.allocation_id, message=f"no answer from {command.driver}: {error}")
        _later(command, _back_off(command), str(error))
        return
    # StartRefused too: it was closed before (then this changes nothing) or can't ever start. The refusal is written
    # last: a runner that dies between the two finds the command again.
    end_attempt(attempt_id=command.attempt_id, outcome=Outcome.START_FAILED, message=error.message)
    Command.objects.filter(pk=command.pk, state=CommandState.PENDING).update(
        state=CommandState.REFUSED, done_at=database_now(), tries=command.tries, last_error=error.message[:500]
    )


def _back_off(command: Command) -> float:
    return min(LONGEST_BACK_OFF_S, FIRST_BACK_OFF_S * 2.0 ** min(command.tries, 10))


def _stop(target: Driver, commands: Sequence[Command]) -> int:
    """Stop these members; those that are gone and clean are closed. Returns how many the driver answered for."""
    orders = [
        StopOrder(
            key=c.allocation.key,
            job_id=c.allocation.attempt.job_id,
            fence=c.allocation.attempt.fence,
            grace_s=c.grace_s,
            node=c.allocation.node.hostname,
            whole=c.allocation.form == Form.WHOLE,
        )
        for c in commands
    ]
    answers = stop_many(target, orders)
    gone, answered = [], 0
    for command in commands:
        answer = answers[command.allocation.key]
        if isinstance(answer, Exception):
            log.warning("stop of allocation %s: no answer (%s)", command.allocation_id, answer)
            _later(command, _back_off(command), str(answer))
            continue
        answered += 1
        if answer:
            gone.append(command.allocation_id)
        else:
            _later(command, STOP_POLL_S, "")
    if gone:
        confirm_closed(gone)
    return answered


def _finish(commands: Sequence[Command]) -> None:
    Command.objects.filter(pk__in=[c.pk for c in commands], state=CommandState.PENDING).update(
        state=CommandState.DONE, done_at=database_now(), tries=F("tries") + 1, last_error=""
    )


def _later(command: Command, seconds: float, error: str) -> None:
    Command.objects.filter(pk=command.pk, state=CommandState.PENDING).update(
        due_at=database_now() + dt.timedelta(seconds=seconds), tries=command.tries, last_error=error[:500]
    )


def member_specs(allocation_ids: list[int]) -> Mapping[int, MemberSpec]:
    """What the drivers must know of these allocations, by allocation id."""
    wanted = Allocation.objects.filter(pk__in=allocation_ids).select_related("attempt__job", "node")
    cards: dict[int, list[GrantedCard]] = {}
    shares = (
        CardShare.objects.filter(allocation__in=allocation_ids).select_related("card", "seat").order_by("seat__slot")
    )
    for share in shares:
        cards.setdefault(share.allocation_id, []).append(
            GrantedCard(
                uuid=share.card.uuid,
                slot=share.seat.slot,
                memory_mib=share.memory_mib,
                compute_milli=sum(hi - lo for lo, hi in share.compute),
                virtual=share.card.virtual,
            )
        )
    gangs: dict[int, list[str]] = {}
    members = Allocation.objects.filter(attempt__in=[a.attempt_id for a in wanted]).order_by("rank")
    for attempt_id, hostname in members.values_list("attempt_id", "node__hostname"):
        gangs.setdefault(attempt_id, []).append(hostname)
    return {a.pk: _spec(a, tuple(cards.get(a.pk, ())), tuple(gangs[a.attempt_id])) for a in wanted}


def _spec(allocation: Allocation, cards: tuple[GrantedCard, ...], gang: tuple[str, ...]) -> MemberSpec:
    job: Any = allocation.attempt.job
    return MemberSpec(
        key=allocation.key,
        job_id=job.pk,
        attempt_id=allocation.attempt_id,
        fence=allocation.attempt.fence,
        node=allocation.node.hostname,
        form=allocation.form,
        command=tuple(job.command),
        environment=dict(job.environment),
        image=job.image,
        cards=cards,
        cpu_milli=allocation.cpu_milli,
        host_memory_mib=allocation.host_memory_mib,
        walltime_s=job.walltime_s,
        rank=allocation.rank,
        members=len(gang),
        member_nodes=gang,
        data_paths=tuple(job.data_paths),
        checkpoint_signal=job.checkpoint,
    )
