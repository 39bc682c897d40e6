"""Bad input, case by case from tests/data/bad_input: refused with a problem that names the field, and nothing written.

Failures are collected, so that one run shows every case that got through.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ledger.models import Job, Node, User
from ledger.people import create_node_token
from tests import factories
from tests.portal.api.client import Api, fields, is_problem, row_counts, token_of

DATA = Path(__file__).parents[2] / "data" / "bad_input"
MARK = "0000THE-VALUE0000"
LANGUAGES = ("en", "zh-hans")


def load(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DATA / name).read_text(encoding="utf-8"))
    return found


def raw_value(value: dict[str, Any]) -> str:
    """The JSON text of a case's value."""
    if "json" in value:
        return str(value["json"])
    if "repeat" in value:
        what, times = value["repeat"]
        return json.dumps(what * times)
    if "words" in value:
        count, length, letter = value["words"]
        return json.dumps([letter * length] * count)
    count, length = value["variables"]
    return json.dumps({f"V{i}": "x" * length for i in range(count)})


def with_value(good: dict[str, Any], where: str, raw: str) -> bytes:
    """The good document with the raw JSON text at a dotted place."""
    document = copy.deepcopy(good)
    *path, last = where.split(".")
    target: Any = document
    for step in path:
        target = target[int(step)] if isinstance(target, list) else target[step]
    if isinstance(target, list):
        target[int(last)] = MARK
    else:
        target[last] = MARK
    return json.dumps(document).replace(json.dumps(MARK), raw).encode()


