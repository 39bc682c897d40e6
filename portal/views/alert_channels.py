"""The page of channels and the ladder: where alerts go, whether they arrive, and a test of each. Operators and
administrators act."""

from __future__ import annotations

from typing import Any, Final

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from ledger.acts import Act
from ledger.errors import Conflict, Refused
from ledger.vocabulary import DeliveryState
from portal import alert_looks
from portal.alert_forms import RungForm
from portal.sudo import needs_sudo
from portal.views.gate import request_id, viewer
from portal.views.ops_gate import for_operators, for_site_roles
from scheduler import alert_changes
from scheduler.alert_matchers import parse
from scheduler.alert_messages import configured
from scheduler.alert_rows import AlertChannel, AlertMessage, AlertPush, AlertRung

SETTINGS: Final = {
    AlertChannel.ALERTMANAGER: "ALERTMANAGER_URL",
    AlertChannel.MAIL: "ALERT_MAIL_TO, EMAIL_HOST",
    AlertChannel.WEBHOOK: "ALERT_WEBHOOK_URL, ALERT_WEBHOOK_SECRET",
}


@require_safe
@for_site_roles
def channels(request: HttpRequest) -> HttpResponseBase:
    rungs = AlertRung.objects.select_related("by").order_by("position", "pk")
    context = {
        "channels": [_channel(channel) for channel in AlertChannel],
        "rungs": [_rung(rung) for rung in rungs],
        "simulated": settings.ALERT_SIMULATED,
    }
    return render(request, "health/alerts/channels.html", context)


def _channel(channel: AlertChannel) -> dict[str, Any]:
    """How it is configured, its last messages, and how many wait."""
    rows = AlertMessage.objects.filter(channel=channel).exclude(state=DeliveryState.NOT_CONFIGURED)
    return {
        "key": str(channel),
        "look": alert_looks.CHANNELS[channel],
        "configured": configured(channel),
        "settings": SETTINGS[channel],
        "last": rows.order_by("-pk").first(),
        "sent": rows.filter(state=DeliveryState.SENT).order_by("-sent_at").first(),
        "waiting": rows.filter(state=DeliveryState.PENDING).count(),
        "failed": rows.filter(state=DeliveryState.FAILED).count(),
        "push": AlertPush.objects.filter(channel=channel).first(),
    }


def _rung(rung: AlertRung) -> dict[str, Any]:
    return {
        "rung": rung,
        "name": alert_looks.RUNGS.get(rung.key, rung.key),
        "matchers": alert_looks.told(rung.matchers),
        "channels": [alert_looks.CHANNELS[channel].label for channel in rung.channels],
    }


@require_POST
@for_operators
def test(request: HttpRequest, channel: str) -> HttpResponseBase:
    if channel not in list(AlertChannel):
        raise Http404(_("There is no such channel."))
    try:
        alert_changes.send_test(channel=channel, act=Act(viewer(request), "page", "", request_id(request)))
    except Refused as refused:
        messages.error(request, str(refused))
    else:
        messages.success(request, _("A test alert is on its way; its state stands here in a moment."))
    return redirect("alert-channels")


@require_http_methods(["GET", "HEAD", "POST"])
@for_operators
def rung(request: HttpRequest, pk: int) -> HttpResponseBase:
    found = AlertRung.objects.filter(pk=pk).first() if pk < 2**63 else None
    if found is None:
        raise Http404(_("There is no such rung."))
    if request.method != "POST":
        return _form(request, found, RungForm(initial=RungForm.starting(found)))
    return _changed(request, found)


@needs_sudo
def _changed(request: HttpRequest, found: AlertRung) -> HttpResponseBase:
    form = RungForm(request.POST)
    if not form.is_valid():
        return _form(request, found, form, status=422)
    data = form.cleaned_data
    try:
        alert_changes.change_rung(
            rung=found,
            matchers=parse(data["matchers"]),
            channels=data["channels"],
            enabled=data["enabled"],
            act=Act(viewer(request), "page", data["reason"], request_id(request)),
            shown=data["version"],
        )
    except Refused as refused:
        form.add_error(refused.field if refused.field in form.fields else None, str(refused))
        return _form(request, found, form, status=409 if isinstance(refused, Conflict) else 422)
    messages.success(request, _("The ladder is changed; it holds for alerts that fire from now on."))
    return redirect("alert-channels")


def _form(request: HttpRequest, found: AlertRung, form: RungForm, status: int = 200) -> HttpResponse:
    context = {"form": form, "rung": found, "name": alert_looks.RUNGS.get(found.key, found.key)}
    return render(request, "health/alerts/rung.html", context, status=status)
