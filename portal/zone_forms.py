"""Forms of zones, nodes and cards: what people type of a zone plan, of a hold and of a filter. What may be done is
judged by scheduler.zone_proposals, scheduler.zones and ledger.holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from django import forms
from django.db.models import Exists, OuterRef, QuerySet
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from ledger.models import Zone
from ledger.reasons import LONGEST_REASON
from ledger.vocabulary import HoldKind
from portal import labels
from portal.forms import BIG, HARDWARE, FilterForm, ReasonForm, StyledForm, choices_of, style

LONGEST_LIST: Final = 200_000  # characters
MOST_NODES: Final = 5_000
ZONE_FIELD: Final = "zone-"
WHY_HELD: Final[Mapping[HoldKind, labels.Text]] = {  # what a person may give; the states themselves say "held: …"
    HoldKind.MAINTENANCE: pgettext_lazy("why held", "maintenance"),
    HoldKind.FAULT: pgettext_lazy("why held", "fault"),
    HoldKind.DRILL: pgettext_lazy("why held", "drill"),
}


def _reason(label: Any, **values: Any) -> forms.CharField:
    return forms.CharField(label=label, max_length=LONGEST_REASON, **values)


def named_zones() -> QuerySet[Zone]:
    """All zones, each told whether another has the same title, so that no choice is blind (zone_name)."""
    others = Zone.objects.filter(title__iexact=OuterRef("title")).exclude(pk=OuterRef("pk"))
    return Zone.objects.annotate(alike=Exists(others)).order_by("slug")


def zone_name(zone: Any) -> str:
    """The title of one of named_zones; with the slug where the title alone would not do."""
    return f"{zone.title} ({zone.slug})" if zone.alike else str(zone.title)


class ZoneField(forms.ModelChoiceField):
    def label_from_instance(self, zone: Any) -> str:
        return zone_name(zone)


class ListPlanForm(StyledForm):
    nodes = forms.CharField(
        label=_("Nodes"),
        max_length=LONGEST_LIST,
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false", "class": "mono"}),
        help_text=_("Host names, separated by spaces, commas or lines."),
    )
    to_zone = ZoneField(label=_("To zone"), queryset=named_zones(), to_field_name="slug", empty_label=None)

    def clean_nodes(self) -> list[str]:
        names = list(dict.fromkeys(name for name in re.split(r"[\s,;]+", self.cleaned_data["nodes"]) if name))
        if len(names) > MOST_NODES:
            raise forms.ValidationError(_("At most %(n)d nodes in one plan."), params={"n": MOST_NODES})
        return names


class RatioPlanForm(StyledForm):
    """One field for each of named_zones, named zone-<slug>; left empty, the zone gives and takes the rest."""

    hardware = forms.ChoiceField(label=_("Hardware"), choices=HARDWARE)
    model = forms.ChoiceField(label=_("Only nodes with this card model"), required=False)
    unit = forms.ChoiceField(
        label=_("Targets in"), choices=[("nodes", _("nodes")), ("percent", _("percent of the nodes"))]
    )

    def __init__(self, *args: Any, zones: Sequence[Zone], models: Iterable[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices_of(self, "model").choices = [("", _("any")), *((m, m) for m in models)]
        self.zones = zones
        for zone in zones:
            self.fields[f"{ZONE_FIELD}{zone.slug}"] = forms.IntegerField(
                label=zone_name(zone), required=False, min_value=0, max_value=BIG
            )
        style(self)

    @property
    def zone_fields(self) -> list[forms.BoundField]:
        return [self[f"{ZONE_FIELD}{zone.slug}"] for zone in self.zones]

    @property
    def wanted(self) -> dict[str, int]:
        """zone slug → target, of the zones that have one."""
        data = {zone.slug: self.cleaned_data[f"{ZONE_FIELD}{zone.slug}"] for zone in self.zones}
        return {slug: value for slug, value in data.items() if value is not None}


class ConfirmPlanForm(StyledForm):
    """`plan` is the signed proposal of the preview."""

    plan = forms.CharField(widget=forms.HiddenInput, max_length=1_000_000)
    reason = _reason(_("Reason"), help_text=_("It is kept with the plan and in the audit trail."))
    override_reason = _reason(_("Reason for not waiting"), required=False)


class HoldForm(ReasonForm):
    kind = forms.ChoiceField(
        label=_("Why it is taken out"),
        choices=[(str(kind), why) for kind, why in WHY_HELD.items()],
    )
    field_order = ("kind", "reason")


class CardFilter(FilterForm):
    q = forms.CharField(label=_("Card or host name"), required=False, max_length=200)
    hardware = forms.ChoiceField(label=_("Hardware"), required=False, choices=HARDWARE)
    zone = forms.ChoiceField(label=_("Zone"), required=False)
    model = forms.ChoiceField(label=_("Card model"), required=False)
    state = forms.ChoiceField(
        label=_("State"),
        required=False,
        choices=[
            ("", _("all")),
            ("free", pgettext_lazy("card", "free")),
            ("taken", pgettext_lazy("card", "taken")),
            ("held", pgettext_lazy("card", "held, or its node is")),
            ("faulty", pgettext_lazy("card", "with open faults")),
        ],
    )
    temperature = forms.IntegerField(label=_("°C, at least"), required=False, min_value=0, max_value=300)


class MomentForm(FilterForm):
    """Who held it when: a moment of the past."""

    at = forms.DateTimeField(
        label=_("Moment"),
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local", "step": "1"}, format="%Y-%m-%dT%H:%M:%S"),
    )
