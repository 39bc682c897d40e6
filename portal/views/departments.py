"""Departments: the tree with its ceilings and their use, and one department with its forms.

Who sees every project sees them, who audits one of them that one with those below it; site admins and site managers
write them. What may be done is judged by ledger.departments.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Count, QuerySet
from django.http import Http404, HttpRequest, HttpResponseBase, QueryDict
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from ledger import departments, limits, observation, roles
from ledger.acts import Act
from ledger.clock import database_now
from ledger.errors import Conflict, Refused
from ledger.models import Department, DepartmentCeiling, User
from portal import odd_grant_rows, quota_words
from portal.forms import card_models
from portal.quota_forms import (
    CeilingForm,
    ConfirmCeilingForm,
    MoveDepartmentForm,
    NewDepartmentForm,
    RenameDepartmentForm,
)
from portal.sudo import needs_sudo
from portal.views import ceiling_parts
from portal.views.ceiling_parts import CeilingChange
from portal.views.gate import request_id, signed_in, viewer
from portal.views.quota_parts import CeilingRow, ceiling_rows

FORMS: Final[Mapping[str, Callable[[QueryDict], forms.Form]]] = {
    "rename": RenameDepartmentForm,
    "move": MoveDepartmentForm,
    "ceiling": lambda data: CeilingForm(data, models=card_models()),
    "confirm": ConfirmCeilingForm,
}


def _may_see(request: HttpRequest) -> bool:
    """Whether they may write as well; who may not even see one is turned away."""
    user = viewer(request)
    if not user.audits_somewhere:
        raise PermissionDenied
    return roles.governs(user)


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
@needs_sudo
def department_list(request: HttpRequest) -> HttpResponseBase:
    """The tree; a POST makes a new department."""
    may_write = _may_see(request)
    if request.method != "POST":
        return _list(request, NewDepartmentForm() if may_write else None)
    if not may_write:
        raise PermissionDenied
    return _create(request)


def _list(request: HttpRequest, form: NewDepartmentForm | None, status: int = 200) -> HttpResponseBase:
    return render(request, "departments/list.html", {"tree": _tree(viewer(request)), "form": form}, status=status)


def _seen(user: User) -> QuerySet[Department]:
    rows = Department.objects.all()
    return rows if user.sees_everything else rows.filter(pk__in=user.audited_departments)


def _tree(user: User) -> list[dict[str, Any]]:
    """Every department that they may see with its depth below the first of these, in the order of a tree."""
    below: dict[int | None, list[Any]] = defaultdict(list)
    shown = list(_seen(user).annotate(own=Count("projects")).order_by("title", "slug"))
    known = {one.pk for one in shown}
    for one in shown:
        below[one.parent_id if one.parent_id in known else None].append(one)
    ceilings = _ceilings(database_now())
    found: list[dict[str, Any]] = []

    def walk(parent: int | None, depth: int) -> None:
        for one in below[parent]:
            found.append({"department": one, "depth": depth, "indent": range(depth), "ceilings": ceilings[one.pk]})
            walk(one.pk, depth + 1)

    walk(None, 0)
    return found


def _ceilings(now: dt.datetime, department: Department | None = None) -> dict[int, list[CeilingRow]]:
    rows = DepartmentCeiling.objects.filter(period__contains=now).select_related("department", "by")
    rows = rows.filter(department=department) if department else rows
    by_department: dict[int, list[CeilingRow]] = defaultdict(list)
    for row in ceiling_rows(list(rows.order_by("resource", "model"))):
        by_department[row.ceiling.department_id].append(row)
    return by_department


def _create(request: HttpRequest) -> HttpResponseBase:
    form = NewDepartmentForm(request.POST)
    if not form.is_valid():
        return _list(request, form, status=422)
    data = form.cleaned_data
    try:
        made = departments.create_department(
            slug=data["slug"], title=data["title"], parent=data["parent"], act=_act(request, form)
        )
    except Refused as refused:
        form.add_error(refused.field if refused.field in form.fields else None, str(refused))
        return _list(request, form, status=409 if isinstance(refused, Conflict) else 422)
    messages.success(request, _("Department %(slug)s is there.") % {"slug": made.slug})
    return redirect("department", slug=made.slug)


def _department(request: HttpRequest, slug: str) -> Department:
    found = _seen(viewer(request)).select_related("parent").filter(slug=slug).first()
    if found is None:
        raise Http404(_("There is no such department."))
    return found


@require_safe
@signed_in
def department_page(request: HttpRequest, slug: str) -> HttpResponseBase:
    _may_see(request)
    return _page(request, _department(request, slug))


def _page(
    request: HttpRequest, department: Department, wrong: Mapping[str, forms.Form] | None = None, status: int = 200
) -> HttpResponseBase:
    now, user = database_now(), viewer(request)
    former = DepartmentCeiling.objects.filter(department=department).exclude(period__contains=now)
    context: dict[str, Any] = {
        "department": department,
        "opens_parent": user.audits(department.parent_id),
        "odd": odd_grant_rows.standing(user, department=department),
        "may_give": roles.is_admin(user),
        "children": list(department.children.order_by("title", "slug")),
        "projects": list(department.projects.order_by("slug")),
        "ceilings": _ceilings(now, department)[department.pk],
        "former": list(former.select_related("by").order_by("-period")[:50]),
    }
    context["effects"] = ceiling_parts.effects(context["ceilings"], department)
    if roles.governs(user):
        parent = department.parent.slug if department.parent else ""
        fresh = {
            "rename": RenameDepartmentForm(initial={"title": department.title}),
            "move": MoveDepartmentForm(initial={"parent": parent}),
            "ceiling": CeilingForm(initial=_standing(request, context["ceilings"]), models=card_models()),
        }
        context["forms"] = fresh | dict(wrong or {})
    return render(request, "departments/department.html", context, status=status)


@require_POST
@signed_in
@needs_sudo
def department_change(request: HttpRequest, slug: str) -> HttpResponseBase:
    """`what` says which of the forms was sent. A ceiling is previewed first and set when that is confirmed."""
    if not _may_see(request):
        raise PermissionDenied
    department, what = _department(request, slug), request.POST.get("what", "")
    if what not in FORMS:
        messages.error(request, _("Choose what to change."))
        return _page(request, department, status=422)
    form = FORMS[what](request.POST)
    if what == "confirm":
        return _confirm(request, department, form)
    if not form.is_valid():
        return _page(request, department, {what: form}, status=422)
    if what == "ceiling":
        return _propose(request, department, form)
    try:
        CHANGES[what](department, form, _act(request, form))
    except Refused as refused:
        form.add_error(refused.field if refused.field in form.fields else None, str(refused))
        return _page(request, department, {what: form}, status=409 if isinstance(refused, Conflict) else 422)
    messages.success(request, _("The department is changed."))
    return redirect("department", slug=department.slug)


def _rename(department: Department, form: Any, act: Act) -> None:
    departments.rename_department(department=department, title=form.cleaned_data["title"], act=act)


def _move(department: Department, form: Any, act: Act) -> None:
    departments.move_department(department=department, parent=form.cleaned_data["parent"], act=act)


CHANGES: Final[Mapping[str, Callable[[Department, Any, Act], None]]] = {
    "rename": _rename,
    "move": _move,
}


# -- ceilings ----------------------------------------------------------------------------------------------------------


def _standing(request: HttpRequest, rows: list[CeilingRow]) -> dict[str, Any]:
    """The form with what stands of the resource and model that `?resource=` and `?model=` name."""
    resource, model = request.GET.get("resource", ""), request.GET.get("model", "")
    found = next((row.ceiling for row in rows if (row.ceiling.resource, row.ceiling.model) == (resource, model)), None)
    if found is None:
        return {}
    amount = quota_words.people_units(resource, found.amount)
    return {"resource": resource, "model": model, "amount": amount, "renews": found.renews}


def _propose(request: HttpRequest, department: Department, form: Any) -> HttpResponseBase:
    """Tried out; the preview, or the errors beside the fields."""
    cap, lifts = form.cap, form.lifts
    standing = ceiling_parts.of_now(department, cap.resource, cap.model)
    try:
        if not lifts:
            departments.try_ceiling(department=department, cap=cap, act=_act(request))
        elif standing is None:
            raise Refused(_("It has no such ceiling."), field="amount", code="no_change")
    except Refused as refused:
        form.add_error(refused.field if refused.field in form.fields else None, str(refused))
        return _page(request, department, {"ceiling": form}, status=422)
    change = CeilingChange(cap, lifts, standing.pk if standing else limits.NONE)
    sealed = ceiling_parts.sealed(department, change)
    return _preview(request, department, change, ConfirmCeilingForm(initial={"change": sealed}))


def _preview(
    request: HttpRequest, department: Department, change: CeilingChange, form: ConfirmCeilingForm, status: int = 200
) -> HttpResponseBase:
    facts = ceiling_parts.preview(department, change)
    until = facts["observed_until"]
    form.fields["override_reason"].required = until is not None
    facts["window_text"] = observation.window_text(until) if until else ""
    return render(request, "departments/preview.html", facts | {"department": department, "form": form}, status=status)


def _confirm(request: HttpRequest, department: Department, form: Any) -> HttpResponseBase:
    change = ceiling_parts.opened(department, request.POST.get("change", ""))
    if change is None:
        messages.error(request, _("This preview is older than an hour or not ours. Nothing was changed; begin anew."))
        return _page(request, department, status=422)
    if not form.is_valid():
        return _preview(request, department, change, form, status=422)
    how = {"department": department, "act": _act(request, form), "shown": change.shown}
    how["override"] = form.cleaned_data["override_reason"]
    try:
        if change.lift:
            departments.lift_ceiling(resource=change.cap.resource, model=change.cap.model, **how)
        else:
            departments.set_ceiling(cap=change.cap, **how)
    except Refused as refused:
        form.add_error(refused.field if refused.field in form.fields else None, str(refused))
        return _preview(request, department, change, form, status=409 if isinstance(refused, Conflict) else 422)
    messages.success(request, _("The ceiling is changed."))
    return redirect("department", slug=department.slug)


def _act(request: HttpRequest, form: forms.Form | None = None) -> Act:
    return Act(viewer(request), "page", form.cleaned_data["reason"] if form else "", request_id(request))
