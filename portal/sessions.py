"""Sessions as requests meet them: use is noted, a disabled account is put out, a form sent too late is kept.

Storing them is ledger.sessions; ending them by hand is portal.views.account_sessions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.http import HttpRequest, HttpResponse
from django.shortcuts import resolve_url

from portal.api.throttles import take
from portal.origin import counted_address

GetResponse = Callable[[HttpRequest], HttpResponse]
KEPT: Final = "kept_form"
KEPT_FOR_S: Final = 1_800
LARGEST_KEPT: Final = 64 * 1024
NOT_KEPT: Final = ("csrfmiddlewaretoken", "sudo_password", "password")


def activity(get_response: GetResponse) -> GetResponse:
    """Comes after AuthenticationMiddleware."""

    def middleware(request: HttpRequest) -> HttpResponse:
        session: Any = request.session
        known = request.user.is_authenticated  # asked now: a view of the API puts its own caller there
        if known:
            if not _in_the_background(request):
                session.note_use()
        elif SESSION_KEY in session:
            session.flush()  # the account was disabled; enabling it again does not bring the session back
        response = get_response(request)
        if request.method == "POST" and not known and _sent_to_sign_in(request, response):
            _keep_form(request)
        return response

    return middleware


def _in_the_background(request: HttpRequest) -> bool:
    """A page that polls does not keep its person signed in."""
    fetched = request.headers.get("Sec-Fetch-Dest") == "empty" or request.headers.get("HX-Request") == "true"
    return fetched and request.method in ("GET", "HEAD")


# -- a form that was sent after the session had ended ---------------------------------------------------------------


def _sent_to_sign_in(request: HttpRequest, response: HttpResponse) -> bool:
    if response.status_code != 302:
        return False
    target = urlsplit(response.headers.get("Location", ""))
    wanted = parse_qs(target.query).get("next", [""])[0]
    return target.path == resolve_url(settings.LOGIN_URL) and wanted == request.get_full_path()


def _keep_form(request: HttpRequest) -> None:
    """For the sign-in that follows in this browser. The form had a good CSRF token, else it would not be here."""
    fields = [[name, text] for name, texts in request.POST.lists() if name not in NOT_KEPT for text in texts]
    size = sum(len(name) + len(text) for name, text in fields)
    if not fields or size > LARGEST_KEPT or take("stranger", f"form:{counted_address(request)}"):
        return
    request.session[KEPT] = {"path": request.get_full_path(), "fields": fields, "at": int(time.time())}


def take_kept_form(request: HttpRequest, path: str) -> list[tuple[str, str]] | None:
    """What was typed for `path` before the sign-in, once; None when there is nothing."""
    kept = request.session.pop(KEPT, None)
    if not kept or kept["path"] != path or not 0 <= time.time() - kept["at"] < KEPT_FOR_S:
        return None
    return [(name, text) for name, text in kept["fields"]]
