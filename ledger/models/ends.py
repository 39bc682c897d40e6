"""What the end of a project leaves: notices, how they were delivered, and one receipt. Written by ledger.ends and
scheduler.telling alone.
"""

from __future__ import annotations

from typing import Self

from django.db import models
from django.db.models import Q

from ledger.models.letters import Letter
from ledger.models.people import User
from ledger.models.projects import Project, of_member
from ledger.vocabulary import Channel, DeliveryState, NoticeKind


class Notice(models.Model):
    """Told once of each end that a project had: an extension has a notice of its own, a second pass has none."""

    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="notices", db_index=False)
    kind = models.CharField(max_length=16, choices=[(k, k) for k in NoticeKind])
    ends_on = models.DateField()  # the last day that it speaks of
    at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "kind", "ends_on"], name="one_notice_of_an_end"),
            models.CheckConstraint(condition=Q(kind__in=list(NoticeKind)), name="notice_kind_known"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} of {self.project_id}"


class Delivery(models.Model):
    """The outbox of notices and letters: one row a channel and, by mail, a person. It may be sent twice, never not at
    all: a try is claimed by moving `due_at` ahead, and the row says sent only afterwards."""

    notice = models.ForeignKey(Notice, on_delete=models.PROTECT, null=True, related_name="deliveries", db_index=False)
    letter = models.OneToOneField(Letter, on_delete=models.PROTECT, null=True, related_name="delivery")
    channel = models.CharField(max_length=8, choices=[(c, c) for c in Channel])
    to = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+")  # null: the webhook
    state = models.CharField(max_length=16, choices=[(s, s) for s in DeliveryState])
    tries = models.PositiveIntegerField(default=0)
    due_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True)
    last_error = models.CharField(max_length=500, default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["notice", "channel", "to"],
                nulls_distinct=False,
                condition=Q(notice__isnull=False),
                name="one_delivery_a_channel_and_person",
            ),
            models.CheckConstraint(
                condition=Q(notice__isnull=False, letter__isnull=True)
                | Q(notice__isnull=True, letter__isnull=False, channel=Channel.MAIL),
                name="delivery_of_a_notice_or_a_letter",
            ),
            models.CheckConstraint(condition=Q(channel__in=list(Channel)), name="delivery_channel_known"),
            models.CheckConstraint(condition=Q(state__in=list(DeliveryState)), name="delivery_state_known"),
            models.CheckConstraint(
                condition=Q(channel=Channel.MAIL, to__isnull=False) | Q(channel=Channel.WEBHOOK, to__isnull=True),
                name="mail_goes_to_a_person",
            ),
            models.CheckConstraint(
                condition=Q(state=DeliveryState.SENT, sent_at__isnull=False)
                | (~Q(state=DeliveryState.SENT) & Q(sent_at__isnull=True)),
                name="sent_delivery_says_when",
            ),
        ]
        indexes = [
            models.Index(fields=["due_at", "id"], name="delivery_pending", condition=Q(state=DeliveryState.PENDING))
        ]

    def __str__(self) -> str:
        return f"{self.channel} of notice {self.notice_id}" if self.notice_id else f"letter {self.letter_id}"


class ReceiptQuerySet(models.QuerySet["Receipt"]):
    def visible_to(self, user: User) -> Self:
        """Those of the projects that they may see: site roles all, others the ones in which they are members and those
        of departments that they audit."""
        if not user.is_active:
            return self.none()
        if user.sees_everything:
            return self
        if user.audited_departments:
            theirs = Q(project__in=of_member(user)) | Q(project__department__in=user.audited_departments)
            return self.filter(theirs)
        return self.filter(project__memberships__user=user)


class Receipt(models.Model):
    """What was reclaimed when a project ended. Written once, in the transaction that ends the project; never changed.

    `content`: {"stopped": [{job, name, by, simulated, nodes, cards, stopped_at, free_at}], "cancelled": [{job, name,
    by, simulated, at}], "grants": [{resource, amount}], "reclaimed": {real|simulated: {resource: amount}},
    "not_enforced": [{path, jobs}], "delays": [{job, node, driver, tries, error}], "left_out": {list: number}}."""

    project = models.OneToOneField(Project, on_delete=models.PROTECT, related_name="receipt")
    ends_on = models.DateField()
    ending_since = models.DateTimeField()
    grace_over_at = models.DateTimeField()
    free_at = models.DateTimeField()  # when nothing of the project was open any more
    took_s = models.PositiveBigIntegerField()  # from the first stop to `free_at`; 0 = nothing ran
    jobs_stopped = models.PositiveIntegerField()
    jobs_cancelled = models.PositiveIntegerField()
    grants_ended = models.PositiveIntegerField()
    not_enforced = models.PositiveIntegerField()  # data paths
    content = models.JSONField()

    objects = ReceiptQuerySet.as_manager()

    def __str__(self) -> str:
        return f"receipt of {self.project_id}"
