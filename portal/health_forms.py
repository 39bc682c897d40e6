"""Filters of the health pages (see portal.forms.FilterForm: they never fail a page)."""

from __future__ import annotations

from typing import Final

from django import forms
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from portal import health_words, labels
from portal.forms import HARDWARE, FilterForm
from portal.health_words import Health
from portal.labels import Text
from portal.ops_forms import ANY, COLOURS

HEAT: Final[list[tuple[str, Text]]] = [
    (name, dict(COLOURS)[name]) for name in ("health", "temperature", "memory", "load", "faults")
]


class HealthFilter(FilterForm):
    q = forms.CharField(label=_("Card or host name"), required=False, max_length=200)
    hardware = forms.ChoiceField(label=_("Hardware"), required=False, choices=HARDWARE)
    zone = forms.ChoiceField(label=_("Zone"), required=False)
    form = forms.ChoiceField(
        label=_("Form in use"),
        required=False,
        choices=lambda: [ANY, ("none", pgettext_lazy("form", "not in use")), *labels.choices("form")],
    )
    model = forms.ChoiceField(label=_("Card model"), required=False)
    rack = forms.ChoiceField(label=_("Rack"), required=False)
    health = forms.ChoiceField(
        label=_("Health"),
        required=False,
        choices=lambda: [ANY, *((health.word, health_words.LOOKS[health].label) for health in Health)],
    )


class HeatForm(FilterForm):
    """What the map of the board is coloured by."""

    colour = forms.ChoiceField(label=_("Colour by"), required=False, choices=HEAT)


class QualityFilter(FilterForm):
    q = forms.CharField(label=_("Card or host name"), required=False, max_length=200)
    kind = forms.ChoiceField(
        label=_("Kind"),
        required=False,
        choices=lambda: [ANY, *((str(kind), meaning.name) for kind, meaning in health_words.QUALITY.items())],
    )
    day = forms.DateField(label=_("Day (UTC)"), required=False, widget=forms.DateInput(attrs={"type": "date"}))
