"""Forms of the operators' pages and the audit trail. Filter forms never fail a page (see portal.forms.FilterForm)."""

from __future__ import annotations

import datetime as dt
from typing import Final

from django import forms
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from portal import ops_words
from portal.forms import HARDWARE, FilterForm, ReasonForm
from portal.labels import Text
from scheduler import queue_control

EARLIEST: Final = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
LATEST: Final = dt.datetime(2200, 1, 1, tzinfo=dt.UTC)
ANY: Final = ("", _("all"))


def _moment() -> forms.DateTimeInput:
    return forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M")


class QueueFilter(FilterForm):
    q = forms.CharField(label=_("Name or number"), required=False, max_length=200)
    cause = forms.ChoiceField(label=_("Cause"), required=False, choices=[ANY, *ops_words.CAUSES.items()])
    project = forms.ChoiceField(label=_("Project"), required=False)
    hardware = forms.ChoiceField(label=_("Hardware"), required=False, choices=[ANY, *HARDWARE])
    held = forms.ChoiceField(
        label=pgettext_lazy("job", "Held"),
        required=False,
        choices=[ANY, ("yes", _("only held")), ("no", _("only not held"))],
    )


class BumpForm(ReasonForm):
    priority = forms.IntegerField(
        label=_("New priority"),
        min_value=queue_control.LOWEST,
        max_value=queue_control.HIGHEST,
        help_text=_("From −100 to 100; 0 is what jobs have when nobody asks for more."),
    )
    field_order = ("priority", "reason")


class DriftFilter(FilterForm):
    q = forms.CharField(label=_("Subject or detail"), required=False, max_length=200)
    state = forms.ChoiceField(
        label=_("State"), required=False, choices=[ANY, ("open", _("open")), ("past", _("resolved"))]
    )
    kind = forms.ChoiceField(
        label=_("Kind"), required=False, choices=[ANY, *((k, look.label) for k, look in ops_words.DRIFTS.items())]
    )
    hardware = forms.ChoiceField(label=_("Hardware"), required=False, choices=[ANY, *HARDWARE])


class CommandFilter(FilterForm):
    q = forms.CharField(label=_("Host name or error"), required=False, max_length=200)
    waiting = forms.ChoiceField(
        label=_("Waiting"),
        required=False,
        choices=[ANY, ("backoff", _("after a failed try")), ("first", _("first try"))],
    )
    hardware = forms.ChoiceField(label=_("Hardware"), required=False, choices=[ANY, *HARDWARE])


class AuditFilter(FilterForm):
    who = forms.CharField(label=_("Who"), required=False, max_length=150)
    verb = forms.CharField(label=_("Act"), required=False, max_length=64)
    kind = forms.ChoiceField(label=_("Object"), required=False, choices=[ANY, *ops_words.THINGS.items()])
    number = forms.CharField(label=_("Its number"), required=False, max_length=64)
    project = forms.ChoiceField(label=_("Project"), required=False)
    start = forms.DateTimeField(label=_("From"), required=False, widget=_moment())
    end = forms.DateTimeField(label=_("To"), required=False, widget=_moment())
    q = forms.CharField(label=_("Text of the reason"), required=False, max_length=200)

    def clean(self) -> None:
        start, end = self.cleaned_data.get("start"), self.cleaned_data.get("end")
        for name, moment in (("start", start), ("end", end)):
            if moment is not None and not EARLIEST <= moment.replace(tzinfo=dt.UTC) <= LATEST:
                self.add_error(name, _("Choose a time between the years 2000 and 2200."))
        if start and end and start >= end:
            self.add_error("end", _("“To” must lie after “from”."))


COLOURS: Final[list[tuple[str, Text]]] = [
    ("state", pgettext_lazy("map", "state")),
    ("form", pgettext_lazy("map", "form in use")),
    ("owner", pgettext_lazy("map", "project")),
    ("temperature", pgettext_lazy("map", "temperature")),
    ("given", pgettext_lazy("map", "memory given out")),
    ("memory", pgettext_lazy("map", "memory used")),
    ("load", pgettext_lazy("map", "load")),
    ("faults", pgettext_lazy("map", "open faults")),
    ("health", pgettext_lazy("map", "health")),
]


class MapFilter(FilterForm):
    hardware = forms.ChoiceField(label=_("Hardware"), required=False, choices=HARDWARE)
    rack = forms.ChoiceField(label=_("Rack"), required=False)
    colour = forms.ChoiceField(label=_("Colour by"), required=False, choices=COLOURS)
