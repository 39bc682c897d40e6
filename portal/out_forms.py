"""Forms of what is out of the pool and of drills. What may be done is judged by ledger.cases and scheduler.drills."""

from __future__ import annotations

from typing import Any, Final

from django import forms
from django.utils.translation import gettext_lazy as _

from portal import labels
from portal.forms import HARDWARE, FilterForm, ReasonForm, StyledForm
from scheduler.drills import LONGEST_TARGET_S, Targets, usual_targets

ANY: Final = ("", _("all"))
LONGEST_NAME: Final = 253


class OutFilter(FilterForm):
    q = forms.CharField(label=_("Card or host name"), required=False, max_length=200)
    hardware = forms.ChoiceField(label=_("Hardware"), required=False, choices=[ANY, *HARDWARE])
    zone = forms.ChoiceField(label=_("Zone"), required=False)
    kind = forms.ChoiceField(label=_("Kind"), required=False, choices=lambda: [ANY, *labels.choices("hold")])
    late = forms.BooleanField(label=_("Only what is out for too long"), required=False)


class PlaceForm(StyledForm):
    place = forms.CharField(
        label=_("Card or node"), max_length=LONGEST_NAME, help_text=_("The name of a card, or a host name.")
    )


def _target(label: Any) -> forms.FloatField:
    return forms.FloatField(label=label, min_value=0.001, max_value=LONGEST_TARGET_S)


class DrillForm(ReasonForm):
    """Targets in seconds."""

    place = forms.CharField(widget=forms.HiddenInput, max_length=LONGEST_NAME)
    due_at = forms.DateTimeField(
        label=_("When"),
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        help_text=_("Empty: now."),
    )
    hold_s = _target(_("Held within (s)"))
    avoid_s = _target(_("Avoided within (s)"))
    alert_s = _target(_("Alert out within (s)"))
    return_s = _target(_("Back within (s)"))
    drain = forms.BooleanField(label=_("Work may be on it: it goes on to its end, and the test waits"), required=False)
    field_order = ("place", "due_at", "hold_s", "avoid_s", "alert_s", "return_s", "drain", "reason")

    @property
    def targets(self) -> Targets:
        return Targets(*(self.cleaned_data[name] for name in ("hold_s", "avoid_s", "alert_s", "return_s")))

    @property
    def timing(self) -> list[forms.BoundField]:
        return [self[name] for name in ("due_at", "hold_s", "avoid_s", "alert_s", "return_s")]

    @staticmethod
    def first(place: str) -> dict[str, Any]:
        usual = usual_targets()
        names = ("hold_s", "avoid_s", "alert_s", "return_s")
        return {"place": place} | {name: getattr(usual, name) for name in names}
