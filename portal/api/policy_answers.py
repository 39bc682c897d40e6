"""What the API says of policies: plain dictionaries, shown by pages too. Zones by their short names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ledger.models import Job, Zone
from scheduler.policy import RULE, Effective, Line, Settled, terms_of
from scheduler.policy_preview import Effect
from scheduler.policy_rows import VALUES, JobPolicy, PolicyUse, PolicyVersion

Slugs = Mapping[int, str]  # of zones, by id


def slugs_of(ids: Iterable[int]) -> dict[int, str]:
    wanted = set(ids)
    return dict(Zone.objects.filter(pk__in=wanted).values_list("pk", "slug")) if wanted else {}


def scope(policy: JobPolicy) -> dict[str, Any]:
    """With its project and department read along."""
    return {
        "project": policy.project.slug if policy.project else None,
        "department": policy.department.slug if policy.department else None,
        "kind": policy.kind or None,
    }


def says(values: Mapping[str, Any], slugs: Slugs) -> dict[str, Any]:
    """All that a policy can say; null: not said."""
    told = {name: values.get(name) for name in VALUES}
    if told["zones"] is not None:
        told["zones"] = [slugs.get(pk, str(pk)) for pk in told["zones"]]
    return {name: list(value) if isinstance(value, tuple) else value for name, value in told.items()}


def version(row: PolicyVersion, slugs: Slugs) -> dict[str, Any]:
    upper = row.period.upper
    return {
        "number": row.number,
        "withdrawn": row.withdrawn,
        "since": row.period.lower.isoformat(),
        "until": upper.isoformat() if upper else None,
        "by": row.by.username,
        "reason": row.reason,
        "says": says(terms_of(row).says, slugs),
    }


def policies(found: Sequence[JobPolicy]) -> list[dict[str, Any]]:
    """Each with its newest version, in two queries whatever their number."""
    rows = PolicyVersion.objects.filter(policy__in=[one.pk for one in found], period__upper_inf=True)
    newest = {row.policy_id: row for row in rows.select_related("by")}
    slugs = slugs_of(pk for row in newest.values() for pk in row.zones or ())
    return [
        {"id": one.pk, **scope(one), "version": version(newest[one.pk], slugs)} for one in found if one.pk in newest
    ]


def detail(policy: JobPolicy, most: int) -> dict[str, Any]:
    """With its versions, the newest first."""
    rows = list(policy.versions.select_related("by").order_by("-number")[:most])
    slugs = slugs_of(pk for row in rows for pk in row.zones or ())
    told = [version(row, slugs) for row in rows]
    return {"id": policy.pk, **scope(policy), "version": told[0], "versions": told}


def effective(rules: Effective) -> dict[str, Any]:
    """By what can be said: the value and the version that says it; null where none does."""
    ids = {ruled.version.id for ruled in rules.values()}
    rows = PolicyVersion.objects.filter(pk__in=ids).select_related("policy__project", "policy__department")
    by_id = {row.pk: row for row in rows}
    slugs = slugs_of(rules["zones"].value if "zones" in rules else ())
    values = says({name: ruled.value for name, ruled in rules.items()}, slugs)
    found: dict[str, Any] = {}
    for name, value in values.items():
        row = by_id.get(rules[name].version.id or 0) if name in rules else None
        found[name] = {"value": value, "from": _source(row)} if row else None
    return found


def _source(row: PolicyVersion) -> dict[str, Any]:
    return {"policy": row.policy_id, "version": row.number, **scope(row.policy)}


def of_job(job: Job) -> dict[str, Any]:
    """What policies made of a job when it was submitted."""
    use = PolicyUse.objects.filter(job=job).first()
    if use is None or not use.lines:
        return {"rule": use.rule if use else None, "lines": []}
    ids = {line["version"] for line in use.lines}
    rows = PolicyVersion.objects.filter(pk__in=ids).select_related("policy__project", "policy__department")
    by_id = {row.pk: row for row in rows}
    slugs = slugs_of(pk for line in use.lines if line["field"] == "zones" for pk in line["now"])
    return {"rule": use.rule, "lines": [_line(line, by_id[line["version"]], slugs) for line in use.lines]}


def _line(told: Mapping[str, Any], row: PolicyVersion, slugs: Slugs) -> dict[str, Any]:
    named = {name: told[name] for name in ("field", "was", "now", "why")}
    if named["field"] == "zones":
        named["now"] = [slugs.get(pk, str(pk)) for pk in named["now"]]
    return {**named, "from": _source(row)}


def of_draft(found: Settled) -> dict[str, Any]:
    """The same of a job that is not submitted yet."""
    ids = {line.version.id for line in found.lines}
    rows = PolicyVersion.objects.filter(pk__in=ids).select_related("policy__project", "policy__department")
    by_id = {row.pk: row for row in rows} if ids else {}
    slugs = slugs_of(found.zones or ())
    return {"rule": RULE, "lines": [_line(_told(line), by_id[line.version.id or 0], slugs) for line in found.lines]}


def _told(line: Line) -> dict[str, Any]:
    return {"field": line.field, "was": line.was, "now": line.now, "why": line.why}


def effect(found: Effect) -> dict[str, Any]:
    """What a preview tells."""
    return {
        "jobs": found.jobs,
        "waiting": found.waiting,
        "cut_off": found.cut_off,
        "refused": dict(found.refused),
        "changed": dict(found.changed),
        "other": found.other,
        "fewer_nodes": found.fewer_nodes,
        "examples": [
            {
                "job": one.job.pk,
                "name": one.job.name,
                "project": one.job.project.slug,
                "refused": one.refused or None,
                "changed": list(one.changed),
                "nodes": list(one.nodes) if one.nodes else None,
            }
            for one in found.examples
        ],
    }
