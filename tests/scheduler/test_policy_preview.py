"""What a preview tells is what happens: the same jobs, submitted anew under the policy, are refused and changed so."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from ledger.acts import Act
from ledger.errors import Refused
from ledger.models import Department, Job, Project, User
from ledger.vocabulary import JobKind, ProjectRole
from scheduler import policy_preview, queue, snapshot
from scheduler.policy import AbovePolicy, Scope, Terms, Version
from scheduler.policy_changes import put_version, withdraw
from scheduler.queue import NeverRuns
from tests import factories

pytestmark = pytest.mark.django_db
COLUMNS = ("asks", "priority", "walltime_s", "zones")
SEEDS = range(12)


@pytest.fixture
def people(db: None) -> dict[str, User]:
    snapshot.forget()
    return factories.cast()


@pytest.fixture
def act(people: dict[str, User]) -> Act:
    science = Department.objects.create(slug="science", title="Science")
    Department.objects.filter(slug="research").update(parent=science)
    elsewhere = Department.objects.create(slug="elsewhere", title="Elsewhere")
    factories.project("nearby", researcher=ProjectRole.MEMBER)
    factories.project("far", researcher=ProjectRole.MEMBER)
    Project.objects.filter(slug="far").update(department=elsewhere)
    for name, memory in (("small", 8_000), ("large", 40_000)):
        factories.node(name, cards=4, memory_mib=memory, in_zone=factories.zone(name))
    return Act(people["admin"], "test", "as agreed")


def some_terms(dice: random.Random) -> Terms:
    zones = [factories.zone(name).pk for name in ("small", "large")]
    least, most = sorted(dice.sample(range(-2, 9), 2))
    short, long = sorted(dice.sample((60, 600, 3600, 86_400, 200_000), 2))
    says = {
        "forms": dice.choice((None, ("container",), ("whole", "container"), ("block", "container", "whole"))),
        "fallback_wait_s": dice.choice((None, 0, 600)),
        "zones": dice.choice((None, None, tuple(dice.sample(zones, 1)), tuple(zones))),
        "priority_default": dice.choice((None, least)),
        "priority_most": dice.choice((None, most)),
        "walltime_default_s": dice.choice((None, short)),
        "walltime_most_s": dice.choice((None, long)),
    }
    found = Terms(**says)  # type: ignore[arg-type]
    return found if found.says else Terms(priority_most=most)


def some_scope(dice: random.Random) -> Scope:
    kind = dice.choice(("", "", "training"))
    place = dice.choice(("site", "science", "research", "vision", "nearby", "far"))
    if place == "site":
        return Scope(kind=kind)
    project = Project.objects.filter(slug=place).first()
    return Scope(project.pk, None, kind) if project else Scope(None, Department.objects.get(slug=place).pk, kind)


def some_job(dice: random.Random) -> dict[str, Any]:
    ask = {
        "form": dice.choice(("auto", "auto", "container", "whole")),
        "cards_per_node": dice.choice((1, 2)),
        "memory_mib": dice.choice((0, 1024, 20_000)),
    }
    values: dict[str, Any] = {
        "project": dice.choice(("vision", "nearby", "far")),
        "kind": dice.choice(("training", "training", "data")),
        "asks": [ask, {**ask, "form": "auto", "after_s": 300}][: dice.choice((1, 1, 2))],
    }
    if dice.random() < 0.5:
        values["priority"] = dice.randint(-3, 9)
    if dice.random() < 0.5:
        values["walltime_s"] = dice.choice((60, 600, 7200, 86_400, 300_000))
    return values


def submitted(actor: User, values: dict[str, Any]) -> Job | str:
    """The job, or what it was refused for."""
    try:
        return factories.job(actor, **values)
    except NeverRuns:
        return policy_preview.NEVER
    except AbovePolicy as refused:
        return refused.field


@pytest.mark.parametrize("seed", SEEDS)
def test_it_equals_what_really_happens(people: dict[str, User], act: Act, seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(dice.randint(0, 3)):
        try:
            put_version(scope=some_scope(dice), terms=some_terms(dice), act=act)
        except Refused:
            continue  # it says that already
    tried = [(values, submitted(people["researcher"], values)) for values in (some_job(dice) for _ in range(25))]
    jobs = [(values, job) for values, job in tried if isinstance(job, Job)]
    scope, terms = some_scope(dice), some_terms(dice)
    shown = policy_preview.effect(Version(scope, terms, 1))

    put_version(scope=scope, terms=terms, act=act)
    refused, changed, other = Counter[str](), Counter[str](), 0
    for values, before in jobs:
        after = submitted(people["researcher"], values)
        if isinstance(after, str):
            refused[after] += 1
            continue
        different = [name for name in COLUMNS if getattr(before, name) != getattr(after, name)]
        changed.update(different)
        other += bool(different)
    assert (shown.refused, shown.changed, shown.other) == (refused, changed, other)
    assert shown.jobs == shown.waiting == sum(1 for _, job in jobs if _inside(job, scope))


def _inside(job: Job, scope: Scope) -> bool:
    above = policy_preview.Tree().chain(Project.objects.get(pk=job.project_id).department_id)
    places = scope.project in (None, job.project_id) and (scope.department is None or scope.department in above)
    return places and scope.kind in ("", job.kind)


def test_the_trials_show_everything(people: dict[str, User], act: Act) -> None:
    """Over all seeds each kind of change and refusal comes up, so that none is equal for being absent."""
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        dice = random.Random(seed)
        for _ in range(20):
            submitted(people["researcher"], some_job(dice))
        found = policy_preview.effect(Version(Scope(), some_terms(dice), 1))
        seen += found.changed + found.refused
        seen["fewer"] += found.fewer_nodes
    assert {*COLUMNS, "never_runs", "fewer"} <= set(+seen)


def test_it_counts_the_last_days_and_what_waits(people: dict[str, User], act: Act) -> None:
    old, waiting, new = (factories.job(people["researcher"], priority=5) for _ in range(3))
    long_ago = policy_preview.database_now() - 2 * policy_preview.LOOKS_BACK
    Job.objects.filter(pk__in=[old.pk, waiting.pk]).update(submitted_at=long_ago)
    for job in (old, new):
        queue.cancel(job_id=job.pk, actor=people["researcher"], reason="x", via="test")
    found = policy_preview.effect(Version(Scope(), Terms(priority_most=4), 1))
    assert (found.jobs, found.waiting, found.refused) == (2, 1, {"priority": 2})
    assert [(one.job.pk, one.refused) for one in found.examples] == [(new.pk, "priority"), (waiting.pk, "priority")]


def test_what_an_operator_changed_since_is_not_what_was_asked(people: dict[str, User], act: Act) -> None:
    job = factories.job(people["researcher"], priority=1)
    Job.objects.filter(pk=job.pk).update(priority=90)
    assert policy_preview.effect(Version(Scope(), Terms(priority_most=4), 1)).refused == {}


def test_a_withdrawal_is_previewed_too(people: dict[str, User], act: Act) -> None:
    scope, zone = Scope(kind=JobKind.OTHER), factories.zone("small").pk
    put_version(scope=scope, terms=Terms(priority_default=4, zones=(zone,)), act=act)
    factories.job(people["researcher"])
    found = policy_preview.effect(Version(scope, Terms(), 2))
    assert (found.other, found.changed, found.fewer_nodes) == (1, {"priority": 1, "zones": 1}, 0)
    [one] = found.examples
    assert one.nodes == (1, 2)
    withdraw(scope=scope, act=act)
    again = factories.job(people["researcher"])
    assert (again.priority, again.zones) == (0, None)


def test_it_writes_nothing(people: dict[str, User], act: Act) -> None:
    factories.job(people["researcher"])
    policy_preview.effect(Version(Scope(), Terms(priority_most=-1, forms=("whole",)), 1))
    assert Job.objects.count() == 1
    assert not policy_preview.policy.PolicyVersion.objects.exists()
