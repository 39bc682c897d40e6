"""Departments, projects, who is in them and what they may hold. Roles become permissions in ledger.roles only."""

from __future__ import annotations

from typing import Self

from django.db import models
from django.db.models import Q
from guardian.models import UserObjectPermissionBase

from ledger.models.people import User
from ledger.vocabulary import ProjectRole, ProjectState


class Department(models.Model):
    slug = models.SlugField(unique=True)
    title = models.CharField(max_length=200)
    parent = models.ForeignKey("self", on_delete=models.PROTECT, null=True, related_name="children")

    class Meta:
        permissions = [("audit_department", "Can read all that projects of this department do")]

    def __str__(self) -> str:
        return self.slug


def of_member(user: User) -> models.QuerySet[Membership, int]:
    """The projects in which they are."""
    return Membership.objects.filter(user=user).values_list("project", flat=True)


class ProjectQuerySet(models.QuerySet["Project"]):
    def visible_to(self, user: User) -> Self:
        if not user.is_active:
            return self.none()
        if user.sees_everything:
            return self
        if user.audited_departments:
            return self.filter(Q(pk__in=of_member(user)) | Q(department__in=user.audited_departments))
        return self.filter(memberships__user=user)


class Project(models.Model):
    slug = models.SlugField(unique=True, max_length=50)
    title = models.CharField(max_length=200)
    purpose = models.TextField(default="", blank=True)
    cost_centre = models.CharField(max_length=64, default="", blank=True)
    owner = models.ForeignKey(User, on_delete=models.PROTECT, related_name="owned_projects")  # a member: see 0013
    department = models.ForeignKey(Department, on_delete=models.PROTECT, null=True, related_name="projects")
    starts_on = models.DateField()
    ends_on = models.DateField(null=True)
    grace_days = models.PositiveSmallIntegerField(default=7)
    state = models.CharField(max_length=16, default=ProjectState.ACTIVE, choices=[(s, s) for s in ProjectState])
    ending_since = models.DateTimeField(null=True)  # when it was found that its last day is over
    end_ordered_at = models.DateTimeField(null=True)  # an admin ended it before its time: then it has no grace

    objects = ProjectQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(ends_on__isnull=True) | Q(ends_on__gte=models.F("starts_on")),
                name="project_ends_after_start",
            ),
            models.CheckConstraint(condition=Q(state__in=list(ProjectState)), name="project_state_known"),
            models.CheckConstraint(
                condition=Q(state=ProjectState.ACTIVE, ending_since__isnull=True, end_ordered_at__isnull=True)
                | Q(state__in=[ProjectState.ENDING, ProjectState.ENDED], ends_on__isnull=False),
                name="project_that_ends_has_an_end",
            ),
        ]

    def __str__(self) -> str:
        return self.slug


class Membership(models.Model):
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=[(r, r) for r in ProjectRole])

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "user"], name="one_membership_a_project"),
            models.UniqueConstraint(
                fields=["project"], condition=Q(role=ProjectRole.OWNER), name="one_owner_a_project"
            ),
            models.CheckConstraint(condition=Q(role__in=list(ProjectRole)), name="membership_role_known"),
        ]

    def __str__(self) -> str:
        return f"{self.user} {self.role} of {self.project}"


class ProjectUserPermission(UserObjectPermissionBase):
    """django-guardian rows with a real foreign key, so that a grant can't outlive its project."""

    content_object = models.ForeignKey(Project, on_delete=models.CASCADE)
