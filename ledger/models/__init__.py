"""The tables of the ledger, by room: people, projects, inventory, work, book, telemetry, audit."""

from ledger.models.asking import Invitation, ProjectRequest, RequestComment, RequestVerdict
from ledger.models.audit import AuditEvent, AuditSeal
from ledger.models.book import Allocation, CardShare, RollUp, StateTransition, UsageQuarter
from ledger.models.ends import Delivery, Notice, Receipt
from ledger.models.health import AgentOrder, Case
from ledger.models.health_policy import HealthEvent, HealthRule, HealthVersion, Refund
from ledger.models.inventory import (
    Block,
    Card,
    CardSeat,
    HeadroomReserve,
    Hold,
    InventoryVersion,
    Link,
    Node,
    NodeZone,
    Zone,
)
from ledger.models.letters import Letter
from ledger.models.limits import DepartmentCeiling, MemberLimit, QuotaGrant
from ledger.models.odd_grants import DepartmentUserPermission, OddGrant, ZoneUserPermission
from ledger.models.people import ApiToken, SavedValues, User, UserSession
from ledger.models.projects import Department, Membership, Project, ProjectUserPermission
from ledger.models.telemetry import (
    CardHour,
    CardSample,
    CardStatus,
    Fault,
    FaultEvent,
    NodeBoot,
    NodeReport,
    OpenHour,
    QualityCount,
    SampleBatch,
)
from ledger.models.use import CardWatch, JobMetric, MetricSource, ShareUse
from ledger.models.work import Attempt, Job

__all__ = [
    "AgentOrder",
    "Allocation",
    "ApiToken",
    "Attempt",
    "AuditEvent",
    "AuditSeal",
    "Block",
    "Card",
    "CardHour",
    "CardSample",
    "CardSeat",
    "CardShare",
    "CardStatus",
    "CardWatch",
    "Case",
    "Delivery",
    "Department",
    "DepartmentCeiling",
    "DepartmentUserPermission",
    "Fault",
    "FaultEvent",
    "HeadroomReserve",
    "HealthEvent",
    "HealthRule",
    "HealthVersion",
    "Hold",
    "InventoryVersion",
    "Invitation",
    "Job",
    "JobMetric",
    "Letter",
    "Link",
    "MemberLimit",
    "Membership",
    "MetricSource",
    "Node",
    "NodeBoot",
    "NodeReport",
    "NodeZone",
    "Notice",
    "OddGrant",
    "OpenHour",
    "Project",
    "ProjectRequest",
    "ProjectUserPermission",
    "QualityCount",
    "QuotaGrant",
    "Receipt",
    "Refund",
    "RequestComment",
    "RequestVerdict",
    "RollUp",
    "SampleBatch",
    "SavedValues",
    "ShareUse",
    "StateTransition",
    "UsageQuarter",
    "User",
    "UserSession",
    "Zone",
    "ZoneUserPermission",
]
