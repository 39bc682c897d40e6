"""The audit trail and its chain. The application's database role may insert and read here, nothing else."""

from __future__ import annotations

from django.db import models

from ledger.models.people import Project, User


class AuditEvent(models.Model):
    """One state change. The column `txid` (xid8) is added by migration; the sealer orders by it."""

    at = models.DateTimeField()
    actor = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+")  # null: the system itself
    on_behalf_of = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+")
    via = models.CharField(max_length=32)  # api, page, command, task
    verb = models.CharField(max_length=64)  # project.quota.raised
    target_type = models.CharField(max_length=32)
    target_id = models.CharField(max_length=64)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, null=True, related_name="+")
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    reason = models.CharField(max_length=500, default="")
    request_id = models.CharField(max_length=64, default="")

    class Meta:
        indexes = [models.Index(fields=["target_type", "target_id", "-id"], name="audit_by_target")]

    def __str__(self) -> str:
        return f"{self.verb} {self.target_type} {self.target_id}"


class AuditSeal(models.Model):
    """A link of the chain: digest = SHA-256(previous digest, canonical event)."""

    position = models.BigIntegerField(primary_key=True)
    event = models.OneToOneField(AuditEvent, on_delete=models.PROTECT, related_name="seal")
    digest = models.CharField(max_length=64)
    horizon = models.BigIntegerField(default=0)  # every row of a transaction before this one is sealed

    def __str__(self) -> str:
        return f"{self.position} {self.digest}"
