"""A database that restarts is a 503 that says to try again, never a 500."""

from __future__ import annotations

import pytest
from django.db import OperationalError
from django.test import Client

from portal.api import auth


def test_the_api_says_try_again_when_the_database_is_away(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(secret: str) -> None:
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(auth, "user_of_token", away)
    answer = client.get("/api/v1/jobs/", headers={"Authorization": "Bearer gpc_x"})
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "2"
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["code"] == "unavailable"
