"""Forms of the reclaim's pages. What may be done is judged by scheduler.reclaim and ledger.ends."""

from __future__ import annotations

from typing import Final

from django import forms
from django.utils.translation import gettext_lazy as _

from portal.forms import FilterForm, ReasonForm

ANY: Final = ("", _("all"))


class ExtendForm(ReasonForm):
    ends_on = forms.DateField(
        label=_("New last day (UTC)"),
        widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"),
        help_text=_("The project works through this day. The notices before the end are given anew."),
    )
    field_order = ("ends_on", "reason")


class ReceiptFilter(FilterForm):
    q = forms.CharField(label=_("Project"), required=False, max_length=200)
    start = forms.DateField(label=_("Ended from"), required=False, widget=forms.DateInput(attrs={"type": "date"}))
    end = forms.DateField(label=_("Ended to"), required=False, widget=forms.DateInput(attrs={"type": "date"}))
    left = forms.ChoiceField(
        label=_("Not enforced"),
        required=False,
        choices=[ANY, ("yes", _("with data paths that nothing took away")), ("no", _("without"))],
    )

    def clean(self) -> None:
        start, end = self.cleaned_data.get("start"), self.cleaned_data.get("end")
        for name, day in (("start", start), ("end", end)):
            if day is not None and not 2000 <= day.year <= 2200:
                self.add_error(name, _("Choose a day between the years 2000 and 2200."))
        if start and end and start > end:
            self.add_error("end", _("“To” must not lie before “from”."))
