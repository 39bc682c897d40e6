"""When each zone had its last drill, and which are overdue. Reads only."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

from django.conf import settings
from django.db.models import Max, Min

from ledger.models import NodeZone, Zone
from ledger.vocabulary import NodeState
from scheduler.drill_rows import Drill, DrillState, DrillVerdict


@dataclass(frozen=True, slots=True)
class Due:
    """One zone in one of the two worlds. `last`: when its last drill ended that was not aborted, None = never had one;
    then its days count from its first node."""

    zone: Zone
    simulated: bool
    last: dt.datetime | None
    days: float
    every_days: float

    @property
    def overdue(self) -> bool:
        return self.days > self.every_days


def zones_due(now: dt.datetime) -> list[Due]:
    """Every zone with nodes, the longest without a drill first."""
    members = NodeZone.objects.filter(period__upper_inf=True).exclude(node__state=NodeState.RETIRED)
    since = {
        (zone, simulated): first
        for zone, simulated, first in members.order_by()
        .values_list("zone", "node__simulated")
        .annotate(Min("period__startswith"))
    }
    last = _last()
    zones = Zone.objects.in_bulk({zone for zone, _simulated in since})
    found = [
        Due(
            zones[zone],
            simulated,
            last.get((zone, simulated)),
            (now - (last.get((zone, simulated)) or first)).total_seconds() / 86_400,
            settings.DRILL_EVERY_DAYS,
        )
        for (zone, simulated), first in since.items()
    ]
    return sorted(found, key=lambda due: (due.simulated, -due.days, due.zone.slug))


def _last() -> Mapping[tuple[int, bool], dt.datetime]:
    ended = Drill.objects.filter(state=DrillState.ENDED, zone__isnull=False).exclude(verdict=DrillVerdict.ABORTED)
    rows = ended.order_by().values_list("zone", "simulated").annotate(Max("ended_at"))
    return {(zone, simulated): at for zone, simulated, at in rows}
