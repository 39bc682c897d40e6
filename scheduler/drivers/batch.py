"""Several members in one call: a driver that can do it in one go says so with start_many and stop_many, for any other
the single calls are repeated. An exception stands in the place of its member's answer."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from scheduler.drivers.base import Driver, MemberSpec, Observation, Phase

log = logging.getLogger(__name__)
Started = Mapping[str, Observation | Exception]
Stopped = Mapping[str, bool | Exception]  # True: gone and clean
GONE = (Phase.EXITED, Phase.ABSENT)


@dataclass(frozen=True, slots=True)
class StopOrder:
    key: str
    job_id: int
    fence: int
    grace_s: int
    node: str
    whole: bool


@runtime_checkable
class BatchDriver(Protocol):
    name: str

    def start_many(self, specs: Sequence[MemberSpec]) -> Started: ...

    def stop_many(self, orders: Sequence[StopOrder]) -> Stopped: ...


def start_many(driver: Driver, specs: Sequence[MemberSpec]) -> Started:
    if isinstance(driver, BatchDriver):
        try:
            return driver.start_many(specs)
        except Exception:  # one member may be at fault; a repeated start is harmless
            log.exception("driver %s fell over a batch of starts; they are made one by one", driver.name)
    answers: dict[str, Observation | Exception] = {}
    for spec in specs:
        try:
            driver.prepare(spec)
            answers[spec.key] = driver.start(spec)
        except Exception as error:  # also a fault of the driver: it must not keep the others waiting
            answers[spec.key] = error
    return answers


def stop_many(driver: Driver, orders: Sequence[StopOrder]) -> Stopped:
    if isinstance(driver, BatchDriver):
        try:
            return driver.stop_many(orders)
        except Exception:
            log.exception("driver %s fell over a batch of stops; they are made one by one", driver.name)
    answers: dict[str, bool | Exception] = {}
    for order in orders:
        try:
            seen = driver.stop(key=order.key, job_id=order.job_id, fence=order.fence, grace_s=order.grace_s)
            gone = seen.phase in GONE and driver.clean(key=order.key, node=order.node, whole=order.whole)
            answers[order.key] = gone
        except Exception as error:  # also a fault of the driver: it must not keep the others waiting
            answers[order.key] = error
    return answers
