"""Which driver object answers to which name. A further driver is one line here and one module beside this one."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import cache
from typing import Any

from django.conf import settings

from ledger.vocabulary import DriverName
from scheduler.drivers.base import Driver
from scheduler.drivers.local import LocalDriver
from scheduler.drivers.simulated import SimulatedDriver, World


def _local() -> Driver:
    file = settings.DATA_DIR / "agent.hostname"
    hostname = file.read_text().strip() if file.exists() else socket.gethostname()
    return LocalDriver(data_dir=settings.DATA_DIR, hostname=hostname)


def _simulated() -> Driver:
    chosen: dict[str, Any] = settings.SIMULATED_WORLD
    return SimulatedDriver(World(**chosen))


FACTORIES: dict[str, Callable[[], Driver]] = {
    DriverName.LOCAL: _local,
    DriverName.SIMULATED: _simulated,
}


@cache
def driver(name: str) -> Driver:
    return FACTORIES[name]()


def names() -> list[str]:
    return sorted(FACTORIES)
