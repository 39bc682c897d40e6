"""How the words of ledger.vocabulary look to people: a translated label, a glyph and a tone, never colour alone.

The tables must name every word (a test compares). Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from ledger.job_metrics import Verdict
from ledger.people import TokenState
from ledger.vocabulary import (
    Account,
    AllocationState,
    AskForm,
    AttemptState,
    Channel,
    DeliveryState,
    Distance,
    DriverName,
    Form,
    HoldKind,
    Interconnect,
    InvitationState,
    JobKind,
    JobState,
    NodeState,
    NoticeKind,
    Outcome,
    ProjectRole,
    ProjectState,
    Refusal,
    RequestKind,
    RequestState,
    Resource,
    SiteRole,
    Span,
)
from portal.reclaim_rows import Phase
from scheduler.engine.fingerprint import Difference
from scheduler.models import MoveState, PlanKind, PlanState
from scheduler.promises import Breach
from scheduler.reclaim_plan import Step

Text = str | Promise


@dataclass(frozen=True, slots=True)
class Look:
    """`tone` is a class of static/css/app.css: quiet, wait, go, good, warn or alarm."""

    label: Text
    glyph: str = ""
    tone: str = "quiet"


JOB_STATES: Final[Mapping[StrEnum, Look]] = {
    JobState.QUEUED: Look(pgettext_lazy("job state", "queued"), "○", "wait"),
    JobState.STARTING: Look(pgettext_lazy("job state", "starting"), "◔", "go"),
    JobState.RUNNING: Look(pgettext_lazy("job state", "running"), "▶", "go"),
    JobState.STOPPING: Look(pgettext_lazy("job state", "stopping"), "◕", "warn"),
    JobState.SUCCEEDED: Look(pgettext_lazy("job state", "succeeded"), "✓", "good"),
    JobState.FAILED: Look(pgettext_lazy("job state", "failed"), "✕", "alarm"),
    JobState.CANCELLED: Look(pgettext_lazy("job state", "cancelled"), "⊘", "quiet"),
    JobState.PREEMPTED: Look(pgettext_lazy("job state", "preempted"), "⇤", "warn"),
}

ATTEMPT_STATES: Final[Mapping[StrEnum, Look]] = {
    AttemptState.STARTING: Look(pgettext_lazy("attempt state", "starting"), "◔", "go"),
    AttemptState.RUNNING: Look(pgettext_lazy("attempt state", "running"), "▶", "go"),
    AttemptState.UNKNOWN: Look(pgettext_lazy("attempt state", "unknown, the driver does not answer"), "?", "warn"),
    AttemptState.STOPPING: Look(pgettext_lazy("attempt state", "stopping"), "◕", "warn"),
    AttemptState.ENDED: Look(pgettext_lazy("attempt state", "ended"), "■", "quiet"),
}

OUTCOMES: Final[Mapping[StrEnum, Look]] = {
    Outcome.SUCCEEDED: Look(pgettext_lazy("outcome", "succeeded"), "✓", "good"),
    Outcome.FAILED: Look(pgettext_lazy("outcome", "failed"), "✕", "alarm"),
    Outcome.OUT_OF_MEMORY: Look(pgettext_lazy("outcome", "killed: over its memory limit"), "✕", "alarm"),
    Outcome.CANCELLED: Look(pgettext_lazy("outcome", "cancelled"), "⊘", "quiet"),
    Outcome.OVER_WALLTIME: Look(pgettext_lazy("outcome", "stopped: over its time limit"), "◷", "warn"),
    Outcome.PREEMPTED: Look(pgettext_lazy("outcome", "preempted"), "⇤", "warn"),
    Outcome.START_FAILED: Look(pgettext_lazy("outcome", "did not start"), "✕", "alarm"),
    Outcome.HARDWARE: Look(pgettext_lazy("outcome", "hardware fault"), "⚠", "alarm"),
    Outcome.LOST: Look(pgettext_lazy("outcome", "lost with its node"), "⚠", "alarm"),
    Outcome.PROJECT_ENDED: Look(pgettext_lazy("outcome", "stopped: its project ended"), "⊘", "quiet"),
}

SLA_VERDICTS: Final[Mapping[StrEnum, Look]] = {
    Verdict.UNKNOWN: Look(pgettext_lazy("promise", "P99 or promise unknown"), "?", "quiet"),
    Verdict.MET: Look(pgettext_lazy("promise", "P99 as promised"), "✓", "good"),
    Verdict.MISSED: Look(pgettext_lazy("promise", "P99 above what was promised"), "⚠", "warn"),
    Verdict.FAR: Look(pgettext_lazy("promise", "P99 more than twice what was promised"), "✕", "alarm"),
}

ALLOCATION_STATES: Final[Mapping[StrEnum, Look]] = {
    AllocationState.OPENING: Look(pgettext_lazy("allocation state", "opening"), "◔", "go"),
    AllocationState.ACTIVE: Look(pgettext_lazy("allocation state", "active"), "▶", "go"),
    AllocationState.CLOSING: Look(pgettext_lazy("allocation state", "closing"), "◕", "warn"),
    AllocationState.CLOSED: Look(pgettext_lazy("allocation state", "closed"), "■", "quiet"),
}

NODE_STATES: Final[Mapping[StrEnum, Look]] = {
    NodeState.UP: Look(pgettext_lazy("node state", "up"), "●", "good"),
    NodeState.OFFLINE: Look(pgettext_lazy("node state", "offline"), "⚠", "alarm"),
    NodeState.RETIRED: Look(pgettext_lazy("node state", "retired"), "⊘", "quiet"),
}

HOLD_KINDS: Final[Mapping[StrEnum, Look]] = {
    HoldKind.FAULT: Look(pgettext_lazy("hold", "held: fault"), "⚠", "alarm"),
    HoldKind.MAINTENANCE: Look(pgettext_lazy("hold", "held: maintenance"), "⚒", "warn"),
    HoldKind.DRILL: Look(pgettext_lazy("hold", "held: drill"), "⚑", "warn"),
    HoldKind.LOST: Look(pgettext_lazy("hold", "held: lost"), "⚠", "alarm"),
    HoldKind.OFFLINE: Look(pgettext_lazy("hold", "held: offline"), "⚠", "alarm"),
    HoldKind.DRAIN: Look(pgettext_lazy("hold", "held: draining"), "⇣", "warn"),
    HoldKind.LINK: Look(pgettext_lazy("hold", "held: links, single cards only"), "⚯", "warn"),
}

PROJECT_STATES: Final[Mapping[StrEnum, Look]] = {
    ProjectState.ACTIVE: Look(pgettext_lazy("project state", "active"), "●", "good"),
    ProjectState.ENDING: Look(pgettext_lazy("project state", "ending"), "◕", "warn"),
    ProjectState.ENDED: Look(pgettext_lazy("project state", "ended"), "■", "quiet"),
}

NOTICES: Final[Mapping[StrEnum, Look]] = {
    NoticeKind.DAYS_14: Look(pgettext_lazy("notice", "14 days before the end"), "◷", "wait"),
    NoticeKind.DAYS_3: Look(pgettext_lazy("notice", "3 days before the end"), "◷", "warn"),
    NoticeKind.DAYS_1: Look(pgettext_lazy("notice", "1 day before the end"), "◷", "warn"),
    NoticeKind.OVER: Look(pgettext_lazy("notice", "the last day is over"), "◕", "alarm"),
    NoticeKind.RECEIPT: Look(pgettext_lazy("notice", "receipt"), "■", "quiet"),
}

CHANNELS: Final[Mapping[StrEnum, Look]] = {
    Channel.MAIL: Look(pgettext_lazy("channel", "e-mail")),
    Channel.WEBHOOK: Look(pgettext_lazy("channel", "webhook")),
}

DELIVERIES: Final[Mapping[StrEnum, Look]] = {
    DeliveryState.PENDING: Look(pgettext_lazy("delivery", "to be sent"), "○", "wait"),
    DeliveryState.SENT: Look(pgettext_lazy("delivery", "sent"), "✓", "good"),
    DeliveryState.DROPPED: Look(pgettext_lazy("delivery", "not sent: no longer so"), "○"),
    DeliveryState.FAILED: Look(pgettext_lazy("delivery", "not delivered"), "✕", "alarm"),
    DeliveryState.NOT_CONFIGURED: Look(pgettext_lazy("delivery", "not sent: not configured"), "⊘", "quiet"),
}

RECLAIM_PHASES: Final[Mapping[StrEnum, Look]] = {
    Phase.AHEAD: Look(pgettext_lazy("reclaim", "works until its last day"), "●", "good"),
    Phase.GRACE: Look(pgettext_lazy("reclaim", "in its grace"), "◕", "warn"),
    Phase.STOPPING: Look(pgettext_lazy("reclaim", "grace over, being stopped"), "■", "alarm"),
    Phase.CLOSING: Look(pgettext_lazy("reclaim", "nothing open, ends at the next pass"), "✓", "warn"),
    Phase.ENDED: Look(pgettext_lazy("reclaim", "ended"), "■", "quiet"),
}

RECLAIM_STEPS: Final[Mapping[StrEnum, Look]] = {
    Step.TELL: Look(pgettext_lazy("reclaim", "give notice"), "✉"),
    Step.BEGIN: Look(pgettext_lazy("reclaim", "take no new work"), "◕", "warn"),
    Step.CANCEL: Look(pgettext_lazy("reclaim", "cancel waiting jobs"), "⊘", "warn"),
    Step.STOP: Look(pgettext_lazy("reclaim", "stop what runs"), "■", "alarm"),
    Step.CLOSE: Look(pgettext_lazy("reclaim", "end grants, make all members readers, write the receipt"), "✓"),
}

FORMS: Final[Mapping[StrEnum, Look]] = {
    Form.CONTAINER: Look(pgettext_lazy("form", "container"), "▤"),
    Form.BLOCK: Look(pgettext_lazy("form", "block"), "▦"),
    Form.WHOLE: Look(pgettext_lazy("form", "whole machine"), "■"),
}

ASK_FORMS: Final[Mapping[StrEnum, Look]] = {
    AskForm.AUTO: Look(pgettext_lazy("form", "automatic")),
    AskForm.CONTAINER: FORMS[Form.CONTAINER],
    AskForm.BLOCK: FORMS[Form.BLOCK],
    AskForm.WHOLE: FORMS[Form.WHOLE],
}

INTERCONNECTS: Final[Mapping[StrEnum, Look]] = {
    Interconnect.ANY: Look(pgettext_lazy("interconnect", "any")),
    Interconnect.PCIE: Look(pgettext_lazy("interconnect", "PCIe")),
    Interconnect.NVLINK: Look(pgettext_lazy("interconnect", "NVLink")),
}

DISTANCES: Final[Mapping[StrEnum, Look]] = {
    Distance.ANY: Look(pgettext_lazy("distance", "anywhere")),
    Distance.NEAR: Look(pgettext_lazy("distance", "near each other if possible")),
    Distance.SAME_LEAF: Look(pgettext_lazy("distance", "under one leaf switch, else wait")),
    Distance.SAME_RACK: Look(pgettext_lazy("distance", "in one rack, else wait")),
    Distance.SAME_ROOM: Look(pgettext_lazy("distance", "in one room, else wait")),
    Distance.SAME_SITE: Look(pgettext_lazy("distance", "at one site, else wait")),
}

SPANS: Final[Mapping[StrEnum, Look]] = {
    Span.NODE: Look(pgettext_lazy("span", "one node")),
    Span.LEAF: Look(pgettext_lazy("span", "under one leaf switch")),
    Span.RACK: Look(pgettext_lazy("span", "in one rack")),
    Span.ROOM: Look(pgettext_lazy("span", "in one room")),
    Span.SITE: Look(pgettext_lazy("span", "at one site")),
    Span.APART: Look(pgettext_lazy("span", "far apart, or it isn't known where")),
}

DIFFERENCES: Final[Mapping[StrEnum, Look]] = {
    Difference.FORM: Look(pgettext_lazy("difference", "form")),
    Difference.NODES: Look(pgettext_lazy("difference", "number of nodes")),
    Difference.SPAN: Look(pgettext_lazy("difference", "distance of nodes")),
    Difference.HARDWARE: Look(pgettext_lazy("difference", "hardware of the nodes")),
    Difference.CARDS: Look(pgettext_lazy("difference", "cards given and their links")),
    Difference.COMPANY: Look(pgettext_lazy("difference", "other work on the nodes at placement")),
}

JOB_KINDS: Final[Mapping[StrEnum, Look]] = {
    JobKind.TRAINING: Look(pgettext_lazy("job kind", "training")),
    JobKind.INFERENCE: Look(pgettext_lazy("job kind", "inference")),
    JobKind.DATA: Look(pgettext_lazy("job kind", "data preparation")),
    JobKind.INTERACTIVE: Look(pgettext_lazy("job kind", "interactive")),
    JobKind.OTHER: Look(pgettext_lazy("job kind", "other")),
}

DRIVERS: Final[Mapping[StrEnum, Look]] = {
    DriverName.LOCAL: Look(pgettext_lazy("driver", "local")),
    DriverName.SIMULATED: Look(pgettext_lazy("driver", "simulated")),
}

ACCOUNTS: Final[Mapping[StrEnum, Look]] = {
    Account.USED: Look(pgettext_lazy("account", "used"), "■"),
    Account.CLEANING: Look(pgettext_lazy("account", "cleaning"), "▨"),
    Account.HELD: Look(pgettext_lazy("account", "held"), "⚑"),
    Account.HEADROOM: Look(pgettext_lazy("account", "headroom"), "▥"),
    Account.STRANDED: Look(pgettext_lazy("account", "idle, stranded"), "▤"),
    Account.FREE: Look(pgettext_lazy("account", "idle, free"), "□"),
}

PROJECT_ROLES: Final[Mapping[StrEnum, Look]] = {
    ProjectRole.OWNER: Look(pgettext_lazy("project role", "owner")),
    ProjectRole.MANAGER: Look(pgettext_lazy("project role", "manager")),
    ProjectRole.MEMBER: Look(pgettext_lazy("project role", "member")),
    ProjectRole.VIEWER: Look(pgettext_lazy("project role", "viewer")),
}

INVITATIONS: Final[Mapping[StrEnum, Look]] = {
    InvitationState.OPEN: Look(pgettext_lazy("invitation", "not answered yet"), "○", "wait"),
    InvitationState.ACCEPTED: Look(pgettext_lazy("invitation", "accepted"), "✓", "good"),
    InvitationState.DECLINED: Look(pgettext_lazy("invitation", "declined"), "⊘", "quiet"),
    InvitationState.WITHDRAWN: Look(pgettext_lazy("invitation", "taken back"), "⊘", "quiet"),
}

REQUEST_KINDS: Final[Mapping[StrEnum, Look]] = {
    RequestKind.QUOTA: Look(pgettext_lazy("request kind", "quota")),
    RequestKind.EXTENSION: Look(pgettext_lazy("request kind", "a later end")),
    RequestKind.NEW_PROJECT: Look(pgettext_lazy("request kind", "a new project")),
    RequestKind.JOIN: Look(pgettext_lazy("request kind", "to be in a project")),
}

REQUESTS: Final[Mapping[StrEnum, Look]] = {
    RequestState.OPEN: Look(pgettext_lazy("request", "open"), "○", "wait"),
    RequestState.APPROVED: Look(pgettext_lazy("request", "approved"), "✓", "good"),
    RequestState.REFUSED: Look(pgettext_lazy("request", "refused"), "✕", "warn"),
    RequestState.WITHDRAWN: Look(pgettext_lazy("request", "taken back"), "⊘", "quiet"),
    RequestState.EXPIRED: Look(pgettext_lazy("request", "its time was over"), "◷", "quiet"),
}

SITE_ROLES: Final[Mapping[StrEnum, Look]] = {
    SiteRole.RESEARCHER: Look(pgettext_lazy("site role", "researcher")),
    SiteRole.OPERATOR: Look(pgettext_lazy("site role", "operator")),
    SiteRole.MANAGER: Look(pgettext_lazy("site role", "manager")),
    SiteRole.AUDITOR: Look(pgettext_lazy("site role", "auditor")),
    SiteRole.ADMIN: Look(pgettext_lazy("site role", "administrator")),
}

TOKEN_STATES: Final[Mapping[StrEnum, Look]] = {
    TokenState.LIVE: Look(pgettext_lazy("token state", "live"), "●", "good"),
    TokenState.EXPIRED: Look(pgettext_lazy("token state", "expired"), "◷", "quiet"),
    TokenState.REVOKED: Look(pgettext_lazy("token state", "revoked"), "⊘", "quiet"),
}

ZONE_PLANS: Final[Mapping[StrEnum, Look]] = {
    PlanState.RUNNING: Look(pgettext_lazy("zone plan", "at work"), "▶", "go"),
    PlanState.DONE: Look(pgettext_lazy("zone plan", "done"), "✓", "good"),
    PlanState.CANCELLED: Look(pgettext_lazy("zone plan", "cancelled"), "⊘", "quiet"),
}

ZONE_PLAN_KINDS: Final[Mapping[StrEnum, Look]] = {
    PlanKind.LIST: Look(pgettext_lazy("zone plan", "by list")),
    PlanKind.RATIO: Look(pgettext_lazy("zone plan", "by ratio")),
    PlanKind.UNDO: Look(pgettext_lazy("zone plan", "undo")),
}

ZONE_MOVES: Final[Mapping[StrEnum, Look]] = {
    MoveState.PLANNED: Look(pgettext_lazy("zone move", "left to do"), "○", "wait"),
    MoveState.DRAINING: Look(pgettext_lazy("zone move", "draining"), "⇣", "warn"),
    MoveState.MOVED: Look(pgettext_lazy("zone move", "moved"), "✓", "good"),
    MoveState.DROPPED: Look(pgettext_lazy("zone move", "stayed"), "⊘", "quiet"),
}

RESOURCES: Final[Mapping[StrEnum, Look]] = {
    Resource.CARD_MILLI: Look(pgettext_lazy("resource", "cards at once")),
    Resource.CARD_MEMORY_MIB: Look(pgettext_lazy("resource", "card memory at once")),
    Resource.WHOLE_NODES: Look(pgettext_lazy("resource", "whole machines at once")),
    Resource.CPU_MILLI: Look(pgettext_lazy("resource", "CPU cores at once")),
    Resource.HOST_MEMORY_MIB: Look(pgettext_lazy("resource", "host memory at once")),
    Resource.CARD_MILLI_S: Look(pgettext_lazy("resource", "card-hours")),
}

BREACHES: Final[Mapping[StrEnum, Look]] = {
    Breach.PLACE: Look(_("placed on other nodes")),
    Breach.FORM: Look(_("placed in another form")),
    Breach.COMPANY: Look(_("others were there at placement")),
    Breach.ALONE: Look(_("not alone on the whole machine")),
}

# Why nodes were not offered. Each sentence stands after "N nodes:" or alone.
REFUSALS: Final[Mapping[StrEnum, Text]] = {
    Refusal.SIMULATED: _("real work never runs on simulated nodes, nor the reverse"),
    Refusal.NODE_DOWN: _("the node is offline"),
    Refusal.NODE_HELD: _("the node is held out of the pool"),
    Refusal.CARD_HELD: _("a card of the node is held out of the pool"),
    Refusal.NO_DRIVER: _("nothing on the node can deliver this form"),
    Refusal.FORM_NOT_IN_ZONE: _("its zone does not take this form"),
    Refusal.OTHER_FORM: _("the node is in use as another form"),
    Refusal.NOT_EMPTY: _("a whole machine needs an empty node"),
    Refusal.MODEL: _("another card model"),
    Refusal.HARDWARE: _("not the hardware of the job to compare with"),
    Refusal.INTERCONNECT: _("its cards are not linked as asked"),
    Refusal.LABELS: _("it lacks a label that was asked for"),
    Refusal.ZONE: _("a policy keeps such jobs out of its zone"),
    Refusal.CARDS_TOTAL: _("it has fewer cards than asked, even when empty"),
    Refusal.CARD_MEMORY_TOTAL: _("no card of it has that much memory"),
    Refusal.CARDS_FREE: _("too few free cards at the moment"),
    Refusal.CARD_MEMORY_FREE: _("too little free card memory at the moment"),
    Refusal.CPU: _("too few free CPU cores"),
    Refusal.HOST_MEMORY: _("too little free host memory"),
    Refusal.NO_BLOCK: _("no free block of that size"),
    Refusal.HEADROOM: _("what is free is kept for key work"),
    Refusal.RESERVED: _("kept for a job that has waited longer"),
    Refusal.GANG: _("fewer nodes fit than the job needs at once"),
    Refusal.LEAF: _("no leaf switch has room for all nodes"),
    Refusal.RACK: _("no rack has room for all nodes"),
    Refusal.ROOM: _("no room has enough free nodes for all"),
    Refusal.SITE: _("no site has enough free nodes for all"),
    Refusal.MIXED: _("no kind of hardware has room for all nodes"),
    Refusal.UNLIKE: _("they don't stand to each other as those of the job to compare with"),
    Refusal.ASK_LATER: _("this wish counts only after its waiting time"),
    Refusal.QUOTA: _("the project's quota is used up"),
    Refusal.CEILING: _("the ceiling of the project's department is reached"),
    Refusal.MEMBER_LIMIT: _("the person's own limit inside the project is reached"),
    Refusal.PROJECT_ENDED: _("the project has ended"),
    Refusal.HELD_BY_OPERATOR: _("an operator holds the job back until it is released"),
    Refusal.LOST_RACE: _("another job took the place first; tried again at once"),
}

TABLES: Final[Mapping[str, Mapping[StrEnum, Look]]] = {
    "job": JOB_STATES,
    "attempt": ATTEMPT_STATES,
    "outcome": OUTCOMES,
    "sla": SLA_VERDICTS,
    "allocation": ALLOCATION_STATES,
    "node": NODE_STATES,
    "hold": HOLD_KINDS,
    "project": PROJECT_STATES,
    "notice": NOTICES,
    "channel": CHANNELS,
    "delivery": DELIVERIES,
    "reclaim_step": RECLAIM_STEPS,
    "reclaim_phase": RECLAIM_PHASES,
    "resource": RESOURCES,
    "form": FORMS,
    "ask_form": ASK_FORMS,
    "interconnect": INTERCONNECTS,
    "distance": DISTANCES,
    "kind": JOB_KINDS,
    "driver": DRIVERS,
    "account": ACCOUNTS,
    "project_role": PROJECT_ROLES,
    "site_role": SITE_ROLES,
    "invitation": INVITATIONS,
    "request_kind": REQUEST_KINDS,
    "request": REQUESTS,
    "zone_plan": ZONE_PLANS,
    "zone_plan_kind": ZONE_PLAN_KINDS,
    "zone_move": ZONE_MOVES,
    "token": TOKEN_STATES,
    "breach": BREACHES,
    "span": SPANS,
    "difference": DIFFERENCES,
}


def look(table: str, word: str) -> Look:
    """The look of a word; a word that the table does not know is shown as it is, quietly."""
    return {str(key): value for key, value in TABLES[table].items()}.get(str(word), Look(str(word)))


def text(table: str, word: str) -> str:
    """The label in the language of this moment, for files and sentences."""
    return str(look(table, word).label)


def refusal(word: str) -> Text:
    return {str(key): value for key, value in REFUSALS.items()}.get(str(word), str(word))


def choices(table: str) -> list[tuple[str, Text]]:
    """For select fields, in the order of the table."""
    return [(str(word), value.label) for word, value in TABLES[table].items()]
