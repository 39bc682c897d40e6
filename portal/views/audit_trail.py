"""The audit trail: who did what to which object, before and after, and whether it is sealed. Reads only.

Site roles see all of it, others what visible_to leaves: the work of their projects and their own acts.
"""

from __future__ import annotations

from typing import Final

from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from ledger.models import AuditEvent, Project
from ledger.models.audit import AuditEventQuerySet
from portal import ops_words
from portal.ops_forms import AuditFilter
from portal.tables import Column, Table
from portal.views import audit_rows
from portal.views.gate import signed_in, viewer

LONGEST_KIND, LONGEST_NUMBER = 32, 64
MOST: Final = 10_000  # rows that can be leafed through; files go on to tables.MOST_EXPORTED
NEWEST: Final = ("-at", "-pk")

AT: Final = Column("at", gettext_lazy("Time"), lambda r: r.event.at, "audit/cells/at.html", ("at", "pk"), always=True)
WHO: Final = Column("who", gettext_lazy("Who"), lambda r: r.who or _("the system"), "audit/cells/who.html")
ACT: Final = Column("act", gettext_lazy("Act"), lambda r: r.event.verb, "audit/cells/act.html", always=True)
REST: Final = (
    Column("reason", gettext_lazy("Reason"), lambda r: r.event.reason, "audit/cells/reason.html"),
    Column("seal", gettext_lazy("Seal"), lambda r: r.seal.position if r.seal else None, "audit/cells/seal.html"),
    Column("via", gettext_lazy("Via"), lambda r: r.event.via, shown=False),
    Column("request", gettext_lazy("Request"), lambda r: r.event.request_id, "audit/cells/request.html", shown=False),
)
COLUMNS: Final = (
    AT,
    WHO,
    ACT,
    Column("object", gettext_lazy("Object"), lambda r: _object(r), "audit/cells/object.html"),
    Column("project", gettext_lazy("Project"), lambda r: r.event.project.slug if r.event.project else ""),
    Column("changes", gettext_lazy("Changes"), lambda r: r.summary, "audit/cells/changes.html"),
    *REST,
)
OF_ONE: Final = (
    AT,
    WHO,
    ACT,
    Column("changes", gettext_lazy("Before → after"), lambda r: r.summary, "audit/cells/diff.html"),
    *REST,
)


class Newest(AuditEventQuerySet):
    """Counts no further than MOST: the trail grows for years, and nobody leafs through a million rows."""

    def count(self) -> int:
        return QuerySet.count(self.order_by()[:MOST])


def _object(row: audit_rows.AuditRow) -> str:
    return f"{row.event.target_type} {row.event.target_id} {row.name}".strip()


def _events(request: HttpRequest) -> QuerySet[AuditEvent]:
    shown = Newest(model=AuditEvent).visible_to(viewer(request))
    return shown.select_related("actor", "on_behalf_of", "project", "seal")


@require_safe
@signed_in
def trail(request: HttpRequest) -> HttpResponseBase:
    user = viewer(request)
    projects = [(p.slug, p.slug) for p in Project.objects.visible_to(user).order_by("slug")]
    form = AuditFilter(request.GET, known={"project": projects})
    table = Table(
        request=request,
        name="audit",
        columns=COLUMNS,
        records=audit_rows.filtered(_events(request), form.chosen),
        form=form,
        decorate=lambda events: audit_rows.rows(events, user),
        order=NEWEST,
    )
    if (file := table.export()) is not None:
        return file
    context = table.context()
    more = context["page"].paginator.count >= MOST
    return render(
        request,
        "audit/trail.html",
        {"form": form, "t": context, "filtered": table.filtered, "more": more, "most": MOST},
    )


@require_safe
@signed_in
def history(request: HttpRequest, kind: str, key: str) -> HttpResponseBase:
    """Everything that happened to one object, as far as the person may see it."""
    events = _events(request).filter(target_type=kind, target_id=key)
    possible = len(kind) <= LONGEST_KIND and len(key) <= LONGEST_NUMBER and "\x00" not in kind + key
    if not possible or not events.exists():
        raise Http404(_("There is no history of such an object, or you may not see it."))
    table = Table(
        request=request,
        name=f"audit-{kind}-{key}",
        columns=OF_ONE,
        records=events,
        decorate=lambda found: audit_rows.rows(found, viewer(request)),
        order=NEWEST,
    )
    if (file := table.export()) is not None:
        return file
    context = table.context()
    first = context["page"].object_list[0]
    return render(
        request,
        "audit/history.html",
        {"t": context, "kind": ops_words.thing(kind), "number": key, "name": first.name, "page_of": first.page},
    )
