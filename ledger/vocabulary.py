"""Words shared by every room: states, forms, accounts, and the legal transitions between states.

No Django here and no other import of ours, so that the pure engine may use it. Labels, colours and translations
live in portal. The transition tables are also rows of the database (a migration writes them, a test compares).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Form(StrEnum):
    """How a node is being used."""

    CONTAINER = "container"
    BLOCK = "block"
    WHOLE = "whole"


class AskForm(StrEnum):
    """What a job may ask for: a form, or whichever is ready first."""

    CONTAINER = "container"
    BLOCK = "block"
    WHOLE = "whole"
    AUTO = "auto"


class Interconnect(StrEnum):
    """How the cards of one node talk to each other, weakest first; ANY accepts all."""

    ANY = "any"
    PCIE = "pcie"
    NVLINK = "nvlink"


class Distance(StrEnum):
    """How near the nodes of a gang should be. NEAR is a wish, never a refusal; a SAME_ level is required, and inside it
    the gang stands as near as it can."""

    ANY = "any"
    NEAR = "near"
    SAME_LEAF = "same_leaf"
    SAME_RACK = "same_rack"
    SAME_ROOM = "same_room"
    SAME_SITE = "same_site"


class Span(StrEnum):
    """What the nodes of a placement share, the nearest first; APART: not even a site that is known."""

    NODE = "node"
    LEAF = "leaf"
    RACK = "rack"
    ROOM = "room"
    SITE = "site"
    APART = "apart"


class JobKind(StrEnum):
    TRAINING = "training"
    INFERENCE = "inference"
    DATA = "data"
    INTERACTIVE = "interactive"
    OTHER = "other"


class JobState(StrEnum):
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"


class AttemptState(StrEnum):
    """STARTING and UNKNOWN hold their cards: a time-out is not evidence that nothing runs."""

    STARTING = "starting"
    RUNNING = "running"
    UNKNOWN = "unknown"
    STOPPING = "stopping"
    ENDED = "ended"


class Outcome(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    OUT_OF_MEMORY = "out_of_memory"
    CANCELLED = "cancelled"
    OVER_WALLTIME = "over_walltime"
    PREEMPTED = "preempted"
    START_FAILED = "start_failed"
    HARDWARE = "hardware"
    LOST = "lost"
    PROJECT_ENDED = "project_ended"  # the project's grace was over; never tried again


class AllocationState(StrEnum):
    OPENING = "opening"
    ACTIVE = "active"
    CLOSING = "closing"
    CLOSED = "closed"


class HoldKind(StrEnum):
    FAULT = "fault"
    MAINTENANCE = "maintenance"
    DRILL = "drill"
    LOST = "lost"
    OFFLINE = "offline"
    DRAIN = "drain"


class NodeState(StrEnum):
    """UP is offered work. OFFLINE is unknown, never free. RETIRED has left the fleet."""

    UP = "up"
    OFFLINE = "offline"
    RETIRED = "retired"


class Supply(StrEnum):
    OWNED = "owned"
    RESERVED = "reserved"
    ON_DEMAND = "on-demand"
    SPOT = "spot"


class ProjectState(StrEnum):
    ACTIVE = "active"
    ENDING = "ending"
    ENDED = "ended"


class NoticeKind(StrEnum):
    """What a notice tells of a project's end. Those before the end are named by the days left at most."""

    DAYS_14 = "days_14"
    DAYS_3 = "days_3"
    DAYS_1 = "days_1"
    OVER = "over"  # the last day is over: no new work, what runs has its grace
    RECEIPT = "receipt"  # all is reclaimed


class Channel(StrEnum):
    """By what a notice leaves the portal; on its pages it stands in any case."""

    MAIL = "mail"
    WEBHOOK = "webhook"


class DeliveryState(StrEnum):
    """NOT_CONFIGURED: this site has no such channel, so nothing was sent and nothing will be. DROPPED: when its turn
    came it was no longer so, or no longer theirs to know."""

    PENDING = "pending"
    SENT = "sent"
    FAILED = "failed"
    DROPPED = "dropped"
    NOT_CONFIGURED = "not_configured"


class ProjectRole(StrEnum):
    OWNER = "owner"
    MANAGER = "manager"
    MEMBER = "member"
    VIEWER = "viewer"


class InvitationState(StrEnum):
    OPEN = "open"
    ACCEPTED = "accepted"
    DECLINED = "declined"
    WITHDRAWN = "withdrawn"


