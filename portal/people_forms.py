"""Forms of the people's pages. Who may do it and what is right is judged by ledger.accounts."""

from __future__ import annotations

from typing import Final

from django import forms
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from ledger.accounts import LONGEST_NAME
from portal import labels
from portal.forms import FilterForm, ReasonForm, StyledForm

ANY: Final = ("", _("all"))


class PeopleFilter(FilterForm):
    q = forms.CharField(label=_("Name or e-mail"), required=False, max_length=200)
    role = forms.ChoiceField(label=_("Site role"), required=False, choices=lambda: [ANY, *labels.choices("site_role")])
    state = forms.ChoiceField(
        label=_("State"),
        required=False,
        choices=[ANY, ("here", pgettext_lazy("person", "here")), ("left", pgettext_lazy("person", "has left"))],
    )


class AccountForm(StyledForm):
    username = forms.CharField(label=_("Sign-in name"), max_length=LONGEST_NAME)
    email = forms.CharField(label=_("E-mail"), max_length=254, required=False)
    site_role = forms.ChoiceField(label=_("Site role"), choices=lambda: labels.choices("site_role"))


class SiteRoleForm(ReasonForm):
    site_role = forms.ChoiceField(label=_("Site role"), choices=lambda: labels.choices("site_role"))
    field_order = ("site_role", "reason")


class LeaveForm(ReasonForm):
    prefix = "leave"
