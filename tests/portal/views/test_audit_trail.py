"""The audit trail: who sees which rows, filters, the history of one object field by field, seals, hostile text."""

from __future__ import annotations

import csv
import datetime as dt
from typing import Any
from urllib.parse import urlencode

import pytest

from ledger import audit
from ledger.clock import database_now
from ledger.models import AuditEvent, Job, Node, Project, User
from portal.views.audit_rows import Change, changes
from tests import factories
from tests.portal.views.conftest import ClientAs

HOSTILE = '"><script>alert(1)</script>\u202e' + "z" * 10_000
GOLDEN, OF_ONE = 9, 6


def shown(response: Any) -> list[AuditEvent]:
    return [row.event for _key, row in response.context["t"]["rows"]]


def trail(client_as: ClientAs, reader: str, /, **query: str) -> list[AuditEvent]:
    return shown(client_as(reader).get(f"/audit/?{urlencode(query)}"))


def event(**values: Any) -> AuditEvent:
    target = values.pop("target", None) or Project.objects.get(slug="vision")
    return audit.record(**{"actor": None, "via": "test", "verb": "test.made", "target": target} | values)


class TestWhoSeesWhat:
    @pytest.fixture
    def world(self, people: dict[str, User], running: Job) -> dict[str, AuditEvent]:
        vision, outside = Project.objects.get(slug="vision"), Project.objects.get(slug="outside")
        hidden = factories.job(people["outsider"], project="outside", name="hidden")
        return {
            "job": AuditEvent.objects.get(verb="job.submitted", target_id=str(running.pk)),
            "hidden": AuditEvent.objects.get(verb="job.submitted", target_id=str(hidden.pk)),
            "quota": event(verb="project.quota", project=vision, actor=people["admin"]),
            "own": event(verb="project.seen", project=outside, actor=people["researcher"]),
            "behalf": AuditEvent.objects.create(
                at=database_now(),
                actor=people["admin"],
                on_behalf_of=people["member"],
                via="test",
                verb="token.made",
                target_type="apitoken",
                target_id="7",
            ),
        }

    @pytest.mark.parametrize("who", ["operator", "admin", "manager", "auditor"])
    def test_site_roles_see_all_of_it(self, client_as: ClientAs, world: dict[str, AuditEvent], who: str) -> None:
        client = client_as(who)
        first = client.get("/audit/").context["t"]["page"]
        assert first.paginator.count == AuditEvent.objects.count()

    @pytest.mark.parametrize(
        ("who", "seen"),
        [
            ("researcher", {"job", "own"}),
            ("member", {"job", "behalf"}),
            ("owner", {"job"}),
            ("outsider", {"hidden"}),
        ],
    )
    def test_others_see_the_work_of_their_projects_and_their_own_acts(
        self, client_as: ClientAs, world: dict[str, AuditEvent], people: dict[str, User], who: str, seen: set[str]
    ) -> None:
        found = {e.pk for e in trail(client_as, who)}
        assert {name for name, row in world.items() if row.pk in found} == seen
        assert found == set(AuditEvent.objects.visible_to(people[who]).values_list("pk", flat=True))

    def test_somebody_who_left_the_house_sees_nothing(
        self, world: dict[str, AuditEvent], people: dict[str, User]
    ) -> None:
        people["admin"].is_active = False
        assert not AuditEvent.objects.visible_to(people["admin"]).exists()

    def test_the_history_of_what_one_may_not_see_is_not_there(
        self, client_as: ClientAs, world: dict[str, AuditEvent]
    ) -> None:
        path = f"/audit/job/{world['hidden'].target_id}/"
        codes = {who: client_as(who).get(path).status_code for who in ("researcher", "owner", "outsider", "auditor")}
        assert codes == {"researcher": 404, "owner": 404, "outsider": 200, "auditor": 200}


