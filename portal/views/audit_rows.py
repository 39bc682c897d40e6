"""Rows of the audit trail for people: what changed field by field, the object's name, the seal. Reads only."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import Q, QuerySet
from django.urls import reverse

from ledger.models import AuditEvent, AuditSeal, Job, Node, Project, User
from portal import ops_words
from portal.labels import Text
from portal.typed import id_of

DEEPEST: Final = 4  # nested fields named with dots; below that they are shown as JSON
MOST_PEOPLE: Final = 50
SHORT_DIGEST: Final = 12


@dataclass(frozen=True)
class Change:
    """One field: None where the side does not have it."""

    field: str
    before: str | None
    after: str | None

    @property
    def changed(self) -> bool:
        return self.before != self.after


def changes(before: Any, after: Any) -> list[Change]:
    """The fields of both sides, those of `before` first."""
    old, new = dict(_flat("", before, 0)), dict(_flat("", after, 0))
    return [Change(name, old.get(name), new.get(name)) for name in dict.fromkeys([*old, *new])]


def _flat(prefix: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and depth < DEEPEST and value:
        for name, inner in value.items():
            yield from _flat(f"{prefix}.{name}" if prefix else str(name), inner, depth + 1)
    elif prefix or value is not None:
        yield prefix or "—", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class AuditRow:
    event: AuditEvent
    name: str  # of the object, where it has one
    page: str  # address of the object's own page, "" where it has none or the person may not open it
    changes: list[Change]

    @property
    def seal(self) -> AuditSeal | None:
        return getattr(self.event, "seal", None)

    @property
    def digest(self) -> str:
        return self.seal.digest[:SHORT_DIGEST] if self.seal else ""

    @property
    def thing(self) -> Text:
        return ops_words.thing(self.event.target_type)

    @property
    def who(self) -> str:
        return self.event.actor.username if self.event.actor else ""

    @property
    def summary(self) -> str:
        """The changes in one line, for lists and files."""
        return "; ".join(f"{c.field}: {_side(c.before)} → {_side(c.after)}" for c in self.changes)


def _side(text: str | None) -> str:
    return "—" if text is None else text


def rows(events: Sequence[AuditEvent], viewer: User) -> list[AuditRow]:
    """With a fixed number of queries whatever the number of rows."""
    ids = {kind: _ids(events, kind) for kind in (*NAMED, "job")}
    names: dict[tuple[str, str], str] = {}
    for kind, (model, field) in NAMED.items():
        for pk, name in model._default_manager.filter(pk__in=ids[kind]).values_list("pk", field):
            names[kind, str(pk)] = name
    seen = {str(pk) for pk in Job.objects.visible_to(viewer).filter(pk__in=ids["job"]).values_list("pk", flat=True)}
    found = []
    for event in events:
        name = names.get((event.target_type, event.target_id), "")
        page = _page(event.target_type, event.target_id, name, seen)
        found.append(AuditRow(event, name, page, changes(event.before, event.after)))
    return found


def _ids(events: Sequence[AuditEvent], kind: str) -> list[int]:
    found = (id_of(event.target_id) for event in events if event.target_type == kind)
    return [pk for pk in found if pk is not None]


NAMED: Final[dict[str, tuple[Any, str]]] = {
    "node": (Node, "hostname"),
    "project": (Project, "slug"),
    "user": (User, "username"),
}


def _page(kind: str, pk: str, name: str, jobs: set[str]) -> str:
    if kind == "job" and pk in jobs:
        return reverse("job", args=[pk])
    if kind in ("node", "project") and name:
        return reverse(kind, args=[name])
    return ""


def filtered(events: QuerySet[AuditEvent], chosen: Mapping[str, Any]) -> QuerySet[AuditEvent]:
    """Events under the filter of the page (portal.ops_forms.AuditFilter)."""
    if who := chosen.get("who"):
        events = events.filter(_by(who))
    if verb := chosen.get("verb"):
        events = events.filter(verb__startswith=verb)
    if kind := chosen.get("kind"):
        events = events.filter(target_type=kind)
    if number := chosen.get("number"):
        events = events.filter(target_id=number)
    if project := chosen.get("project"):
        events = events.filter(project__slug=project)
    if start := chosen.get("start"):
        events = events.filter(at__gte=start)
    if end := chosen.get("end"):
        events = events.filter(at__lt=end)
    if text := chosen.get("q"):
        events = events.filter(reason__icontains=text).exclude(reason="")  # as the index says
    return events


def _by(who: str) -> Q:
    """By people of this name; "system" means the system itself. Ids first, so that the index on actors serves."""
    people = list(User.objects.filter(username__icontains=who).values_list("pk", flat=True)[:MOST_PEOPLE])
    wanted = Q(actor__in=people) | Q(on_behalf_of__in=people)
    return wanted | Q(actor=None) if who.casefold() == "system" else wanted
