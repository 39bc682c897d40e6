"""The forms of policies: what people type, in minutes. What a policy may say is judged by scheduler.policy_changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django import forms
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from ledger.models import Department, Project
from ledger.reasons import LONGEST_REASON
from ledger.vocabulary import JobKind, ProjectState
from portal import labels
from portal.forms import BIG, StyledForm, choices_of, style
from portal.zone_forms import named_zones, zone_name
from scheduler.policy import Scope, Terms

SITE: Final = "site"
FORMS: Final = ("form_1", "form_2", "form_3")
MINUTES: Final = {  # field of Terms -> field of the page
    "fallback_wait_s": "fallback_wait_min",
    "walltime_default_s": "walltime_default_min",
    "walltime_most_s": "walltime_most_min",
}
PAGE_FIELDS: Final[Mapping[str, str]] = {**MINUTES, "forms": "form_1", "project": "about", "department": "about"}


def _form(label: Any, **values: Any) -> forms.ChoiceField:
    choices = lambda: [("", pgettext_lazy("policy", "nothing")), *labels.choices("form")]  # noqa: E731
    return forms.ChoiceField(label=label, required=False, choices=choices, **values)


def _minutes(label: Any, least: int, **values: Any) -> forms.IntegerField:
    return forms.IntegerField(label=label, required=False, min_value=least, max_value=BIG // 60, **values)


def _priority(label: Any, **values: Any) -> forms.IntegerField:
    return forms.IntegerField(label=label, required=False, min_value=-100, max_value=100, **values)


def kind_choices() -> list[tuple[str, labels.Text]]:
    return [("", pgettext_lazy("kind of work", "any")), *labels.choices("kind")]


class PolicyForm(StyledForm):
    """What is left empty is not said: a wider policy may say it."""

    about = forms.ChoiceField(label=_("Jobs of"))
    kind = forms.ChoiceField(label=_("Kind of work"), required=False, choices=kind_choices)
    form_1 = _form(_("Where the form is left open, first"), help_text=_("Instead of whichever form is ready first."))
    form_2 = _form(pgettext_lazy("form order", "then"))
    form_3 = _form(pgettext_lazy("form order", "and then"))
    fallback_wait_min = _minutes(
        _("Wait before the next form (minutes)"), 0, help_text=_("Empty or 0: all count at once, in this order.")
    )
    zones = forms.MultipleChoiceField(
        label=_("Only in the zones"), required=False, help_text=_("None chosen: in every zone.")
    )
    priority_default = _priority(_("Priority where it is left open"))
    priority_most = _priority(_("Highest priority"))
    walltime_default_min = _minutes(_("Time limit where it is left open (minutes)"), 1)
    walltime_most_min = _minutes(_("Longest time limit (minutes)"), 1)
    withdraw = forms.BooleanField(label=_("Withdraw the policy: it says nothing any more"), required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        departments = Department.objects.order_by("slug").values_list("slug", "title")
        projects = Project.objects.exclude(state=ProjectState.ENDED).order_by("slug").values_list("slug", "title")
        choices_of(self, "about").choices = [
            (SITE, pgettext_lazy("policy", "everybody")),
            *((f"department:{slug}", _("Department %(title)s") % {"title": title}) for slug, title in departments),
            *((f"project:{slug}", _("Project %(slug)s") % {"slug": slug}) for slug, _title in projects),
        ]
        self.known = {zone.slug: zone for zone in named_zones()}
        choices_of(self, "zones").choices = [(slug, zone_name(zone)) for slug, zone in self.known.items()]
        style(self)

    @property
    def scope(self) -> Scope:
        place, _colon, slug = self.cleaned_data["about"].partition(":")
        kind = self.cleaned_data["kind"]
        if place == "project":
            return Scope(project=Project.objects.values_list("pk", flat=True).get(slug=slug), kind=kind)
        if place == "department":
            return Scope(department=Department.objects.values_list("pk", flat=True).get(slug=slug), kind=kind)
        return Scope(kind=kind)

    @property
    def terms(self) -> Terms:
        data = self.cleaned_data
        order = tuple(data[name] for name in FORMS if data[name])
        zones = tuple(sorted(self.known[slug].pk for slug in data["zones"]))
        seconds = {name: None if data[own] is None else data[own] * 60 for name, own in MINUTES.items()}
        return Terms(
            forms=order or None,
            zones=zones or None,
            priority_default=data["priority_default"],
            priority_most=data["priority_most"],
            **seconds,
        )

    @property
    def what(self) -> list[forms.BoundField]:
        """All but whose jobs it is about, and the withdrawal."""
        return [self[name] for name in self.fields if name not in ("about", "kind", "withdraw")]


def initial(about: str, kind: str, terms: Terms | None) -> dict[str, Any]:
    """The form as it is first shown: with what the policy says now."""
    values: dict[str, Any] = {"about": about, "kind": kind if kind in list(JobKind) else ""}
    if terms is None:
        return values
    values |= dict(zip(FORMS, terms.forms or (), strict=False))
    values |= {own: _in_minutes(getattr(terms, name)) for name, own in MINUTES.items()}
    slugs = [zone.slug for zone in named_zones() if zone.pk in (terms.zones or ())]
    return values | {"zones": slugs, "priority_default": terms.priority_default, "priority_most": terms.priority_most}


def _in_minutes(seconds: int | None) -> int | str | None:
    """As exact as it is: what is no whole minute has to be typed anew."""
    if seconds is None:
        return None
    return f"{seconds / 60:g}" if seconds % 60 else seconds // 60


class ConfirmPolicyForm(StyledForm):
    """`change` is the signed change of the preview."""

    change = forms.CharField(widget=forms.HiddenInput, max_length=20_000)
    reason = forms.CharField(
        label=_("Reason"), max_length=LONGEST_REASON, help_text=_("It is kept with the version and in the audit trail.")
    )


class EffectiveForm(StyledForm):
    """Whose policies are shown."""

    project = forms.ChoiceField(label=_("Project"))
    kind = forms.ChoiceField(label=_("Kind of work"), choices=lambda: labels.choices("kind"))

    def __init__(self, *args: Any, projects: list[Project], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices_of(self, "project").choices = [(one.slug, f"{one.title} ({one.slug})") for one in projects]
        style(self)