class TestFilters:
    @pytest.fixture
    def rows(self, people: dict[str, User], running: Job) -> Job:
        event(verb="project.quota.raised", actor=people["admin"], reason="Deadline of the Paper")
        return running

    @pytest.mark.parametrize(
        ("query", "verbs"),
        [
            ({"who": "ADMI"}, {"project.quota.raised"}),
            ({"who": "nobody-of-this-name"}, set()),
            ({"verb": "project.quota"}, {"project.quota.raised"}),
            ({"q": "deadline of the paper"}, {"project.quota.raised"}),
            ({"kind": "job"}, {"job.submitted", "job.placed"}),
            ({"verb": "job.", "who": "system"}, {"job.placed"}),
            ({"kind": "project", "project": "outside"}, set()),
            ({"end": "2001-01-01T00:00"}, set()),
        ],
    )
    def test_filters(self, client_as: ClientAs, rows: Job, query: dict[str, str], verbs: set[str]) -> None:
        found = {e.verb for e in trail(client_as, "auditor", **query)}
        assert found - {"job.started"} == verbs

    def test_one_object_by_its_number(self, client_as: ClientAs, rows: Job) -> None:
        other = factories.job(name="another")
        found = trail(client_as, "auditor", kind="job", number=str(other.pk))
        assert [e.verb for e in found] == ["job.submitted"]

    def test_a_window_of_time_in_the_readers_zone(self, client_as: ClientAs, rows: Job) -> None:
        AuditEvent.objects.create(
            at=dt.datetime(2026, 3, 1, 4, 30, tzinfo=dt.UTC), via="t", verb="old", target_type="job", target_id="1"
        )
        User.objects.filter(username="auditor").update(time_zone="Asia/Shanghai")
        found = trail(client_as, "auditor", start="2026-03-01T12:00", end="2026-03-01T13:00")
        assert [e.verb for e in found] == ["old"]

    def test_the_newest_stand_first_and_the_other_way_round(self, client_as: ClientAs, rows: Job) -> None:
        down, up = trail(client_as, "auditor"), trail(client_as, "auditor", sort="at")
        assert [e.pk for e in down] == sorted((e.pk for e in down), reverse=True)
        assert [e.pk for e in up] == sorted(e.pk for e in up)

    def test_a_window_that_ends_before_it_begins_is_named(self, client_as: ClientAs, rows: Job) -> None:
        query = urlencode({"start": "2026-03-02T00:00", "end": "2026-03-01T00:00"})
        response = client_as("auditor").get(f"/audit/?{query}")
        assert response.context["form"].errors["end"]

    def test_nothing_found_says_the_next_step(self, client_as: ClientAs, rows: Job) -> None:
        assert b"Clear the filter or widen it." in client_as("auditor").get("/audit/?q=nowhere").content

    def test_the_file_has_the_changes(self, client_as: ClientAs, rows: Job) -> None:
        response = client_as("auditor").get("/audit/?kind=job&verb=job.placed&export=csv")
        text = b"".join(response.streaming_content).decode("utf-8-sig")
        table = [row for row in csv.reader(text.splitlines()) if row and not row[0].startswith("#")]
        assert table[0] == ["Time", "Who", "Act", "Object", "Project", "Changes", "Reason", "Seal"]
        assert table[1][1:5] == ["the system", "job.placed", f"job {rows.pk}", "vision"]
        assert "state: queued → starting" in table[1][5]


class TestHistory:
    def test_every_change_field_by_field(self, client_as: ClientAs, running: Job) -> None:
        response = client_as("researcher").get(f"/audit/job/{running.pk}/")
        assert [e.verb for e in shown(response)][-2:] == ["job.placed", "job.submitted"]
        placed = next(row for _key, row in response.context["t"]["rows"] if row.event.verb == "job.placed")
        assert Change("state", "queued", "starting") in placed.changes
        page = response.content.decode()
        assert f'href="/jobs/{running.pk}/"' in page
        assert '<td title="queued">queued</td>' in page

    def test_a_node_has_its_name_and_page(self, client_as: ClientAs, running: Job) -> None:
        node = Node.objects.get(hostname="n1")
        event(verb="node.updated", target=node, before={"rack": "r1"}, after={"rack": "r2"})
        response = client_as("operator").get(f"/audit/node/{node.pk}/")
        assert response.context["name"] == "n1"
        assert 'href="/nodes/n1/"' in response.content.decode()

    @pytest.mark.parametrize(
        "path", ["job/999999999", "nothing/1", "job/%00", f"job/{'9' * 100}", f"{'k' * 100}/1", "job/<b>"]
    )
    def test_what_has_no_history_is_not_there(self, client_as: ClientAs, running: Job, path: str) -> None:
        assert client_as("operator").get(f"/audit/{path}/").status_code == 404


