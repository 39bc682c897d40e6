"""What alerts are about: metrics give readings with labels, in a number of queries that doesn't grow with the fleet.

A metric may leave out readings that no rule asks for (`Reach`). What nobody reports now has no reading: unknown is
neither good nor bad. Reads only.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from django.db.models import Count, F, Min, Q, QuerySet

from ledger import job_metrics
from ledger.clock import database_now
from ledger.models import CardSeat, CardStatus, Case, Fault, Hold, Job, JobMetric, Node, NodeZone
from ledger.vocabulary import HoldKind, JobState, NodeState, Supply
from scheduler import drill_due
from scheduler.models import Drift

FRESH: Final = dt.timedelta(minutes=2)  # what a card said longer ago is not known any more
BUSY_PCT: Final = 80  # from this utilisation on a card counts as busy
Labels = dict[str, str]


@dataclass(frozen=True, slots=True)
class Reading:
    """One value of one thing. `labels` name the thing and no more; `url` is a path of the portal."""

    labels: Labels
    value: float
    subject: str
    url: str
    simulated: bool


@dataclass(frozen=True, slots=True)
class Reach:
    """Values that are neither above `above` nor below `below` may be left out; None: no rule looks that way."""

    above: float | None = None
    below: float | None = None

    def q(self, name: str) -> Q:
        """The same for a column of the database; matches nothing when no rule looks."""
        found = Q(pk__in=[])
        if self.above is not None:
            found |= Q(**{f"{name}__gt": self.above})
        if self.below is not None:
            found |= Q(**{f"{name}__lt": self.below})
        return found


@dataclass
class World:
    """What several metrics need, read once a pass and only when asked for."""

    now: dt.datetime = field(default_factory=database_now)

    @cached_property
    def zones(self) -> Mapping[int, Labels]:
        """Node id → the zone that it is in, and its supply where it is not the site's own."""
        rows = NodeZone.objects.filter(period__upper_inf=True).values_list("node", "zone__slug", "node__supply")
        return {
            node: {"zone": zone} | ({"supply": str(supply)} if supply != Supply.OWNED else {})
            for node, zone, supply in rows
        }

    def place(self, node: int, hostname: str) -> Labels:
        return {"node": hostname} | self.zones.get(node, {})


Metric = Callable[[World, Reach], Iterable[Reading]]
SEAT: Final = ("card__seats__node", "card__seats__node__hostname", "card__seats__node__simulated", "card__uuid")


def _cards(world: World, rows: QuerySet[CardStatus], value: str) -> Iterator[Reading]:
    """A reading of each card that said something lately, whose value is a number."""
    fresh = rows.filter(received_at__gt=world.now - FRESH, card__seats__period__upper_inf=True, lost=False)
    for node, hostname, simulated, uuid, found in fresh.values_list(*SEAT, value):
        labels = world.place(node, hostname) | {"card": uuid}
        yield Reading(labels, float(found), f"{hostname} {uuid}", f"/cards/{uuid}/", simulated)


def _column(name: str, only: Q | None = None) -> Metric:
    def readings(world: World, reach: Reach) -> Iterator[Reading]:
        rows = CardStatus.objects.filter(reach.q(name))
        return _cards(world, rows.filter(only) if only is not None else rows, name)

    return readings


def _memory_share(world: World, reach: Reach) -> Iterator[Reading]:
    rows = CardStatus.objects.annotate(share=F("memory_used_mib") * 100.0 / F("card__memory_mib"))
    return _cards(world, rows.filter(reach.q("share")), "share")


# -- faults and what is out --------------------------------------------------------------------------------------------


def _faults(world: World, reach: Reach) -> Iterator[Reading]:
    rows = Fault.objects.filter(reach.q("count"), cleared_at=None)
    columns = ("node", "node__hostname", "node__simulated", "card__uuid", "kind", "code", "count")
    for node, hostname, simulated, uuid, kind, code, count in rows.values_list(*columns):
        labels = world.place(node, hostname) | {"kind": kind} | ({"card": uuid} if uuid else {})
        subject = f"{hostname} {uuid}" if uuid else hostname
        labels |= {"code": str(code)} if code is not None else {}
        yield Reading(labels, count, subject, f"/cards/{uuid}/" if uuid else f"/nodes/{hostname}/", simulated)


def _taken_out(world: World, _reach: Reach) -> Iterator[Reading]:
    """1 for each hold for a fault or a drill that stands."""
    kinds = (HoldKind.FAULT, HoldKind.DRILL)
    rows = list(Hold.objects.filter(kind__in=kinds, period__upper_inf=True).select_related("node", "card"))
    cards = [hold.card_id for hold in rows if hold.card_id is not None]
    seats = CardSeat.objects.filter(card__in=cards, period__upper_inf=True).select_related("node")
    seated = {seat.card_id: seat.node for seat in seats}
    for hold in rows:
        node = hold.node or seated.get(hold.card_id or 0)
        labels = {"hold": str(hold.pk), "kind": str(hold.kind)}
        subject, url = str(hold.card or ""), f"/cards/{hold.card}/"
        if node is not None:
            labels |= world.place(node.pk, node.hostname)
            subject = f"{node.hostname} {subject}".strip()
        if hold.card is not None:
            labels |= {"card": hold.card.uuid}
        elif node is not None:
            url = f"/nodes/{node.hostname}/"
        yield Reading(labels, 1.0, subject, url, node is not None and node.simulated)


