"""Settings from the environment: a bad value stops the program with a sentence that names it and shows no secret."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from portal import environment

NAME = "GPU_COMMONS_TEST_VALUE"


@pytest.mark.parametrize(
    ("text", "value"), [("1", True), ("TRUE", True), ("on", True), ("0", False), ("No", False), ("", True)]
)
def test_flags(monkeypatch: pytest.MonkeyPatch, text: str, value: bool) -> None:
    monkeypatch.setenv(NAME, text)
    assert environment.flag(NAME, default=True) is value


@pytest.mark.parametrize("text", ["2", "maybe", " ", "true ", "１"])
def test_a_flag_that_is_neither_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(NAME, text)
    with pytest.raises(ImproperlyConfigured, match=NAME):
        environment.flag(NAME)


@pytest.mark.parametrize("text", ["x", "1.5", "１", "1_000", "-1", "1e3", "9" * 5000, " 1"])
def test_a_number_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(NAME, text)
    with pytest.raises(ImproperlyConfigured, match=NAME):
        environment.integer(NAME, 5)


def test_numbers_and_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, "7")
    assert environment.integer(NAME, 5) == 7
    monkeypatch.setenv(NAME, " a, ,b,")
    assert environment.items(NAME, "") == ["a", "b"]
    monkeypatch.delenv(NAME)
    assert environment.integer(NAME, 5) == 5
    with pytest.raises(ImproperlyConfigured, match=f"{NAME} is not set: do this"):
        environment.required(NAME, "do this")


def database(url: str, role: str = "") -> dict[str, Any]:
    return environment.database(url, role)


def test_a_database_url_is_taken_apart() -> None:
    found = database("postgresql://me:p%40ss%2Fword@db.example:5433/my%20name", "app")
    assert (found["USER"], found["PASSWORD"], found["HOST"], found["PORT"]) == ("me", "p@ss/word", "db.example", "5433")
    assert found["NAME"] == "my name"
    assert "role=app" in found["OPTIONS"]["options"]


def test_protections_in_a_database_url_are_kept() -> None:
    options = database("postgresql://me@db.example/x?sslmode=verify-full&sslrootcert=/ca.pem")["OPTIONS"]
    assert (options["sslmode"], options["sslrootcert"]) == ("verify-full", "/ca.pem")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "sqlite:///x",
        "mysql://u:canary@h/x",
        "postgresql://u:canary@h",
        "postgresql://u:canary@h/",
        "postgresql://u:canary@h:port/x",
        "postgresql://u:canary@h:99999999/x",
        "postgresql://u:canary@[::1/x",
        "postgresql://u:canary@h/x?options=-csearch_path%3Devil",
        "postgresql://u:canary@h/x?sslmod=require",
        "postgresql://u:canary@h/x?junk",
    ],
)
def test_a_database_url_that_is_none_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="DATABASE_URL") as error:
        database(url)
    assert "canary" not in str(error.value)


@pytest.mark.parametrize("text", ["", "http://hook.lab.example", "https://hook.lab.example:8443/a?b=c"])
def test_a_web_address(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(NAME, text)
    assert environment.web_address(NAME) == text


@pytest.mark.parametrize(
    "text", ["file:///etc/passwd", "hook.lab.example", "https://", "ftp://x", "http://x:99999", "javascript:x"]
)
def test_what_is_no_web_address_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(NAME, text)
    with pytest.raises(ImproperlyConfigured, match=NAME):
        environment.web_address(NAME)


def test_messages_to_an_address_are_signed_or_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, "short")
    assert environment.secret_for(NAME, "") == "short"
    with pytest.raises(ImproperlyConfigured, match=f"{NAME} must have at least 16"):
        environment.secret_for(NAME, "https://hook.lab.example")
    monkeypatch.setenv(NAME, "x" * 16)
    assert environment.secret_for(NAME, "https://hook.lab.example") == "x" * 16


def test_hosts_with_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, "127.0.0.1:9093, [::1]:9093,Alerts.example:80")
    assert environment.host_ports(NAME) == ["127.0.0.1:9093", "[::1]:9093", "alerts.example:80"]


@pytest.mark.parametrize("text", ["127.0.0.1", "host:", "host:x", "http://host:80", "::1:80", "host:80/x", "a b:80"])
def test_a_host_without_a_port_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(NAME, text)
    with pytest.raises(ImproperlyConfigured, match=NAME):
        environment.host_ports(NAME)
