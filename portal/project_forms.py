"""Forms of projects, invitations and requests: what people type. Who may do it and what is right is judged by
ledger.projects, ledger.invitations and ledger.requests.
"""

from __future__ import annotations

from typing import Any, Final

from django import forms
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from ledger.models import Department, User
from ledger.projects import LONGEST, MOST_GRACE_DAYS, Details
from ledger.reasons import LONGEST_REASON
from ledger.requests import LONGEST_COMMENT
from ledger.vocabulary import ProjectRole
from portal import labels
from portal.forms import FilterForm, ReasonForm, StyledForm, choices_of

ANY: Final = ("", _("all"))


def _day(label: Any, **values: Any) -> forms.DateField:
    return forms.DateField(label=label, widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"), **values)


class DepartmentField(forms.ModelChoiceField):
    def label_from_instance(self, department: Any) -> str:
        return f"{department.title} ({department.slug})"


def _department() -> DepartmentField:
    return DepartmentField(
        label=_("Department"),
        queryset=Department.objects.order_by("slug"),
        to_field_name="slug",
        required=False,
        empty_label="—",
    )


class PersonField(forms.CharField):
    """A person by their sign-in name."""

    def __init__(self, **values: Any) -> None:
        super().__init__(max_length=150, **values)
        self.widget.attrs |= {"autocomplete": "off", "spellcheck": "false"}

    def clean(self, value: Any) -> Any:
        name = super().clean(value)
        if not name:
            return None
        found = User.objects.filter(username=name).first()
        if found is None:
            raise forms.ValidationError(_("There is nobody of this name."))
        return found


class TextsForm(StyledForm):
    """What a project's own people say of it."""

    title = forms.CharField(label=_("Title"), max_length=LONGEST["title"])
    purpose = forms.CharField(
        label=_("What it is for"),
        required=False,
        max_length=LONGEST["purpose"],
        widget=forms.Textarea(attrs={"rows": 3}),
    )

    def details(self) -> Details:
        return Details(**{name: value for name, value in self.cleaned_data.items() if name in FIELDS})


class ProjectForm(TextsForm):
    """All that a project says of itself."""

    cost_centre = forms.CharField(label=_("Cost centre"), required=False, max_length=LONGEST["cost_centre"])
    department = _department()
    starts_on = _day(_("First day"), required=False, help_text=_("Left empty: today."))
    ends_on = _day(_("Last day"), help_text=_("It works through this day, in UTC."))
    grace_days = forms.IntegerField(
        label=_("Days of grace"),
        min_value=0,
        max_value=MOST_GRACE_DAYS,
        initial=7,
        help_text=_("So long may running work go on after the last day."),
    )


FIELDS: Final = frozenset(ProjectForm.base_fields)


def _slug() -> forms.SlugField:
    return forms.SlugField(
        label=_("Short name"), max_length=50, help_text=_("In addresses and commands; it never changes.")
    )


class NewProjectForm(ProjectForm):
    slug = _slug()
    owner = PersonField(label=_("Owner"), help_text=_("The sign-in name of who answers for it."))
    field_order = ("slug", "title", "owner")


class ChangeProjectForm(ProjectForm):
    reason = forms.CharField(label=_("Reason"), max_length=LONGEST_REASON, required=False)


class ProjectFilter(FilterForm):
    q = forms.CharField(label=_("Name or title"), required=False, max_length=200)
    state = forms.ChoiceField(label=_("State"), required=False, choices=lambda: [ANY, *labels.choices("project")])
    department = forms.ChoiceField(label=_("Department"), required=False)
    mine = forms.BooleanField(label=_("Only mine"), required=False)


def _roles(form: forms.BaseForm, roles: frozenset[ProjectRole]) -> None:
    pairs = [(str(role), labels.look("project_role", role).label) for role in ProjectRole if role in roles]
    choices_of(form, "role").choices = pairs


class InviteForm(StyledForm):
    user = PersonField(label=_("Sign-in name"))
    role = forms.ChoiceField(label=_("Role"), initial=ProjectRole.MEMBER)
    reason = forms.CharField(label=_("Word to them"), required=False, max_length=LONGEST_REASON)

    def __init__(self, *args: Any, roles: frozenset[ProjectRole], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _roles(self, roles)


class RoleForm(StyledForm):
    role = forms.ChoiceField(label=_("Role"))

    def __init__(self, *args: Any, roles: frozenset[ProjectRole], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _roles(self, roles)


class OptionalReasonForm(StyledForm):
    reason = forms.CharField(label=_("Reason"), required=False, max_length=LONGEST_REASON)


class HandOverForm(ReasonForm):
    to = PersonField(label=_("New owner"), help_text=_("The sign-in name."))
    field_order = ("to", "reason")


class ExtensionForm(ReasonForm):
    ends_on = _day(_("New last day"))
    field_order = ("ends_on", "reason")


class JoinForm(ReasonForm):
    project = forms.SlugField(label=_("Short name of the project"), max_length=50)
    role = forms.ChoiceField(
        label=_("Role"),
        choices=lambda: [c for c in labels.choices("project_role") if c[0] in ("member", "viewer")],
    )
    field_order = ("project", "role", "reason")


class AskProjectForm(ReasonForm):
    slug = forms.SlugField(
        label=_("Short name"), max_length=50, help_text=_("In addresses and commands; it never changes.")
    )
    title = forms.CharField(label=_("Title"), max_length=LONGEST["title"])
    purpose = forms.CharField(
        label=_("What it is for"), max_length=LONGEST["purpose"], widget=forms.Textarea(attrs={"rows": 3})
    )
    cost_centre = forms.CharField(label=_("Cost centre"), required=False, max_length=LONGEST["cost_centre"])
    department = _department()
    starts_on = _day(_("First day"), required=False, help_text=_("Left empty: today."))
    ends_on = _day(_("Last day"), help_text=_("It works through this day, in UTC."))
    field_order = ("slug", "title", "purpose", "department", "cost_centre", "starts_on", "ends_on", "reason")


class RequestFilter(FilterForm):
    state = forms.ChoiceField(label=_("State"), required=False, choices=lambda: [ANY, *labels.choices("request")])
    kind = forms.ChoiceField(label=_("Kind"), required=False, choices=lambda: [ANY, *labels.choices("request_kind")])
    project = forms.ChoiceField(label=_("Project"), required=False)
    mine = forms.ChoiceField(
        label=_("Whose"),
        required=False,
        choices=[
            ANY,
            ("own", pgettext_lazy("requests", "mine")),
            ("decide", pgettext_lazy("requests", "those that I may decide")),
        ],
    )


class CommentForm(StyledForm):
    text = forms.CharField(label=_("Comment"), max_length=LONGEST_COMMENT, widget=forms.Textarea(attrs={"rows": 2}))
