"""Request ids, and each person's language and time zone."""

from __future__ import annotations

import re
import uuid
import zoneinfo
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.utils import timezone, translation

GetResponse = Callable[[HttpRequest], HttpResponse]
ID = re.compile(r"^[A-Za-z0-9._-]{1,64}$")


def request_id(get_response: GetResponse) -> GetResponse:
    """Keep a well-formed X-Request-ID, else make one; it is stored with every audit row."""

    def middleware(request: HttpRequest) -> HttpResponse:
        given = request.headers.get("X-Request-ID", "")
        request.request_id = given if ID.match(given) else uuid.uuid4().hex  # type: ignore[attr-defined]
        response = get_response(request)
        response["X-Request-ID"] = request.request_id  # type: ignore[attr-defined]
        return response

    return middleware


def personal(get_response: GetResponse) -> GetResponse:
    """Signed-in people choose language and zone in their account; others get what the browser asks for."""

    def middleware(request: HttpRequest) -> HttpResponse:
        user = request.user
        if user.is_authenticated and user.locale == "zh-hans":
            translation.activate("zh-hans")
            request.LANGUAGE_CODE = "zh-hans"
        if user.is_authenticated:
            try:
                timezone.activate(zoneinfo.ZoneInfo(user.time_zone))
            except (zoneinfo.ZoneInfoNotFoundError, ValueError):
                timezone.deactivate()
        else:
            timezone.deactivate()  # the thread may still have the zone of its last person
        response = get_response(request)
        private = user.is_authenticated or "Authorization" in request.headers
        if private and "Cache-Control" not in response:
            response["Cache-Control"] = "no-store"
        return response

    return middleware
