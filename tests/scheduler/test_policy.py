"""Policies of jobs: the most specific wins, for each thing by itself; what is decided is kept with the job; the database
holds one version at a time; the engine keeps jobs inside their zones."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from ledger.acts import Act
from ledger.errors import Conflict, Forbidden, Refused
from ledger.models import Allocation, AuditEvent, Department, Job, Project, User
from ledger.vocabulary import Form, JobKind, SiteRole
from scheduler import policy, policy_changes, quota, snapshot, whatif
from scheduler.placing import place_queued
from scheduler.policy import AbovePolicy, Scope, Terms
from scheduler.policy_changes import put_version, withdraw
from scheduler.policy_rows import JobPolicy, PolicyUse, PolicyVersion
from scheduler.queue import NeverRuns
from tests import factories
from tests.ledger.raw import NOW_ON, Sql, insert, refused, run

pytestmark = pytest.mark.django_db
TRAINING = JobKind.TRAINING
AUTO = {"form": "auto", "cards_per_node": 1, "memory_mib": 1024}


@pytest.fixture
def people(db: None) -> dict[str, User]:
    snapshot.forget()
    return factories.cast()


@pytest.fixture
def act(people: dict[str, User]) -> Act:
    return Act(people["manager"], "test", "as agreed")


@pytest.fixture
def vision(people: dict[str, User]) -> Project:
    """In department research, below science."""
    science = Department.objects.create(slug="science", title="Science")
    Department.objects.filter(slug="research").update(parent=science)
    return Project.objects.select_related("department").get(slug="vision")


def scope_of(where: str) -> Scope:
    """Such as vision, vision+training, science, site+data."""
    place, _, kind = where.partition("+")
    if place == "site":
        return Scope(kind=kind)
    project = Project.objects.filter(slug=place).first()
    if project is not None:
        return Scope(project=project.pk, kind=kind)
    return Scope(department=Department.objects.get(slug=place).pk, kind=kind)


def say(act: Act, where: str, **values: Any) -> PolicyVersion:
    return put_version(scope=scope_of(where), terms=Terms(**values), act=act)


ORDER = ["site", "site+training", "science", "science+training", "research", "research+training", "vision"]
ORDER += ["vision+training"]  # from the widest to the most specific


class TestTheMostSpecificWins:
    @pytest.mark.parametrize("upto", range(1, len(ORDER) + 1))
    def test_of_all_that_say_it(self, act: Act, vision: Project, upto: int) -> None:
        for number, where in enumerate(ORDER[:upto]):
            say(act, where, priority_default=number)
        assert policy.effective(vision, TRAINING)["priority_default"].value == upto - 1

    @pytest.mark.parametrize(
        "where", ["outside", "outside+training", "elsewhere", "below", "vision+data", "science+data", "site+data"]
    )
    def test_what_is_about_others_says_nothing(self, act: Act, vision: Project, where: str) -> None:
        Department.objects.create(slug="elsewhere", title="Elsewhere")
        Department.objects.create(slug="below", title="Below", parent=vision.department)
        say(act, where, priority_default=1)
        assert policy.effective(vision, TRAINING) == {}

    def test_each_thing_by_itself(self, act: Act, vision: Project) -> None:
        home = factories.zone("home").pk
        say(act, "site", forms=("whole",), fallback_wait_s=60, priority_most=50, walltime_default_s=7200)
        say(act, "science+training", zones=(home,), walltime_most_s=3600)
        say(act, "vision", forms=("container", "block"), priority_default=5)
        found = policy.effective(vision, TRAINING)
        assert {name: (ruled.value, ruled.version.scope) for name, ruled in found.items()} == {
            "forms": (("container", "block"), scope_of("vision")),
            "fallback_wait_s": (60, scope_of("site")),
            "zones": ((home,), scope_of("science+training")),
            "priority_default": (5, scope_of("vision")),
            "priority_most": (50, scope_of("site")),
            "walltime_default_s": (7200, scope_of("site")),
            "walltime_most_s": (3600, scope_of("science+training")),
        }

    def test_a_withdrawn_policy_gives_way_to_a_wider_one(self, act: Act, vision: Project) -> None:
        say(act, "site", priority_default=1)
        say(act, "vision", priority_default=2)
        withdraw(scope=scope_of("vision"), act=act)
        assert policy.effective(vision, TRAINING)["priority_default"].value == 1

    def test_many_projects_at_once_as_one_by_one(self, act: Act, vision: Project) -> None:
        for number, where in enumerate(ORDER[::2]):
            say(act, where, priority_default=number, walltime_most_s=number + 60)
        rules, tree = policy.all_rules(), policy.Tree()
        for project in Project.objects.all():
            for kind in JobKind:
                chain = tree.chain(project.department_id)
                assert rules.of(project.pk, chain, kind) == policy.effective(project, kind)


def container(after_s: int = 0, form: str = "container", cards: int = 1) -> dict[str, Any]:
    return {
        **AUTO,
        "form": form,
        "after_s": after_s,
        "cards_per_node": cards,
        "nodes": 1,
        "model": "",
        "compute_milli": 0,
    }


class TestASubmittedJob:
    @pytest.mark.parametrize(
        ("says", "asked", "gets"),
        [
            ({}, {}, (0, 86_400)),
            ({"priority_default": 5, "walltime_default_s": 600}, {}, (5, 600)),
            ({"priority_default": 5, "walltime_default_s": 600}, {"priority": 0, "walltime_s": 900}, (0, 900)),
            ({"priority_most": 5, "walltime_most_s": 600}, {"priority": 5, "walltime_s": 600}, (5, 600)),
            ({"priority_most": -3, "walltime_most_s": 600}, {}, (-3, 600)),
        ],
    )
    def test_defaults_fill_what_was_left_open(
        self, act: Act, vision: Project, says: dict[str, int], asked: dict[str, int], gets: tuple[int, int]
    ) -> None:
        if says:
            say(act, "vision", **says)
        job = factories.job(**asked)
        assert (job.priority, job.walltime_s) == gets

    def test_a_default_of_one_policy_is_cut_to_the_most_of_another(self, act: Act, vision: Project) -> None:
        say(act, "site", priority_most=2)
        say(act, "vision", priority_default=9)
        job = factories.job()
        assert job.priority == 2
        [line] = PolicyUse.objects.get(job=job).lines
        assert (line["why"], line["version"]) == ("most", PolicyVersion.objects.get(priority_most=2).pk)

    @pytest.mark.parametrize(
        ("asked", "field", "right"),
        [({"priority": 6}, "priority", "at most 5"), ({"walltime_s": 601}, "walltime_s", "at most 10 minutes (600 s)")],
    )
    def test_more_than_the_most_is_refused_and_told_what_would_be_right(
        self, act: Act, vision: Project, asked: dict[str, int], field: str, right: str
    ) -> None:
        version = say(act, "research", priority_most=5, walltime_most_s=600)
        with pytest.raises(AbovePolicy) as caught:
            factories.job(**asked)
        assert (caught.value.field, caught.value.code) == (field, "above_policy")
        assert right in str(caught.value)
        assert f"Policy {version.policy_id}, version 1" in str(caught.value)
        assert not Job.objects.exists()

    def test_an_open_form_becomes_the_order_of_the_policy(self, act: Act, vision: Project) -> None:
        say(act, "site", forms=("container", "block", "whole"), fallback_wait_s=600)
        job = factories.job(asks=[AUTO, {**AUTO, "form": "whole", "after_s": 60}, {**AUTO, "after_s": 900}])
        assert [(ask["form"], ask["after_s"]) for ask in job.asks] == [
            ("container", 0), ("whole", 60), ("block", 600), ("container", 900),
            ("whole", 1200), ("block", 1500), ("whole", 2100),
        ]  # fmt: skip
        use = PolicyUse.objects.get(job=job)
        assert [ask["form"] for ask in use.asked["asks"]] == ["auto", "whole", "auto"]
        assert [(line["field"], line["now"]) for line in use.lines] == [
            ("forms", ["container", "block", "whole"]),
            ("fallback_wait_s", 600),
        ]

    def test_a_chosen_form_stays(self, act: Act, vision: Project) -> None:
        say(act, "site", forms=("whole",), fallback_wait_s=600)
        job = factories.job(asks=[{**AUTO, "form": "container"}])
        assert [ask["form"] for ask in job.asks] == ["container"]
        assert PolicyUse.objects.get(job=job).lines == []

    def test_later_versions_change_no_job_in_the_queue(self, act: Act, vision: Project) -> None:
        home, away = factories.zone("home"), factories.zone("away")
        first = say(act, "vision", priority_default=5, zones=(home.pk,))
        job = factories.job()
        say(act, "vision", priority_default=7, zones=(away.pk,))
        job.refresh_from_db()
        assert (job.priority, job.zones) == (5, [home.pk])
        assert {line["version"] for line in PolicyUse.objects.get(job=job).lines} == {first.pk}
        assert factories.job().zones == [away.pk]

    def test_the_audit_row_names_what_was_decided(self, act: Act, vision: Project) -> None:
        version = say(act, "vision", priority_default=5)
        factories.job()
        row = AuditEvent.objects.get(verb="job.submitted")
        assert (row.after or {})["policies"] == {"priority": f"{version.policy_id}/1"}

    def test_what_is_shown_before_is_what_is_queued(self, act: Act, vision: Project, people: dict[str, User]) -> None:
        factories.node("n1", cards=2)
        factories.grant(vision, quota.Resource.CARD_MILLI_S, 10**12)
        say(act, "vision", forms=("whole",), walltime_default_s=100, zones=(factories.zone().pk,))
        data = factories.job_data(people["researcher"], asks=[AUTO])
        tried = whatif.candidate(data, vision, people["researcher"])
        job = factories.job(people["researcher"], asks=[AUTO])
        names = ("asks", "walltime_s", "priority", "zones")
        assert {n: getattr(tried, n) for n in names} == {n: getattr(job, n) for n in names}
        [claim] = quota.claims(tried, whatif.outlook(tried).spots)
        assert claim.takes == 2 * 1000 * 100
        assert [spot.form for spot in whatif.outlook(tried).spots] == [Form.WHOLE]

    def test_the_same_key_gives_the_job_of_before_a_policy(self, act: Act, vision: Project) -> None:
        data = factories.job_data(factories.user("researcher"), priority=50)
        same = {"data": data, "actor": factories.user("researcher"), "via": "test", "client_key": "k"}
        from scheduler.queue import submit

        job = submit(**same)
        say(act, "vision", priority_most=5)
        assert submit(**same).pk == job.pk


class TestZones:
    def test_jobs_stay_inside_and_say_why_they_wait(self, act: Act, vision: Project) -> None:
        home, away = factories.zone("home"), factories.zone("away")
        factories.node("n1", cards=1, in_zone=home)
        factories.node("n2", cards=1, in_zone=away)
        say(act, "vision", zones=(away.pk,))
        first, second = (factories.job(asks=[{"form": "container", "memory_mib": 0}]) for _ in range(2))
        assert place_queued()["placed"] == 1
        assert Allocation.objects.get().node.hostname == "n2"
        first.refresh_from_db()
        waits = second if first.state != "queued" else first
        assert waits.decisions.get(attempt=None).reasons == [{"zone": 1, "cards_free": 1}]

    def test_what_no_node_of_the_zones_could_serve_is_refused_with_the_reason(self, act: Act, vision: Project) -> None:
        small, large = factories.zone("small"), factories.zone("large")
        factories.node("n1", cards=1, memory_mib=8_000, in_zone=small)
        factories.node("n2", cards=1, memory_mib=80_000, in_zone=large)
        say(act, "vision", zones=(small.pk,))
        with pytest.raises(NeverRuns) as caught:
            factories.job(asks=[{"form": "container", "memory_mib": 20_000}])
        assert caught.value.field == "project"
        [limit] = caught.value.why.limits
        assert (limit.what, limit.wanted, limit.nearest) == ("zones", "small", "large")
        with pytest.raises(NeverRuns) as caught:
            factories.job(asks=[{"form": "container", "memory_mib": 90_000}])
        assert [(one.what, one.nearest) for one in caught.value.why.limits] == [("memory_mib", 8_000)]

    def test_the_database_refuses_a_node_that_left_the_zone_meanwhile(self, act: Act, vision: Project) -> None:
        home, away = factories.zone("home"), factories.zone("away")
        factories.node("n1", cards=1, in_zone=home)
        say(act, "vision", zones=(home.pk,))
        job = factories.job()
        run("UPDATE ledger_job SET zones = ARRAY[%s::bigint] WHERE id = %s", away.pk, job.pk)
        snap = snapshot.read([job])  # as it was read before
        from scheduler.commit import commit_plan
        from scheduler.engine.plan import plan

        assert dict(commit_plan(snap, plan(snap)).refused) == {"zone": 1}


class TestVersions:
    def test_are_numbered_and_end_where_the_next_begins(self, act: Act, vision: Project) -> None:
        say(act, "vision", priority_default=1)
        say(act, "vision", priority_default=2)
        withdraw(scope=scope_of("vision"), act=act)
        say(act, "vision", priority_default=2)
        rows = list(PolicyVersion.objects.order_by("number"))
        assert [(row.number, row.withdrawn) for row in rows] == [(1, False), (2, False), (3, True), (4, False)]
        assert [row.period.upper for row in rows] == [row.period.lower for row in rows[1:]] + [None]
        assert JobPolicy.objects.count() == 1
        verbs = AuditEvent.objects.filter(target_type="jobpolicy").order_by("pk")
        assert [row.verb for row in verbs] == ["policy.set", "policy.set", "policy.withdrawn", "policy.set"]
        assert verbs[1].before == {"scope": _told(), "version": 1, "says": {"priority_default": 1}}
        assert (verbs[1].after or {})["says"] == {"priority_default": 2}
        assert {(row.project_id, row.reason) for row in verbs} == {(vision.pk, "as agreed")}

    @pytest.mark.parametrize(
        ("values", "field"),
        [
            ({}, "forms"),
            ({"forms": ()}, "forms"),
            ({"forms": ("auto",)}, "forms"),
            ({"forms": ("block", "block")}, "forms"),
            ({"fallback_wait_s": -1}, "fallback_wait_s"),
            ({"zones": ()}, "zones"),
            ({"zones": (999_999,)}, "zones"),
            ({"priority_default": 101}, "priority_default"),
            ({"priority_most": -101}, "priority_most"),
            ({"priority_default": 3, "priority_most": 2}, "priority_default"),
            ({"walltime_default_s": 0}, "walltime_default_s"),
            ({"walltime_most_s": 367 * 86_400}, "walltime_most_s"),
            ({"walltime_default_s": 61, "walltime_most_s": 60}, "walltime_default_s"),
        ],
    )
    def test_what_is_wrong_is_named(self, act: Act, vision: Project, values: dict[str, Any], field: str) -> None:
        with pytest.raises(Refused) as caught:
            say(act, "vision", **values)
        assert caught.value.field == field
        assert not JobPolicy.objects.exists()

    @pytest.mark.parametrize(
        ("scope", "field"),
        [
            (Scope(project=1, department=1), "department"),
            (Scope(project=999_999), "project"),
            (Scope(department=999_999), "department"),
            (Scope(kind="nothing"), "kind"),
        ],
    )
    def test_a_scope_that_is_none(self, act: Act, vision: Project, scope: Scope, field: str) -> None:
        with pytest.raises(Refused) as caught:
            put_version(scope=scope, terms=Terms(priority_default=1), act=act)
        assert caught.value.field == field

    def test_other_conflicts(self, act: Act, vision: Project) -> None:
        with pytest.raises(Conflict):
            withdraw(scope=scope_of("vision"), act=act)
        say(act, "vision", priority_default=1)
        with pytest.raises(Refused, match="already"):
            say(act, "vision", priority_default=1)
        for shown in (policy_changes.NONE, 2):
            with pytest.raises(Conflict, match="somebody else"):
                put_version(scope=scope_of("vision"), terms=Terms(priority_default=2), act=act, shown=shown)
        with pytest.raises(Refused, match="reason"):
            put_version(scope=scope_of("vision"), terms=Terms(priority_default=2), act=Act(act.actor, "test", " "))
        factories.ended("over")
        with pytest.raises(Conflict, match="ended"):
            say(act, "over", priority_default=1)
        assert PolicyVersion.objects.count() == 1

    @pytest.mark.parametrize("who", ["owner", "researcher", "operator", "auditor"])
    def test_only_who_governs_writes(self, people: dict[str, User], vision: Project, who: str) -> None:
        with pytest.raises(Forbidden):
            say(Act(people[who], "test", "x"), "vision", priority_default=1)


def _told() -> dict[str, Any]:
    return {"project": "vision", "department": None, "kind": ""}


class TestTheDatabase:
    def test_refuses_two_versions_in_force_and_two_policies_of_a_scope(self, act: Act, vision: Project) -> None:
        first = say(act, "vision", priority_default=1)
        row = {
            "policy_id": first.policy_id,
            "withdrawn": False,
            "by_id": first.by_id,
            "reason": "x",
            "priority_most": 1,
        }
        with refused("one_policy_version_at_a_time"):
            insert("scheduler_policyversion", number=2, period=NOW_ON, **row)
        with refused("policy_version_number_once"):
            insert("scheduler_policyversion", number=1, period=Sql("tstzrange('2000-01-01', '2000-01-02')"), **row)
        with refused("one_policy_a_scope"):
            insert("scheduler_jobpolicy", project_id=vision.pk, kind="")
        say(act, "site+data", priority_default=1)
        with refused("one_policy_a_scope"):
            insert("scheduler_jobpolicy", kind="data")
        with refused("policy_of_project_or_department"):
            insert("scheduler_jobpolicy", kind="", project_id=vision.pk, department_id=vision.department_id)

    @pytest.mark.parametrize(
        "change",
        [
            "UPDATE scheduler_policyversion SET priority_default = 9",
            "UPDATE scheduler_policyversion SET period = tstzrange('2000-01-01', NULL)",
            "UPDATE scheduler_policyversion SET period = tstzrange(lower(period), clock_timestamp()), reason = 'y'",
            "UPDATE scheduler_jobpolicy SET kind = 'data'",
            "UPDATE scheduler_policyuse SET lines = '[]'",
        ],
    )
    def test_changes_no_row(self, act: Act, vision: Project, change: str) -> None:
        say(act, "vision", priority_default=1)
        factories.job()
        with refused("policy_is_never_changed"):
            run(change)

    @pytest.mark.parametrize(
        ("values", "constraint"),
        [
            ({}, "policy_says_something"),
            ({"withdrawn": True, "priority_most": 1}, "policy_says_something"),
            ({"forms": Sql("'{}'")}, "policy_forms_known"),
            ({"forms": Sql("'{auto}'")}, "policy_forms_known"),
            ({"zones": Sql("'{}'")}, "policy_zones_not_empty"),
            ({"priority_default": 5, "priority_most": 4}, "policy_priority_within"),
            ({"walltime_default_s": 5, "walltime_most_s": 4}, "policy_walltime_within"),
            ({"priority_most": 101}, "policy_priority_most"),
            ({"walltime_most_s": 0}, "policy_walltime_most_s"),
            ({"priority_most": 1, "reason": ""}, "policy_version_has_a_reason"),
        ],
    )
    def test_refuses_what_no_policy_may_say(
        self, act: Act, vision: Project, values: dict[str, Any], constraint: str
    ) -> None:
        scope = insert("scheduler_jobpolicy", project_id=vision.pk, kind="")
        row = {"policy_id": scope, "number": 1, "period": NOW_ON, "withdrawn": False, "reason": "x"}
        with refused(constraint):
            insert("scheduler_policyversion", **row | {"by_id": act.actor.pk if act.actor else 0} | values)


def test_who_sees_which_policy(people: dict[str, User], act: Act, vision: Project) -> None:
    Department.objects.create(slug="below", title="Below", parent=vision.department)
    Project.objects.filter(slug="outside").update(department=Department.objects.create(slug="other", title="Other"))
    every = {"site", "science", "research", "below", "other", "vision+training", "outside"}
    for where in every:
        say(act, where, priority_default=1)
    seen = {
        name: set(JobPolicy.objects.visible_to(people[name]).values_list("pk", flat=True))
        for name in ("researcher", "outsider", "auditor", "manager")
    }
    ids = {where: _policy(where).pk for where in every}
    assert seen["auditor"] == seen["manager"] == set(ids.values())
    assert seen["researcher"] == {ids[where] for where in ("site", "science", "research", "vision+training")}
    assert seen["outsider"] == {ids[where] for where in ("site", "other", "outside")}
    gone = factories.user("gone", SiteRole.ADMIN)
    gone.is_active = False
    assert not JobPolicy.objects.visible_to(gone).exists()


def _policy(where: str) -> JobPolicy:
    scope = scope_of(where)
    return JobPolicy.objects.get(project=scope.project, department=scope.department, kind=scope.kind)


def test_a_round_asks_nothing_about_policies(act: Act, vision: Project) -> None:
    """Zones come with the rows of the queue."""
    from django.test.utils import CaptureQueriesContext

    factories.node("n1", cards=4)
    say(act, "vision", zones=(factories.zone().pk,), priority_default=1)
    factories.job()
    with CaptureQueriesContext(connection) as asked:
        assert place_queued()["placed"] == 1
    assert not [query["sql"] for query in asked.captured_queries if "scheduler_polic" in query["sql"]]


def test_as_many_wishes_as_a_job_may_have_get_every_form(act: Act, vision: Project) -> None:
    factories.node("n1", cards=4)
    say(act, "site", forms=("container", "block", "whole"), fallback_wait_s=60)
    wishes = [{"form": "auto", "cards_per_node": cards} for cards in (4, 2, 1)]
    job = factories.job(asks=wishes)
    assert [(ask["form"], ask["after_s"]) for ask in job.asks] == [
        (form, after_s) for after_s, form in ((0, "container"), (60, "block"), (120, "whole")) for _ in wishes
    ]
