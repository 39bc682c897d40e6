"""Policies of jobs in words: whose they are, what they say, what they made of a job. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext

from ledger.models import Zone
from portal import labels
from portal.labels import Text
from portal.templatetags import ui
from scheduler.policy import Settled
from scheduler.policy_preview import NEVER
from scheduler.policy_rows import JobPolicy

FIELDS: Final[Mapping[str, Text]] = {  # of scheduler.policy.Terms
    "forms": gettext_lazy("Order of forms where the form is left open"),
    "fallback_wait_s": gettext_lazy("Wait before the next form counts"),
    "zones": gettext_lazy("Only in the zones"),
    "priority_default": gettext_lazy("Priority where it is left open"),
    "priority_most": gettext_lazy("Highest priority"),
    "walltime_default_s": gettext_lazy("Time limit where it is left open"),
    "walltime_most_s": gettext_lazy("Longest time limit"),
}
OF_A_JOB: Final[Mapping[str, Text]] = {  # of a Line and of a JobInput
    "forms": gettext_lazy("Form"),
    "asks": gettext_lazy("Form"),
    "fallback_wait_s": gettext_lazy("Wait before the next form counts"),
    "zones": gettext_lazy("Only in the zones"),
    "priority": gettext_lazy("Priority"),
    "walltime_s": gettext_lazy("Time limit"),
}
REFUSED: Final[Mapping[str, Text]] = {  # by what a preview counts refusals
    "priority": gettext_lazy("priority above the highest"),
    "walltime_s": gettext_lazy("time limit above the longest"),
    NEVER: gettext_lazy("no node could ever serve it then"),
}
SECONDS: Final = frozenset({"fallback_wait_s", "walltime_default_s", "walltime_most_s", "walltime_s"})
Titles = Mapping[int, str]  # of zones, by id


def zone_titles() -> dict[int, str]:
    return dict(Zone.objects.values_list("pk", "title"))


def scope(policy: JobPolicy) -> str:
    """With its project and department read along."""
    project = policy.project.slug if policy.project else None
    return scope_of(project, policy.department.title if policy.department else None, policy.kind)


def scope_of(project: str | None, department: str | None, kind: str) -> str:
    if project is not None:
        whose = _("project %(project)s") % {"project": project}
    elif department is not None:
        whose = _("department %(department)s") % {"department": department}
    else:
        whose = pgettext("policy", "everybody")
    if not kind:
        return whose
    return _("%(kind)s · %(whose)s") % {"kind": labels.text("kind", kind), "whose": whose}


def value(field: str, said: Any, zones: Titles) -> str:
    """A value of Terms, or of a job's field."""
    if said is None:
        return "—"
    if field in SECONDS:
        return ui.duration(said)
    if field == "forms":
        return _forms([said] if isinstance(said, str) else said)
    if field == "zones":
        return ui.listed(zones.get(pk, str(pk)) for pk in said)
    return str(said)


def _forms(forms: Sequence[str]) -> str:
    return " › ".join(str(labels.look("ask_form", form).label) for form in forms)


def rows(says: Mapping[str, Any], zones: Titles) -> list[tuple[str, Text, str]]:
    """(field, its label, what is said of it), of all that a policy can say."""
    return [(name, label, value(name, says.get(name), zones)) for name, label in FIELDS.items()]


def difference(before: Mapping[str, Any], after: Mapping[str, Any], zones: Titles) -> list[tuple[Text, str, str]]:
    """(label, before, after) of what is not the same in both."""
    changed = [name for name in FIELDS if before.get(name) != after.get(name)]
    return [
        (FIELDS[name], value(name, before.get(name), zones), value(name, after.get(name), zones)) for name in changed
    ]


def job_changes(before: Settled, after: Settled, names: Iterable[str], zones: Titles) -> list[tuple[Text, str, str]]:
    """The same of a job as two sets of policies make it."""
    return [(OF_A_JOB[name], _of_job(before, name, zones), _of_job(after, name, zones)) for name in names]


def _of_job(job: Settled, name: str, zones: Titles) -> str:
    said = getattr(job, name)
    if name == "asks":
        return ui.listed(_ask(ask) for ask in said)
    return pgettext("zones", "any") if name == "zones" and said is None else value(name, said, zones)


def _ask(ask: Mapping[str, Any]) -> str:
    form = str(labels.look("ask_form", ask["form"]).label)
    if not ask["after_s"]:
        return form
    return _("%(form)s after %(time)s") % {"form": form, "time": ui.duration(ask["after_s"])}
