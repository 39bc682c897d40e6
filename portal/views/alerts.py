"""Pages of alerts: what fires and what did, one alert with what became of it, and silences. Site roles read them,
operators and administrators act; the writing is scheduler.alert_changes's.
"""

from __future__ import annotations

from typing import Any, Final

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from ledger.acts import Act
from ledger.clock import database_now
from ledger.errors import Refused
from portal import alert_forms, alert_looks
from portal.alert_forms import AlertFilter, SilenceForm
from portal.alert_looks import AlertRow
from portal.forms import ReasonForm
from portal.tables import Column, Table
from portal.views.gate import request_id, viewer
from portal.views.ops_gate import for_operators, for_site_roles
from scheduler import alert_changes, alert_words
from scheduler.alert_matchers import parse
from scheduler.alert_messages import silences as standing_silences
from scheduler.alert_rows import Alert, AlertDelivery, AlertRule, AlertState, Silence

LARGEST_ID: Final = 2**63
COLUMNS: Final = (
    Column("state", gettext_lazy("State"), lambda r: str(r.state.label), "health/alerts/cells/state.html", always=True),
    Column("severity", gettext_lazy("Severity"), lambda r: str(r.severity.label), "health/alerts/cells/severity.html"),
    Column(
        "rule", gettext_lazy("Alert"), lambda r: r.name, "health/alerts/cells/rule.html", ("rule__key",), always=True
    ),
    Column(
        "subject", gettext_lazy("Subject"), lambda r: r.alert.subject, "health/alerts/cells/subject.html", ("subject",)
    ),
    Column("why", gettext_lazy("Why"), lambda r: r.why),
    Column("value", gettext_lazy("Value"), lambda r: r.value, number=True, shown=False),
    Column("peak", gettext_lazy("Worst value"), lambda r: r.peak, number=True, shown=False),
    Column("since", gettext_lazy("Since"), lambda r: r.since, sort=("started_at",)),
    Column("age", gettext_lazy("For (min)"), lambda r: r.minutes, number=True),
    Column("over", gettext_lazy("Over at"), lambda r: r.alert.resolved_at, sort=("resolved_at",)),
)


@require_safe
@for_site_roles
def alerts(request: HttpRequest) -> HttpResponseBase:
    rules = [(rule.key, alert_words.name(rule)) for rule in AlertRule.objects.order_by("key")]
    form, now = AlertFilter(request.GET, known={"rule": rules}), database_now()
    standing = standing_silences(now)
    table = Table(
        request=request,
        name="alerts",
        columns=COLUMNS,
        records=_chosen(form.chosen),
        form=form,
        decorate=lambda rows: [AlertRow(alert, now, standing) for alert in rows],
        order=("-resolved_at", "-started_at", "-pk"),  # open ones first: NULL is the highest in PostgreSQL
    )
    if (file := table.export()) is not None:
        return file
    context = {"form": form, "t": table.context(), "filtered": table.filtered, "rules": bool(rules)}
    return render(request, "health/alerts/list.html", context)


def _chosen(chosen: dict[str, Any]) -> QuerySet[Alert]:
    rows = Alert.objects.select_related("rule")
    if text := chosen.get("q"):
        rows = rows.filter(subject__icontains=text)
    if state := chosen.get("state"):
        rows = rows.filter(STATES[state])
    if severity := chosen.get("severity"):
        rows = rows.filter(severity=severity)
    if rule := chosen.get("rule"):
        rows = rows.filter(rule__key=rule)
    if hardware := chosen.get("hardware"):
        rows = rows.filter(simulated=hardware == "simulated")
    return rows


STATES: Final = {
    alert_forms.OPEN: Q(resolved_at=None),
    str(AlertState.PENDING): Q(resolved_at=None, fired_at=None),
    str(AlertState.FIRING): Q(resolved_at=None, fired_at__isnull=False),
    str(AlertState.RESOLVED): Q(resolved_at__isnull=False),
}


@require_safe
@for_site_roles
def alert(request: HttpRequest, pk: int) -> HttpResponseBase:
    found = Alert.objects.select_related("rule").filter(pk=pk).first() if pk < LARGEST_ID else None
    if found is None:
        raise Http404(_("There is no such alert, or it never fired and is gone."))
    now = database_now()
    about = [[name, "=", [value]] for name, value in sorted(found.labels.items())]
    deliveries = AlertDelivery.objects.filter(alert=found).select_related("message__rule").order_by("message")
    context = {
        "alert": found,
        "row": AlertRow(found, now, standing_silences(now)),
        "labels": sorted(found.labels.items()),
        "threshold": alert_words.condition(found.rule),
        "messages_of_it": [delivery.message for delivery in deliveries],
        "withheld": found.simulated and not settings.ALERT_SIMULATED,
        "channels": alert_looks.CHANNELS,
        "events": alert_looks.EVENTS,
        "form": SilenceForm(initial=SilenceForm.starting(about)) if viewer(request).operates else None,
    }
    return render(request, "health/alerts/alert.html", context)


# -- silences ----------------------------------------------------------------------------------------------------------


@require_http_methods(["GET", "HEAD", "POST"])
@for_site_roles
def silences(request: HttpRequest) -> HttpResponseBase:
    """The list; a POST adds one."""
    if request.method != "POST":
        return _list(request, SilenceForm(initial=SilenceForm.starting([])))
    if not viewer(request).operates:
        raise PermissionDenied
    form = SilenceForm(request.POST)
    if form.is_valid():
        data = form.cleaned_data
        try:
            matchers = parse(data["matchers"])
            alert_changes.silence(matchers=matchers, until=data["until"], act=_act(request, data["reason"]))
        except Refused as refused:
            form.add_error(refused.field if refused.field in form.fields else None, str(refused))
        else:
            messages.success(request, _("Silenced. What fires meanwhile is recorded and not told."))
            return redirect("silences")
    return _list(request, form, status=422)


def _list(request: HttpRequest, form: SilenceForm, status: int = 200) -> HttpResponse:
    now = database_now()
    rows = Silence.objects.select_related("by", "ended_by").order_by("-period__endswith", "-pk")[:MOST_SILENCES]
    context = {
        "rows": [(row, alert_looks.told(row.matchers), row.period.upper > now) for row in rows],
        "form": form,
        "end_form": ReasonForm(auto_id=False),
        "most": MOST_SILENCES,
    }
    return render(request, "health/alerts/silences.html", context, status=status)


MOST_SILENCES: Final = 200


@require_POST
@for_operators
def end_silence(request: HttpRequest, pk: int) -> HttpResponseBase:
    found = Silence.objects.filter(pk=pk).first() if pk < LARGEST_ID else None
    if found is None:
        raise Http404(_("There is no such silence."))
    try:
        alert_changes.end_silence(silence=found, act=_act(request, request.POST.get("reason", "")))
    except Refused as refused:
        messages.error(request, str(refused))
    else:
        messages.success(request, _("The silence is over. What fires still is told now."))
    return redirect("silences")


def _act(request: HttpRequest, reason: str) -> Act:
    return Act(viewer(request), "page", reason, request_id(request))
