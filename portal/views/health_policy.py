"""The health policy: what holds at each site, every version with what it changed, and the change of one rule at a time
with a preview over real faults. Everybody reads; site admins change it. What may be said is judged by
ledger.health_policy."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from ledger import health_policy
from ledger.acts import Act
from ledger.errors import Conflict, Refused
from ledger.health_policy import EVERY_SITE
from ledger.models import HealthVersion
from ledger.roles import is_admin
from portal import health_policy_words as words
from portal.health_policy_forms import FIELDS, ConfirmForm, InspectionForm, OfASite, RuleForm, initial
from portal.sudo import needs_sudo
from portal.typed import whole
from portal.views import health_policy_parts as parts
from portal.views.gate import request_id, signed_in, viewer
from portal.views.health_policy_parts import INSPECTION, PUT_BACK, REMOVE, RULE, WITHDRAW, Change

LONGEST_NUMBER: Final = 9
FORMS: Final = {RULE: RuleForm, INSPECTION: InspectionForm}


@require_safe
@signed_in
def policy(request: HttpRequest) -> HttpResponseBase:
    site, known = _site(request), health_policy.sites()
    standing = health_policy.in_force(site)
    context = {
        "site": site,
        "site_name": words.site_name(site),
        "sites": known,
        "policy": standing,
        "own": health_policy.own_of(site),
        "rows": parts.table(standing),
        "meanings": [(words.ACTIONS[action], text) for action, text in words.MEANINGS.items()],
        "history": parts.history(),
        "admin": is_admin(viewer(request)),
        "inspect_h": standing.inspect_window_s // 3600,
    }
    return render(request, "health/policy/policy.html", context)


def _site(request: HttpRequest) -> str:
    site = request.GET.get("site", EVERY_SITE)
    if site != EVERY_SITE and site not in health_policy.sites():
        raise Http404(_("There is no site of this name."))
    return site


@require_safe
@signed_in
def version(request: HttpRequest, number: int) -> HttpResponseBase:
    """A version as it was, and what it changed. 0 is the portal's own table."""
    row = HealthVersion.objects.select_related("by").filter(number=number).first() if number < 2**31 else None
    if row is None and number != 0:
        raise Http404(_("There is no version of this number."))
    found = parts.after(row) if row is not None else health_policy.DEFAULT
    context = {
        "number": number,
        "row": row,
        "site": row.site if row else EVERY_SITE,
        "site_name": words.site_name(row.site if row else EVERY_SITE),
        "changed": parts.history(before=number, most=1)[0].changed if row else [],
        "rows": parts.table(found),
        "inspect_after": found.inspect_after,
        "inspect_h": found.inspect_window_s // 3600,
        "admin": is_admin(viewer(request)),
        "current": health_policy.in_force(row.site if row else EVERY_SITE).number == number,
    }
    return render(request, "health/policy/version.html", context)


# -- change → preview → confirm ----------------------------------------------------------------------------------------


def _admins_only(request: HttpRequest) -> None:
    if not is_admin(viewer(request)):
        raise PermissionDenied


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def change(request: HttpRequest) -> HttpResponseBase:
    """The form of one rule, or with `?what=inspection` of when nodes are inspected; a POST of it shows the preview."""
    _admins_only(request)
    given = request.POST if request.method == "POST" else request.GET
    what = INSPECTION if given.get("what") == INSPECTION else RULE
    if request.method != "POST":
        return _form(request, what, FORMS[what](initial=_starting(request, what)))
    form: OfASite = FORMS[what](request.POST)
    if not form.is_valid():
        return _form(request, what, form, status=422)
    proposed = _proposed(what, form)
    try:
        return _preview(request, proposed, ConfirmForm(initial={"change": parts.sealed(proposed)}))
    except Refused as refused:
        field = FIELDS.get(refused.field, refused.field)
        form.add_error(field if field in form.fields else None, str(refused))
        return _form(request, what, form, status=422)


def _form(request: HttpRequest, what: str, form: OfASite, status: int = 200) -> HttpResponseBase:
    context = {"form": form, "what": what, "meanings": [(words.ACTIONS[a], text) for a, text in words.MEANINGS.items()]}
    return render(request, "health/policy/change.html", context, status=status)


def _starting(request: HttpRequest, what: str) -> dict[str, Any]:
    site = _site(request)
    standing = health_policy.in_force(site)
    if what == INSPECTION:
        hours = standing.inspect_window_s // 3600
        return {"site": site, "days": 30, "inspect_after": standing.inspect_after, "inspect_h": hours}
    code = request.GET.get("code", "")
    rule = parts.rule_named(standing, request.GET.get("kind", ""), whole(code, LONGEST_NUMBER) if code else None)
    return initial(standing, site, rule)


def _proposed(what: str, form: OfASite) -> Change:
    data = form.cleaned_data
    site = data["site"]
    shown = health_policy.in_force(site).number
    if isinstance(form, RuleForm):
        return Change(REMOVE if data["remove"] else RULE, site, shown, data["days"], parts.packed_rule(form.rule))
    values = {"inspect_after": data["inspect_after"], "inspect_window_s": data["inspect_h"] * 3600}
    return Change(what, site, shown, data["days"], values)


@require_safe
@signed_in
def put_back(request: HttpRequest, number: int) -> HttpResponseBase:
    """The preview of an older version as the next one; `?site=` says where. `?withdraw=yes`: the site has none of its
    own any more."""
    _admins_only(request)
    site = _site(request)
    shown = health_policy.in_force(site).number
    days = 90 if request.GET.get("days") == "90" else 30
    withdraws = request.GET.get("withdraw") == "yes"
    proposed = Change(WITHDRAW if withdraws else PUT_BACK, site, shown, days, {"number": number})
    try:
        return _preview(request, proposed, ConfirmForm(initial={"change": parts.sealed(proposed)}))
    except Refused as refused:
        raise Http404(str(refused)) from refused


def _preview(request: HttpRequest, proposed: Change, form: ConfirmForm, *, status: int = 200) -> HttpResponseBase:
    context = parts.preview(proposed) | {"form": form}
    return render(request, "health/policy/preview.html", context, status=status)


@require_POST
@signed_in
@needs_sudo
def confirm(request: HttpRequest) -> HttpResponseBase:
    _admins_only(request)
    form, proposed = ConfirmForm(request.POST), parts.opened(request.POST.get("change", ""))
    if proposed is None:
        messages.error(request, _("This preview is older than an hour or not ours. Nothing was changed; begin anew."))
        return _form(request, RULE, RuleForm(initial={"days": 30}), status=422)
    try:
        if not form.is_valid():
            return _preview(request, proposed, form, status=422)
        made = _make(proposed, Act(viewer(request), "page", form.cleaned_data["reason"], request_id(request)))
    except Refused as refused:
        messages.error(request, str(refused))
        status = 409 if isinstance(refused, Conflict) else 422
        return _form(request, RULE, RuleForm(initial={"site": proposed.site, "days": 30}), status=status)
    messages.success(request, _("The health policy is changed: this is version %(n)d.") % {"n": made.number})
    where = reverse("health-policy")
    return redirect(f"{where}?site={made.site}" if made.site else where)


def _make(proposed: Change, act: Act) -> HealthVersion:
    made = parts.made_of(proposed)
    if made is None:
        return health_policy.withdraw(site=proposed.site, act=act, shown=proposed.shown)
    return health_policy.put_version(
        site=proposed.site,
        rules=made.rules,
        inspect_after=made.inspect_after,
        inspect_window_s=made.inspect_window_s,
        act=act,
        shown=proposed.shown,
    )
