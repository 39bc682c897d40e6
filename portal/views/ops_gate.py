"""Who opens the operators' pages: the site roles read them, operators and administrators act. Others get 403."""

from __future__ import annotations

from functools import wraps
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase

from portal.views.gate import View, signed_in, viewer


def for_site_roles(view: View) -> View:
    """Operators, administrators, managers and auditors."""

    @wraps(view)
    def inner(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not viewer(request).sees_everything:
            raise PermissionDenied
        return view(request, *args, **kwargs)

    return signed_in(inner)


def for_watchers_of_machines(view: View) -> View:
    """The site roles, and who operates a zone; which machines they see the view asks."""

    @wraps(view)
    def inner(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        user = viewer(request)
        if not user.sees_everything and not user.operates_somewhere:
            raise PermissionDenied
        return view(request, *args, **kwargs)

    return signed_in(inner)


def for_operators_of_machines(view: View) -> View:
    """Operators and administrators, and who operates a zone; which machines are theirs the view asks."""

    @wraps(view)
    def inner(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not viewer(request).operates_somewhere:
            raise PermissionDenied
        return view(request, *args, **kwargs)

    return signed_in(inner)


def for_readers_of_ends(view: View) -> View:
    """The site roles, and who audits a department."""

    @wraps(view)
    def inner(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not viewer(request).audits_somewhere:
            raise PermissionDenied
        return view(request, *args, **kwargs)

    return signed_in(inner)


def for_operators(view: View) -> View:
    """Operators and administrators."""

    @wraps(view)
    def inner(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not viewer(request).operates:
            raise PermissionDenied
        return view(request, *args, **kwargs)

    return signed_in(inner)
