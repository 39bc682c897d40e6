"""People, what is theirs (sessions, tokens, saved values), projects, memberships and quota grants.

Roles become permissions in portal.access only.
"""

from __future__ import annotations

from typing import ClassVar, Self

from django.contrib.auth.models import AbstractUser, UserManager
from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import RangeOperators
from django.contrib.sessions.backends.base import SessionBase
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models
from django.db.models import Q
from guardian.models import UserObjectPermissionBase

from ledger.fields import period_field
from ledger.vocabulary import ProjectRole, ProjectState, Resource, SiteRole


class User(AbstractUser):
    site_role = models.CharField(max_length=16, default=SiteRole.RESEARCHER, choices=[(r, r) for r in SiteRole])
    locale = models.CharField(max_length=8, default="en")
    theme = models.CharField(max_length=8, default="auto")
    time_zone = models.CharField(max_length=64, default="UTC")

    objects: ClassVar[UserManager[User]] = UserManager()  # type: ignore[assignment]

    @property
    def sees_everything(self) -> bool:
        """Site roles that read every project: all but researchers."""
        return self.is_active and self.site_role != SiteRole.RESEARCHER

    @property
    def operates(self) -> bool:
        return self.is_active and self.site_role in (SiteRole.ADMIN, SiteRole.OPERATOR)


class UserSession(AbstractBaseSession):
    """A browser session. `session_key` holds the SHA-256 digest of the key: who reads this table takes over nothing."""

    session_key = models.CharField(max_length=64, primary_key=True)
    user = models.ForeignKey(User, on_delete=models.CASCADE, null=True, related_name="sessions")  # null: not signed in
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField()
    browser = models.CharField(max_length=200, default="")  # what it calls itself
    address = models.GenericIPAddressField(null=True)

    def __str__(self) -> str:
        return f"session {self.session_key[:12]} of {self.user_id}"

    @classmethod
    def get_session_store_class(cls) -> type[SessionBase]:
        from ledger.sessions import SessionStore  # it imports this module

        return SessionStore


class ApiToken(models.Model):
    """A bearer token; only its SHA-256 digest is stored."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_tokens")
    digest = models.CharField(max_length=64, unique=True)
    label = models.CharField(max_length=100, default="")
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"token {self.pk} of {self.user}"


class SavedValues(models.Model):
    """The submit form as one person typed it, under a name. `values` is field → text, right or not, whole or half."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="saved_values")
    name = models.CharField(max_length=60)
    values = models.JSONField()
    saved_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "name"], name="one_saved_values_a_name"),
            models.CheckConstraint(condition=~Q(name=""), name="saved_values_named"),
        ]

    def __str__(self) -> str:
        return f"values {self.name!r} of {self.user_id}"


class Department(models.Model):
    slug = models.SlugField(unique=True)
    title = models.CharField(max_length=200)
    parent = models.ForeignKey("self", on_delete=models.PROTECT, null=True, related_name="children")

    def __str__(self) -> str:
        return self.slug


class ProjectQuerySet(models.QuerySet["Project"]):
    def visible_to(self, user: User) -> Self:
        if not user.is_active:
            return self.none()
        if user.sees_everything:
            return self
        return self.filter(memberships__user=user)


class Project(models.Model):
    slug = models.SlugField(unique=True, max_length=50)
    title = models.CharField(max_length=200)
    owner = models.ForeignKey(User, on_delete=models.PROTECT, related_name="owned_projects")
    department = models.ForeignKey(Department, on_delete=models.PROTECT, null=True, related_name="projects")
    starts_on = models.DateField()
    ends_on = models.DateField(null=True)
    grace_days = models.PositiveSmallIntegerField(default=7)
    state = models.CharField(max_length=16, default=ProjectState.ACTIVE, choices=[(s, s) for s in ProjectState])

    objects = ProjectQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(ends_on__isnull=True) | Q(ends_on__gte=models.F("starts_on")),
                name="project_ends_after_start",
            ),
            models.CheckConstraint(condition=Q(state__in=list(ProjectState)), name="project_state_known"),
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
            models.CheckConstraint(condition=Q(role__in=list(ProjectRole)), name="membership_role_known"),
        ]

    def __str__(self) -> str:
        return f"{self.user} {self.role} of {self.project}"


class ProjectUserPermission(UserObjectPermissionBase):
    """django-guardian rows with a real foreign key, so that a grant can't outlive its project."""

    content_object = models.ForeignKey(Project, on_delete=models.CASCADE)


class QuotaGrant(models.Model):
    """How much of a resource a project may hold at once during a period. No grant means no limit."""

    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="quota_grants")
    resource = models.CharField(max_length=24, choices=[(r, r) for r in Resource])
    amount = models.BigIntegerField()
    period = period_field()
    reason = models.CharField(max_length=500)
    by = models.ForeignKey(User, on_delete=models.PROTECT)
    used_at_most = models.BigIntegerField(null=True, editable=False)  # kept by the database; null = to be summed

    class Meta:
        constraints = [
            ExclusionConstraint(
                name="one_grant_at_a_time",
                expressions=[
                    ("project", RangeOperators.EQUAL),
                    ("resource", RangeOperators.EQUAL),
                    ("period", RangeOperators.OVERLAPS),
                ],
            ),
            models.CheckConstraint(condition=Q(amount__gte=0), name="grant_not_negative"),
            models.CheckConstraint(condition=Q(resource__in=list(Resource)), name="grant_resource_known"),
            models.CheckConstraint(condition=Q(period__isempty=False), name="grant_period_not_empty"),
        ]

    def __str__(self) -> str:
        return f"{self.project}: {self.amount} {self.resource}"
