"""Objects of each relation to the people of `vision`, for the matrices of who may do what."""

from __future__ import annotations

import datetime as dt
from typing import Any

from ledger import requests
from ledger.acts import Act
from ledger.clock import database_now
from ledger.invitations import invite
from ledger.models import Department, OddGrant, Project, User
from ledger.vocabulary import OddGrantKind, ProjectRole, RequestKind
from scheduler import alert_changes, alert_defaults
from scheduler.alert_rows import Alert, AlertRule, AlertRung
from scheduler.policy import Scope, Terms
from scheduler.policy_changes import put_version
from tests import factories

NOWHERE_ID = 999_999_999
# what the people of vision, its managers left out, may read nowhere
SECRETS = ("outside", "hidden work", "outsider", "nearby", "stranger", "guest of", "gone")


def neighbours() -> None:
    """A project of the same department as vision, one that is to end, and outside in another department."""
    factories.project("nearby", stranger=ProjectRole.OWNER)
    inside = {"researcher": ProjectRole.MEMBER, "member": ProjectRole.MEMBER, "viewer": ProjectRole.VIEWER}
    factories.project("over", deputy=ProjectRole.MANAGER, **inside)
    elsewhere, _new = Department.objects.get_or_create(slug="elsewhere", defaults={"title": "Elsewhere"})
    Project.objects.filter(slug="outside").update(department=elsewhere)


def projects(people: dict[str, User]) -> dict[str, dict[str, Any]]:
    """Projects, their members, invitations and requests of each relation; what is own in them is of researcher; mine is an
    invitation of outsider, joining a request of somebody to be in vision."""
    slugs = {"own": "vision", "same": "nearby", "other": "outside", "ended": "over", "none": "nowhere"}
    bosses = {"own": "owner", "same": "stranger", "other": "outsider", "ended": "owner"}
    invited, asked = {"none": NOWHERE_ID}, {"none": NOWHERE_ID}
    for which, boss in bosses.items():
        project, guest = Project.objects.get(slug=slugs[which]), factories.user(f"guest of {which}")
        act = Act(factories.user(boss), "test", "come")
        invited[which] = invite(project=project, user=guest, role=ProjectRole.MEMBER, act=act).pk
        later = {"ends_on": project.ends_on + dt.timedelta(days=9)}
        asked[which] = requests.ask(kind=RequestKind.EXTENSION, project=project, details=later, act=act).pk
    act = Act(factories.user("stranger"), "test", "mine")
    asked["joining"] = requests.ask(
        kind=RequestKind.JOIN, project=Project.objects.get(slug="vision"), details={}, act=act
    ).pk
    vision, act = Project.objects.get(slug="vision"), Act(factories.user("owner"), "test")
    invited["mine"] = invite(project=vision, user=people["outsider"], role=ProjectRole.VIEWER, act=act).pk
    ended = factories.ended("over").receipt.pk
    receipts = {
        "own": ended,
        "other": factories.ended("gone", outsider=ProjectRole.OWNER).receipt.pk,
        "none": NOWHERE_ID,
    }
    rights = {"own": _right("researcher", -9), "other": _right("guest of other", 9), "none": NOWHERE_ID}
    members = {which: [slug, "researcher"] for which, slug in slugs.items()}
    members |= {"self": ["vision", "member"], "boss": ["vision", "owner"], "absent": ["vision", "nobody"]}
    found: dict[str, dict[str, Any]] = {
        "right": rights,
        "project": slugs,
        "member": members,
        "invitation": invited,
        "request": asked,
        "receipt": receipts,
    }
    names = {"own": "researcher", "boss": "owner", "self": "admin", "none": "nobody"}
    departments = {"own": "research", "none": "nowhere"}
    policies: dict[str, Any] = {"none": NOWHERE_ID}
    for which in ("own", "same", "other"):
        scope, rule = Scope(Project.objects.get(slug=slugs[which]).pk), Act(people["admin"], "test", "as agreed")
        policies[which] = put_version(scope=scope, terms=Terms(priority_most=100), act=rule).policy_id
    found["policy"] = policies
    found |= _alerts(people["operator"])
    return found | {"reclaim": slugs, "person": names, "quota": slugs, "department": departments}


def _alerts(operator: User) -> dict[str, dict[str, Any]]:
    """An alert that fires, the rule and the rung of it, a silence, and the channels."""
    now = database_now()
    alert_defaults.ensure(now)
    until = now + dt.timedelta(hours=1)
    silence = alert_changes.silence(matchers=[["node", "=", ["n9"]]], until=until, act=Act(operator, "test", "test"))
    about = {"severity": "warn", "labels": {"node": "n1"}, "fingerprint": "f", "subject": "n1", "simulated": False}
    times = {"started_at": now, "fired_at": now, "last_seen": now, "told_at": now}
    values = {"threshold": 0, "value": 1, "peak": 1, "rule": AlertRule.objects.get(key="taken-out")}
    alert = Alert.objects.create(**about, **times, **values)
    rung = AlertRung.objects.earliest("position")
    rows = {"alert": alert.pk, "alertrule": alert.rule_id, "alertrung": rung.pk, "silence": silence.pk}
    found: dict[str, dict[str, Any]] = {kind: {"own": pk, "none": NOWHERE_ID} for kind, pk in rows.items()}
    return found | {"alertchannel": {"own": "webhook", "none": "pigeon"}}


def in_a_week() -> dt.date:
    return dt.datetime.now(dt.UTC).date() + dt.timedelta(days=7)


def _right(name: str, days: int) -> int:
    """An odd grant over the zone of the nodes here, which ends that many days from now."""
    until = database_now() + dt.timedelta(days=days)
    values = {"kind": OddGrantKind.ZONE_OPERATOR, "zone": factories.zone(), "reason": "test"}
    period = (until - dt.timedelta(days=30), until)
    return OddGrant.objects.create(user=factories.user(name), by=factories.user("admin"), period=period, **values).pk
