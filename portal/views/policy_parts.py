"""Parts of the pages of policies: what each says now and said before, the sealed change that travels through the
preview, and what is shown of its effect. Reads only."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.core import signing

from ledger.models import Department, Project
from portal import policy_words
from portal.labels import Text
from portal.policy_words import Titles
from scheduler import policy, policy_preview
from scheduler.policy import DEFAULTS, OF_AMOUNT, Effective, Scope, Terms, Version, terms_of
from scheduler.policy_preview import Effect
from scheduler.policy_rows import JobPolicy, PolicyVersion

SALT: Final = "policy-change"
KEPT_FOR: Final = dt.timedelta(hours=1)
MOST_BEFORE: Final = 50  # versions that the page of a policy shows


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """A policy with its newest version."""

    policy: JobPolicy
    version: PolicyVersion
    zones: Titles

    @property
    def scope(self) -> str:
        return policy_words.scope(self.policy)

    @property
    def says(self) -> dict[str, Any]:
        return terms_of(self.version).says

    @property
    def told(self) -> list[tuple[Text, str]]:
        said = policy_words.rows(self.says, self.zones)
        return [(label, text) for name, label, text in said if name in self.says]

    @property
    def summary(self) -> str:
        return "; ".join(f"{label}: {said}" for label, said in self.told)


def policy_rows(found: Sequence[JobPolicy]) -> list[PolicyRow]:
    """In two queries whatever their number."""
    versions = PolicyVersion.objects.filter(policy__in=[one.pk for one in found], period__upper_inf=True)
    newest = {row.policy_id: row for row in versions.select_related("by")}
    zones = policy_words.zone_titles() if found else {}
    return [PolicyRow(one, newest[one.pk], zones) for one in found if one.pk in newest]


@dataclass(frozen=True, slots=True)
class Past:
    """A version, and what differs in it from the one before."""

    version: PolicyVersion
    changed: list[tuple[Text, str, str]]


def history(of: JobPolicy) -> list[Past]:
    """The newest first."""
    rows = list(of.versions.select_related("by").order_by("-number")[: MOST_BEFORE + 1])
    zones = policy_words.zone_titles()
    says = [terms_of(row).says for row in rows] + [{}]
    found = [
        Past(row, policy_words.difference(says[at + 1], says[at], zones)) for at, row in enumerate(rows[:MOST_BEFORE])
    ]
    return found


# -- what holds for a project ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Source:
    """One thing that policies say of a project's jobs, and which says it; `row` None: none of them does."""

    field: str
    label: Text
    said: str
    row: PolicyVersion | None


def sources(rules: Effective) -> list[Source]:
    ids = {ruled.version.id for ruled in rules.values()}
    rows = PolicyVersion.objects.filter(pk__in=ids).select_related("policy__project", "policy__department")
    by_id, zones = {row.pk: row for row in rows}, policy_words.zone_titles()
    found = []
    for name, label in policy_words.FIELDS.items():
        ruled = rules.get(name)
        said = _own(name, zones) if ruled is None else policy_words.value(name, ruled.value, zones)
        found.append(Source(name, label, said, by_id.get(ruled.version.id or 0) if ruled else None))
    return found


def _own(name: str, zones: Titles) -> str:
    """What the portal does where no policy says it."""
    field = next((field for field, (default, _most) in OF_AMOUNT.items() if default == name), None)
    return policy_words.value(name, DEFAULTS[field], zones) if field else "—"


# -- a change ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """What the policy of a scope is to say; nothing: it is withdrawn. `shown`: the number of the version that it said
    when it was previewed."""

    scope: Scope
    terms: Terms
    shown: int


def standing(scope: Scope) -> PolicyVersion | None:
    """What the policy of a scope says now."""
    whose = {"policy__project": scope.project, "policy__department": scope.department, "policy__kind": scope.kind}
    found: PolicyVersion | None = policy.in_force(**whose).first()
    return found


def sealed(change: Change) -> str:
    """The change as one signed text: what was previewed is what will be made."""
    whose = [change.scope.project, change.scope.department, change.scope.kind]
    return signing.dumps({"scope": whose, "says": change.terms.says, "shown": change.shown}, salt=SALT, compress=True)


def opened(text: str) -> Change | None:
    """None when the text is not ours or older than an hour."""
    try:
        values: dict[str, Any] = signing.loads(text, salt=SALT, max_age=KEPT_FOR)
    except signing.BadSignature:
        return None
    says = {name: tuple(said) if isinstance(said, list) else said for name, said in values["says"].items()}
    return Change(Scope(*values["scope"]), Terms(**says), values["shown"])


def tried_out(change: Change) -> Effect:
    return policy_preview.effect(Version(change.scope, change.terms, change.shown + 1))


def preview(change: Change) -> dict[str, Any]:
    """What the policy says before and after, and what that would do to jobs."""
    old = standing(change.scope)
    before, zones = terms_of(old).says if old else {}, policy_words.zone_titles()
    effect = tried_out(change)
    return {
        "scope": _scope_words(change.scope),
        "rows": [
            (label, was, now, was != now)
            for (_name, label, was), (_same, _label, now) in zip(
                policy_words.rows(before, zones), policy_words.rows(change.terms.says, zones), strict=True
            )
        ],
        "withdraws": not change.terms.says,
        "effect": effect,
        "days": policy_preview.LOOKS_BACK.days,
        "refused": _counted(effect.refused, policy_words.REFUSED),
        "changed": _counted(effect.changed, policy_words.OF_A_JOB),
        "examples": [
            {
                "job": one.job,
                "refused": policy_words.REFUSED.get(one.refused, ""),
                "changes": policy_words.job_changes(one.before, one.after, one.changed, zones),
                "nodes": one.nodes,
            }
            for one in effect.examples
        ],
    }


def _counted(counts: Mapping[str, int], words: Mapping[str, Text]) -> Iterable[tuple[Text, int]]:
    return [(words[name], counts[name]) for name in words if counts.get(name)]


def _scope_words(scope: Scope) -> str:
    project = Project.objects.filter(pk=scope.project).values_list("slug", flat=True).first()
    department = Department.objects.filter(pk=scope.department).values_list("title", flat=True).first()
    return policy_words.scope_of(project, department, scope.kind)
