"""The life story of a node or a card: seats, zones, holds, work, faults and audit rows merged in time, newest first.

One union of light rows gives the page; what a page shows is then read in a fixed number of queries. Jobs are cut by
visible_to, and so are audit rows. Reads only.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.core.paginator import Page, Paginator
from django.db.models import Exists, F, Model, OuterRef, Q, QuerySet, Value
from django.http import HttpRequest
from django.utils.translation import gettext as _

from ledger.models import (
    Allocation,
    AuditEvent,
    Card,
    CardSeat,
    CardShare,
    Case,
    Fault,
    Hold,
    Job,
    Node,
    NodeBoot,
    NodeZone,
    User,
)
from portal import labels
from portal.health_words import fault_name
from portal.labels import Look
from portal.templatetags.ui import mib
from portal.typed import page_number
from portal.views import life_words

LINES: Final = 30
LONGEST_ZONE: Final = 60  # characters of a title
# told by seats, holds and zone periods themselves
TOLD: Final = ("node.zone.moved", "card.appeared", "card.moved", "card.left")
ENDED: Final = Q(period__upper_inf=False)
Light = QuerySet[Any, Any]
Shares = Mapping[int, CardShare]


@dataclass(frozen=True)
class Line:
    """One thing that happened. `job` is None where there is none; `hidden` where the viewer may not see whose."""

    at: dt.datetime
    look: Look
    detail: str = ""
    who: str = ""
    reason: str = ""
    job: Job | None = None
    hidden: bool = False
    node: str = ""
    card: str = ""


def of_node(node: Node, user: User, request: HttpRequest) -> Page[Any]:
    seats = CardSeat.objects.filter(node=node)
    while_here = seats.filter(card=OuterRef("card"), period__overlap=OuterRef("period"))
    return _story(
        {
            "audit": _audit(user, "node", node),
            "seat": seats,
            "hold": Hold.objects.filter(Q(node=node) | Q(Exists(while_here))),
            "work": Allocation.objects.filter(node=node),
            "zone": NodeZone.objects.filter(node=node),
            "fault": Fault.objects.filter(node=node),
            "case": Case.objects.filter(node=node),
            "boot": NodeBoot.objects.filter(node=node),
        },
        user,
        request,
    )


def of_card(card: Card, user: User, request: HttpRequest) -> Page[Any]:
    seats = CardSeat.objects.filter(card=card)
    while_there = seats.filter(node=OuterRef("node"), period__overlap=OuterRef("period"))
    at_opening = seats.filter(node=OuterRef("node"), period__contains=OuterRef("opened_at"))
    at_boot = seats.filter(node=OuterRef("node"), period__contains=OuterRef("first_seen"))
    return _story(
        {
            "audit": _audit(user, "card", card),
            "seat": seats,
            "hold": Hold.objects.filter(Q(card=card) | Q(Exists(while_there))),
            "share": CardShare.objects.filter(card=card),
            "fault": Fault.objects.filter(card=card),
            "case": Case.objects.filter(Q(card=card) | Q(Exists(at_opening), card=None)),
            "boot": NodeBoot.objects.filter(Exists(at_boot)),
        },
        user,
        request,
    )


def _audit(user: User, kind: str, target: Model) -> QuerySet[AuditEvent]:
    events = AuditEvent.objects.visible_to(user).filter(target_type=kind, target_id=str(target.pk))
    return events.exclude(verb__in=TOLD)


# kind → the moments of its rows: (name, field, further condition)
MOMENTS: Final[Mapping[str, Sequence[tuple[str, str, Q]]]] = {
    "audit": [("audit", "at", Q())],
    "seat": [("seat", "period__startswith", Q()), ("seat-end", "period__endswith", ENDED)],
    "hold": [("hold", "period__startswith", Q()), ("hold-end", "period__endswith", ENDED)],
    "work": [("work", "period__startswith", Q()), ("work-end", "period__endswith", ENDED)],
    "share": [("share", "period__startswith", Q()), ("share-end", "period__endswith", ENDED)],
    "zone": [("zone", "period__startswith", Q())],
    "fault": [("fault", "first_seen", Q()), ("fault-end", "cleared_at", Q(cleared_at__isnull=False))],
    "boot": [("boot", "first_seen", Q())],
    "case": [
        ("case", "opened_at", Q()),
        ("case-done", "done_at", Q(done_at__isnull=False)),
        ("case-tested", "tested_at", Q(tested_at__isnull=False)),
        ("case-end", "ended_at", Q(ended_at__isnull=False)),
    ],
}


def _story(sources: Mapping[str, QuerySet[Any]], user: User, request: HttpRequest) -> Page[Any]:
    light: list[Light] = [
        rows.filter(condition)
        .order_by()
        .annotate(moment=F(field), what=Value(name), ref=F("pk"))
        .values_list("moment", "what", "ref")
        for kind, rows in sources.items()
        for name, field, condition in MOMENTS[kind]
    ]
    merged = light[0].union(*light[1:], all=True).order_by("-moment", "-what", "-ref")
    page = Paginator(merged, LINES).get_page(page_number(request) or 1)
    page.object_list = _lines(list(page.object_list), user)
    return page


def _lines(light: Sequence[tuple[dt.datetime, str, int]], user: User) -> list[Line]:
    wanted: dict[str, set[int]] = defaultdict(set)
    for _at, what, ref in light:
        wanted[what.partition("-")[0]].add(ref)
    found = {kind: READERS[kind](ids) for kind, ids in wanted.items()}
    jobs = _jobs(found, user)
    ends = _ends(wanted["hold"], user) if "hold" in wanted else {}
    told: list[Line] = []
    for at, what, ref in light:
        row = found[what.partition("-")[0]].get(ref)
        if row is not None:
            told.append(TELLERS[what](at, row, jobs if "work" in what or "share" in what else ends))
    return told


READERS: Final[Mapping[str, Callable[[Iterable[int]], dict[int, Any]]]] = {
    "audit": AuditEvent.objects.select_related("actor").in_bulk,
    "seat": CardSeat.objects.select_related("card", "node").in_bulk,
    "hold": Hold.objects.select_related("by", "card", "node").in_bulk,
    "work": Allocation.objects.select_related("attempt").in_bulk,
    "share": CardShare.objects.select_related("allocation__attempt", "allocation__node").in_bulk,
    "zone": NodeZone.objects.select_related("zone").in_bulk,
    "fault": Fault.objects.select_related("card").in_bulk,
    "boot": NodeBoot.objects.select_related("node").in_bulk,
    "case": Case.objects.select_related("card", "node").in_bulk,
}


def _jobs(found: Mapping[str, dict[int, Any]], user: User) -> dict[int, Job]:
    """The jobs behind allocations and shares that the viewer may see."""
    ids = {row.attempt.job_id for row in found.get("work", {}).values()}
    ids |= {row.allocation.attempt.job_id for row in found.get("share", {}).values()}
    return Job.objects.visible_to(user).select_related("project", "by").in_bulk(ids) if ids else {}


def _ends(hold_ids: Iterable[int], user: User) -> dict[int, AuditEvent]:
    """Who ended these holds and why, for those who may read it."""
    events = AuditEvent.objects.visible_to(user).filter(
        target_type="hold", target_id__in=[str(pk) for pk in hold_ids], verb="hold.ended"
    )
    return {int(event.target_id): event for event in events.select_related("actor")}


# -- one line a kind --------------------------------------------------------------------------------------------------


def _name(person: User | None, rule: str = "") -> str:
    return person.username if person else rule


def _tell_audit(at: dt.datetime, event: AuditEvent, _ends: Any) -> Line:
    detail = life_words.detail(event)
    return Line(at, Look(life_words.act(event), "✎"), detail, _name(event.actor), event.reason)


def _tell_seat(at: dt.datetime, seat: CardSeat, _ends: Any) -> Line:
    text = _("card into slot %(slot)d") % {"slot": seat.slot}
    return Line(at, Look(text, "⊕", "good"), seat.card.model, node=seat.node.hostname, card=seat.card.uuid)


def _tell_seat_end(at: dt.datetime, seat: CardSeat, _ends: Any) -> Line:
    text = _("card left slot %(slot)d") % {"slot": seat.slot}
    return Line(at, Look(text, "⊖", "warn"), seat.card.model, node=seat.node.hostname, card=seat.card.uuid)


def _tell_hold(at: dt.datetime, hold: Hold, _ends: Any) -> Line:
    look = labels.look("hold", hold.kind)
    who = _name(hold.by, hold.rule)
    return Line(at, look, who=who, reason=hold.reason, node=_host(hold.node), card=_uuid(hold.card))


def _tell_hold_end(at: dt.datetime, hold: Hold, ends: Mapping[int, AuditEvent]) -> Line:
    event = ends.get(hold.pk)
    look = Look(_("returned to the pool"), "↩", "good")
    detail = labels.text("hold", hold.kind)
    who, reason = (_name(event.actor), event.reason) if event else ("", "")
    return Line(at, look, detail, who, reason, node=_host(hold.node), card=_uuid(hold.card))


def _host(node: Node | None) -> str:
    return node.hostname if node else ""


def _uuid(card: Card | None) -> str:
    return card.uuid if card else ""


def _tell_work(at: dt.datetime, held: Allocation, jobs: Mapping[int, Job]) -> Line:
    job = jobs.get(held.attempt.job_id)
    look = Look(_("work begins"), "▶", "go")
    return Line(at, look, labels.text("form", held.form), job=job, hidden=job is None)


def _tell_work_end(at: dt.datetime, held: Allocation, jobs: Mapping[int, Job]) -> Line:
    job = jobs.get(held.attempt.job_id)
    outcome = labels.text("outcome", held.attempt.outcome) if job and held.attempt.outcome else ""
    return Line(at, Look(_("work is gone and clean"), "■"), outcome, job=job, hidden=job is None)


def _tell_share(at: dt.datetime, share: CardShare, jobs: Mapping[int, Job]) -> Line:
    job = jobs.get(share.allocation.attempt.job_id)
    detail = f"{mib(share.memory_mib)} · {labels.text('form', share.allocation.form)}"
    return Line(
        at, Look(_("share taken"), "▶", "go"), detail, job=job, hidden=job is None, node=share.allocation.node.hostname
    )


def _tell_share_end(at: dt.datetime, share: CardShare, jobs: Mapping[int, Job]) -> Line:
    job = jobs.get(share.allocation.attempt.job_id)
    return Line(
        at,
        Look(_("share is free again"), "■"),
        mib(share.memory_mib),
        job=job,
        hidden=job is None,
        node=share.allocation.node.hostname,
    )


def _tell_zone(at: dt.datetime, member: NodeZone, _ends: Any) -> Line:
    return Line(at, Look(_("enters zone %(zone)s") % {"zone": member.zone.title[:LONGEST_ZONE]}, "⇄", "go"))


def _tell_fault(at: dt.datetime, fault: Fault, _ends: Any) -> Line:
    text = _("fault %(kind)s") % {"kind": fault_name(fault.kind, fault.code)}
    times = _("%(n)d times") % {"n": fault.count} if fault.count > 1 else ""
    return Line(at, Look(text, "⚠", "alarm"), times, reason=fault.message, card=_uuid(fault.card))


def _tell_fault_end(at: dt.datetime, fault: Fault, _ends: Any) -> Line:
    text = _("fault %(kind)s is cleared") % {"kind": fault_name(fault.kind, fault.code)}
    return Line(at, Look(text, "✓", "good"), card=_uuid(fault.card))


def _tell_boot(at: dt.datetime, boot: NodeBoot, _ends: Any) -> Line:
    return Line(at, Look(_("first report after a boot"), "↻"), life_words.boot(boot.boot_id), node=boot.node.hostname)


def _tell_case(at: dt.datetime, case: Case, _ends: Any) -> Line:
    look = Look(_("a case begins"), "⚕", "warn")
    return Line(at, look, life_words.need(case.need), who=case.rule, node=case.node.hostname, card=_uuid(case.card))


def _tell_case_done(at: dt.datetime, case: Case, _ends: Any) -> Line:
    return Line(at, Look(life_words.done(case.need), "↻", "go"), card=_uuid(case.card))


def _tell_case_tested(at: dt.datetime, case: Case, _ends: Any) -> Line:
    return Line(at, Look(_("tested"), "✓"), case.note, card=_uuid(case.card))


def _tell_case_end(at: dt.datetime, case: Case, _ends: Any) -> Line:
    return Line(at, Look(life_words.case_end(case.state), "■"), case.note, card=_uuid(case.card))


TELLERS: Final[Mapping[str, Callable[..., Line]]] = {
    "audit": _tell_audit,
    "seat": _tell_seat,
    "seat-end": _tell_seat_end,
    "hold": _tell_hold,
    "hold-end": _tell_hold_end,
    "work": _tell_work,
    "work-end": _tell_work_end,
    "share": _tell_share,
    "share-end": _tell_share_end,
    "zone": _tell_zone,
    "fault": _tell_fault,
    "fault-end": _tell_fault_end,
    "boot": _tell_boot,
    "case": _tell_case,
    "case-done": _tell_case_done,
    "case-tested": _tell_case_tested,
    "case-end": _tell_case_end,
}


# -- who held it when -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Holder:
    share: CardShare
    job: Job | None


def holders_at(shares: QuerySet[CardShare], at: dt.datetime, user: User) -> list[Holder]:
    """Whose boundary it was: the shares that lay on these cards at that moment, by card and place."""
    found = list(
        shares.filter(period__contains=at)
        .select_related("card", "seat", "allocation__attempt")
        .order_by("seat__slot", "pk")
    )
    ids = {share.allocation.attempt.job_id for share in found}
    jobs = Job.objects.visible_to(user).select_related("project", "by").in_bulk(ids)
    return [Holder(share, jobs.get(share.allocation.attempt.job_id)) for share in found]
