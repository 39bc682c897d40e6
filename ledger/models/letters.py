"""What single people are told: of invitations, requests and odd grants. Written by ledger.letters alone."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from django.db import models
from django.db.models import Q

from ledger.models.asking import Invitation, ProjectRequest, RequestComment
from ledger.models.odd_grants import OddGrant
from ledger.models.people import User


class LetterKind(StrEnum):
    """What one person is told of."""

    INVITED = "invited"
    TO_DECIDE = "to_decide"  # a request waits for their verdict
    COMMENTED = "commented"  # on a request of theirs
    APPROVED = "approved"
    REFUSED = "refused"
    EXPIRED = "expired"
    GRANT_GIVEN = "grant_given"  # an odd grant
    GRANT_ENDS = "grant_ends"  # soon
    GRANT_OVER = "grant_over"


ABOUT: Final[dict[LetterKind, str]] = {  # the column that a kind is about
    LetterKind.INVITED: "invitation",
    LetterKind.TO_DECIDE: "request",
    LetterKind.COMMENTED: "comment",
    LetterKind.APPROVED: "request",
    LetterKind.REFUSED: "request",
    LetterKind.EXPIRED: "request",
    LetterKind.GRANT_GIVEN: "grant",
    LetterKind.GRANT_ENDS: "grant",
    LetterKind.GRANT_OVER: "grant",
}
COLUMNS: Final = ("invitation", "request", "comment", "grant")


def _about_one_thing() -> Q:
    condition = Q()
    for column in COLUMNS:
        kinds = [kind for kind, about in ABOUT.items() if about == column]
        condition |= Q(kind__in=kinds, **{f"{name}__isnull": name != column for name in COLUMNS})
    return condition


class Letter(models.Model):
    """Told to one person once of each thing. What it says is made of the thing itself when it is read or sent."""

    to = models.ForeignKey(User, on_delete=models.PROTECT, related_name="letters")
    kind = models.CharField(max_length=16, choices=[(k, k) for k in LetterKind])
    invitation = models.ForeignKey(Invitation, on_delete=models.PROTECT, null=True, related_name="letters")
    request = models.ForeignKey(ProjectRequest, on_delete=models.PROTECT, null=True, related_name="letters")
    comment = models.ForeignKey(RequestComment, on_delete=models.PROTECT, null=True, related_name="letters")
    grant = models.ForeignKey(OddGrant, on_delete=models.PROTECT, null=True, related_name="letters")
    at = models.DateTimeField()
    given_again: bool  # whether the right was; of ledger.letters.with_things alone

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["to", "kind", *COLUMNS], nulls_distinct=False, name="one_letter_of_a_thing"
            ),
            models.CheckConstraint(condition=_about_one_thing(), name="letter_about_one_thing"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} to {self.to_id}"
