"""Forms of quotas, departments and members' limits: what people type, in their units. What may be done is judged by
ledger.quota, ledger.departments and ledger.member_limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, Final

from django import forms
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from ledger.departments import LONGEST_SLUG, LONGEST_TITLE, Cap
from ledger.limits import LONGEST_MODEL
from ledger.models import Department, Project, QuotaGrant, User
from ledger.quota import MOST_WEIGHT, Terms
from ledger.reasons import LONGEST_REASON
from ledger.vocabulary import AT_ONCE, Resource
from portal import labels, quota_words
from portal.forms import StyledForm, choices_of, style
from portal.quota_words import DECIMALS, MOST_DIGITS

MOMENT: Final = "%Y-%m-%dT%H:%M"


def _amount(label: Any, **values: Any) -> forms.DecimalField:
    return forms.DecimalField(label=label, min_value=0, decimal_places=DECIMALS, max_digits=MOST_DIGITS, **values)


def _moment(label: Any, help_text: Any = "") -> forms.DateTimeField:
    widget = forms.DateTimeInput(attrs={"type": "datetime-local"}, format=MOMENT)
    return forms.DateTimeField(label=label, required=False, widget=widget, help_text=help_text)


def _drain_at() -> forms.DateTimeField:
    hint = _("Only for a limit below what runs: the date from which jobs are ended until it fits.")
    return _moment(_("Jobs are ended from"), hint)


def _renews() -> forms.ChoiceField:
    return forms.ChoiceField(
        label=_("Starts anew"),
        required=False,
        choices=lambda: [
            ("", pgettext_lazy("starts anew", "never")),
            *((str(word), text) for word, text in quota_words.RENEWALS.items()),
        ],
        help_text=_("Card-hours alone, by the calendar of UTC. What runs over the boundary counts on each side."),
    )


def _resources(known: Iterable[Resource] = Resource) -> list[tuple[str, labels.Text]]:
    chosen = [resource for resource in Resource if resource in set(known)]
    return [(str(resource), labels.look("resource", resource).label) for resource in chosen]


def _reason(**values: Any) -> forms.CharField:
    return forms.CharField(**{"label": _("Reason"), "max_length": LONGEST_REASON} | values)


class AmountForm(StyledForm):
    """A form with a resource and amounts of it, which `amounts` gives in the units of the book."""

    of_resource: tuple[str, ...] = ("amount",)

    def clean(self) -> dict[str, Any]:
        data = super().clean() or self.cleaned_data
        resource = data.get("resource")
        for name in self.of_resource:
            value = data.get(name)
            if resource and isinstance(value, Decimal):
                data[name] = quota_words.book_units(resource, value)
                if data[name] is None:
                    text = _("This can't be told in whole units; MiB and machines have no fractions.")
                    self.add_error(name, text)
        return data


class GrantForm(AmountForm):
    """A new grant; `lift` takes the limit away instead."""

    of_resource = ("amount", "guaranteed")
    resource = forms.ChoiceField(label=_("Of what"), choices=_resources)
    model = forms.ChoiceField(label=_("Only cards of the model"), required=False)
    lift = forms.BooleanField(label=_("No limit any more"), required=False)
    amount = _amount(_("Limit"), required=False, help_text=_("In cards, MiB, machines, cores or card-hours."))
    guaranteed = _amount(_("Of it guaranteed"), required=False, help_text=_("The rest may be lent and taken back."))
    weight = forms.IntegerField(
        label=_("Weight above the guarantee"), initial=1, min_value=1, max_value=MOST_WEIGHT, required=False
    )
    renews = _renews()
    until = _moment(_("Until"), _("Afterwards what was granted before comes back. Empty: for good."))
    drain_at = _moment(
        _("Jobs are ended from"),
        _("Only for a limit below what runs: the date from which jobs are ended until it fits."),
    )
    anew = forms.BooleanField(label=_("Card-hours count anew from now on"), required=False)

    def __init__(self, *args: Any, models: Iterable[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices_of(self, "model").choices = [("", _("every model")), *((m, m) for m in models)]
        style(self)

    def clean(self) -> dict[str, Any]:
        data = super().clean()
        if not data.get("lift") and data.get("amount") is None and "amount" not in self.errors:
            self.add_error("amount", _("Give a limit, or tick that there is none any more."))
        return data

    @property
    def terms(self) -> Terms:
        data = self.cleaned_data
        return Terms(
            resource=Resource(data["resource"]),
            amount=data["amount"],
            guaranteed=data["guaranteed"] or 0,
            weight=data["weight"] or 1,
            model=data["model"][:LONGEST_MODEL],
            until=data["until"],
            drain_at=data["drain_at"],
            anew=data["anew"],
            renews=data["renews"],
        )


class ConfirmGrantForm(StyledForm):
    """`change` is the signed change of the preview."""

    change = forms.CharField(widget=forms.HiddenInput, max_length=10_000)
    reason = _reason(help_text=_("It is kept with the grant and in the audit trail."))
    override_reason = _reason(label=_("Reason for not waiting"), required=False)


class AskQuotaForm(AmountForm):
    """More of what a grant limits; asked for by the project's managers."""

    grant = forms.ChoiceField(label=_("Of what"))
    amount = _amount(_("New limit"), help_text=_("In cards, MiB, machines, cores or card-hours."))
    reason = _reason()

    def __init__(self, *args: Any, grants: Sequence[QuotaGrant], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.grants = {f"{grant.resource}:{grant.model}": grant for grant in grants}
        choices_of(self, "grant").choices = [(key, self._told(grant)) for key, grant in self.grants.items()]
        style(self)

    def _told(self, grant: QuotaGrant) -> str:
        model = f" ({grant.model})" if grant.model else ""
        now = quota_words.told(grant.resource, grant.amount)
        now += f" {quota_words.RENEWALS[grant.renews]}" if grant.renews else ""
        return _("%(what)s, now %(amount)s") % {
            "what": f"{labels.text('resource', grant.resource)}{model}",
            "amount": now,
        }

    def clean(self) -> dict[str, Any]:
        chosen = self.grants.get(self.cleaned_data.get("grant", ""))
        if chosen is not None:
            self.cleaned_data |= {"resource": chosen.resource, "model": chosen.model}
        return super().clean()


class MemberLimitForm(AmountForm):
    """Empty amount: no limit of their own any more."""

    user = forms.ChoiceField(label=_("Member"))
    resource = forms.ChoiceField(label=_("Of what"), choices=lambda: _resources(AT_ONCE))
    amount = _amount(_("At most"), required=False, help_text=_("Empty: the project's quota alone."))
    reason = _reason()

    def __init__(self, *args: Any, members: Sequence[User], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices_of(self, "user").choices = [(user.username, user.username) for user in members]
        style(self)


class DepartmentField(forms.ModelChoiceField):
    def label_from_instance(self, department: Any) -> str:
        return f"{department.title} ({department.slug})"


def _departments() -> QuerySet[Department]:
    return Department.objects.order_by("slug")


def _parent() -> DepartmentField:
    top = _("nothing: at the top")
    found = _departments()
    return DepartmentField(label=_("Below"), queryset=found, to_field_name="slug", required=False, empty_label=top)


class NewDepartmentForm(StyledForm):
    slug = forms.CharField(label=_("Short name"), max_length=LONGEST_SLUG)
    title = forms.CharField(label=_("Title"), max_length=LONGEST_TITLE)
    parent = DepartmentField(
        label=_("Below"),
        queryset=_departments(),
        to_field_name="slug",
        required=False,
        empty_label=_("nothing: at the top"),
    )
    reason = _reason(required=False)


class RenameDepartmentForm(StyledForm):
    title = forms.CharField(label=_("Title"), max_length=LONGEST_TITLE)
    reason = _reason(required=False)


class MoveDepartmentForm(StyledForm):
    parent = DepartmentField(
        label=_("Below"),
        queryset=_departments(),
        to_field_name="slug",
        required=False,
        empty_label=_("nothing: at the top"),
    )
    reason = _reason(required=False)


class CeilingForm(AmountForm):
    """Empty amount: no ceiling any more."""

    resource = forms.ChoiceField(label=_("Of what"), choices=_resources)
    model = forms.ChoiceField(label=_("Only cards of the model"), required=False)
    amount = _amount(_("At most"), required=False, help_text=_("Empty: no ceiling any more."))
    renews = _renews()
    drain_at = _moment(
        _("Jobs are ended from"),
        _("Only for a limit below what runs: the date from which jobs are ended until it fits."),
    )
    anew = forms.BooleanField(label=_("Card-hours count anew from now on"), required=False)

    def __init__(self, *args: Any, models: Iterable[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices_of(self, "model").choices = [("", _("every model")), *((m, m) for m in models)]
        style(self)

    @property
    def lifts(self) -> bool:
        return self.cleaned_data["amount"] is None

    @property
    def cap(self) -> Cap:
        data = self.cleaned_data
        names = ("drain_at", "anew", "renews", "model")
        return Cap(Resource(data["resource"]), data["amount"] or 0, **{name: data[name] for name in names})


class ConfirmCeilingForm(ConfirmGrantForm):
    """As that of a grant, with the ceiling's own words."""

    reason = _reason(help_text=_("It is kept with the ceiling and in the audit trail."))


def members_of(project: Project) -> list[User]:
    return list(User.objects.filter(memberships__project=project).order_by("username"))


def initial_terms(resource: str, model: str, terms: Terms | None) -> dict[str, Any]:
    """The form as it is first shown: with what stands."""
    values: dict[str, Any] = {"resource": resource, "model": model}
    if terms is not None:
        values |= {name: quota_words.people_units(resource, getattr(terms, name)) for name in ("amount", "guaranteed")}
        values |= {"weight": terms.weight, "until": terms.until, "renews": terms.renews}
    return values