class TestSeals:
    def test_a_row_that_is_not_sealed_says_so(self, client_as: ClientAs, people: dict[str, User]) -> None:
        event(verb="fresh.row")
        assert "not sealed yet" in client_as("auditor").get("/audit/?verb=fresh").content.decode()

    @pytest.mark.django_db(transaction=True)
    def test_a_sealed_row_shows_its_place_and_the_start_of_its_digest(self, client_as: ClientAs) -> None:
        event(verb="fresh.row")
        assert audit.seal() > 0
        row = AuditEvent.objects.get(verb="fresh.row")
        page = client_as("auditor").get("/audit/?verb=fresh").content.decode()
        assert f'<span class="plain-num">{row.seal.position}</span>' in page
        assert f"{row.seal.digest[:12]}…" in page
        assert "not sealed yet" not in page


def test_hostile_text_stays_text_and_short(client_as: ClientAs, people: dict[str, User]) -> None:
    values = {HOSTILE[:60]: HOSTILE, "deep": {"er": {HOSTILE[:40]: [HOSTILE]}}}
    event(verb="bad.row", before=values, after={"x": None}, reason=HOSTILE)
    project = Project.objects.get(slug="vision")
    for path in ("/audit/?verb=bad", f"/audit/project/{project.pk}/"):
        page = client_as("auditor").get(path).content.decode()
        assert "<script>alert" not in page
        assert ">" + "z" * 250 not in page
        assert len(page) < 60_000


def test_rows_with_strange_targets_do_not_break_the_list(client_as: ClientAs, people: dict[str, User]) -> None:
    now = database_now()
    for kind, number in [("job", "not-a-number"), ("node", "9" * 60), ("x", "a/b"), ("", ""), ("job", "٣")]:
        AuditEvent.objects.create(at=now, via="test", verb="odd", target_type=kind, target_id=number)
    assert len(trail(client_as, "auditor", verb="odd")) == 5


def test_the_number_of_queries_does_not_grow(client_as: ClientAs, running: Job, django_assert_num_queries: Any) -> None:
    client = client_as("auditor")
    for target in (running.by, running.project, Node.objects.get(hostname="n1")):
        event(verb="made", target=target)
    pages = ("/audit/", f"/audit/job/{running.pk}/")
    for page in pages:
        client.get(page)
    with django_assert_num_queries(GOLDEN):
        client.get("/audit/")
    with django_assert_num_queries(OF_ONE):
        client.get(pages[1])
    for n in range(5):
        factories.job(name=f"more {n}")
        factories.node(f"m{n}", cards=1)
        event(target=running, before={"n": n})
    with django_assert_num_queries(GOLDEN):
        client.get("/audit/")
    with django_assert_num_queries(OF_ONE):
        client.get(pages[1])


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, None, []),
        ({"a": 1}, {"a": 2}, [Change("a", "1", "2")]),
        ({"a": 1}, None, [Change("a", "1", None)]),
        (None, {"b": None, "c": True}, [Change("b", None, "null"), Change("c", None, "true")]),
        ({"a": {"b": "x", "c": [1]}}, {"a": {"b": "y"}}, [Change("a.b", "x", "y"), Change("a.c", "[1]", None)]),
        ({"a": {}}, {"a": ""}, [Change("a", "{}", "")]),
        (["odd"], "text", [Change("—", '["odd"]', "text")]),
        (
            {"1": {"2": {"3": {"4": {"5": "deep"}}}}},
            None,
            [Change("1.2.3.4", '{"5": "deep"}', None)],
        ),
    ],
)
def test_changes_field_by_field(before: Any, after: Any, expected: list[Change]) -> None:
    assert changes(before, after) == expected


def test_a_change_knows_whether_it_is_one() -> None:
    assert [c.changed for c in changes({"a": 1, "b": 2}, {"a": 1, "b": 3})] == [False, True]
