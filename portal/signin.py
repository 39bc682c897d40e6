"""Throttling of passwords by django-axes: an account from one address, and an address over all accounts.

Counts only; who someone is, is decided by Django's ModelBackend. A name that nobody has is treated as any other.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any

from axes.attempts import get_cool_off_threshold
from axes.handlers.database import AxesDatabaseHandler
from axes.handlers.proxy import AxesProxyHandler
from axes.models import AccessAttempt
from django.conf import settings
from django.contrib.auth import authenticate
from django.db.models import Sum
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.utils import timezone

from ledger.models import User
from ledger.people import record_lock
from portal.origin import counted_address

TOO_MANY = 429
MINUTE = 60
LONGEST_NAME = 255  # of axes' column; the longest name of a real account is 150


def counted_name(request: HttpRequest, credentials: dict[str, Any] | None) -> str:
    """What axes counts attempts under."""
    return str((credentials or {}).get("username") or "")[:LONGEST_NAME]


class Handler(AxesDatabaseHandler):  # type: ignore[misc]
    """axes' own, with a second limit for an address, and without keeping what was typed."""

    def get_failures(self, request: Any, credentials: dict[str, Any] | None = None) -> int:
        """Failures of this account from this address; those of the address over all accounts count as much as makes
        SIGN_IN_LIMIT out of SIGN_IN_ADDRESS_LIMIT, since axes compares one number with one limit."""
        own: int = super().get_failures(request, credentials)
        recent = AccessAttempt.objects.filter(
            ip_address=request.axes_ip_address, attempt_time__gte=get_cool_off_threshold(request)
        )
        found = recent.aggregate(n=Sum("failures_since_start"))["n"] or 0
        return max(own, found * settings.SIGN_IN_LIMIT // settings.SIGN_IN_ADDRESS_LIMIT)

    def user_login_failed(self, sender: Any, credentials: dict[str, Any], request: Any = None, **kwargs: Any) -> None:
        if request is None:
            return
        typed = request.GET, request.POST
        request.GET = request.POST = QueryDict()  # axes stores both, and a form may hold any secret
        try:
            super().user_login_failed(sender, credentials, request, **kwargs)
        finally:
            request.GET, request.POST = typed
        # A denied attempt leaves the count alone; only the failure that closed the door has one.
        if request.axes_locked_out and request.axes_failures_since_start is not None:
            record_lock(
                username=counted_name(request, credentials),
                address=request.axes_ip_address,
                failures=request.axes_failures_since_start,
                request_id=str(getattr(request, "request_id", "")),
            )


def seconds_locked(request: HttpRequest, username: str) -> int:
    """How long this account can't be tried from this address; 0 when it can."""
    rows = list(
        AccessAttempt.objects.filter(
            ip_address=counted_address(request), attempt_time__gte=timezone.now() - settings.AXES_COOLOFF_TIME
        )
        .order_by("attempt_time")
        .values_list("username", "attempt_time", "failures_since_start")
    )
    own = ((at, failures) for name, at, failures in rows if name == username)
    everybody = ((at, failures) for _name, at, failures in rows)
    free_at = max(_free_at(own, settings.SIGN_IN_LIMIT), _free_at(everybody, settings.SIGN_IN_ADDRESS_LIMIT))
    return max(0, -int((timezone.now() - free_at).total_seconds() // 1))


def _free_at(rows: Iterable[tuple[dt.datetime, int]], limit: int) -> dt.datetime:
    """When so many of these failures are forgotten, oldest first, that fewer than `limit` are left."""
    found = list(rows)
    left, moment = sum(failures for _at, failures in found), timezone.now()
    for at, failures in found:
        if left < limit:
            break
        left -= failures
        moment = at + settings.AXES_COOLOFF_TIME
    return moment


def check_password(request: HttpRequest, password: str) -> bool:
    """Whether this is the password of who is signed in. Failures count as those of the sign-in page do."""
    user = request.user
    assert isinstance(user, User)  # noqa: S101  the pages that ask are for people who are signed in
    found = authenticate(request, username=user.get_username(), password=password)
    if found is None or found.pk != user.pk:
        return False
    AxesProxyHandler.reset_attempts(username=user.get_username(), ip_address=counted_address(request))
    return True


def locked_out(request: HttpRequest, response: HttpResponse | None, credentials: dict[str, Any] | None) -> HttpResponse:
    """The answer instead of that of a view in which axes closed the door; a view that tells it itself is left alone."""
    if response is not None and response.status_code == TOO_MANY:
        return response
    seconds = seconds_locked(request, counted_name(request, credentials))
    return too_many(request, "account/locked.html", seconds)


def too_many(request: HttpRequest, template: str, seconds: int, context: dict[str, Any] | None = None) -> HttpResponse:
    """A page with status 429 that says how long to wait."""
    told = {
        "minutes": max(1, -(-seconds // MINUTE)),
        "seconds": seconds,
        "until": timezone.now() + dt.timedelta(seconds=seconds),
    }
    response = render(request, template, told | (context or {}), status=TOO_MANY)
    response["Retry-After"] = str(max(1, seconds))
    response["Cache-Control"] = "no-store"
    return response