def value_cases(name: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for group in load(name):
        for where in group["fields"]:
            for value in group["values"]:
                yield group["group"], where, value


def names_field(response: Any, where: str) -> bool:
    """The field itself, a part of it (environment.A, asks.3), or the whole item that contradicts itself."""
    return any(f == where or f.startswith(f"{where}.") for f in fields(response))


def complaint(response: Any, where: str | None, statuses: tuple[int, ...] = (400,)) -> str:
    """What is wrong with this refusal; "" when it is as it must be."""
    if response.status_code not in statuses:
        return f"status {response.status_code}"
    if not is_problem(response):
        return f"no problem document: {response.headers.get('Content-Type')} {response.content[:80]!r}"
    if len(response.content) > 20_000:
        return f"an answer of {len(response.content)} bytes"
    if where is not None and not names_field(response, where):
        return f"names {sorted(fields(response))}"
    body = response.json()
    if not body["detail"] or any(not error["message"] for error in body["errors"]):
        return "says nothing"
    return ""


def attack(
    send: Callable[[str], Any],
    where: str | None,
    statuses: tuple[int, ...] = (400,),
    languages: tuple[str, ...] = LANGUAGES,
) -> str:
    """Send in each language; the same fields must be named, and no table may have grown."""
    before, named = row_counts(), []
    for language in languages:
        response = send(language)
        wrong = complaint(response, where, statuses)
        if wrong:
            return f"{language}: {wrong}"
        named.append(sorted(fields(response)))
    if named[0] != named[-1]:
        return f"the languages name {named}"
    grown = {table for table, rows in row_counts().items() if rows != before[table]}
    return f"wrote {sorted(grown)}" if grown else ""


class Tongues:
    """Both languages for the first case of a kind, English for the rest: the catalogue is the same for all of them."""

    def __init__(self) -> None:
        self.heard: set[tuple[str, ...]] = set()

    def of(self, *kind: str) -> tuple[str, ...]:
        first = kind not in self.heard
        self.heard.add(kind)
        return LANGUAGES if first else LANGUAGES[:1]


def shown(text: str) -> str:
    return text if len(text) < 60 else f"{text[:57]}…"


@pytest.fixture
def callers(people: dict[str, User]) -> dict[str, Api]:
    token = token_of(people["researcher"])
    return {language: Api(token, language=language) for language in LANGUAGES}


GOOD_JOB = {
    "project": "vision",
    "name": "x",
    "asks": [{"form": "container"}],
    "command": ["simulate"],
    "environment": {"A": "1"},
    "labels": ["a"],
    "data_paths": ["/a"],
    "simulated": True,
}


@pytest.mark.django_db
def test_the_job_that_the_cases_spoil_is_good(callers: dict[str, Api]) -> None:
    assert callers["en"].post("jobs/", GOOD_JOB).status_code == 201


@pytest.mark.django_db
def test_no_bad_value_of_a_job_gets_through(callers: dict[str, Api]) -> None:
    wrong, count, tongues = [], 0, Tongues()
    for group, where, value in value_cases("values.json"):
        body = with_value(GOOD_JOB, where, raw_value(value))
        named = None if value.get("document") else where
        if named and where.startswith(("labels.", "data_paths.")):
            named = named.split(".")[0]  # their form is judged as a list
        found = attack(
            lambda language, body=body: callers[language].raw("jobs/", body), named, languages=tongues.of(group, where)
        )  # type: ignore[misc]
        count += 1
        if found:
            wrong.append(f"{group}: {where} = {shown(raw_value(value))}: {found}")
    assert wrong == []
    assert count >= 500


@pytest.mark.django_db
def test_no_bad_body_gets_through(callers: dict[str, Api], people: dict[str, User]) -> None:
    by_path = {path: senders(path, callers, people) for path in ("jobs/", "holds/", "agents/reports/")}
    wrong, tongues = [], Tongues()
    for case in load("bodies.json"):
        for path, by_language in by_path.items():
            send = partial(send_body, by_language, path, raw_body(case), case)
            found = attack(send, None, (case.get("status", 400),), tongues.of(path))
            if found:
                wrong.append(f"{path} {case['name']}: {found}")
    assert wrong == []


def send_body(by_language: dict[str, Api], path: str, body: bytes, case: dict[str, Any], language: str) -> Any:
    return by_language[language].raw(path, body, case.get("type", "application/json"), **case.get("headers", {}))


def send_query(by_language: dict[str, Api], path: str, language: str) -> Any:
    return by_language[language].send("GET", path)


def raw_body(case: dict[str, Any]) -> bytes:
    if "hex" in case:
        return bytes.fromhex(case["hex"])
    if "repeat" in case:
        return str(case["repeat"][0] * case["repeat"][1]).encode()
    if "around" in case:
        left, right, times = case["around"]
        return str(left * times + right * times).encode()
    return str(case["body"]).encode()


def senders(path: str, callers: dict[str, Api], people: dict[str, User]) -> dict[str, Api]:
    """Someone who may send to this address, by language."""
    if path == "jobs/":
        return callers
    if path == "holds/":
        secret, scheme = token_of(people["operator"]), "Bearer"
    else:
        node = Node.objects.filter(hostname="n1").first() or factories.node("n1", cards=1)
        secret, scheme = create_node_token(node=node, actor=None, via="test"), "Agent"
    return {language: Api(secret, scheme, language) for language in LANGUAGES}


@pytest.mark.django_db
def test_no_bad_query_gets_through(callers: dict[str, Api], people: dict[str, User]) -> None:
    node, job = factories.node("n1", cards=1), factories.job(people["researcher"])
    wrong, tongues = [], Tongues()
    for case in load("queries.json"):
        path = case["path"].format(job=job.pk, node=node.pk) + "?" + case["query"]
        found = attack(
            lambda language, path=path: callers[language].send("GET", path),
            case["field"],
            languages=tongues.of(case["path"], case["field"]),
        )  # type: ignore[misc]
        if found:
            wrong.append(f"{shown(path)}: {found}")
    assert wrong == []


@pytest.mark.django_db
@pytest.mark.parametrize(
    "pk",
    [
        "0",
        "-1",
        "abc",
        "1.5",
        "9223372036854775807",
        "9223372036854775808",
        str(2**70),
        "9" * 5000,
        "%00",
        "１",
        "..",
        "1;2",
    ],
)
def test_ids_that_are_none_are_not_found(callers: dict[str, Api], pk: str) -> None:
    wrong = {}
    for path in (f"jobs/{pk}/", f"jobs/{pk}/log/", f"nodes/{pk}/"):
        found = attack(lambda language, path=path: callers[language].send("GET", path), None, (404,))  # type: ignore[misc]
        if found:
            wrong[path] = found
    found = attack(lambda language: callers[language].post(f"jobs/{pk}/cancel/"), None, (404,))
    assert wrong == {}
    assert found == ""


@pytest.mark.django_db
def test_more_parameters_than_django_reads_are_a_problem_too(researcher: Api) -> None:
    query = "&".join(f"a{i}=1" for i in range(2000))
    assert complaint(researcher.send("GET", f"jobs/?{query}"), None) == ""


HOLD_CASES: list[tuple[dict[str, Any], str]] = [
    ({}, "reason"),
    ({"reason": "x"}, "node"),
    ({"node": "n1", "card": "n1-card-0", "reason": "x"}, "node"),
    ({"node": "nope", "reason": "x"}, "node"),
    ({"card": "nope", "reason": "x"}, "card"),
    ({"node": None, "reason": "x"}, "node"),
    ({"node": 1, "reason": "x"}, "node"),
    ({"node": "n1\x00", "reason": "x"}, "node"),
    ({"node": "x" * 300, "reason": "x"}, "node"),
    ({"node": "n1", "reason": ""}, "reason"),
    ({"node": "n1", "reason": "\u200b"}, "reason"),
    ({"node": "n1", "reason": "x" * 501}, "reason"),
    ({"node": "n1", "reason": "x", "kind": "lost"}, "kind"),
    ({"node": "n1", "reason": "x", "kind": "offline"}, "kind"),
    ({"node": "n1", "reason": "x", "kind": "nope"}, "kind"),
    ({"node": "n1", "reason": "x", "by": "admin"}, "by"),
    ({"node": "n1", "reason": "x", "rule": "y"}, "rule"),
    ({"node": "n1", "reason": "x", "period": []}, "period"),
]


@pytest.mark.django_db
def test_no_bad_hold_gets_through(people: dict[str, User]) -> None:
    factories.node("n1", cards=1)
    token = token_of(people["operator"])
    by_language = {language: Api(token, language=language) for language in LANGUAGES}
    wrong = []
    for body, where in HOLD_CASES:
        found = attack(lambda language, body=body: by_language[language].post("holds/", body), where)  # type: ignore[misc]
        if found:
            wrong.append(f"{body}: {found}")
    assert wrong == []


def test_the_catalogue_is_as_large_as_promised() -> None:
    cases = sum(1 for name in ("values.json", "reports.json") for _ in value_cases(name))
    assert cases + len(load("bodies.json")) + len(load("queries.json")) >= 1000


@pytest.mark.django_db
def test_errors_of_the_framework_are_in_chinese_for_a_chinese_caller(callers: dict[str, Api]) -> None:
    told = callers["zh-hans"].post("jobs/", GOOD_JOB | {"project": None}).json()
    assert any("\u4e00" <= c <= "\u9fff" for c in told["errors"][0]["message"]), told
    assert Job.objects.count() == 0
