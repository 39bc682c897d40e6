"""The queue: which waiting job is looked at first, which hold cards for later, and when each is expected to run.

Pure. Where exactly a job goes is its Ground's choice: the whole fleet (reserving.py), or rows with a number of free
cards (Outlook). Estimates only steer: nothing is ever ended for them.

Reservations are those of EASY (Lifka, "The ANL/IBM SP scheduling system", 1995): a job that can't start is given the
rows that are expected to be free first, and others run there meanwhile only if they don't stand in its way. Small work
goes first (shortest expected work first, as in Hu et al., "Characterization and prediction of deep learning workloads
in large-scale GPU datacenters", SC 2021), and a bound on the wait keeps wide jobs from starving.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import numpy as np

from scheduler.engine.arrays import Bools, Floats, Ints
from scheduler.engine.types import DEFAULT_POLICY

NEVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """What orders the queue of one priority. The name changes whenever what it does changes.

    A job's turn comes `patience` seconds after submission for each card-second it is expected to take: small work goes
    first, and yet nothing is passed over by what comes after its turn. A job that has waited `bound_s` is overdue:
    the overdue come before all others, first come, first served, and each holds a reservation (so many in all).
    Once a job that needs nodes whole has waited `keep_whole_after_s`, no other breaks into an untouched node before it
    is overdue itself. A job runs on cards that are held for later if of the jobs like it such a share (`surely`) ends
    in time."""

    name: str = DEFAULT_POLICY
    patience: float = 0.5
    bound_s: float = 15 * 3600.0
    keep_whole_after_s: float = 6 * 3600.0
    surely: float = 0.92
    reservations: int = 64


POLICIES: Final[Mapping[str, QueuePolicy]] = {policy.name: policy for policy in (QueuePolicy(),)}


@dataclass(frozen=True, slots=True)
class Pending:
    """A waiting job: `cards` on each of `nodes` nodes, of each card the `part` 0 ... 1. `expected_s` is the mean of how
    long it will run, `surely_s` the time within which it will have ended all but surely. Jobs of equal `shape` find
    room in the same places."""

    id: int
    priority: int  # higher first
    submitted_at: float
    nodes: int
    cards: int
    expected_s: float
    surely_s: float
    whole: bool = False  # takes all cards of its nodes, however many
    shape: Hashable = None
    part: float = 1.0
    project: int = 0
    simulated: bool = False
    tier: int = 0  # of its kind (fairness.py): the higher may have the lower stopped
    milli: int = 0  # milli-cards in all


@dataclass(frozen=True, slots=True)
class Running:
    """A job's cards on one row, and when they are expected to be free: by `estimates.even_odds`, since a row is only
    free of all its jobs when the last has ended."""

    job: int
    row: int
    cards: int
    ends_at: float


@dataclass(frozen=True, slots=True)
class Start:
    """When and where a job is expected to start, and the jobs whose ends it waits for."""

    job: int
    at: float
    rows: tuple[int, ...]
    awaits: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Agenda:
    """What one look at the queue came to: ids in the order of the look, what starts now, what holds cards for later."""

    order: tuple[int, ...]
    started: tuple[Start, ...]
    reservations: tuple[Start, ...]


def overdue(job: Pending, at: float, policy: QueuePolicy) -> bool:
    return at - job.submitted_at >= policy.bound_s


def in_order(pending: Iterable[Pending], at: float, policy: QueuePolicy) -> list[Pending]:
    """Priority; then the overdue, first come, first served; then by turn. The same for every order of the input."""

    def key(job: Pending) -> tuple[int, bool, float, float, int]:
        late = overdue(job, at, policy)
        work = job.nodes * job.cards * job.part * job.expected_s
        turn = job.submitted_at + (0.0 if late else policy.patience * work)
        return -job.priority, not late, turn, job.submitted_at, job.id

    return sorted(pending, key=key)


Turns = Callable[[Sequence[Pending]], Iterable[Pending]]  # the queue in order -> each job as its turn comes
Keepers = tuple[Pending, ...]  # whose waiting keeps others out of untouched nodes


class Ground(Protocol):
    """Where the jobs of a queue start at one moment. It is used up by what starts and is held there."""

    @property
    def at(self) -> float: ...

    def start(self, job: Pending, keepers: Keepers) -> Start | None:
        """Start the job now, if it finds room that is neither held nor kept for the keepers."""

    def reserve(self, job: Pending, keepers: Keepers) -> Start | None:
        """Hold the rows that are expected to have room for the job first. None, and nothing is held, where that is of
        no use to it. A row is held for one job at a time."""

    def contested(self, job: Pending) -> bool:
        """Whether any row that could serve the job is held."""

    def later(self) -> tuple[Ground, Mapping[int, int]] | None:
        """The same at the next expected end, nothing held, and by row the job whose end freed it last. None when
        nothing more will end."""


class Step(NamedTuple):
    """What one look came to for one job: it starts, or it waits, with or without a reservation."""

    job: Pending
    start: Start | None
    reserved: Start | None


def walk(pending: Iterable[Pending], ground: Ground, policy: QueuePolicy, turns: Turns | None = None) -> Iterator[Step]:
    """One pass over the queue: what can start starts. `turns` may part the queue among projects (fairness.py).

    Of what can't, the overdue hold reservations, and wide jobs where no other does: only cards of one node come free
    by themselves."""
    queue, held = in_order(pending, ground.at, policy), 0
    waiting_whole = [job for job in queue if _keeps_whole(job, ground.at, policy)]
    keepers = {
        priority: tuple(job for job in waiting_whole if job.priority >= priority)
        for priority in {job.priority for job in queue}
    }
    for job in queue if turns is None else turns(queue):
        late = overdue(job, ground.at, policy)
        kept_for = () if job.whole or late else keepers[job.priority]
        start, reservation = ground.start(job, kept_for), None
        if start is None and held < policy.reservations and (late or (_wide(job) and not ground.contested(job))):
            reservation = ground.reserve(job, kept_for)
            held += reservation is not None
        yield Step(job, start, reservation)


def look(pending: Iterable[Pending], ground: Ground, policy: QueuePolicy) -> Agenda:
    """A whole pass; the ground is brought up to date with all of it."""
    steps = list(walk(pending, ground, policy))
    return Agenda(
        tuple(step.job.id for step in steps),
        tuple(step.start for step in steps if step.start is not None),
        tuple(step.reserved for step in steps if step.reserved is not None),
    )


def forecast(
    pending: Iterable[Pending], ground: Ground, policy: QueuePolicy, *, steps: int = 200, until: int | None = None
) -> dict[int, Start]:
    """When each waiting job is expected to start if nothing else comes: the queue is looked at again at each of the
    next `steps` expected ends, or until this one job starts. Jobs that would start later still are left out. `awaits`
    are the jobs, running now or started before by this forecast, whose ends last freed the rows. The ground is used
    up."""
    waiting = {job.id: job for job in pending}
    found: dict[int, Start] = {}
    freed_by: dict[int, int] = {}
    for then, freed in _ends(ground, steps):
        freed_by.update(freed)
        for start in look(waiting.values(), then, policy).started:
            del waiting[start.job]
            awaits = {freed_by[row] for row in start.rows if row in freed_by}
            found[start.job] = Start(start.job, start.at, start.rows, tuple(sorted(awaits)))
        if not waiting or until in found:
            break
    return found


def _ends(ground: Ground, steps: int) -> Iterator[tuple[Ground, Mapping[int, int]]]:
    """The ground now, and at each of the next expected ends, as its user has left it before."""
    yield ground, {}
    for _ in range(steps):
        step = ground.later()
        if step is None:
            return
        ground = step[0]
        yield step


def _keeps_whole(job: Pending, at: float, policy: QueuePolicy) -> bool:
    return job.whole and at - job.submitted_at >= policy.keep_whole_after_s


def _wide(job: Pending) -> bool:
    return job.whole or job.nodes > 1


class Outlook:
    """A Ground of rows with a number of cards. What is given in is left as it is.

    `size` and `free` (n,): the cards of each row, and those of them that are free at `at`. `choose` takes of the open
    rows (n,) as many as the job has nodes, or none."""

    def __init__(self, at: float, size: Ints, free: Ints, running: Iterable[Running], choose: Choose) -> None:
        self.at, self.choose = at, choose
        self.size, self.free = size, free.copy()
        self.on: list[list[Running]] = [[] for _ in size]
        for one in running:
            self.on[one.row].append(one)
        self.held_from: Floats = np.full(len(size), NEVER)  # when a row's reservation begins
        self.spare: Ints = np.zeros(len(size), dtype=np.int64)  # cards that a held row will have beside its reservation
        self._when: dict[int, Floats] = {}
        self._refused: dict[tuple[Hashable, ...], float] = {}

    def start(self, job: Pending, keepers: Keepers) -> Start | None:
        """Room only shrinks: what was refused before isn't asked for again."""
        like = (job.shape, job.nodes, job.cards, job.whole, bool(keepers))
        if job.surely_s >= self._refused.get(like, NEVER):
            return None
        rooms = self.open_rows(job)
        if keepers:
            rooms &= ~self.untouched
        rows = self.choose(self, job, rooms) if np.count_nonzero(rooms) >= job.nodes else ()
        if not rows:
            self._refused[like] = job.surely_s
            return None
        return self.take(job, rows)

    def open_rows(self, job: Pending) -> Bools:
        """(n,): where the job finds its cards now and stands in no reservation's way."""
        need = self._need(job)
        in_time = self.at + job.surely_s <= self.held_from
        room: Bools = (self.free >= need) & (self.size >= job.cards) & (in_time | (self.spare >= need))
        return room

    @property
    def untouched(self) -> Bools:
        """(n,): rows with cards, none of which is taken."""
        whole: Bools = (self.free == self.size) & (self.size > 0)
        return whole

    def take(self, job: Pending, rows: Sequence[int]) -> Start:
        """The job starts there now."""
        need = self._need(job)
        for row in rows:
            self.free[row] -= need[row]
            if self.at + job.surely_s > self.held_from[row]:
                self.spare[row] -= need[row]
            self.on[row].append(Running(job.id, row, int(need[row]), self.at + job.expected_s))
        self._when.clear()
        return Start(job.id, self.at, tuple(rows), ())

    def contested(self, job: Pending) -> bool:
        return bool(np.any(~np.isinf(self.held_from) & (self.size >= job.cards)))

    def reserve(self, job: Pending, keepers: Keepers) -> Start | None:
        when = np.where(np.isinf(self.held_from), self._free_at(job), NEVER)
        if keepers:
            when = np.where(self.untouched, NEVER, when)
        rows = sorted(np.argsort(when, kind="stable")[: job.nodes].tolist())
        begins, need = float(when[rows].max(initial=self.at)), self._need(job)
        if len(rows) < job.nodes or begins == NEVER:
            return None
        awaits: set[int] = set()
        for row in rows:
            before = [one for one in self.on[row] if one.ends_at <= begins]
            self.held_from[row] = begins
            self.spare[row] = self.free[row] + sum(one.cards for one in before) - need[row]
            awaits.update(one.job for one in before)
        return Start(job.id, begins, tuple(rows), tuple(sorted(awaits)))

    def later(self) -> tuple[Outlook, dict[int, int]] | None:
        at = min((one.ends_at for row in self.on for one in row), default=NEVER)
        if at == NEVER:
            return None
        at = max(at, self.at)
        ended = sorted((one for row in self.on for one in row if one.ends_at <= at), key=_by_end)
        free = self.free.copy()
        for one in ended:
            free[one.row] += one.cards
        left = (one for row in self.on for one in row if one.ends_at > at)
        return Outlook(at, self.size, free, left, self.choose), {one.row: one.job for one in ended}

    def _need(self, job: Pending) -> Ints:
        """(n,): cards of each row that the job takes."""
        return np.maximum(self.size, job.cards) if job.whole else np.full(len(self.size), job.cards)

    def _free_at(self, job: Pending) -> Floats:
        """(n,): when each row is expected to have the job's cards free, whoever else wants them."""
        wanted = -job.cards if job.whole else job.cards
        if wanted not in self._when:
            self._when[wanted] = self._room_at(self._need(job))
        return self._when[wanted]

    def _room_at(self, need: Ints) -> Floats:
        """(n,): when each row is expected to have `need` (n,) cards free."""
        when = np.where(self.free >= need, self.at, NEVER)
        running = [(one.row, one.ends_at, one.cards) for row in self.on for one in sorted(row, key=_by_end)]
        if running:
            row, ends, cards = (np.array(column) for column in zip(*running, strict=True))
            freed = np.cumsum(cards)
            first = np.searchsorted(row, row)  # entry of the same row
            freed -= np.where(first > 0, freed[first - 1], 0)
            enough = self.free[row] + freed >= need[row]
            np.minimum.at(when, row[enough], np.maximum(ends[enough], self.at))
        return when


# The outlook and its open rows (n,) for the job -> as many of them as it has nodes, or none.
Choose = Callable[[Outlook, Pending, Bools], Sequence[int]]


def _by_end(one: Running) -> tuple[float, int]:
    return one.ends_at, one.job
