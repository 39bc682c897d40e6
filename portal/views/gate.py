"""Who may open a page at all: signed-in people. What they see there is decided by visible_to."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, cast

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponseBase
from django_htmx.http import HttpResponseClientRefresh

from ledger.models import User

View = Callable[..., HttpResponseBase]
PAGE_DIGITS: Final = 9
DIGITS_OF_AN_ID: Final = 18  # fits a bigint


def signed_in(view: View) -> View:
    """Like login_required; a polling part of a page whose session ended reloads the page, not the part."""
    guarded = login_required(view)

    @wraps(view)
    def inner(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.is_authenticated and request.headers.get("HX-Request") == "true":
            return HttpResponseClientRefresh()
        return guarded(request, *args, **kwargs)

    return inner


def page_number(request: HttpRequest) -> int | None:
    """The number that `?page=` asks for, 1 without it; None for what is no page number."""
    text = request.GET.get("page", "1")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= PAGE_DIGITS and int(text) > 0 else None


def id_of(text: str) -> int | None:
    """The number of a row that a person typed; None for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS_OF_AN_ID else None


def viewer(request: HttpRequest) -> User:
    """The person behind a page that `signed_in` guards."""
    return cast(User, request.user)


def request_id(request: HttpRequest) -> str:
    return str(getattr(request, "request_id", ""))
