"""How often each page asks the database, as data (tests/data/queries.csv): the count with one row of every kind, and the
same count with ten of every kind. A page whose queries grow with rows fails; so does a page without a row here, and a
table of ours without rows in tests/portal/views/many_rows.py.

After a wanted change: QUERY_COUNTS=write pytest tests/portal/views/test_query_counts.py writes the file anew and
prints what changed in it. A count that differs (`with_more`) has to be bounded, and `reason` says what bounds it.
"""

from __future__ import annotations

import csv
import datetime as dt
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from django.core.signing import get_cookie_signer
from django.db import connection
from django.http import HttpResponseBase
from django.test.utils import CaptureQueriesContext
from django.urls import URLPattern, reverse
from django.utils.http import urlencode

from ledger import people as ledger_people
from ledger import sessions
from ledger.clock import database_now
from ledger.models import CardShare, HealthVersion, Job, Node, OddGrant, ProjectRequest, User
from portal.api import urls as api_urls
from portal.sample_pages import address_of
from portal.urls import urlpatterns
from portal.views.home import VISIT
from tests.portal.api.client import row_counts, token_of
from tests.portal.api.test_access import rows as api_rows
from tests.portal.views import many_rows
from tests.portal.views.lean import LeanClient
from tests.portal.views.test_matrix import OPEN
from tests.portal.views.test_matrix import rows as page_rows

pytestmark = pytest.mark.breaks_books

FILE = Path(__file__).parents[2] / "data" / "queries.csv"
FIELDS = ("page", "role", "queries", "with_more", "reason")
ABOUT = f"""# How often each GET page asks the database; read and written by tests/portal/views/test_query_counts.py.
# queries: with one row of every kind, and with ten unless with_more says otherwise; then reason says what bounds it.
{",".join(FIELDS)}
"""
MORE = 10
ROLES = ("admin", "researcher")
POST_ONLY = {"sign-out", "language"}  # of the pages that need no sign-in
WARMING = ("home", "readyz")
NO_ROWS = {"schema", "docs", "nowhere"}  # of the API: they tell of no rows
# Pages of one object are looked at where most rows hang on it.
OBJECTS: dict[str, Callable[[], list[Any]]] = {
    "job": lambda: [many_rows.gang().pk],
    "job-application": lambda: [many_rows.gang().pk],
    "job-metrics": lambda: [many_rows.gang().pk],
    "job-status": lambda: [many_rows.gang().pk],
    "job-outlook": lambda: [Job.objects.filter(name="waits").latest("pk").pk],
    "node": lambda: [many_rows.busiest().hostname],
    "card": lambda: [many_rows.busiest_card()],
    "card-history": lambda: [many_rows.busiest_card()],
    "card-history-data": lambda: [many_rows.busiest_card()],
    "node-history": lambda: [many_rows.busiest().hostname],
    "plan": lambda: [many_rows.plan(running=True)],
    "plan-undo": lambda: [many_rows.plan(running=False)],
    "project": lambda: ["vision"],
    "member": lambda: ["vision", "researcher"],
    "request": lambda: [ProjectRequest.objects.latest("pk").pk],
    "audit-object": lambda: ["job", many_rows.gang().pk],
    "quota-project": lambda: ["vision"],
    "department": lambda: ["research"],
    "policy": lambda: [many_rows.policy().pk],
    "case": lambda: [many_rows.case().pk],
    "drill": lambda: [many_rows.drill_row().pk],
    "health-policy-version": lambda: [HealthVersion.objects.latest("number").number],
    "health-policy-put-back": lambda: [HealthVersion.objects.latest("number").number],
    "alert": lambda: [many_rows.alert().pk],
    "right": lambda: [OddGrant.objects.filter(user__username="researcher").latest("pk").pk],
}


def _keys(values: list[Any]) -> str:
    return urlencode({"key": values}, doseq=True)


def _nodes() -> str:
    return _keys(list(Node.objects.filter(simulated=False).values_list("hostname", flat=True)))


def _waiting(name: str) -> str:
    return _keys(list(Job.objects.filter(state="queued", name=name).values_list("pk", flat=True)))


def _moment() -> str:
    """The first whole second at which all shares are there, however quickly they were written."""
    last = max(share.period.lower for share in CardShare.objects.all())
    at = last.replace(microsecond=0) + dt.timedelta(seconds=1)
    while database_now() < at:
        time.sleep(0.05)
    return urlencode({"at": at.strftime("%Y-%m-%dT%H:%M:%S")})


def _file() -> str:
    return "export=csv"


def _simulated() -> str:
    return "hardware=simulated"


