"""Extra rights: who operates one zone or audits one department until when; giving and withdrawing them, by site admins.

Everybody sees their own, site roles all. The writing is ledger.odd_grants's.
"""

from __future__ import annotations

from typing import Any, Final

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_safe

from ledger import odd_grants, roles
from ledger.clock import database_now
from ledger.errors import Conflict, Forbidden, Refused
from ledger.models import OddGrant
from portal import odd_grant_rows
from portal.forms import ReasonForm
from portal.odd_grant_forms import RightFilter, RightForm
from portal.sudo import needs_sudo
from portal.tables import Column, Table
from portal.views.gate import signed_in, viewer
from portal.views.people import for_admins
from portal.views.project_gate import act_of

ID_LIMIT: Final = 2**63
COLUMNS: Final = (
    Column(
        "user",
        gettext_lazy("Person"),
        lambda r: r.grant.user.username,
        "rights/cells/user.html",
        ("user__username",),
        always=True,
    ),
    Column("kind", gettext_lazy("Right"), lambda r: str(r.kind), sort=("kind",)),
    Column(
        "place",
        gettext_lazy("Zone or department"),
        lambda r: r.place.slug,
        "rights/cells/place.html",
        ("zone__slug", "department__slug"),
    ),
    Column("state", gettext_lazy("State"), lambda r: str(r.said), "rights/cells/state.html"),
    Column("since", gettext_lazy("Since"), lambda r: r.grant.period.lower, sort=("period__startswith",)),
    Column("until", gettext_lazy("Until"), lambda r: r.grant.period.upper, sort=("period__endswith",)),
    Column("reason", gettext_lazy("Reason"), lambda r: r.grant.reason, "rights/cells/reason.html"),
    Column("by", gettext_lazy("Given by"), lambda r: r.grant.by.username, sort=("by__username",)),
    Column(
        "withdrawn_by",
        gettext_lazy("Withdrawn by"),
        lambda r: r.grant.withdrawn_by.username if r.grant.withdrawn_by else "",
        shown=False,
    ),
)
ACT: Final = Column("act", gettext_lazy("Act"), lambda r: "", "rights/cells/act.html")


@require_safe
@signed_in
def rights(request: HttpRequest) -> HttpResponseBase:
    user, now = viewer(request), database_now()
    form = RightFilter(request.GET, known={})
    may_give = roles.is_admin(user)
    table = Table(
        request=request,
        name="rights",
        columns=(*COLUMNS, ACT) if may_give and not request.GET.get("export") else COLUMNS,
        records=_filtered(odd_grant_rows.seen_by(user), form.chosen),
        form=form,
        decorate=lambda page: [odd_grant_rows.row_of(grant, now) for grant in page],
    )
    if (file := table.export()) is not None:
        return file
    return render(request, "rights/list.html", {"form": form, "t": table.context(), "may_give": may_give})


def _filtered(rows: QuerySet[OddGrant], chosen: dict[str, Any]) -> QuerySet[OddGrant]:
    if text := chosen.get("q"):
        places = Q(zone__slug__icontains=text) | Q(department__slug__icontains=text)
        rows = rows.filter(Q(user__username__icontains=text) | places)
    if kind := chosen.get("kind"):
        rows = rows.filter(kind=kind)
    if standing := chosen.get("standing"):
        now = Q(period__contains=database_now())
        rows = rows.filter(now) if standing == "now" else rows.exclude(now)
    return rows


@require_http_methods(["GET", "HEAD", "POST"])
@for_admins
@needs_sudo
def right_new(request: HttpRequest) -> HttpResponseBase:
    """Links fill in the person, the zone or the department."""
    if request.method != "POST":
        known = ("user", "zone", "department")
        asked = {name: request.GET[name].replace("\x00", "") for name in known if name in request.GET}
        return render(request, "rights/new.html", {"form": RightForm(initial=asked)})
    form = RightForm(request.POST)
    if not form.is_valid():
        return render(request, "rights/new.html", {"form": form}, status=422)
    data = form.cleaned_data
    try:
        made = odd_grants.give(
            user=data["user"],
            place=form.place,
            until=odd_grants.day_after(data["ends_on"]),
            act=act_of(request, data["reason"]),
        )
    except Refused as refused:
        return _refused(request, "rights/new.html", form, refused, {})
    messages.success(request, _("%(user)s has the right from now on.") % {"user": made.user.username})
    return redirect("person", username=made.user.username)


def _refused(
    request: HttpRequest, template: str, form: ReasonForm, refused: Refused, context: dict[str, Any]
) -> HttpResponseBase:
    if isinstance(refused, Forbidden) and refused.code != "self":
        raise PermissionDenied(str(refused))
    field = {"until": "ends_on"}.get(refused.field, refused.field)
    form.add_error(field if field in form.fields else None, str(refused))
    status = 409 if isinstance(refused, Conflict) else 422
    return render(request, template, {"form": form, **context}, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
@for_admins
@needs_sudo
def right_withdraw(request: HttpRequest, pk: int) -> HttpResponseBase:
    """What ends now; a POST with a reason does it."""
    grant = odd_grant_rows.seen_by(viewer(request)).filter(pk=pk).first() if pk < ID_LIMIT else None
    if grant is None:
        raise Http404(_("There is no such right."))
    context = {"row": odd_grant_rows.row_of(grant, database_now())}
    form = ReasonForm(request.POST if request.method == "POST" else None)
    if not form.is_valid():
        status = 422 if form.is_bound else 200
        return render(request, "rights/withdraw.html", {"form": form, **context}, status=status)
    try:
        odd_grants.withdraw(grant=grant, act=act_of(request, form.cleaned_data["reason"]))
    except Refused as refused:
        return _refused(request, "rights/withdraw.html", form, refused, context)
    messages.success(request, _("The right of %(user)s has ended.") % {"user": grant.user.username})
    return redirect("person", username=grant.user.username)
