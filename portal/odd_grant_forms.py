"""Forms of extra rights. Who may give them and what is right is judged by ledger.odd_grants."""

from __future__ import annotations

from typing import Any, Final

from django import forms
from django.utils.translation import gettext_lazy as _

from ledger.models import Department, Zone
from ledger.odd_grants import LONGEST
from portal import odd_grant_rows
from portal.forms import FilterForm, ReasonForm
from portal.project_forms import DepartmentField, PersonField
from portal.zone_forms import ZoneField, named_zones

ANY: Final = ("", _("all"))


class RightForm(ReasonForm):
    """A zone or a department, not both."""

    user = PersonField(label=_("Person"))
    zone = ZoneField(label=_("Operates the zone"), queryset=named_zones(), to_field_name="slug", required=False)
    department = DepartmentField(
        label=_("Audits the department"),
        queryset=Department.objects.order_by("slug"),
        to_field_name="slug",
        required=False,
        empty_label="—",
        help_text=_("With those below it. Choose a zone or a department, not both."),
    )
    ends_on = forms.DateField(
        label=_("Last day (UTC)"),
        widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"),
        help_text=_("The right holds through this day, at most %(n)d days ahead.") % {"n": LONGEST.days},
    )
    field_order = ("user", "zone", "department", "ends_on", "reason")

    @property
    def place(self) -> Zone | Department:
        found: Zone | Department = self.cleaned_data["zone"] or self.cleaned_data["department"]
        return found

    def clean(self) -> dict[str, Any]:
        data = self.cleaned_data
        if "zone" in data and "department" in data and bool(data["zone"]) == bool(data["department"]):
            self.add_error("zone", _("Choose a zone or a department, one of the two."))
        if (day := data.get("ends_on")) is not None and not 2000 <= day.year <= 2200:
            self.add_error("ends_on", _("Choose a day between the years 2000 and 2200."))
        return data


class RightFilter(FilterForm):
    q = forms.CharField(label=_("Person, zone or department"), required=False, max_length=200)
    kind = forms.ChoiceField(
        label=_("Right"), required=False, choices=lambda: [ANY, *((str(k), v) for k, v in odd_grant_rows.KINDS.items())]
    )
    standing = forms.ChoiceField(
        label=_("State"), required=False, choices=[ANY, ("now", _("not over")), ("over", _("over or withdrawn"))]
    )
