"""A caller of the API as a program is one: a token in a header and JSON, nothing else."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from django.apps import apps
from django.db import connection
from django.http import HttpResponse
from django.test import Client

from ledger.models import QualityCount, User
from ledger.people import create_token

PROBLEM = "application/problem+json"
BASE = "/api/v1/"


class Api:
    """`post("jobs/", body)` sends JSON, `raw` sends bytes as they are. Server errors come back as 500."""

    def __init__(self, token: str | None = None, scheme: str = "Bearer", language: str = "en") -> None:
        self.http = Client(raise_request_exception=False)
        self.headers = {"Accept-Language": language}
        if token is not None:
            self.headers["Authorization"] = f"{scheme} {token}"

    def get(self, path: str, **query: Any) -> Any:
        return self.send("GET", path + (f"?{urlencode(query, doseq=True)}" if query else ""))

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        return self.raw(path, json.dumps({} if body is None else body).encode(), **headers)

    def raw(self, path: str, data: bytes, content_type: str = "application/json", **headers: str) -> Any:
        return self.send("POST", path, data, content_type, headers)

    def send(
        self,
        method: str,
        path: str,
        data: bytes = b"",
        content_type: str = "application/json",
        headers: dict[str, str] | None = None,
    ) -> HttpResponse:
        named = self.headers | {name.replace("_", "-"): value for name, value in (headers or {}).items()}
        where = path if path.startswith("/") else BASE + path
        return self.http.generic(method, where, data, content_type, headers=named)  # type: ignore[return-value]


def token_of(user: User) -> str:
    return create_token(user=user, label="test", days=None, actor=user, via="test")


def api(user: User, language: str = "en") -> Api:
    return Api(token_of(user), language=language)


def fields(response: Any) -> set[str]:
    """The names of the fields that a problem complains of."""
    return {error["field"] for error in response.json()["errors"]}


def is_problem(response: Any) -> bool:
    """Whether an answer is a whole problem document that agrees with its status."""
    if response.headers.get("Content-Type") != PROBLEM:
        return False
    body = response.json()
    return (
        set(body) == {"type", "title", "status", "code", "detail", "errors"} and body["status"] == response.status_code
    )


def row_counts() -> dict[str, int]:
    """Rows of every table of ours, in one query; not those that count what was refused."""
    models = [m for label in ("ledger", "scheduler") for m in apps.get_app_config(label).get_models()]
    tables = [m._meta.db_table for m in models if m is not QualityCount]
    query = " UNION ALL ".join(f"SELECT '{table}', count(*) FROM {table}" for table in tables)
    with connection.cursor() as cursor:
        cursor.execute(query)
        return dict(cursor.fetchall())
