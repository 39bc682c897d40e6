"""Pages of the rules of alerts: the list, and a change or a new one with what it would find before it is saved.
Operators and administrators change them, with a reason and a fresh password."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_safe

from ledger.acts import Act
from ledger.errors import Conflict, Refused
from portal import alert_looks
from portal.alert_forms import RuleForm
from portal.forms import ReasonForm
from portal.sudo import needs_sudo
from portal.views.gate import request_id, viewer
from portal.views.ops_gate import for_operators, for_site_roles
from scheduler import alert_changes, alert_preview, alert_words
from scheduler.alert_changes import RuleTerms
from scheduler.alert_rows import AlertRule

FILE: Final = Path(__file__).resolve().parents[1] / "alerting" / "gpu-commons.rules.yml"


@require_safe
@for_site_roles
def rules(request: HttpRequest) -> HttpResponseBase:
    rows = AlertRule.objects.select_related("by").order_by("metric", "-threshold", "key")
    context = {"rows": [RuleRow(rule) for rule in rows]}
    return render(request, "health/alerts/rules.html", context)


class RuleRow:
    """A rule with its words."""

    def __init__(self, rule: AlertRule) -> None:
        self.rule = rule
        self.name = alert_words.name(rule)
        self.condition = alert_words.condition(rule)
        self.severity = alert_looks.SEVERITIES[rule.severity]
        self.labels = alert_looks.told(rule.selector)


@require_safe
@for_site_roles
def prometheus_file(request: HttpRequest) -> HttpResponseBase:
    """Rules over /metrics, for sites that have a Prometheus."""
    response = HttpResponse(FILE.read_bytes(), content_type="application/yaml")
    response["Content-Disposition"] = f'attachment; filename="{FILE.name}"'
    return response


@require_http_methods(["GET", "HEAD", "POST"])
@for_operators
def new(request: HttpRequest) -> HttpResponseBase:
    return _edit(request, None)


@require_http_methods(["GET", "HEAD", "POST"])
@for_operators
def change(request: HttpRequest, pk: int) -> HttpResponseBase:
    """The form; a POST of it shows what the rule would find; that one, confirmed, saves it."""
    found = AlertRule.objects.filter(pk=pk).first() if pk < 2**63 else None
    if found is None:
        raise Http404(_("There is no such rule."))
    return _edit(request, found)


def _edit(request: HttpRequest, rule: AlertRule | None) -> HttpResponseBase:
    if request.method != "POST":
        return _form(request, rule, RuleForm(initial=RuleForm.starting(rule)))
    if "confirm" in request.POST:
        return _confirmed(request, rule)
    form = RuleForm(request.POST)
    terms = _terms(form)
    if terms is None:
        return _form(request, rule, form, status=422)
    return _preview(request, rule, form, terms, ReasonForm())


@needs_sudo
def _confirmed(request: HttpRequest, rule: AlertRule | None) -> HttpResponseBase:
    form, reason = RuleForm(request.POST), ReasonForm(request.POST)
    terms = _terms(form)
    if terms is None:
        return _form(request, rule, form, status=422)
    if not reason.is_valid():
        return _preview(request, rule, form, terms, reason, status=422)
    act = Act(viewer(request), "page", reason.cleaned_data["reason"], request_id(request))
    try:
        if rule is None:
            alert_changes.add_rule(terms=terms, act=act)
        else:
            alert_changes.change_rule(rule=rule, terms=terms, act=act, shown=form.cleaned_data["version"])
    except Refused as refused:
        form.add_error(refused.field if refused.field in form.fields else None, str(refused))
        return _form(request, rule, form, status=409 if isinstance(refused, Conflict) else 422)
    messages.success(request, _("The rule is saved; it holds from the next pass on."))
    return redirect("alert-rules")


def _terms(form: RuleForm) -> RuleTerms | None:
    """What the form says, judged; None with the errors beside its fields."""
    if not form.is_valid():
        return None
    try:
        terms = form.terms
        alert_changes.check_rule(terms)
    except Refused as refused:
        form.add_error(refused.field if refused.field in form.fields else None, str(refused))
        return None
    return terms


def _form(request: HttpRequest, rule: AlertRule | None, form: RuleForm, status: int = 200) -> HttpResponse:
    context = {"form": form, "rule": rule, "name": alert_words.name(rule) if rule else ""}
    return render(request, "health/alerts/rule.html", context, status=status)


def _preview(
    request: HttpRequest,
    rule: AlertRule | None,
    form: RuleForm,
    terms: RuleTerms,
    reason: ReasonForm,
    status: int = 200,
) -> HttpResponse:
    names = {name: getattr(terms, name) for name in alert_changes.TERMS}
    proposed = AlertRule(key=rule.key if rule else "new", **names)
    before = alert_words.condition(rule) if rule else ""
    context: dict[str, Any] = {
        "form": form,
        "kept": [(name, text) for name, text in request.POST.items() if name in form.fields],
        "reason": reason,
        "rule": rule,
        "name": alert_words.name(proposed),
        "before": before,
        "after": alert_words.condition(proposed),
        "proposed": RuleRow(proposed),
        "effect": alert_preview.effect(proposed),
    }
    return render(request, "health/alerts/rule_preview.html", context, status=status)