class RequestKind(StrEnum):
    """What people ask the site, or a project's managers, for."""

    QUOTA = "quota"
    EXTENSION = "extension"
    NEW_PROJECT = "new_project"
    JOIN = "join"


class RequestState(StrEnum):
    OPEN = "open"
    APPROVED = "approved"
    REFUSED = "refused"
    WITHDRAWN = "withdrawn"
    EXPIRED = "expired"


class SiteRole(StrEnum):
    """What a person may do beyond their projects."""

    RESEARCHER = "researcher"
    OPERATOR = "operator"
    MANAGER = "manager"
    AUDITOR = "auditor"
    ADMIN = "admin"


class OddGrantKind(StrEnum):
    """What a person may be given beyond their roles, for a time: what the site role of that name has everywhere, in one
    zone (hold and return machines, end what runs on them) or of one department and those below it (read all)."""

    ZONE_OPERATOR = "zone_operator"
    AUDITOR = "auditor"


class Resource(StrEnum):
    """What a QuotaGrant limits, in every form: what all live allocations of a project hold at the same time, and in
    CARD_MILLI_S what they use up over time."""

    CARD_MILLI = "card_milli"  # thousandths of a card, each share rounded up
    CARD_MEMORY_MIB = "card_memory_mib"
    WHOLE_NODES = "whole_nodes"
    CPU_MILLI = "cpu_milli"
    HOST_MEMORY_MIB = "host_memory_mib"
    CARD_MILLI_S = "card_milli_s"  # milli-card-seconds: set aside at the start for the whole walltime


class Renewal(StrEnum):
    """How often a budget starts anew, by the calendar of UTC."""

    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"


OF_CARDS: Final = frozenset({Resource.CARD_MILLI, Resource.CARD_MEMORY_MIB, Resource.CARD_MILLI_S})  # by model, too
AT_ONCE: Final = frozenset(Resource) - {Resource.CARD_MILLI_S}


class Account(StrEnum):
    """Where every MiB-second of every card stands, in order of precedence."""

    USED = "used"
    CLEANING = "cleaning"
    HELD = "held"
    HEADROOM = "headroom"
    FREE = "free"  # idle and open to everything
    STRANDED = "stranded"  # idle: the rest of a partly used card, or forbidden to others by its node's form


class FaultKind(StrEnum):
    """What can be wrong with a card or a node. Each report of an event counts; a state (STATE_FAULTS) counts when it
    begins and is cleared when it ends."""

    XID = "xid"
    ECC = "ecc"  # volatile uncorrected errors rose
    THERMAL = "thermal"
    LOST = "lost"
    CLOCK = "clock"
    ORPHAN = "orphan"  # a process on a card without a live allocation
    OVERUSE = "overuse"  # a share holds more memory than it was promised
    CORRECTABLE = "correctable"  # corrected errors rise
    REMAP_PENDING = "remap_pending"
    REMAP_FAILED = "remap_failed"
    RESET_REQUIRED = "reset_required"
    NVLINK = "nvlink"  # error counters of its links rose
    POWER = "power"
    MISSING = "missing"  # a node lists fewer cards than sit on its bus
    STORAGE = "storage"
    SILENT = "silent"  # no report for too long


STATE_FAULTS: Final = frozenset(
    {
        FaultKind.THERMAL,
        FaultKind.POWER,
        FaultKind.REMAP_PENDING,
        FaultKind.REMAP_FAILED,
        FaultKind.RESET_REQUIRED,
        FaultKind.MISSING,
        FaultKind.STORAGE,
        FaultKind.SILENT,
        FaultKind.CLOCK,
        FaultKind.ORPHAN,
        FaultKind.OVERUSE,
    }
)


class HealthAction(StrEnum):
    """What a rule of the health policy does about a fault, the mildest first."""

    LOG = "log"
    WATCH = "watch"  # told on the board; nothing else
    NO_GANG = "no_gang"  # the card does no work that needs its links
    DRAIN_SOFT = "drain_soft"  # no new work; what runs may end; a reset when idle
    RESTART_JOB = "restart_job"  # the job that was hit starts anew elsewhere and is refunded; the card as DRAIN_SOFT
    ASK = "ask"  # nobody knows the code: no new work until a person has decided
    DRAIN_NOW = "drain_now"  # no new work, its jobs end and are refunded; a reset
    RESET = "reset"
    REBOOT = "reboot"  # the whole node takes no new work; the jobs on the card end, others may go on; a reboot
    HOLD_NODE = "hold_node"  # as REBOOT, after which a person looks at it
    RMA = "rma"  # the card is sent back; it never returns by itself


