"""Deployment checks: clean for a well-kept installation, and each mistake is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as portal_settings

GOOD = {
    "DJANGO_SETTINGS_MODULE": "portal.settings",
    "DATABASE_URL": "postgresql://portal:x@db.lab.example/portal?sslmode=verify-full&sslrootcert=/etc/ssl/ca.pem",
    "REDIS_URL": "rediss://:x@redis.lab.example:6379/0",
    "SECRET_KEY": "0123456789-abcdefghijklmnopqrstuvwxyz-ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "ALLOWED_HOSTS": "gpu.lab.example",
    "PORTAL_URL": "https://gpu.lab.example",
    "CSRF_TRUSTED_ORIGINS": "https://gpu.lab.example",
    "HTTPS": "1",
    "PROXIES": "1",
    "METRICS_TOKEN": "m" * 20 + "t" * 20,
}


def check(data: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "GPU_COMMONS_DATA": str(data)} | GOOD | changes
    argv = [sys.executable, "-m", "django", "check", "--deploy", "--fail-level", "WARNING"]
    return subprocess.run(argv, env=env, cwd=portal_settings.BASE_DIR, capture_output=True, text=True, timeout=120)


def test_a_well_kept_installation_is_clean(tmp_path: Path) -> None:
    done = check(tmp_path)
    assert (done.returncode, "no issues" in done.stdout) == (0, True), done.stderr


def found(check_function: Any) -> set[str]:
    return {message.id for message in check_function()}


@pytest.fixture
def good(settings: Any) -> Any:
    """The settings of this run as if they were those of a well-kept installation."""
    settings.SECRET_KEY, settings.ALLOWED_HOSTS = GOOD["SECRET_KEY"], ["gpu.lab.example"]
    settings.PORTAL_URL, settings.HTTPS, settings.PROXIES = GOOD["PORTAL_URL"], True, 1
    settings.DEBUG, settings.RATE_FACTOR, settings.DATABASE_ROLE = False, 1, "gpu_commons_app"
    return settings


@pytest.mark.parametrize(
    ("name", "value", "check_name", "code"),
    [
        ("SECRET_KEY", "short", "secrets", "portal.E001"),
        ("SECRET_KEY", "ab" * 40, "secrets", "portal.E001"),
        ("METRICS_TOKEN", "guess", "secrets", "portal.E002"),
        ("AUTH_PASSWORD_VALIDATORS", [], "secrets", "portal.E003"),
        ("ALLOWED_HOSTS", ["*"], "hosts", "portal.E004"),
        ("ALLOWED_HOSTS", [".example.com"], "hosts", "portal.E004"),
        ("PORTAL_URL", "http://gpu.lab.example", "hosts", "portal.W001"),
        ("HTTPS", False, "encryption", "portal.W002"),
        ("PROXIES", 0, "encryption", "portal.W003"),
        ("REDIS_URL", "redis://redis.lab.example/0", "encryption", "portal.W005"),
        ("DATABASE_ROLE", "", "database_rights", "portal.W006"),
        ("MIDDLEWARE", ["csp.middleware.CSPMiddleware"], "pages", "portal.E005"),
        ("CONTENT_SECURITY_POLICY", {"DIRECTIVES": {"script-src": ["'unsafe-inline'"]}}, "pages", "portal.E006"),
        ("SESSION_ENGINE", "django.contrib.sessions.backends.cache", "pages", "portal.E007"),
        ("RATE_FACTOR", 0, "pages", "portal.W008"),
    ],
)
def test_a_mistake_is_named(good: Any, name: str, value: Any, check_name: str, code: str) -> None:
    from portal import checks

    function = getattr(checks, check_name)
    assert code not in found(function)
    setattr(good, name, value)
    assert code in found(function)


@pytest.mark.parametrize(
    ("options", "complains"), [({}, True), ({"sslmode": "prefer"}, True), ({"sslmode": "require"}, False)]
)
def test_the_way_to_a_database_elsewhere_is_encrypted(
    good: Any, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], complains: bool
) -> None:
    from portal import checks

    monkeypatch.setitem(good.DATABASES, "default", {"HOST": "db.lab.example", "PORT": "", "OPTIONS": options})
    assert ("portal.W004" in found(checks.encryption)) is complains


def test_the_embedded_database_is_told(good: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from portal import checks

    good.DATA_DIR = tmp_path
    monkeypatch.setitem(good.DATABASES, "default", {"HOST": "127.0.0.1", "PORT": "5433", "OPTIONS": {}})
    assert "portal.W007" not in found(checks.database_rights)
    (tmp_path / "services.json").write_text('{"environment": {"DATABASE_URL": "postgresql://x@127.0.0.1:5433/x"}}')
    assert "portal.W007" in found(checks.database_rights)


def test_channels_of_alerts_that_will_not_be_called_are_told(good: Any) -> None:
    from portal import checks

    assert found(checks.channels) == set()
    good.ALERTMANAGER_URL, good.ALERT_WEBHOOK_URL = "http://127.0.0.1:9093", "https://hooks.example/x"
    assert found(checks.channels) == {"portal.W009"}
    good.OUTBOUND_ALLOW = ["127.0.0.1:9093"]
    assert found(checks.channels) == set()
    good.ALERT_MAIL_TO, good.EMAIL_HOST = ["ops@lab.example"], ""
    assert found(checks.channels) == {"portal.W010"}


def test_a_first_try_is_told_to_turn_https_on(tmp_path: Path) -> None:
    done = check(tmp_path, HTTPS="0", PROXIES="0", ALLOWED_HOSTS="*", DEBUG="1")
    assert done.returncode == 1
    for sign in ("portal.E004", "security.W018"):
        assert sign in done.stderr


def test_cookies_of_an_https_portal_are_bound_to_its_host(tmp_path: Path) -> None:
    code = (
        "from django.conf import settings as s; "
        "print(s.SESSION_COOKIE_NAME, s.CSRF_COOKIE_NAME, s.SESSION_COOKIE_SECURE, s.SECURE_PROXY_SSL_HEADER)"
    )
    env = {"PATH": os.environ["PATH"], "GPU_COMMONS_DATA": str(tmp_path)} | GOOD
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=portal_settings.BASE_DIR, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "__Host-sessionid __Host-csrftoken True ('HTTP_X_FORWARDED_PROTO', 'https')"
