"""When each zone and each site had its last drill, and which are overdue. Reads only."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from django.conf import settings
from django.db.models import Max, Min

from ledger.models import NodeZone, Zone
from ledger.vocabulary import NodeState
from scheduler.drill_rows import Drill, DrillState, DrillVerdict

ZONE, SITE = "zone", "site"
FIELDS: Final = {ZONE: "zone", SITE: "node__site"}  # of NodeZone
DAY_S: Final = 86_400


@dataclass(frozen=True, slots=True)
class Due:
    """One zone or site in one of the two worlds. `last`: when its last drill ended that was not aborted, None = never
    had one; then its days count from its first node."""

    kind: str
    name: str  # slug of a zone
    title: str
    zone_id: int | None
    simulated: bool
    last: dt.datetime | None
    days: float
    every_days: float

    @property
    def overdue(self) -> bool:
        return self.days > self.every_days


def places_due(now: dt.datetime) -> list[Due]:
    """Every zone and site with nodes; real hardware first, then the longest without a drill."""
    found = [*_due(ZONE, now), *_due(SITE, now)]
    return sorted(found, key=lambda due: (due.kind != ZONE, due.simulated, -due.days, due.name))


def _due(kind: str, now: dt.datetime) -> Iterator[Due]:
    members = NodeZone.objects.filter(period__upper_inf=True).exclude(node__state=NodeState.RETIRED).order_by()
    rows = members.values_list(FIELDS[kind], "node__simulated").annotate(Min("period__startswith"))
    since = {(place, simulated): first for place, simulated, first in rows if place}
    last = _last(kind)
    zones = Zone.objects.in_bulk({place for place, _simulated in since}) if kind == ZONE else {}
    for (place, simulated), first in since.items():
        ended = last.get((place, simulated))
        zone = zones.get(place)
        days = (now - (ended or first)).total_seconds() / DAY_S
        name, title = (zone.slug, zone.title) if zone else (place, place)
        yield Due(kind, name, title, zone.pk if zone else None, simulated, ended, days, settings.DRILL_EVERY_DAYS)


def _last(kind: str) -> dict[tuple[int | str, bool], dt.datetime]:
    ended = Drill.objects.filter(state=DrillState.ENDED).exclude(verdict=DrillVerdict.ABORTED).order_by()
    rows = ended.values_list(kind, "simulated").annotate(Max("ended_at"))
    return {(place, simulated): at for place, simulated, at in rows}
