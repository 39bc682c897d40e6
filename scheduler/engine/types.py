"""What goes into the engine and what comes out. Frozen plain data, so that a snapshot can be written to a file.

Units: MiB, milli-cores, milli-compute (1000 = one card), seconds since the Unix epoch for instants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ledger.vocabulary import AskForm, Distance, Form, Interconnect, JobKind, Refusal, Span

DEFAULT_RULE: Final = "least-loss/1"  # of score.py
DEFAULT_POLICY: Final = "small-first/1"  # of queueing.py
NO_MODELS: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class CardView:
    """One card in its seat. `busy` are the taken memory intervals [lo, hi) in MiB, sorted and disjoint."""

    id: int
    seat_id: int
    uuid: str
    slot: int
    block_id: int | None  # id of the Block it belongs to, None when its node is not cut
    model: str
    memory_mib: int
    held: bool = False
    busy: tuple[tuple[int, int], ...] = ()
    compute_busy: tuple[tuple[int, int], ...] = ()  # [lo, hi) of 0..1000
    alone: bool = False  # only for work on this one card; for all else it is as held


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node as the book sees it now. `used_form` is None while no allocation (not even a closing one) is on it."""

    id: int
    hostname: str
    simulated: bool
    up: bool
    held: bool
    zone_id: int | None
    zone_forms: frozenset[Form]  # empty when the node is in no zone
    managers: Mapping[str, str]  # form -> driver name
    site: str
    room: str
    rack: str
    leaf: str
    interconnect: Interconnect  # of its cards
    labels: frozenset[str]
    cpu_milli: int
    host_memory_mib: int
    cpu_milli_used: int
    host_memory_mib_used: int
    used_form: Form | None
    allocations: int  # live ones
    cards: tuple[CardView, ...]
    links: tuple[tuple[int, int, int], ...] = ()  # (card id, card id, Gbit/s)


@dataclass(frozen=True, slots=True)
class Ask:
    """One acceptable way to run; a job lists them in order of preference.

    WHOLE: `cards_per_node` and `memory_mib` are lower bounds on the node (0 = any), all its cards are given.
    BLOCK: `cards_per_node` cards that are whole blocks. CONTAINER: `memory_mib` on each of `cards_per_node` distinct
    cards; 0 MiB means the whole card. AUTO: whichever form is ready first. Counts only from `after_s` seconds after
    the job was submitted.
    """

    form: AskForm
    nodes: int = 1
    cards_per_node: int = 1
    memory_mib: int = 0
    after_s: int = 0
    model: str = ""  # "" = any
    compute_milli: int = 0  # of each card; 0 = best effort (or the whole card with WHOLE and BLOCK)


@dataclass(frozen=True, slots=True)
class Likeness:
    """What a placement must have to be comparable with an earlier one: nodes of that class of hardware (hardware.py),
    so many, and as near to each other, neither nearer nor farther: the job's own `distance` does not count then."""

    hardware: str
    nodes: int
    span: Span


@dataclass(frozen=True, slots=True)
class JobView:
    id: int
    project_id: int
    asks: tuple[Ask, ...]
    cpu_milli: int  # per node
    host_memory_mib: int  # per node
    interconnect: Interconnect
    distance: Distance
    labels: frozenset[str]  # the node must carry all of them
    priority: int  # higher first
    submitted_at: float
    simulated: bool
    key_work: bool = False  # may enter headroom
    over_quota: bool = False  # the project has no quota left for it (worked out outside, shown as a refusal)
    reproducible: bool = False  # whole machines of one class of hardware
    like: Likeness | None = None  # of a reproducible job: it must be placed like that
    warm: frozenset[int] = frozenset()  # ids of nodes that likely have its data in their own cache
    expected_s: float = 0.0  # mean of how long it will run; 0 = nothing is known, then it goes by its submission
    surely_s: float | None = None  # within that time it will all but surely have ended; None = nothing is known
    kind: JobKind = JobKind.OTHER
    zones: frozenset[int] = frozenset()  # the only zones that it may be placed in; empty = any
    no_room: frozenset[tuple[int, str]] = frozenset()  # asks by number and models of card; see `shut`

    def shut(self, ask: Ask) -> frozenset[str]:
        """Models of card of which the project has too little left for this ask; "" = wherever it is placed."""
        if not self.no_room:
            return NO_MODELS
        return frozenset(model for number, model in self.no_room if self.asks[number : number + 1] == (ask,))

    def counts(self, ask: Ask, at: float) -> bool:
        """Whether the time of this ask has come and something is left for it."""
        return at >= self.submitted_at + ask.after_s and not self.is_over(ask)

    def is_over(self, ask: Ask) -> bool:
        return self.over_quota or (bool(self.no_room) and "" in self.shut(ask))


@dataclass(frozen=True, slots=True)
class Reserve:
    """Headroom kept free in a (zone, model) cell, in MiB."""

    zone_id: int
    model: str
    mib: int