# Further ways to ask for a page, as admin: what it finds, what it previews, and its file.
VARIANTS: dict[str, dict[str, Callable[[], str]]] = {
    "search": {"many": lambda: "q=a", "projects": lambda: "q=team"},
    "nodes": {"simulated": _simulated, "file": _file},
    "cards": {"simulated": _simulated, "file": _file},
    "health": {"simulated": _simulated, "file": _file},
    "quality": {"file": _file},
    "zones": {"simulated": _simulated, "file": _file},
    "fleet-map": {"simulated": _simulated},
    "fleet-map-data": {"simulated": _simulated},
    "quota": {"file": _file},
    "policies": {"file": _file},
    "policies-effective": {"project": lambda: "project=vision&kind=data"},
    "jobs": {"mine": lambda: "mine=on", "file": _file},
    "submit": {"clone": lambda: f"clone={many_rows.gang().pk}"},
    "queue": {"file": _file},
    "queue-act": {"many": lambda: _waiting("waits")},
    "node": {"moment": _moment},
    "card": {"moment": _moment},
    "nodes-hold": {"many": _nodes},
    "nodes-return": {"many": _nodes},
    "plan": {"file": _file},
    "drift": {"file": _file},
    "alerts": {"file": _file},
    "commands": {"file": _file},
    "audit": {"file": _file},
    "audit-object": {"file": _file},
    "out": {"file": _file, "late": lambda: "late=on"},
    "drills": {"file": _file},
    "drills-new": {"place": lambda: urlencode({"place": many_rows.busiest().hostname})},
    "receipts": {"file": _file},
    "rights": {"file": _file},
    "sessions": {"file": _file},
    "tokens": {"file": _file},
    "books": {"long": lambda: "window=30d"},
    "books-chart": {"long": lambda: "stack=project&window=30d"},
    "books-lines": {"file": _file},
}


class Page(NamedTuple):
    name: str  # of the address, and in brackets what is asked of it
    role: str
    address: Callable[[], str]


def _readable(matrix: list[dict[str, str]], role: str) -> list[str]:
    """Names of the addresses that this role may GET in a matrix of who may do what, in its order."""
    found = [row["name"] for row in matrix if row["method"] == "GET" and row[role] in ("200", "422")]
    return list(dict.fromkeys(found))


def _address(name: str, user: User) -> str:
    if name in OBJECTS:
        return reverse(name, args=OBJECTS[name]())
    pattern = next(p for p in urlpatterns if isinstance(p, URLPattern) and p.name == name)
    address = address_of(pattern, user)
    assert address is not None, f"say in OBJECTS which object the page {name} is looked at with"
    return address


def _api_address(name: str) -> str:
    pattern = next(pattern for pattern in api_urls.urlpatterns if pattern.name == name)
    if name in OBJECTS and name not in ("node", "job"):
        return reverse(f"api:{name}", args=OBJECTS[name]())
    if name == "policies-effective":
        return f"{reverse(f'api:{name}')}?project=vision"
    if name == "project-quota":
        return reverse(f"api:{name}", kwargs={"slug": "vision"})
    things = {"node": many_rows.busiest, "receipt": many_rows.receipt}
    pk = things.get(name, many_rows.gang)().pk
    return reverse(f"api:{name}", kwargs=dict.fromkeys(pattern.pattern.converters, pk))


def _pages(people: dict[str, User]) -> Iterator[Page]:
    """Every page, as each role that may open it."""
    for name in sorted(OPEN - POST_ONLY):
        yield Page(name, "nobody", partial(reverse, name))
    for role in ROLES:
        for name in _readable(page_rows(), role):
            yield Page(name, role, partial(_address, name, people[role]))
            for label, query in VARIANTS.get(name, {}).items() if role == "admin" else ():
                yield Page(f"{name} ({label})", role, partial(_asked, name, people[role], query))
        for name in _readable(api_rows(), role):
            if name not in NO_ROWS:
                yield Page(f"api:{name}", role, partial(_api_address, name))


def _asked(name: str, user: User, query: Callable[[], str]) -> str:
    return f"{_address(name, user).partition('?')[0]}?{query()}"


