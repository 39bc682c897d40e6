"""How often a caller may ask: counted by the minute in Redis, one round trip a request.

Redis is a doorbell here too: when it is away nobody is refused, and that is logged. A person counts as one, with all
their tokens and sessions; so does a node; who is not signed in counts by address. Passwords are counted in
portal.signin.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import redis
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from redis.backoff import NoBackoff
from redis.retry import Retry
from rest_framework.exceptions import APIException, Throttled
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from ledger.models import Node
from portal.origin import counted_address

log = logging.getLogger(__name__)
WINDOW_S: Final = 60
PATIENCE_S: Final = 0.25  # longest wait for Redis
AWAY_S: Final = 5.0  # after a failure it is not asked again for so long
# Requests a minute; settings.RATE_FACTOR multiplies them, 0 switches counting off.
RATES: Final[Mapping[str, int]] = {
    "read": 1_200,
    "submit": 240,
    "heavy": 120,  # answers that are computed over long windows, or for many waiting jobs
    "metrics": 600,  # of all jobs of one person together
    "agent": 1_200,  # a node reports every few seconds, and sends what it kept after an outage
    "stranger": 120,
    "export": 30,
    "search": 240,
    "outlook": 240,  # asked while a person types, and every few seconds by a page that stands open
}
# (address, method) → scope; what is not named is "read"
API_SCOPES: Final[Mapping[tuple[str, str], str]] = {
    ("jobs", "POST"): "submit",
    ("job-metrics", "POST"): "metrics",
    ("what-if", "POST"): "outlook",
    ("preemptions", "GET"): "heavy",
    ("job-preemption", "GET"): "outlook",
    ("agent-reports", "POST"): "agent",
    ("balance", "GET"): "heavy",
    ("schema", "GET"): "heavy",
}
PAGE_SCOPES: Final[Mapping[tuple[str, str], str]] = {
    ("submit", "POST"): "submit",
    ("search", "GET"): "search",
    ("submit-outlook", "POST"): "outlook",
    ("job-outlook", "GET"): "outlook",
    ("preemptions", "GET"): "heavy",
}

_away_until = 0.0


def take(scope: str, who: str) -> int:
    """Count one request. Returns the seconds to wait when it is one too many, else 0."""
    global _away_until
    limit = RATES[scope] * settings.RATE_FACTOR
    if limit == 0 or time.monotonic() < _away_until:
        return 0
    now = time.time()
    key = f"rate:{scope}:{who}:{int(now) // WINDOW_S}"
    try:
        with _client(settings.REDIS_URL).pipeline(transaction=False) as pipeline:
            pipeline.incr(key)
            pipeline.expire(key, 2 * WINDOW_S)
            count = pipeline.execute()[0]
    except redis.RedisError as error:
        _away_until = time.monotonic() + AWAY_S
        log.warning("Requests are not counted for %d s: Redis does not answer (%s)", AWAY_S, type(error).__name__)
        return 0
    return WINDOW_S - int(now) % WINDOW_S if count > limit else 0


def first_of_the_minute(what: str) -> bool:
    """Whether nobody has asked this of `what` in this minute. False when Redis is away."""
    try:
        return bool(_client(settings.REDIS_URL).set(f"first:{what}:{int(time.time()) // WINDOW_S}", 1, nx=True, ex=120))
    except redis.RedisError:
        return False


@lru_cache(maxsize=4)
def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(
        url, socket_timeout=PATIENCE_S, socket_connect_timeout=PATIENCE_S, retry=Retry(NoBackoff(), 0)
    )


class PerCaller(BaseThrottle):
    """Every view of the API, after authentication."""

    seconds = 0

    def allow_request(self, request: Request, view: Any) -> bool:
        match = request.resolver_match
        name = match.url_name if match else ""
        scope = API_SCOPES.get((name or "", request.method or ""), "read")
        if isinstance(request.auth, Node):
            who = f"node:{request.auth.pk}"
        elif request.user and request.user.is_authenticated:
            who = f"user:{request.user.pk}"
        else:
            scope, who = "stranger", f"address:{counted_address(request._request)}"
        self.seconds = take(scope, who)
        return self.seconds == 0

    def wait(self) -> float:
        return self.seconds


def for_strangers(error: APIException, request: Request) -> APIException:
    """A 401, or 429 when an address had too many: DRF refuses who is not signed in before it asks any throttle."""
    seconds = take("stranger", f"address:{counted_address(request._request)}")
    return Throttled(wait=seconds) if seconds else error


class PageRates:
    """Middleware after AuthenticationMiddleware: exports, search and submitting on pages."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponse | None:
        match = request.resolver_match
        if not request.user.is_authenticated or match is None or match.namespace:
            return None
        scope = PAGE_SCOPES.get((match.url_name or "", request.method or ""))
        if scope is None and request.method == "GET" and request.GET.get("export"):
            scope = "export"
        seconds = take(scope, f"user:{request.user.pk}") if scope else 0
        if not seconds:
            return None
        response = render(request, "429.html", {"seconds": seconds}, status=429)
        response["Retry-After"] = str(seconds)
        return response