class CaseState(StrEnum):
    """How far something that was taken out has come on its way back."""

    WAITING = "waiting"  # work is still on it
    NEEDED = "needed"  # idle; its reset, reboot or inspection is to be done
    TESTING = "testing"
    PASSED = "passed"  # a person has to release it
    FAILED = "failed"  # the test failed; a person has to decide
    RETURNED = "returned"
    SCRAPPED = "scrapped"  # left the fleet
    ABORTED = "aborted"


OPEN_CASES: Final = frozenset(
    {CaseState.WAITING, CaseState.NEEDED, CaseState.TESTING, CaseState.PASSED, CaseState.FAILED}
)


class Need(StrEnum):
    """What a case needs before its test."""

    NOTHING = "nothing"
    RESET = "reset"
    REBOOT = "reboot"
    INSPECTION = "inspection"
    REPLACEMENT = "replacement"


class OrderKind(StrEnum):
    """What an agent is asked to do on its node; by what program is the agent's own setting."""

    BURN_IN = "burn_in"
    RESET = "reset"


class QualityKind(StrEnum):
    """What was wrong with telemetry itself. It is counted and changes nothing else."""

    DUPLICATE = "duplicate"  # a report that was here before
    REORDERED = "reordered"  # older than the newest known, under a minute on its way
    LATE = "late"
    TOO_OLD = "too_old"  # older than what is kept
    FUTURE = "future"  # its clock is ahead
    BEHIND = "behind"  # its clock is days behind
    IMPOSSIBLE = "impossible"  # a value that no card can have
    UNKNOWN_CARD = "unknown_card"
    FOREIGN_CARD = "foreign_card"  # it sits in another node
    WRONG_NODE = "wrong_node"  # the token is another node's
    UNKNOWN_TOKEN = "unknown_token"  # noqa: S105  a word
    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    FLOOD = "flood"  # minutes in which more came than is taken
    SCRAPE_FAILED = "scrape_failed"


class CommandVerb(StrEnum):
    """What the outbox asks a driver to do for one allocation."""

    START = "start"
    STOP = "stop"


class CommandState(StrEnum):
    PENDING = "pending"
    DONE = "done"
    REFUSED = "refused"


class DriverName(StrEnum):
    LOCAL = "local"
    SIMULATED = "simulated"


class Refusal(StrEnum):
    """Why a node (or a whole ask) was not offered; counted per job and shown to people."""

    SIMULATED = "simulated"  # real work never lands on simulated nodes, and the reverse
    NODE_DOWN = "node_down"
    NODE_HELD = "node_held"
    CARD_HELD = "card_held"
    NO_DRIVER = "no_driver"
    FORM_NOT_IN_ZONE = "form_not_in_zone"
    OTHER_FORM = "other_form"  # the node is in use as another form
    NOT_EMPTY = "not_empty"  # a whole machine needs a node without any allocation
    MODEL = "model"
    HARDWARE = "hardware"  # another class of node than that of the job which it is to be like
    INTERCONNECT = "interconnect"
    LABELS = "labels"
    ZONE = "zone"  # a policy keeps the job out of the node's zone
    CARDS_TOTAL = "cards_total"  # never: the node has too few cards
    CARD_MEMORY_TOTAL = "card_memory_total"  # never: no card has that much memory
    CARDS_FREE = "cards_free"
    CARD_MEMORY_FREE = "card_memory_free"
    CPU = "cpu"
    HOST_MEMORY = "host_memory"
    NO_BLOCK = "no_block"  # no block of that size, or none aligned and free
    HEADROOM = "headroom"  # what is free is kept for marked key work
    RESERVED = "reserved"  # what is free is kept for a job that has waited longer
    GANG = "gang"  # fewer feasible nodes than the gang needs
    LEAF = "leaf"  # the gang must share a leaf and no leaf has room
    RACK = "rack"  # the same of a rack, a room, a site
    ROOM = "room"
    SITE = "site"
    MIXED = "mixed"  # the gang must have nodes of one class and no class has room
    UNLIKE = "unlike"  # the nodes don't stand to each other as those of the job which it is to be like
    ASK_LATER = "ask_later"  # this ask counts only after its waiting time
    QUOTA = "quota"  # the project's quota is used up
    CEILING = "ceiling"  # the ceiling of its department, or of one above, is reached
    MEMBER_LIMIT = "member_limit"  # the person's own limit inside the project is reached
    PROJECT_ENDED = "project_ended"
    HELD_BY_OPERATOR = "held_by_operator"  # the job waits until an operator releases it
    LOST_RACE = "lost_race"  # the database refused the placement; tried again at once


