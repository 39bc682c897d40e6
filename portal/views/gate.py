"""Who may open a page at all: signed-in people. What they see there is decided by visible_to."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, cast

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponseBase
from django_htmx.http import HttpResponseClientRefresh

from ledger.models import User

View = Callable[..., HttpResponseBase]


def signed_in(view: View) -> View:
    """Like login_required; a polling part of a page whose session ended reloads the page, not the part."""
    guarded = login_required(view)

    @wraps(view)
    def inner(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.is_authenticated and request.headers.get("HX-Request") == "true":
            return HttpResponseClientRefresh()
        return guarded(request, *args, **kwargs)

    return inner


def viewer(request: HttpRequest) -> User:
    """The person behind a page that `signed_in` guards."""
    return cast(User, request.user)


def request_id(request: HttpRequest) -> str:
    return str(getattr(request, "request_id", ""))
