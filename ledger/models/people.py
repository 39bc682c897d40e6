"""People and what is theirs: sessions, tokens, saved values."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, NamedTuple

from django.contrib.auth.models import AbstractUser, UserManager
from django.contrib.sessions.backends.base import SessionBase
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models
from django.db.models import Q

from ledger.vocabulary import SiteRole


class Powers(NamedTuple):
    """Ids of zones and departments."""

    zones: frozenset[int] = frozenset()
    departments: frozenset[int] = frozenset()


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
        """In every zone, and the queue."""
        return self.is_active and self.site_role in (SiteRole.ADMIN, SiteRole.OPERATOR)

    @cached_property
    def odd_powers(self) -> Powers:
        """What odd grants in force give on top of the roles, by the database's clock; read once, as this row was."""
        from ledger.models.odd_grants import powers_of  # it imports this module

        return powers_of(self)

    @property
    def operated_zones(self) -> frozenset[int]:
        """Zones that they operate by an odd grant."""
        return self.odd_powers.zones

    @property
    def audited_departments(self) -> frozenset[int]:
        """Departments whose projects they read by an odd grant, those below it included. Empty for who reads all."""
        return frozenset() if self.sees_everything else self.odd_powers.departments

    @property
    def operates_somewhere(self) -> bool:
        return self.operates or bool(self.operated_zones)

    @property
    def audits_somewhere(self) -> bool:
        return self.sees_everything or bool(self.audited_departments)

    def audits(self, department_id: int | None) -> bool:
        """Whether they read all that projects of this department do."""
        return self.sees_everything or department_id in self.audited_departments


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