LIVE_JOB_STATES: Final = frozenset({JobState.QUEUED, JobState.STARTING, JobState.RUNNING, JobState.STOPPING})
END_JOB_STATES: Final = frozenset(JobState) - LIVE_JOB_STATES
LIVE_ATTEMPT_STATES: Final = frozenset(AttemptState) - {AttemptState.ENDED}

JOB_TRANSITIONS: Final[frozenset[tuple[JobState, JobState]]] = frozenset(
    {
        (JobState.QUEUED, JobState.STARTING),
        (JobState.QUEUED, JobState.CANCELLED),
        (JobState.QUEUED, JobState.FAILED),
        (JobState.STARTING, JobState.RUNNING),
        (JobState.STARTING, JobState.STOPPING),
        (JobState.RUNNING, JobState.STOPPING),
        (JobState.STOPPING, JobState.QUEUED),  # tried again: hardware, a failed start, preemption
        (JobState.STOPPING, JobState.SUCCEEDED),
        (JobState.STOPPING, JobState.FAILED),
        (JobState.STOPPING, JobState.CANCELLED),
        (JobState.STOPPING, JobState.PREEMPTED),
    }
)

ATTEMPT_TRANSITIONS: Final[frozenset[tuple[AttemptState, AttemptState]]] = frozenset(
    {
        (AttemptState.STARTING, AttemptState.RUNNING),
        (AttemptState.STARTING, AttemptState.UNKNOWN),
        (AttemptState.STARTING, AttemptState.STOPPING),
        (AttemptState.RUNNING, AttemptState.UNKNOWN),
        (AttemptState.RUNNING, AttemptState.STOPPING),
        (AttemptState.UNKNOWN, AttemptState.RUNNING),
        (AttemptState.UNKNOWN, AttemptState.STARTING),
        (AttemptState.UNKNOWN, AttemptState.STOPPING),
        (AttemptState.STOPPING, AttemptState.ENDED),
    }
)

ALLOCATION_TRANSITIONS: Final[frozenset[tuple[AllocationState, AllocationState]]] = frozenset(
    {
        (AllocationState.OPENING, AllocationState.ACTIVE),
        (AllocationState.OPENING, AllocationState.CLOSING),
        (AllocationState.ACTIVE, AllocationState.CLOSING),
        (AllocationState.CLOSING, AllocationState.CLOSED),
    }
)

COMMAND_TRANSITIONS: Final[frozenset[tuple[CommandState, CommandState]]] = frozenset(
    {
        (CommandState.PENDING, CommandState.DONE),
        (CommandState.PENDING, CommandState.REFUSED),
    }
)

PROJECT_TRANSITIONS: Final[frozenset[tuple[ProjectState, ProjectState]]] = frozenset(
    {
        (ProjectState.ACTIVE, ProjectState.ENDING),
        (ProjectState.ENDING, ProjectState.ACTIVE),
        (ProjectState.ENDING, ProjectState.ENDED),
        (ProjectState.ACTIVE, ProjectState.ENDED),
    }
)

# entity name in the database's transition table -> its legal moves
TRANSITIONS: Final[dict[str, frozenset[tuple[StrEnum, StrEnum]]]] = {
    "job": frozenset(JOB_TRANSITIONS),
    "attempt": frozenset(ATTEMPT_TRANSITIONS),
    "allocation": frozenset(ALLOCATION_TRANSITIONS),
    "command": frozenset(COMMAND_TRANSITIONS),
    "project": frozenset(PROJECT_TRANSITIONS),
}

# Environment variables that a job may not set: they choose cards, libraries or our own markers (reliability: a
# container's environment is a privilege boundary).
DENIED_ENVIRONMENT_PREFIXES: Final = ("LD_", "CUDA_", "NVIDIA_", "GPU_COMMONS_", "SLURM_")

COMPUTE_UNITS: Final = 1000  # milli-compute of one card
