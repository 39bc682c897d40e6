"""What people ask each other for: to be in a project, and what a project may have. Written by ledger.invitations and
ledger.requests alone."""

from __future__ import annotations

from collections.abc import Collection
from typing import Self

from django.db import models
from django.db.models import Exists, OuterRef, Q

from ledger.models.people import User
from ledger.models.projects import Department, Project
from ledger.vocabulary import InvitationState, ProjectRole, RequestKind, RequestState, SiteRole

MANAGING = (ProjectRole.OWNER, ProjectRole.MANAGER)


class InvitationQuerySet(models.QuerySet["Invitation"]):
    def visible_to(self, user: User) -> Self:
        """One's own, those of the projects that one manages or audits, and all for the site's roles."""
        if not user.is_active:
            return self.none()
        if user.sees_everything:
            return self
        managed = Project.objects.filter(memberships__user=user, memberships__role__in=MANAGING)
        found = Q(user=user) | Q(project__in=managed.values("pk"))
        if user.audited_departments:
            found |= Q(project__department__in=user.audited_departments)
        return self.filter(found)


class Invitation(models.Model):
    """A person is asked into a project. It is open until it is answered, withdrawn, or `expires_at` has come."""

    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="invitations")
    user = models.ForeignKey(User, on_delete=models.PROTECT, related_name="invitations")
    role = models.CharField(max_length=16, choices=[(r, r) for r in ProjectRole])
    by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    reason = models.CharField(max_length=500, default="")
    state = models.CharField(max_length=16, default=InvitationState.OPEN, choices=[(s, s) for s in InvitationState])
    made_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    answered_at = models.DateTimeField(null=True)

    objects = InvitationQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "user"], condition=Q(state=InvitationState.OPEN), name="one_open_invitation"
            ),
            models.CheckConstraint(condition=Q(state__in=list(InvitationState)), name="invitation_state_known"),
            models.CheckConstraint(
                condition=Q(role__in=[r for r in ProjectRole if r != ProjectRole.OWNER]),
                name="invitation_not_as_owner",
            ),
            models.CheckConstraint(
                condition=Q(state=InvitationState.OPEN, answered_at__isnull=True)
                | ~Q(state=InvitationState.OPEN) & Q(answered_at__isnull=False),
                name="invitation_answered_at",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user_id} into {self.project_id} as {self.role}"


def of_departments(ids: Collection[int]) -> Q:
    """Requests about projects of these departments, and for new ones in them."""
    inside = Department.objects.filter(pk__in=ids)
    asked = Q(project=None, details__department__in=list(inside.values_list("slug", flat=True)))
    return Q(project__department__in=ids) | asked


class RequestQuerySet(models.QuerySet["ProjectRequest"]):
    def visible_to(self, user: User) -> Self:
        """One's own, those about the projects that one manages or audits, and all for the site's roles. Of a project
        that is only asked for, its department decides."""
        if not user.is_active:
            return self.none()
        if user.sees_everything:
            return self
        managed = Project.objects.filter(memberships__user=user, memberships__role__in=MANAGING)
        found = Q(by=user) | Q(project__in=managed.values("pk"))
        if user.audited_departments:
            found |= of_departments(user.audited_departments)
        return self.filter(found)

    def decided_by(self, user: User) -> Self:
        """Open ones that wait for this person's verdict: neither their own nor what they have approved already."""
        given = RequestVerdict.objects.filter(by=user, request=OuterRef("pk"))
        found = self.filter(~Exists(given), state=RequestState.OPEN).exclude(by=user)
        if user.is_active and user.site_role == SiteRole.ADMIN:
            return found
        joins = Q(kind=RequestKind.JOIN)
        managed = Project.objects.filter(memberships__user=user, memberships__role__in=MANAGING)
        mine = joins & Q(project__in=managed.values("pk"))
        if user.site_role == SiteRole.MANAGER:
            mine |= ~joins
        return found.filter(mine) if user.is_active else found.none()


class ProjectRequest(models.Model):
    """Somebody asks for more quota, a later end, a new project, or to be in one. `details` say for what, by kind:
    quota {resource, amount, guaranteed, weight, until}, extension {ends_on}, new_project {slug, title, …}, join {role}.
    `needs` people have to approve; one refusal refuses it."""

    kind = models.CharField(max_length=16, choices=[(k, k) for k in RequestKind])
    project = models.ForeignKey(Project, on_delete=models.PROTECT, null=True, related_name="requests")
    by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="requests")
    details = models.JSONField()
    reason = models.CharField(max_length=500)
    needs = models.PositiveSmallIntegerField(default=1)
    state = models.CharField(max_length=16, default=RequestState.OPEN, choices=[(s, s) for s in RequestState])
    made_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    decided_at = models.DateTimeField(null=True)
    before = models.JSONField(null=True)  # what stood there when it was approved

    objects = RequestQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(kind__in=list(RequestKind)), name="request_kind_known"),
            models.CheckConstraint(condition=Q(state__in=list(RequestState)), name="request_state_known"),
            models.CheckConstraint(condition=Q(needs__gte=1, needs__lte=2), name="request_needs_one_or_two"),
            models.CheckConstraint(
                condition=Q(kind=RequestKind.NEW_PROJECT) | Q(project__isnull=False), name="request_about_a_project"
            ),
            models.CheckConstraint(
                condition=Q(state=RequestState.OPEN, decided_at__isnull=True)
                | ~Q(state=RequestState.OPEN) & Q(decided_at__isnull=False),
                name="request_decided_at",
            ),
            models.UniqueConstraint(fields=["id", "by"], name="request_with_its_author"),
            models.UniqueConstraint(
                fields=["project", "by"],
                condition=Q(state=RequestState.OPEN, kind=RequestKind.JOIN),
                name="one_open_request_to_join",
            ),
        ]
        indexes = [models.Index(fields=["-id"], name="request_open", condition=Q(state=RequestState.OPEN))]

    def __str__(self) -> str:
        return f"request {self.pk}: {self.kind}"


class RequestVerdict(models.Model):
    """One person's yes or no. `asked_by` is the request's author, by foreign key (0016): nobody decides their own."""

    request = models.ForeignKey(ProjectRequest, on_delete=models.PROTECT, related_name="verdicts", db_index=False)
    asked_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+", db_index=False)
    by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="verdicts")
    approves = models.BooleanField()
    reason = models.CharField(max_length=500, default="")
    at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["request", "by"], name="one_verdict_a_person"),
            models.CheckConstraint(condition=~Q(by=models.F("asked_by")), name="nobody_approves_their_own"),
        ]

    def __str__(self) -> str:
        return f"{self.by_id} on {self.request_id}: {'yes' if self.approves else 'no'}"


class RequestComment(models.Model):
    request = models.ForeignKey(ProjectRequest, on_delete=models.PROTECT, related_name="comments")
    by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+", db_index=False)
    text = models.CharField(max_length=2000)
    at = models.DateTimeField()

    class Meta:
        constraints = [models.CheckConstraint(condition=~Q(text=""), name="comment_says_something")]

    def __str__(self) -> str:
        return f"comment {self.pk} on request {self.request_id}"
