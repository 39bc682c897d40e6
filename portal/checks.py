"""System checks: what an installation must have before people outside this machine may reach it.

`manage.py check --deploy` runs them together with Django's own. They read settings and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register

from ledger.errors import Refused
from portal.up.folder import SERVICES, DataFolder
from scheduler import addresses

SHORTEST_KEY: Final = 50
SHORTEST_TOKEN: Final = 32
SHORTEST_PASSWORD: Final = 12
LOCAL_HOSTS: Final = ("", "127.0.0.1", "localhost", "::1")
Found = Iterator[CheckMessage]
Check = Callable[..., list[CheckMessage]]


def deploy(check: Callable[[], Found]) -> Check:
    """Registers a generator of messages as a deployment check."""

    def run(app_configs: Sequence[AppConfig] | None = None, **kwargs: Any) -> list[CheckMessage]:
        return list(check())

    register(run, Tags.security, deploy=True)
    return run


@deploy
def secrets() -> Found:
    if len(settings.SECRET_KEY) < SHORTEST_KEY or len(set(settings.SECRET_KEY)) < 10:
        yield Error(
            "SECRET_KEY is too easy to guess.", f"Set {SHORTEST_KEY} or more random characters.", id="portal.E001"
        )
    if settings.METRICS_TOKEN and len(settings.METRICS_TOKEN) < SHORTEST_TOKEN:
        hint = f"Set {SHORTEST_TOKEN} or more random characters."
        yield Error("METRICS_TOKEN is too easy to guess.", hint, id="portal.E002")
    validators: Any = settings.AUTH_PASSWORD_VALIDATORS
    lengths = [v.get("OPTIONS", {}).get("min_length", 8) for v in validators if "Length" in v["NAME"]]
    if max(lengths, default=0) < SHORTEST_PASSWORD:
        yield Error(f"Passwords may be shorter than {SHORTEST_PASSWORD} characters.", id="portal.E003")


@deploy
def hosts() -> Found:
    loose = [host for host in settings.ALLOWED_HOSTS if host.startswith((".", "*"))]
    if loose:
        hint = "Name each host by which people reach the portal."
        yield Error(f"ALLOWED_HOSTS takes any host of {loose[0]}.", hint, id="portal.E004")
    if settings.HTTPS and not settings.PORTAL_URL.startswith("https://"):
        yield Warning("HTTPS is on, and PORTAL_URL is not an https:// address.", id="portal.W001")


@deploy
def encryption() -> Found:
    if not settings.DEBUG and not settings.HTTPS:
        hint = "Put a proxy with a certificate in front, then set HTTPS=1, PROXIES=1 and PORTAL_URL=https://…"
        yield Warning("Passwords and tokens travel in the clear: HTTPS is off.", hint, id="portal.W002")
    if settings.HTTPS and not settings.PROXIES:
        hint = "Set PROXIES to the number of proxies of yours; the portal itself speaks plain HTTP."
        yield Warning("HTTPS is on, and no proxy is named that could speak it.", hint, id="portal.W003")
    database: dict[str, Any] = settings.DATABASES["default"]
    far = database["HOST"] not in LOCAL_HOSTS and not database["HOST"].startswith("/")
    if far and database["OPTIONS"].get("sslmode") not in ("require", "verify-ca", "verify-full"):
        hint = "Add ?sslmode=verify-full to DATABASE_URL."
        yield Warning("The database is on another machine, and the way there is not encrypted.", hint, id="portal.W004")
    redis = urlsplit(settings.REDIS_URL)
    if (redis.hostname or "") not in LOCAL_HOSTS and redis.scheme != "rediss":
        yield Warning(
            "Redis is on another machine, and the way there is not encrypted.", "Use rediss://", id="portal.W005"
        )


@deploy
def database_rights() -> Found:
    if settings.DATABASE_ROLE == "":
        hint = "Leave DATABASE_ROLE unset for the portal; only `migrate` works as the owner."
        yield Warning(
            "The portal works as the owner of its tables and could rewrite the audit trail.", hint, id="portal.W006"
        )
    if not settings.DEBUG and _embedded():
        hint = "Fine for trying out and for one lab server. Else set DATABASE_URL and REDIS_URL, and keep backups."
        yield Warning("The database is the embedded one.", hint, id="portal.W007")


def _embedded() -> bool:
    """Whether the database is the one that `up` runs on the data folder."""
    published = DataFolder(settings.DATA_DIR).read(SERVICES).get("environment", {})
    mine, theirs = settings.DATABASES["default"], urlsplit(str(published.get("DATABASE_URL", "")))
    return bool(theirs.port) and (mine["HOST"], mine["PORT"]) == (theirs.hostname, str(theirs.port))


@deploy
def pages() -> Found:
    if "portal.middleware.personal" not in settings.MIDDLEWARE:
        yield Error("Pages of people who are signed in may be kept by caches.", id="portal.E005")
    policy = settings.CONTENT_SECURITY_POLICY["DIRECTIVES"]
    scripts = policy.get("script-src", policy.get("default-src", ["*"]))
    loose = {"'unsafe-inline'", "'unsafe-eval'", "*", "https:", "http:", "data:"} & set(scripts)
    if loose or "csp.middleware.CSPMiddleware" not in settings.MIDDLEWARE:
        yield Error("The content security policy lets foreign scripts run.", id="portal.E006")
    if settings.SESSION_ENGINE != "ledger.sessions" or not settings.SESSION_COOKIE_HTTPONLY:
        yield Error("Sessions can't be listed and ended, or scripts can read their cookie.", id="portal.E007")
    if settings.RATE_FACTOR == 0:
        yield Warning("RATE_FACTOR is 0: nobody is throttled.", id="portal.W008")


@deploy
def channels() -> Found:
    """Of alerts; names are resolved when something is sent."""
    for name in ("ALERTMANAGER_URL", "ALERT_WEBHOOK_URL"):
        try:
            addresses.read(getattr(settings, name) or "http://nowhere.example")
        except Refused as refused:
            hint = "Name its host and port in OUTBOUND_ALLOW."
            yield Warning(f"{name} will not be called: {refused}", hint, id="portal.W009")
    if settings.ALERT_MAIL_TO and not settings.EMAIL_HOST:
        yield Warning("ALERT_MAIL_TO is set, and EMAIL_HOST is not: no mail is sent.", id="portal.W010")