@dataclass(frozen=True, slots=True)
class Stay:
    """An open allocation and when it is expected to be gone, its node clean. `cards` are (card id, taken memory, taken
    compute), intervals as in CardView."""

    job_id: int
    node_id: int
    form: Form
    ends_at: float
    cpu_milli: int
    host_memory_mib: int
    cards: tuple[tuple[int, tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Demand:
    """One shape of request for one node and how often it came: what the prices of a rule go by."""

    simulated: bool
    form: AskForm
    cards: int
    memory_mib: int  # of each card; 0 = the whole card
    cpu_milli: int
    host_memory_mib: int
    count: float


@dataclass(frozen=True, slots=True)
class Standing:
    """What a project may count on in one of the two worlds, in milli-cards: `guaranteed` is its own, and of what nobody
    uses it is lent a part by `weight`, at most `limit` in all (None = no limit). `held`: what it holds now, without
    what is closing. `usage`: milli-card-seconds so far, the older the less they count. `serving`: of `held`, what
    inference holds, which stands on the guarantee first."""

    project_id: int
    simulated: bool
    guaranteed: int = 0
    limit: int | None = None
    weight: int = 1
    held: int = 0
    usage: int = 0
    serving: int = 0


@dataclass(frozen=True, slots=True)
class Tenant:
    """A live attempt, which goes as a whole. `since`: when its work began, as nothing is known of its checkpoints;
    before `safe_until` it is not stopped for others. `closing`: it is being stopped already."""

    attempt_id: int
    job_id: int
    project_id: int
    simulated: bool
    kind: JobKind
    priority: int
    preemptible: bool
    since: float
    safe_until: float
    closing: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """Nodes that are kept for a waiting job until a time, because others were stopped for it: what still has to go of
    them, `awaits`, is expected to be gone at `begins_at`."""

    job_id: int
    ask_index: int
    form: Form
    node_ids: tuple[int, ...]
    begins_at: float
    until: float
    awaits: tuple[int, ...] = ()  # jobs


@dataclass(frozen=True, slots=True)
class Snapshot:
    at: float
    seed: int
    nodes: tuple[NodeView, ...]
    jobs: tuple[JobView, ...]
    reserves: tuple[Reserve, ...] = ()
    rule: str = DEFAULT_RULE  # name and version of the scoring rule
    demand: tuple[Demand, ...] = ()  # what came so far; empty = nothing is known of it
    workload: int | None = None  # version of `demand`
    policy: str = DEFAULT_POLICY  # name and version of what orders the queue
    stays: tuple[Stay, ...] = ()  # what is on the nodes; what isn't told here is not expected to end
    standings: tuple[Standing, ...] = ()  # empty = nobody is guaranteed anything: the queue goes by the policy alone
    tenants: tuple[Tenant, ...] = ()  # who might be stopped for others, and who is being stopped
    claims: tuple[Claim, ...] = ()  # in the order in which they were made


@dataclass(frozen=True, slots=True)
class SharePlan:
    card_id: int
    seat_id: int
    block_id: int | None
    memory: tuple[tuple[int, int], ...]  # [lo, hi) MiB intervals, sorted, disjoint, not empty
    compute: tuple[tuple[int, int], ...] = ()  # [lo, hi) of 0..1000; empty = best effort


@dataclass(frozen=True, slots=True)
class MemberPlan:
    node_id: int
    form: Form
    driver: str
    cpu_milli: int
    host_memory_mib: int
    shares: tuple[SharePlan, ...]
    score: float = 0.0


@dataclass(frozen=True, slots=True)
class Warmth:
    """Nodes of a placement that came first because they likely have the data, by which policy, and how much score was
    given up for that at most."""

    policy: str
    nodes: tuple[int, ...]
    gave_up: float


@dataclass(frozen=True, slots=True)
class Placement:
    job_id: int
    ask_index: int
    members: tuple[MemberPlan, ...]  # one a node; all or none
    refusals: Mapping[Refusal, int] = field(default_factory=dict)  # nodes refused, by reason, for the chosen ask
    scores: tuple[tuple[int, float], ...] = ()  # the best few (node id, score)
    warm: Warmth | None = None  # where members stand on nodes that likely have the job's data


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a job was not placed. `never` is True when no state of this fleet could serve any of its asks."""

    job_id: int
    by_ask: tuple[Mapping[Refusal, int], ...]  # one a job's ask, nodes refused by reason
    never: bool = False
    next_ask_in_s: float | None = None  # when a later ask will begin to count


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes that are kept for a waiting job, one a member, from when it is expected to start there on this ask; until
    then others run there if they will have ended. `awaits` are the jobs whose ends it waits for."""

    job_id: int
    ask_index: int
    begins_at: float
    node_ids: tuple[int, ...]
    awaits: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """`order` are the jobs in the order of the queue, and so stand the others."""

    rule: str
    placements: tuple[Placement, ...]
    waiting: tuple[Waiting, ...]
    reservations: tuple[Reservation, ...] = ()
    order: tuple[int, ...] = ()


Scores = Sequence[tuple[int, float]]
