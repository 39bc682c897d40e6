"""Sudo mode: a dangerous act wants a password that was given in the last ten minutes.

`@needs_sudo` goes below `@signed_in` on a view that takes a plain form. GET and HEAD pass. A POST without a fresh proof
is answered by a page that asks for the password and carries the whole form along; it sends both to the same address,
so nothing is stored and nothing is followed.
"""

from __future__ import annotations

import time
from functools import wraps
from typing import Any, Final

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters

from ledger.sessions import STARTED
from portal.signin import check_password, seconds_locked, too_many
from portal.views.gate import View, viewer

FRESH_S: Final = 600
PROVED: Final = "proved"  # in the session: when the password was last given, in Unix seconds
FIELD: Final = "sudo_password"
NOT_KEPT: Final = (FIELD, "csrfmiddlewaretoken")
HARMLESS: Final = ("GET", "HEAD", "OPTIONS")
TEMPLATE: Final = "account/sudo.html"


def needs_sudo(view: View) -> View:
    """Ask for the password before this view acts, unless it was given in the last ten minutes (sign-in counts)."""

    @sensitive_post_parameters(FIELD)
    @wraps(view)
    def inner(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.method in HARMLESS:
            return view(request, *args, **kwargs)
        if not request.user.is_authenticated:
            return redirect_to_login(request.get_full_path())
        if not is_fresh(request):
            password = request.POST.get(FIELD)
            if password is None:
                return _ask(request, status=403)
            if not check_password(request, password):
                return _refused(request)
            note_proof(request)
        _strip(request)
        return view(request, *args, **kwargs)

    return inner


def is_fresh(request: HttpRequest) -> bool:
    proved = max(request.session.get(PROVED, 0), request.session.get(STARTED, 0))
    return bool(0 <= time.time() - proved < FRESH_S)


def note_proof(request: HttpRequest) -> None:
    request.session[PROVED] = int(time.time())


def _strip(request: HttpRequest) -> None:
    """The view sees the form as it would have been without the question."""
    if FIELD in request.POST:
        posted = request.POST.copy()
        del posted[FIELD]
        request.POST = posted  # type: ignore[assignment]


def _ask(request: HttpRequest, status: int, error: str = "") -> HttpResponse:
    return render(request, TEMPLATE, {"kept": _kept(request), "error": error}, status=status)


def _refused(request: HttpRequest) -> HttpResponse:
    seconds = seconds_locked(request, viewer(request).get_username())
    if seconds:
        return too_many(request, TEMPLATE, seconds, {"kept": _kept(request)})
    return _ask(request, status=422, error=_("This is not your password. Nothing was done yet."))


def _kept(request: HttpRequest) -> list[tuple[str, str]]:
    return [(name, text) for name, texts in request.POST.lists() if name not in NOT_KEPT for text in texts]
