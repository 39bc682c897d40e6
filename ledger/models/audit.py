"""The audit trail and its chain. The application's database role may insert and read here, nothing else."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Self

from django.contrib.postgres.indexes import GinIndex, OpClass
from django.db import models
from django.db.models import F, Func, Q
from django.db.models.functions import Cast, Upper

from ledger.models.asking import ProjectRequest, of_departments
from ledger.models.inventory import Card, Hold, Node
from ledger.models.people import User
from ledger.models.projects import Department, Project
from ledger.vocabulary import RequestKind

OF_A_JOB: Final = ("job", "attempt", "allocation")  # target types that tell of a project's work


class AuditEventQuerySet(models.QuerySet["AuditEvent"]):
    def visible_to(self, user: User) -> Self:
        """Site roles read all of it; others the work of their projects, what they did themselves, and by odd grants all
        of departments that they audit, and of what is in zones that they operate."""
        if not user.is_active:
            return self.none()
        if user.sees_everything:
            return self
        theirs = Project.objects.visible_to(user).values("pk")
        found = Q(actor=user) | Q(on_behalf_of=user) | Q(target_type__in=OF_A_JOB, project__in=theirs)
        if departments := user.audited_departments:
            found |= Q(project__department__in=departments)
            found |= Q(target_type="department", target_id__in=[str(pk) for pk in departments])
            found |= _of_requests(departments) | _of_policies(departments)
        return self.filter(found | _of_zones(user.operated_zones) if user.operated_zones else found)


def _of_requests(departments: Collection[int]) -> Q:
    """All that became of requests for new projects in these departments: most of it is written before there is one."""
    asked = ProjectRequest.objects.filter(of_departments(departments), kind=RequestKind.NEW_PROJECT)
    named = asked.annotate(as_text=Cast("pk", models.CharField()))
    return Q(target_type="projectrequest", target_id__in=named.values("as_text"))


def _of_policies(departments: Collection[int]) -> Q:
    """Changes of policies that bear on projects of these departments: theirs, those above them and everybody's. Which
    scope it is of stands in each row."""
    above = "unnest(ledger_department_chain(%(expressions)s))"
    bearing = Func(F("pk"), template=above, output_field=models.BigIntegerField())
    inside = Department.objects.filter(pk__in=departments).values_list(bearing)
    slugs = list(Department.objects.filter(pk__in=inside).values_list("slug", flat=True))
    of_all = Q(after__scope__department=None, after__scope__project=None)
    return Q(target_type="jobpolicy") & (Q(after__scope__department__in=slugs) | of_all)


def _of_zones(zones: frozenset[int]) -> Q:
    """Rows of nodes that are in these zones now, of the cards in them, and of holds on both."""
    nodes = Node.objects.filter(zone_periods__zone__in=zones, zone_periods__period__upper_inf=True)
    cards = Card.objects.filter(seats__node__in=nodes, seats__period__upper_inf=True)
    held = Hold.objects.filter(Q(node__in=nodes) | Q(card__in=cards))
    found = Q(target_type="zone", target_id__in=[str(pk) for pk in zones])
    for kind, rows in (("node", nodes), ("card", cards), ("hold", held)):
        named = rows.annotate(as_text=Cast("pk", models.CharField()))
        found |= Q(target_type=kind, target_id__in=named.values("as_text"))
    return found


class AuditEvent(models.Model):
    """One state change. The column `txid` (xid8) is added by migration; the sealer orders by it."""

    at = models.DateTimeField()
    # null: the system itself
    actor = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    on_behalf_of = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    via = models.CharField(max_length=32)  # api, page, command, task
    verb = models.CharField(max_length=64)  # project.quota.raised
    target_type = models.CharField(max_length=32)
    target_id = models.CharField(max_length=64)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, null=True, related_name="+")
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    reason = models.CharField(max_length=500, default="")
    request_id = models.CharField(max_length=64, default="")

    objects = AuditEventQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(fields=["target_type", "target_id", "-id"], name="audit_by_target"),
            models.Index(fields=["-at", "-id"], name="audit_by_time"),
            # most rows are the system's own
            models.Index(fields=["actor"], name="audit_by_actor", condition=Q(actor__isnull=False)),
            models.Index(fields=["on_behalf_of"], name="audit_by_whom", condition=Q(on_behalf_of__isnull=False)),
            models.Index(fields=["verb"], name="audit_by_verb", opclasses=["varchar_pattern_ops"]),
            GinIndex(OpClass(Upper("reason"), name="gin_trgm_ops"), name="audit_by_reason", condition=~Q(reason="")),
        ]

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
