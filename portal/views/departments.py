"""Departments: the tree with its ceilings and their use, and one department with its forms.

Who sees every project sees them, who audits one of them that one with those below it; site admins and site managers
write them. What may be done is judged by ledger.departments.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Count, QuerySet
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from ledger import departments, roles
from ledger.acts import Act
from ledger.clock import database_now
from ledger.errors import Conflict, Refused
from ledger.models import Department, DepartmentCeiling, User
from portal import odd_grant_rows
from portal.quota_forms import CeilingForm, MoveDepartmentForm, NewDepartmentForm, RenameDepartmentForm
from portal.sudo import needs_sudo
from portal.views.gate import request_id, signed_in, viewer
from portal.views.quota_parts import CeilingRow, ceiling_rows

FORMS: Final[Mapping[str, type[forms.Form]]] = {
    "rename": RenameDepartmentForm,
    "move": MoveDepartmentForm,
    "ceiling": CeilingForm,
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
    ceilings = _ceilings()
    found: list[dict[str, Any]] = []

    def walk(parent: int | None, depth: int) -> None:
        for one in below[parent]:
            found.append({"department": one, "depth": depth, "indent": range(depth), "ceilings": ceilings[one.pk]})
            walk(one.pk, depth + 1)

    walk(None, 0)
    return found


def _ceilings(department: Department | None = None) -> dict[int, list[CeilingRow]]:
    rows = DepartmentCeiling.objects.filter(period__contains=database_now()).select_related("department", "by")
    rows = rows.filter(department=department) if department else rows
    by_department: dict[int, list[CeilingRow]] = defaultdict(list)
    for row in ceiling_rows(list(rows.order_by("resource"))):
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
        "parent": department.parent if user.audits(department.parent_id) else None,
        "odd": odd_grant_rows.standing(user, department=department),
        "may_give": roles.is_admin(user),
        "children": list(department.children.order_by("title", "slug")),
        "projects": list(department.projects.order_by("slug")),
        "ceilings": _ceilings(department)[department.pk],
        "former": list(former.select_related("by").order_by("-period")[:50]),
    }
    if roles.governs(user):
        parent = department.parent.slug if department.parent else ""
        fresh = {
            "rename": RenameDepartmentForm(initial={"title": department.title}),
            "move": MoveDepartmentForm(initial={"parent": parent}),
            "ceiling": CeilingForm(),
        }
        context["forms"] = fresh | dict(wrong or {})
    return render(request, "departments/department.html", context, status=status)


@require_POST
@signed_in
@needs_sudo
def department_change(request: HttpRequest, slug: str) -> HttpResponseBase:
    """`what` says which of the forms was sent."""
    if not _may_see(request):
        raise PermissionDenied
    department, what = _department(request, slug), request.POST.get("what", "")
    if what not in FORMS:
        messages.error(request, _("Choose what to change."))
        return _page(request, department, status=422)
    form = FORMS[what](request.POST)
    if not form.is_valid():
        return _page(request, department, {what: form}, status=422)
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


def _cap(department: Department, form: Any, act: Act) -> None:
    if form.cleaned_data["amount"] is None:
        departments.lift_ceiling(department=department, resource=form.cleaned_data["resource"], act=act)
    else:
        departments.set_ceiling(department=department, cap=form.cap, act=act)


CHANGES: Final[Mapping[str, Callable[[Department, Any, Act], None]]] = {
    "rename": _rename,
    "move": _move,
    "ceiling": _cap,
}


def _act(request: HttpRequest, form: forms.Form) -> Act:
    return Act(viewer(request), "page", form.cleaned_data["reason"], request_id(request))