def _dwell(world: World, reach: Reach) -> Iterator[Reading]:
    """Hours that each open case is open."""
    for case in Case.objects.filter(ended_at=None).select_related("node", "card"):
        hours = (world.now - case.opened_at).total_seconds() / 3_600
        if not reaches(hours, reach):
            continue
        labels = world.place(case.node_id, case.node.hostname) | {"case": str(case.pk), "need": str(case.need)}
        labels |= {"card": case.card.uuid} if case.card else {}
        subject = f"{case.node.hostname} {case.card or ''}".strip()
        yield Reading(labels, hours, subject, f"/health/out/{case.pk}/", case.node.simulated)


# -- the portal and its nodes ------------------------------------------------------------------------------------------


def _silence(world: World, reach: Reach) -> Iterator[Reading]:
    """Seconds since each node's agent or exporter was last heard; of nodes that have one and have reported."""
    rows = Node.objects.filter(simulated=False, seen_at__isnull=False).exclude(agent_digest="", dcgm_url="")
    rows = rows.exclude(state=NodeState.RETIRED)
    if reach.below is None and reach.above is not None:
        rows = rows.filter(seen_at__lt=world.now - dt.timedelta(seconds=reach.above))
    for node, hostname, seen_at in rows.values_list("pk", "hostname", "seen_at"):
        seconds = (world.now - (seen_at or world.now)).total_seconds()
        yield Reading(world.place(node, hostname), seconds, hostname, f"/nodes/{hostname}/", False)


def _queue_wait(world: World, _reach: Reach) -> Iterator[Reading]:
    """Seconds that the longest waiting job waits, by kind of work, priority and whether it may be stopped."""
    rows = Job.objects.filter(state=JobState.QUEUED, held_at=None)
    groups = rows.values("kind", "priority", "preemptible", "simulated").annotate(first=Min("queued_at"))
    for row in groups.order_by("kind", "priority", "preemptible", "simulated"):
        labels = {"kind": str(row["kind"]), "priority": str(row["priority"])}
        labels |= {"preemptible": _word(row["preemptible"])}
        subject = f"{row['kind']}, priority {row['priority']}"
        seconds = (world.now - row["first"]).total_seconds()
        yield Reading(labels, seconds, subject, "/jobs/?state=queued", row["simulated"])


def _drift(world: World, _reach: Reach) -> Iterator[Reading]:
    """Open differences between the book and what drivers and agents report, by kind."""
    rows = Drift.objects.filter(resolved_at=None).values("kind", "simulated").annotate(n=Count("pk"))
    for row in rows.order_by("kind", "simulated"):
        url = f"/ops/drift/?state=open&kind={row['kind']}"
        yield Reading({"kind": row["kind"]}, row["n"], row["kind"], url, row["simulated"])


def _overdue_drills(world: World, _reach: Reach) -> Iterator[Reading]:
    """Days beyond the time in which each zone and site was to have a drill."""
    for due in drill_due.places_due(world.now):
        over = max(0.0, due.days - due.every_days)
        yield Reading({due.kind: due.name}, over, due.title, "/health/drills/", due.simulated)


# -- applications ------------------------------------------------------------------------------------------------------


def _of_applications(value: Callable[[JobMetric], float | None]) -> Metric:
    """A reading of each running job whose application said so lately."""

    def readings(world: World, reach: Reach) -> Iterator[Reading]:
        for metric in job_metrics.newest_of_running(world.now - FRESH):
            found, job = value(metric), metric.job
            if found is None or not reaches(found, reach):
                continue
            labels = {"job": str(job.pk), "project": job.project.slug, "kind": str(job.kind)}
            labels |= {"priority": str(job.priority), "preemptible": _word(job.preemptible)}
            yield Reading(labels, found, f"job {job.pk} {job.name}", f"/jobs/{job.pk}/", job.simulated)

    return readings


def _over_sla(metric: JobMetric) -> float | None:
    return None if metric.p99_ms is None or metric.sla_ms is None else metric.p99_ms / metric.sla_ms


def reaches(value: float, reach: Reach) -> bool:
    over = reach.above is not None and value > reach.above
    return over or (reach.below is not None and value < reach.below)


def _word(flag: bool) -> str:
    return "true" if flag else "false"


METRICS: Final[dict[str, Metric]] = {
    "temperature": _column("temperature_c"),
    "memory_share": _memory_share,
    "utilisation": _column("utilisation_pct"),
    "tensor_active": _column("tensor_pct"),
    "tensor_active_busy": _column("tensor_pct", Q(utilisation_pct__gte=BUSY_PCT)),
    "memory_bandwidth": _column("memory_busy_pct"),
    "memory_bandwidth_busy": _column("memory_busy_pct", Q(utilisation_pct__gte=BUSY_PCT)),
    "open_faults": _faults,
    "taken_out": _taken_out,
    "dwell": _dwell,
    "agent_silence": _silence,
    "queue_wait": _queue_wait,
    "p99_over_sla": _of_applications(_over_sla),
    "tokens_per_s": _of_applications(lambda metric: metric.tokens_per_s),
    "queue_length": _of_applications(lambda metric: metric.queue_length),
    "drift": _drift,
    "overdue_drills": _overdue_drills,
}
# the column of CardSample and CardHour in which a metric has a history
HISTORY: Final[Mapping[str, str]] = {
    "temperature": "temperature_c",
    "utilisation": "utilisation_pct",
    "tensor_active": "tensor_pct",
    "memory_bandwidth": "memory_busy_pct",
}


def readings(names: Mapping[str, Reach], world: World) -> Iterator[tuple[str, list[Reading] | Exception]]:
    """Of each metric by name; an error of one is its own."""
    for name, reach in names.items():
        try:
            yield name, list(METRICS[name](world, reach))
        except Exception as error:  # whatever a metric runs into, the others are read
            yield name, error
