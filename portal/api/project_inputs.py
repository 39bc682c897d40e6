"""What the API takes in about projects, invitations and requests. What is right for them is judged by their writers."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from ledger.models import Department, User
from ledger.projects import LONGEST, MOST_GRACE_DAYS, Details
from ledger.requests import LONGEST_COMMENT
from ledger.vocabulary import ProjectRole, RequestKind
from portal.api.fields import Choice, StrictBoolean, Text, WholeNumber
from portal.api.serializers import Strict

EARLIEST, LATEST = dt.date(1970, 1, 1), dt.date(2199, 12, 31)
GIVEN_ROLES = [str(role) for role in ProjectRole if role != ProjectRole.OWNER]


class Day(serializers.DateField):
    """A day of the calendar between 1970 and 2199."""

    def to_internal_value(self, value: Any) -> dt.date:
        try:
            day = dt.date.fromisoformat(value) if isinstance(value, str) and value.isascii() else None
        except ValueError:
            day = None
        if day is None or not EARLIEST <= day <= LATEST:
            raise serializers.ValidationError(_("Give a day such as 2026-01-31, of 1970 to 2199."), code="invalid")
        return day


class Person(Text):
    """The sign-in name of somebody."""

    def __init__(self, **values: Any) -> None:
        super().__init__(max_length=150, **values)

    def run_validation(self, data: Any = serializers.empty) -> Any:
        found = User.objects.filter(username=super().run_validation(data)).first()
        if found is None:
            raise serializers.ValidationError(_("There is nobody of this name."), code="unknown")
        return found


class DepartmentName(Text):
    """The short name of a department."""

    def run_validation(self, data: Any = serializers.empty) -> Any:
        found = Department.objects.filter(slug=super().run_validation(data)).first()
        if found is None:
            raise serializers.ValidationError(_("There is no such department."), code="unknown")
        return found


def _reason(**values: Any) -> Text:
    return Text(max_length=500, multiline=True, **values)


class ChangeInput(Strict):
    """Fields that are left out stay as they are."""

    title = Text(required=False, max_length=LONGEST["title"])
    purpose = Text(required=False, allow_blank=True, max_length=LONGEST["purpose"], multiline=True)
    cost_centre = Text(required=False, allow_blank=True, max_length=LONGEST["cost_centre"])
    department = DepartmentName(required=False, max_length=50)
    starts_on = Day(required=False)
    ends_on = Day(required=False)
    grace_days = WholeNumber(required=False, min_value=0, max_value=MOST_GRACE_DAYS)
    reason = _reason(default="", allow_blank=True)

    @property
    def details(self) -> Details:
        names = ("title", "purpose", "cost_centre", "department", "starts_on", "ends_on", "grace_days")
        return Details(**{name: self.validated_data[name] for name in names if name in self.validated_data})


class NewProjectInput(ChangeInput):
    slug = Text(max_length=50)
    owner = Person()
    title = Text(max_length=LONGEST["title"])
    ends_on = Day()


class RoleInput(Strict):
    role = Choice(GIVEN_ROLES)
    reason = _reason(default="", allow_blank=True)


class InvitationInput(Strict):
    user = Person()
    role = Choice(GIVEN_ROLES, default=str(ProjectRole.MEMBER))
    reason = _reason(default="", allow_blank=True)


class HandOverInput(Strict):
    to = Person()
    reason = _reason()


class AnswerInput(Strict):
    answer = Choice(["accept", "decline", "withdraw"])


class RequestInput(Strict):
    kind = Choice([str(kind) for kind in RequestKind])
    project = Text(required=False, max_length=50)
    details = serializers.DictField(child=serializers.JSONField(), default=dict)
    reason = _reason()

    def validate_details(self, details: dict[str, Any]) -> dict[str, Any]:
        for name, value in details.items():
            if not isinstance(value, str | int) or isinstance(value, bool) or "\x00" in f"{name}{value}":
                raise serializers.ValidationError(_("Give texts and whole numbers."), code="invalid")
        return details


class VerdictInput(Strict):
    approve = StrictBoolean()
    reason = _reason(default="", allow_blank=True)


class CommentInput(Strict):
    text = Text(max_length=LONGEST_COMMENT, multiline=True)