class Reader:
    """A browser and a program for each role, the same for all counts."""

    def __init__(self, people: dict[str, User]) -> None:
        self.people = people
        self.browsers = {role: _browser(people[role]) for role in ROLES} | {"nobody": LeanClient()}
        self.programs = {role: {"Authorization": f"Bearer {token_of(people[role])}"} for role in ROLES}

    def counts(self) -> dict[tuple[str, str], int]:
        """By (page, role)."""
        self._warm()
        return {(page.name, page.role): self._count(page) for page in _pages(self.people)}

    def _warm(self) -> None:
        """Fill what the process keeps between requests (the fleet as the scheduler sees it, content types, whether the
        database is migrated), and have use noted, which isn't done again here."""
        for browser in self.browsers.values():
            for name in WARMING:
                browser.get(reverse(name))
        for headers in self.programs.values():
            self.browsers["nobody"].get(reverse("api:projects"), headers=headers)

    def _count(self, page: Page) -> int:
        address = page.address()
        with CaptureQueriesContext(connection) as asked:
            response = self._get(page, address)
        assert response.status_code in (200, 286), f"{page.role} {address}: {response.status_code}"
        return len(asked)

    def _get(self, page: Page, address: str) -> HttpResponseBase:
        """The answer, read to its end."""
        if page.name.startswith("api:"):
            response = self.browsers["nobody"].get(address, headers=self.programs[page.role])
        else:
            response = self.browsers[page.role].get(address)
        for _part in response if response.streaming else ():
            pass
        return response


def _browser(user: User) -> LeanClient:
    """Signed in, and not here for the first time: the first page then tells what is new."""
    client = LeanClient()
    client.force_login(user)
    before = (database_now() - dt.timedelta(hours=5)).isoformat()
    client.cookies[VISIT] = get_cookie_signer(salt=VISIT).sign(f"{before}|{before}")
    return client


@pytest.fixture
def found(
    people: dict[str, User], turn: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> dict[tuple[str, str], tuple[int, int]]:
    """(page, role) → the counts with one row of every kind and with ten."""
    for module in (sessions, ledger_people):  # use is noted once, however slow the machine is
        monkeypatch.setattr(module, "NOTED_EVERY", dt.timedelta(days=1))
    rows, reader = many_rows.Rows(people), Reader(people)
    rows.add([0])
    few, before = row_counts(), reader.counts()
    rows.add(range(1, MORE))
    many, after = row_counts(), reader.counts()
    assert {table for table, count in few.items() if not count} == set(), "many_rows.py writes nothing here"
    same = {table for table, count in few.items() if many[table] < count + MORE - 1}
    assert same == many_rows.ONCE, "many_rows.py does not write more here"
    assert set(before) == set(after)
    return {key: (before[key], after[key]) for key in before}


def _goldens() -> dict[tuple[str, str], dict[str, str]]:
    lines = [line for line in FILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return {(row["page"], row["role"]): row for row in csv.DictReader(lines)}


def _as_rows(found: dict[tuple[str, str], tuple[int, int]]) -> dict[tuple[str, str], dict[str, str]]:
    """What was counted, with the reasons that the file gives."""
    known = _goldens() if FILE.exists() else {}
    rows = {}
    for key, (few, many) in found.items():
        values = (*key, str(few), str(many) if many != few else "", known.get(key, {}).get("reason", ""))
        rows[key] = dict(zip(FIELDS, values, strict=True))
        if many == few:
            rows[key]["reason"] = ""
    return rows


def _changes(old: dict[tuple[str, str], dict[str, str]], new: dict[tuple[str, str], dict[str, str]]) -> list[str]:
    def told(row: dict[str, str] | None) -> str:
        return f"{row['queries']}{f' … {more}' if (more := row['with_more']) else ''}" if row else "no row"

    keys = [key for key in old | new if told(old.get(key)) != told(new.get(key))]
    return [f"{page} as {role}: {told(old.get((page, role)))} → {told(new.get((page, role)))}" for page, role in keys]


def _write(rows: dict[tuple[str, str], dict[str, str]]) -> None:
    with FILE.open("w", encoding="utf-8", newline="") as file:
        file.write(ABOUT)
        csv.DictWriter(file, FIELDS, lineterminator="\n").writerows(rows.values())


@pytest.mark.django_db
def test_no_page_asks_the_database_more_often_when_there_are_more_rows(
    found: dict[tuple[str, str], tuple[int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    new = _as_rows(found)
    changed = _changes(_goldens() if FILE.exists() else {}, new)
    if os.environ.get("QUERY_COUNTS") == "write":
        _write(new)
        with capsys.disabled():
            print("", *(changed or ["nothing changed"]), sep="\n")
        return
    assert changed == []


def test_every_count_that_differs_has_its_bound_and_reason() -> None:
    for (page, role), row in _goldens().items():
        if row["with_more"]:
            assert row["reason"], f"{page} as {role}: why do its queries differ?"
            assert int(row["with_more"]) < int(row["queries"]) + MORE / 2, f"{page} as {role}: it grows with the rows"
        else:
            assert not row["reason"], f"{page} as {role} is no exception"
