"""Forms of the account pages: a new token, a new password."""

from __future__ import annotations

from typing import Any, Final

from django import forms
from django.contrib.auth.forms import PasswordChangeForm
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from ledger.models import User
from portal.forms import style
from portal.signin import check_password

LONGEST_DAYS: Final = 365


class TokenForm(forms.Form):
    label = forms.CharField(
        label=_("Label"), max_length=100, help_text=_("What it is for, so that you know later which one to revoke.")
    )
    days = forms.IntegerField(
        label=_("Expires after (days)"),
        initial=90,
        min_value=1,
        max_value=LONGEST_DAYS,
        help_text=_("1 to 365. Shorter is safer."),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["label"].widget.attrs["autocomplete"] = "off"
        style(self)


class PasswordForm(PasswordChangeForm):
    """Django's, with failures of the old password counted as those of the sign-in page are."""

    def __init__(self, request: HttpRequest, user: User, data: Any = None) -> None:
        super().__init__(user, data)
        self.request = request
        self.fields["old_password"].widget.attrs.pop("autofocus", None)
        style(self)

    def clean_old_password(self) -> str:
        old: str = self.cleaned_data["old_password"]
        if not check_password(self.request, old):
            raise ValidationError(self.error_messages["password_incorrect"], code="password_incorrect")
        return old
