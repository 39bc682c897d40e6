"""The command runner: the only caller of drivers' start and stop. Claim → act → record, each safe to repeat.

A claim is a lease in the row (due_at moves ahead), so a killed worker's command comes up again by itself.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Mapping
from typing import Any

from django.db import transaction

from ledger.clock import database_now
from ledger.models import Allocation, CardShare
from ledger.vocabulary import CommandState, CommandVerb, Form, Outcome
from scheduler.drivers.base import (
    Driver,
    DriverError,
    GrantedCard,
    MemberSpec,
    Phase,
    ReplyLost,
    StartRefused,
)
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
    while done["start"] + done["stop"] + done["failed"] < limit:
        claimed = _claim(BATCH)
        if not claimed:
            break
        specs = member_specs([c.allocation_id for c in claimed if c.verb == CommandVerb.START])
        for command in claimed:
            ok = _start(command, specs[command.allocation_id]) if command.verb == CommandVerb.START else _stop(command)
            done[command.verb if ok else "failed"] += 1
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


def _start(command: Command, spec: MemberSpec) -> bool:
    target = driver(command.driver)
    try:
        target.prepare(spec)
        seen = target.start(spec)
    except StartRefused as error:
        _finish(command, CommandState.REFUSED, error.message)
        return False
    except DriverError as error:
        _finish(command, CommandState.REFUSED, error.message)
        end_attempt(attempt_id=command.attempt_id, outcome=Outcome.START_FAILED, message=error.message)
        return False
    except (ReplyLost, OSError) as error:
        return _unsure(command, error)
    _finish(command, CommandState.DONE, "")
    if seen.phase == Phase.RUNNING:
        confirm_running(allocation_id=command.allocation_id)
    return True


def _unsure(command: Command, error: Exception) -> bool:
    """No sure answer: the attempt is unknown, and the same call is made again later (it is idempotent by key)."""
    log.warning("%s of allocation %s: no answer (%s)", command.verb, command.allocation_id, error)
    if command.verb == CommandVerb.START:
        note_unknown(allocation_id=command.allocation_id, message=f"no answer from {command.driver}: {error}")
    _later(command, min(LONGEST_BACK_OFF_S, FIRST_BACK_OFF_S * 2 ** min(command.tries, 10)), str(error))
    return False


def _stop(command: Command) -> bool:
    target = driver(command.driver)
    allocation = command.allocation
    try:
        seen = target.stop(
            key=allocation.key,
            job_id=allocation.attempt.job_id,
            fence=allocation.attempt.fence,
            grace_s=command.grace_s,
        )
        gone = seen.phase in (Phase.EXITED, Phase.ABSENT) and _cleaned(target, allocation)
    except (DriverError, ReplyLost, OSError) as error:
        return _unsure(command, error)
    if not gone:
        _later(command, STOP_POLL_S, "")
        return True
    confirm_closed(allocation_id=allocation.pk, command_id=command.pk)
    return True


def _cleaned(target: Driver, allocation: Allocation) -> bool:
    return target.clean(key=allocation.key, node=allocation.node.hostname, whole=allocation.form == Form.WHOLE)


def _finish(command: Command, state: CommandState, error: str) -> None:
    Command.objects.filter(pk=command.pk, state=CommandState.PENDING).update(
        state=state, done_at=database_now(), tries=command.tries, last_error=error[:500]
    )


def _later(command: Command, seconds: float, error: str) -> None:
    Command.objects.filter(pk=command.pk, state=CommandState.PENDING).update(
        due_at=database_now() + dt.timedelta(seconds=seconds), tries=command.tries, last_error=error[:500]
    )


def member_specs(allocation_ids: list[int]) -> Mapping[int, MemberSpec]:
    """What the drivers must know of these allocations, by allocation id."""
    wanted = Allocation.objects.filter(pk__in=allocation_ids).select_related("attempt__job", "node")
    cards: dict[int, list[GrantedCard]] = {}
    shares = CardShare.objects.filter(allocation__in=allocation_ids).select_related("card", "seat").order_by("seat__slot")
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

