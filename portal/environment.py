"""Typed reading of environment variables; a bad value stops the program with a sentence that names it."""

from __future__ import annotations

import os
import re
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

CONNECTION_OPTIONS = frozenset({"sslmode", "sslrootcert", "sslcert", "sslkey"})  # dropping one would drop a protection


def text(name: str, default: str = "") -> str:
    return os.environ.get(name, default)


def required(name: str, hint: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise ImproperlyConfigured(f"{name} is not set: {hint}")
    return value


def flag(name: str, default: bool = False) -> bool:
    value = os.environ.get(name, "")
    if value == "":
        return default
    if value.lower() in {"1", "true", "yes", "on"}:
        return True
    if value.lower() in {"0", "false", "no", "off"}:
        return False
    raise ImproperlyConfigured(f"{name}={value!r} is neither true nor false: use 1 or 0")


def integer(name: str, default: int, *, at_least: int = 0) -> int:
    value = os.environ.get(name, "")
    if value == "":
        return default
    if not re.fullmatch(r"-?[0-9]{1,18}", value):
        raise ImproperlyConfigured(f"{name}={value!r} is not a whole number")
    number = int(value)
    if number < at_least:
        raise ImproperlyConfigured(f"{name}={number} is below {at_least}")
    return number


def number(name: str, default: float) -> float:
    value = os.environ.get(name, "")
    try:
        found = float(value) if value else default
    except ValueError:
        raise ImproperlyConfigured(f"{name}={value!r} is not a number") from None
    if not 0 <= found < float("inf"):
        raise ImproperlyConfigured(f"{name}={value!r} must be 0 or more")
    return found


def items(name: str, default: str) -> list[str]:
    return [part.strip() for part in os.environ.get(name, default).split(",") if part.strip()]


def web_address(name: str) -> str:
    """An http:// or https:// address, or ""."""
    value = os.environ.get(name, "")
    try:
        parts = urlsplit(value)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if value and not good:
        raise ImproperlyConfigured(f"{name} must look like https://host/path")
    return value


def host_ports(name: str) -> list[str]:
    """host:port, separated by commas; an IPv6 address stands in brackets. Lower case, as web addresses are compared."""
    found = items(name, "")
    for value in found:
        host, _colon, port = value.rpartition(":")
        if not re.fullmatch(r"\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+", host) or not re.fullmatch(r"[0-9]{1,5}", port):
            raise ImproperlyConfigured(f"{name}: {value!r} must look like host:port")
    return [value.lower() for value in found]


def secret_for(name: str, address: str) -> str:
    """What signs messages to `address`; needed once there is one."""
    value = os.environ.get(name, "")
    if address and len(value) < 16:
        raise ImproperlyConfigured(f"{name} must have at least 16 characters: the messages are signed with it")
    return value


def database(url: str, role: str) -> dict[str, object]:
    """postgresql://user:password@host:port/name → Django's setting. `role` is taken by SET ROLE at connect."""
    try:
        parts = urlsplit(url)
        port, query = parts.port, dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    except ValueError:
        parts, port, query = urlsplit(""), None, {}
    if parts.scheme not in {"postgresql", "postgres"} or not parts.path.strip("/"):
        raise ImproperlyConfigured("DATABASE_URL must look like postgresql://user:password@host:port/name")
    unknown = sorted(set(query) - CONNECTION_OPTIONS)
    if unknown:
        known = ", ".join(sorted(CONNECTION_OPTIONS))
        raise ImproperlyConfigured(f"DATABASE_URL: {unknown[0]!r} is not supported after the “?”; known are {known}")
    options = "-c lock_timeout=3000 -c idle_in_transaction_session_timeout=60000 -c timezone=UTC"
    if role:
        options += f" -c role={role}"
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(port or ""),
        "CONN_MAX_AGE": 600,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {"options": options, "application_name": "gpu-commons", "connect_timeout": 5, **query},
    }
