"""Parts of the pages of zone plans: the sealed proposal that travels through the preview, and what stands on nodes.

Names of jobs are cut by visible_to. Reads only.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from django.core import signing
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ledger.models import Allocation, CardShare, Job, Node, User, Zone
from ledger.zones import missing_managers
from portal.views.fleet_rows import NOW
from scheduler.models import MoveState, PlanKind
from scheduler.zone_proposals import Move, Proposal, expected_ends

SALT: Final = "zone-plan"
KEPT_FOR: Final = dt.timedelta(hours=1)
JOBS_NAMED: Final = 20


def sealed(proposal: Proposal) -> str:
    """The proposal as one signed text: what was previewed is what will be committed."""
    values = {
        "kind": proposal.kind,
        "simulated": proposal.simulated,
        "moves": [[move.node_id, move.from_zone_id, move.to_zone_id] for move in proposal.moves],
        "model": proposal.model,
        "targets": dict(proposal.targets or {}),
        "undoes": proposal.undoes,
        "seen": list(proposal.seen_plans),
    }
    return signing.dumps(values, salt=SALT, compress=True)


def opened(text: str) -> Proposal | None:
    """None when the text is not ours or older than an hour."""
    try:
        values: dict[str, Any] = signing.loads(text, salt=SALT, max_age=KEPT_FOR)
    except signing.BadSignature:
        return None
    return Proposal(
        kind=PlanKind(values["kind"]),
        simulated=values["simulated"],
        moves=tuple(Move(*move) for move in values["moves"]),
        model=values["model"],
        targets=values["targets"],
        undoes=values["undoes"],
        seen_plans=tuple(values["seen"]),
    )


@dataclass
class Work:
    """What stands on one node: jobs that the viewer may see, how many they may not, and when it is empty at the
    latest."""

    jobs: list[Job] = field(default_factory=list)
    others: int = 0
    free_at: dt.datetime | None = None

    @property
    def shown(self) -> list[Job]:
        return self.jobs[:JOBS_NAMED]

    @property
    def more(self) -> int:
        return max(0, len(self.jobs) - JOBS_NAMED)

    @property
    def told(self) -> str:
        """For files."""
        names = [f"{job.pk} {job.name} ({job.project.slug})" for job in self.jobs]
        others = ngettext("%(n)d job of another project", "%(n)d jobs of other projects", self.others)
        return "; ".join(names + ([others % {"n": self.others}] if self.others else []))


def work_on(node_ids: Iterable[int], viewer: User) -> dict[int, Work]:
    """By node with live allocations."""
    ids = list(node_ids)
    rows = Allocation.objects.filter(NOW, node__in=ids).order_by("pk").values_list("node_id", "attempt__job_id")
    return _works(list(rows), expected_ends(ids), viewer)


def work_on_cards(card_ids: Iterable[int], viewer: User) -> dict[int, Work]:
    """By card that somebody holds a part of; free when the whole node is, at the latest."""
    shares = CardShare.objects.filter(NOW, card__in=list(card_ids)).order_by("pk")
    rows = list(shares.values_list("card_id", "allocation__attempt__job_id", "node_id"))
    ends = expected_ends({node_id for *_others, node_id in rows})
    free_at = {card_id: ends[node_id] for card_id, _job, node_id in rows if node_id in ends}
    return _works([(card_id, job_id) for card_id, job_id, _node in rows], free_at, viewer)


def _works(rows: Sequence[tuple[int, int]], ends: Mapping[int, dt.datetime], viewer: User) -> dict[int, Work]:
    """From (node or card, job) pairs."""
    standing: dict[int, list[int]] = defaultdict(list)
    for key, job_id in rows:
        standing[key].append(job_id)
    visible = Job.objects.visible_to(viewer).select_related("project", "by")
    jobs = visible.in_bulk({job_id for _key, job_id in rows})
    return {
        key: Work(
            [jobs[job_id] for job_id in found if job_id in jobs],
            sum(job_id not in jobs for job_id in found),
            ends.get(key),
        )
        for key, found in standing.items()
    }


@dataclass
class MoveRow:
    """One node of a preview. `lacks`: forms of the new zone that nothing on the node can deliver."""

    node: Node
    from_zone: Zone | None
    to_zone: Zone
    work: Work | None
    lacks: list[str]


def preview_rows(proposal: Proposal, zones: Sequence[Zone], viewer: User) -> list[MoveRow]:
    nodes = Node.objects.in_bulk([move.node_id for move in proposal.moves])
    by_id = {zone.pk: zone for zone in zones}
    work = work_on(nodes, viewer)
    rows = []
    for move in proposal.moves:
        node, zone = nodes.get(move.node_id), by_id.get(move.to_zone_id)
        if node is None or zone is None:
            continue
        able = {**node.managers, **missing_managers(node.managers, zone)}
        lacks = [form for form in zone.forms if form not in able]
        rows.append(MoveRow(node, by_id.get(move.from_zone_id or 0), zone, work.get(node.pk), lacks))
    return sorted(rows, key=lambda row: (row.work is not None, row.node.hostname))


def progress_text(plan: Any) -> str:
    """A plan with its counts by state, for lists and files."""
    parts = {
        MoveState.MOVED: _("%(n)d of %(total)d moved"),
        MoveState.DRAINING: _("%(n)d draining"),
        MoveState.PLANNED: _("%(n)d left to do"),
        MoveState.DROPPED: _("%(n)d stayed"),
    }
    told = []
    for state, text in parts.items():
        count = getattr(plan, str(state))
        if count or state == MoveState.MOVED:
            told.append(text % {"n": count, "total": plan.total})
    return " · ".join(told)
