"""What a zone plan would do, before anybody commits it: which nodes go where, by list, by ratio or back again.

Reads only. A proposal is plain data; scheduler.zones checks it again under locks and carries it out.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ledger.clock import database_now
from ledger.errors import Refused
from ledger.models import Allocation, CardSeat, Hold, Node, NodeZone, Zone
from ledger.vocabulary import Form, NodeState
from scheduler.models import OPEN_MOVES, MoveState, PlanKind, PlanState, ZoneMove, ZonePlan
from scheduler.releases import live

NOW: Final = Q(period__upper_inf=True)
NAMED: Final = 5  # so many hosts of a longer list are named in a message
PERCENT: Final = 100


@dataclass(frozen=True, slots=True)
class Move:
    node_id: int
    from_zone_id: int | None
    to_zone_id: int


@dataclass(frozen=True)
class Proposal:
    """What is asked for. `seen_plans` are the plans whose observation window its maker was told of."""

    kind: PlanKind
    simulated: bool
    moves: tuple[Move, ...]
    model: str = ""
    targets: Mapping[str, int] | None = None
    undoes: int | None = None
    seen_plans: tuple[int, ...] = ()

    @property
    def zone_ids(self) -> set[int]:
        return {z for move in self.moves for z in (move.from_zone_id, move.to_zone_id) if z is not None}


@dataclass(frozen=True, slots=True)
class Member:
    """One node as planning sees it. `free_at`: when its last allocation reaches its time limit; None = it is empty."""

    node: Node
    zone_id: int | None
    cards: int
    used_form: str
    offered: bool
    free_at: dt.datetime | None
    in_plan: int | None  # a running plan that moves it; then zone_id is where it goes

    @property
    def preference(self) -> tuple[bool, bool, float, str]:
        """Empty ones first, of these the ones in service, then those that free earliest."""
        when = self.free_at.timestamp() if self.free_at else 0.0
        return self.free_at is not None, not self.offered, when, self.node.hostname


def members(*, simulated: bool, model: str = "") -> list[Member]:
    """Every node of one world that has not left the fleet."""
    nodes = Node.objects.filter(simulated=simulated).exclude(state=NodeState.RETIRED)
    if model:
        nodes = nodes.filter(Exists(CardSeat.objects.filter(NOW, node=OuterRef("pk"), card__model=model)))
    return _members(nodes)


def _members(nodes: QuerySet[Node]) -> list[Member]:
    zones = dict(NodeZone.objects.filter(NOW, node__in=nodes).values_list("node_id", "zone_id"))
    cards = dict(CardSeat.objects.filter(NOW, node__in=nodes).order_by().values_list("node_id").annotate(n=Count("pk")))
    held = set(Hold.objects.filter(NOW, node__in=nodes).values_list("node_id", flat=True))
    forms = dict(Allocation.objects.filter(NOW, node__in=nodes).values_list("node_id", "form"))
    rows = list(nodes.only("hostname", "state", "simulated").order_by("hostname"))
    free_at = expected_ends([node.pk for node in rows])
    going = {
        node_id: (plan_id, zone_id)
        for node_id, plan_id, zone_id in ZoneMove.objects.filter(
            state__in=sorted(OPEN_MOVES), node__in=nodes
        ).values_list("node_id", "plan_id", "to_zone_id")
    }
    found = []
    for node in rows:
        plan_id, zone_id = going.get(node.pk, (None, zones.get(node.pk)))
        offered = node.state == NodeState.UP and node.pk not in held
        found.append(
            Member(node, zone_id, cards.get(node.pk, 0), forms.get(node.pk, ""), offered, free_at.get(node.pk), plan_id)
        )
    return found


def expected_ends(nodes: Collection[int]) -> dict[int, dt.datetime]:
    """By node with live allocations: when the last of them reaches its time limit, at the latest (cleaning aside)."""
    now = database_now()
    ends: dict[int, dt.datetime] = {}
    for row in live(nodes):
        ends[row.node_id] = max(row.ends_at, now, ends.get(row.node_id, now))
    return ends


# -- by list ----------------------------------------------------------------------------------------------------------


def propose_list(*, hostnames: Sequence[str], to_zone: Zone) -> Proposal:
    """These nodes to that zone. Nodes that are there already are passed over."""
    nodes = Node.objects.filter(hostname__in=set(hostnames))
    chosen = _members(nodes)
    _refuse_unknown(hostnames, {member.node.hostname for member in chosen})
    _refuse_named(
        [m for m in chosen if m.node.state == NodeState.RETIRED],
        _("These nodes have left the fleet: %(nodes)s."),
        "nodes",
    )
    _refuse_named(
        [m for m in chosen if m.in_plan],
        _("A running zone plan moves these nodes already; cancel it first: %(nodes)s."),
        "nodes",
    )
    worlds = {member.node.simulated for member in chosen}
    if len(worlds) > 1:
        raise Refused(_("Real and simulated nodes never share a plan; choose one kind."), field="nodes", code="worlds")
    moves = tuple(Move(m.node.pk, m.zone_id, to_zone.pk) for m in chosen if m.zone_id != to_zone.pk)
    if not moves:
        text = _("All of these nodes are in zone %(zone)s already; the plan would change nothing.")
        raise Refused(text % {"zone": to_zone.slug}, field="nodes", code="no_change")
    return with_windows(Proposal(PlanKind.LIST, worlds.pop(), moves))


def _refuse_unknown(wanted: Sequence[str], known: set[str]) -> None:
    unknown = sorted(set(wanted) - known)
    if not wanted:
        raise Refused(_("Name at least one node."), field="nodes", code="empty")
    if unknown:
        text = ngettext("There is no node %(nodes)s.", "There are no nodes %(nodes)s.", len(unknown))
        raise Refused(text % {"nodes": _few(unknown)}, field="nodes", code="unknown_node")


def _refuse_named(found: Sequence[Member], text: str, field: str) -> None:
    if found:
        raise Refused(text % {"nodes": _few([m.node.hostname for m in found])}, field=field, code="node_not_movable")


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(name[:80] for name in names[:NAMED])
    return shown if len(names) <= NAMED else _("%(names)s and %(n)d more") % {"names": shown, "n": len(names) - NAMED}


# -- by ratio ---------------------------------------------------------------------------------------------------------


def propose_ratio(
    *, wanted: Mapping[str, int], percent: bool, simulated: bool, model: str = "", zones: Sequence[Zone]
) -> Proposal:
    """So many nodes (or percent of them) in each named zone; zones that are not named give or take the rest."""
    known = members(simulated=simulated, model=model)
    targets = _as_counts(wanted, len(known)) if percent else dict(wanted)
    _check_targets(wanted, targets, len(known), zones, known)
    ids = {zone.slug: zone.pk for zone in zones}
    moves = _resolve({ids[slug]: count for slug, count in targets.items()}, known, {z.pk: z.slug for z in zones})
    if not moves:
        raise Refused(
            _("The zones have these numbers already; the plan would change nothing."), field="targets", code="no_change"
        )
    return with_windows(Proposal(PlanKind.RATIO, simulated, tuple(moves), model, targets))


def _as_counts(percents: Mapping[str, int], total: int) -> dict[str, int]:
    """Percent of the nodes as whole nodes, by largest remainder, so that 100 % are all nodes."""
    if sum(percents.values()) > PERCENT:
        text = _("The zones sum to %(sum)d %%; there are only 100.")
        raise Refused(text % {"sum": sum(percents.values())}, field="targets", code="over_100")
    exact = {slug: percent * total for slug, percent in percents.items()}
    counts = {slug: value // PERCENT for slug, value in exact.items()}
    left = -(-sum(exact.values()) // PERCENT) - sum(counts.values())
    for slug in sorted(exact, key=lambda s: (-(exact[s] % PERCENT), s))[: max(0, left)]:
        counts[slug] += 1
    return counts


def _check_targets(
    wanted: Mapping[str, int], targets: Mapping[str, int], total: int, zones: Sequence[Zone], known: Sequence[Member]
) -> None:
    if not wanted:
        raise Refused(_("Give a target for at least one zone."), field="targets", code="empty")
    if not total:
        raise Refused(_("No node of this kind and model is registered."), field="model", code="no_nodes")
    have = Counter(member.zone_id for member in known)
    ids = {zone.slug: zone.pk for zone in zones}
    for slug, count in targets.items():
        if wanted[slug] < 0:
            raise Refused(_("A target is not negative."), field=f"zone-{slug}", code="negative")
        if count > total:
            text = _("There are only %(total)d nodes of this kind.") % {"total": total}
            raise Refused(text, field=f"zone-{slug}", code="too_many")
        if count == 0 and have[ids[slug]]:
            text = _("This would empty the zone. Move its last nodes by list, so that it is meant.")
            raise Refused(text, field=f"zone-{slug}", code="empties_zone")
    asked, everywhere = sum(targets.values()), set(targets) >= set(ids)
    if asked > total or (everywhere and asked != total):
        text = _("The targets sum to %(sum)d, but there are %(total)d nodes of this kind.")
        raise Refused(text % {"sum": asked, "total": total}, field="targets", code="sum")


def _resolve(targets: Mapping[int, int], known: Sequence[Member], slugs: Mapping[int, str]) -> list[Move]:
    """Take from zones that have too many, then from those not named; give to those that have too few."""
    pools: dict[int | None, list[Member]] = defaultdict(list)
    for member in known:
        pools[member.zone_id].append(member)
    wants: list[int] = []
    taken: list[Member] = []
    for zone_id, target in targets.items():
        difference = target - len(pools[zone_id])
        wants += [zone_id] * max(0, difference)
        taken += _take(pools[zone_id], max(0, -difference), slugs.get(zone_id, ""))
    unnamed = [zone_id for zone_id in slugs if zone_id not in targets]
    if len(taken) > len(wants):
        wants += [_one_of(unnamed, len(taken) - len(wants))] * (len(taken) - len(wants))
    elif len(taken) < len(wants):
        rest = [m for zone_id, pool in pools.items() if zone_id not in targets for m in pool]
        taken += _take(rest, len(wants) - len(taken), "")
    taken.sort(key=lambda member: member.preference)
    return [Move(member.node.pk, member.zone_id, zone) for member, zone in zip(taken, wants, strict=True)]


def _take(pool: Sequence[Member], count: int, slug: str) -> list[Member]:
    free = sorted((member for member in pool if member.in_plan is None), key=lambda member: member.preference)
    if len(free) < count:
        text = _("Only %(free)d nodes can leave; the others are on their way by a running plan.") % {"free": len(free)}
        raise Refused(text, field=f"zone-{slug}" if slug else "targets", code="in_plan")
    return free[:count]


def _one_of(unnamed: Sequence[int], count: int) -> int:
    """The zone that gets what nobody wants."""
    if len(unnamed) == 1:
        return unnamed[0]
    text = ngettext(
        "%(n)d node would be left over and more than one zone has no target; say where it goes.",
        "%(n)d nodes would be left over and more than one zone has no target; say where they go.",
        count,
    )
    raise Refused(text % {"n": count}, field="targets", code="left_over")


# -- back again -------------------------------------------------------------------------------------------------------


def propose_undo(plan: ZonePlan) -> Proposal:
    """What the plan moved goes back where it was, as far as it is still where the plan put it."""
    if plan.state == PlanState.RUNNING:
        raise Refused(_("This plan is still at work; cancel it first."), code="plan_running")
    moved = list(plan.moves.filter(state=MoveState.MOVED, from_zone__isnull=False).order_by("pk"))
    now_in = dict(NodeZone.objects.filter(NOW, node__in=[m.node_id for m in moved]).values_list("node_id", "zone_id"))
    busy = set(
        ZoneMove.objects.filter(state__in=sorted(OPEN_MOVES), node__in=list(now_in)).values_list("node_id", flat=True)
    )
    back = tuple(
        Move(m.node_id, m.to_zone_id, m.from_zone_id)
        for m in moved
        if m.from_zone_id is not None and now_in.get(m.node_id) == m.to_zone_id and m.node_id not in busy
    )
    if not back:
        raise Refused(_("No node is any more where this plan put it; there is nothing to undo."), code="no_change")
    return with_windows(Proposal(PlanKind.UNDO, plan.simulated, back, undoes=plan.pk))


# -- what it would do -------------------------------------------------------------------------------------------------


def watching(proposal: Proposal, now: dt.datetime) -> list[ZonePlan]:
    """Plans of this world that touched one of its zones and are at work or under observation, the longest first."""
    ids = proposal.zone_ids
    touched = ZoneMove.objects.filter(Q(from_zone__in=ids) | Q(to_zone__in=ids), plan=OuterRef("pk"))
    plans = ZonePlan.objects.filter(Q(window_until__gt=now) | Q(state=PlanState.RUNNING), Exists(touched))
    return list(plans.filter(simulated=proposal.simulated).order_by("-window_until", "-pk"))


def with_windows(proposal: Proposal) -> Proposal:
    """The proposal as of now: its maker is told of the plans that are observed at this moment."""
    return replace(proposal, seen_plans=tuple(sorted(plan.pk for plan in watching(proposal, database_now()))))


def effect(proposal: Proposal, zones: Sequence[Zone]) -> dict[str, list[dict[str, Any]]]:
    """Nodes and cards by zone and by form that their zone takes, before and after, over all nodes of the world."""
    to = {move.node_id: move.to_zone_id for move in proposal.moves}
    by_zone: dict[int | None, Counter[str]] = defaultdict(Counter)
    by_form: dict[str, Counter[str]] = defaultdict(Counter)
    takes = {zone.pk: zone.forms for zone in zones}
    for member in members(simulated=proposal.simulated):
        for when, zone_id in (("before", member.zone_id), ("after", to.get(member.node.pk, member.zone_id))):
            for tally in (by_zone[zone_id], *(by_form[form] for form in takes.get(zone_id or 0, ()))):
                tally[f"nodes_{when}"] += 1
                tally[f"cards_{when}"] += member.cards
    names = ("nodes_before", "nodes_after", "cards_before", "cards_after")
    return {
        "zones": [{"zone": z, **{n: by_zone[z.pk][n] for n in names}} for z in zones],
        "forms": [{"form": str(f), **{n: by_form[f][n] for n in names}} for f in Form],
    }
