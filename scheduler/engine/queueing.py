"""The queue: which waiting job is looked at first, which hold cards for later, and when each is expected to run.

Pure. A fleet is rows with free cards, a job a number of cards on a number of nodes; where exactly a job goes is its
caller's choice among the rows that this module leaves open. Estimates only steer: nothing is ever ended for them.

Reservations are those of EASY (Lifka, "The ANL/IBM SP scheduling system", 1995): a job that can't start is given the
rows that are expected to be free first, and others run there meanwhile only if they don't stand in its way. Small work
goes first (shortest expected work first, as in Hu et al., "Characterization and prediction of deep learning workloads
in large-scale GPU datacenters", SC 2021), and a bound on the wait keeps wide jobs from starving.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler.engine.arrays import Bools, Floats, Ints

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

    name: str = "small-first/1"
    patience: float = 0.5
    bound_s: float = 15 * 3600.0
    keep_whole_after_s: float = 6 * 3600.0
    surely: float = 0.92
    reservations: int = 64


@dataclass(frozen=True, slots=True)
class Pending:
    """A waiting job: `cards` on each of `nodes` nodes. `expected_s` is the mean of how long it will run, `surely_s` the
    time within which it will have ended all but surely. Jobs of equal `shape` find room in the same places."""

    id: int
    priority: int  # higher first
    submitted_at: float
    nodes: int
    cards: int
    expected_s: float
    surely_s: float
    whole: bool = False  # takes all cards of its nodes, however many
    shape: Hashable = None


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
        work = job.nodes * job.cards * job.expected_s
        turn = job.submitted_at + (0.0 if late else policy.patience * work)
        return -job.priority, not late, turn, job.submitted_at, job.id

    return sorted(pending, key=key)


class Outlook:
    """Free cards by row now, what is expected to become free, and what is held. What is given in is left as it is.

    `size` and `free` (n,): the cards of each row, and those of them that are free at `at`."""

    def __init__(self, at: float, size: Ints, free: Ints, running: Iterable[Running] = ()) -> None:
        self.at = at
        self.size, self.free = size, free.copy()
        self.on: list[list[Running]] = [[] for _ in size]
        for one in running:
            self.on[one.row].append(one)
        self.held_from: Floats = np.full(len(size), NEVER)  # when a row's reservation begins
        self.spare: Ints = np.zeros(len(size), dtype=np.int64)  # cards that a held row will have beside its reservation
        self._when: dict[int, Floats] = {}

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

    def reserve(self, job: Pending, able: Bools | None = None) -> Start | None:
        """Hold the rows that are expected to have room for the job first. None, and nothing is held, where too few rows
        are `able` to serve it that aren't held already: a row is held for one job at a time."""
        when = np.where(np.isinf(self.held_from), self._free_at(job), NEVER)
        if able is not None:
            when = np.where(able, when, NEVER)
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

    def later(self) -> tuple[Outlook, list[Running]] | None:
        """The same at the next expected end, nothing held, and what has ended by then. None when nothing runs."""
        at = min((one.ends_at for row in self.on for one in row), default=NEVER)
        if at == NEVER:
            return None
        at = max(at, self.at)
        ended = [one for row in self.on for one in row if one.ends_at <= at]
        free = self.free.copy()
        for one in ended:
            free[one.row] += one.cards
        return Outlook(at, self.size, free, (one for row in self.on for one in row if one.ends_at > at)), ended

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


# Of the open rows (n,) as many as the job has nodes, or none.
Choose = Callable[[Outlook, Pending, Bools], Sequence[int]]


def look(pending: Iterable[Pending], outlook: Outlook, policy: QueuePolicy, choose: Choose) -> Agenda:
    """One pass over the queue: what can start starts, on the rows that `choose` takes of those that are open to it.

    Of what can't, the overdue and the first wide job hold reservations: only cards of one node come free by themselves.
    The outlook is brought up to date with all of it."""
    queue = in_order(pending, outlook.at, policy)
    kept_for = max((job.priority for job in queue if _keeps_whole(job, outlook.at, policy)), default=-NEVER)
    started: list[Start] = []
    reserved: list[Start] = []
    refused: dict[tuple[Hashable, ...], float] = {}
    for job in queue:
        late = overdue(job, outlook.at, policy)
        spare_whole = job.priority <= kept_for and not (job.whole or late)
        rows = _room(job, outlook, spare_whole, refused, choose)
        if rows:
            started.append(outlook.take(job, rows))
        elif len(reserved) < policy.reservations and (late or (_wide(job) and not reserved)):
            held = outlook.reserve(job, ~outlook.untouched if spare_whole else None)
            if held is not None:
                reserved.append(held)
    return Agenda(tuple(job.id for job in queue), tuple(started), tuple(reserved))


def forecast(
    pending: Iterable[Pending], outlook: Outlook, policy: QueuePolicy, choose: Choose, steps: int = 200
) -> dict[int, Start]:
    """When each waiting job is expected to start if nothing else comes: the queue is looked at again at each of the
    next `steps` expected ends. Jobs that would start later still are left out. `awaits` are the jobs, running now or
    started before by this forecast, whose ends last freed the rows."""
    waiting = {job.id: job for job in pending}
    found: dict[int, Start] = {}
    freed_by: dict[int, int] = {}
    for then, ended in _ends(outlook, steps):
        freed_by.update((one.row, one.job) for one in sorted(ended, key=_by_end))
        for start in look(waiting.values(), then, policy, choose).started:
            del waiting[start.job]
            awaits = {freed_by[row] for row in start.rows if row in freed_by}
            found[start.job] = Start(start.job, start.at, start.rows, tuple(sorted(awaits)))
        if not waiting:
            break
    return found


def _ends(outlook: Outlook, steps: int) -> Iterator[tuple[Outlook, list[Running]]]:
    """The outlook now, and at each of the next expected ends, as its user has left it before."""
    outlook = Outlook(outlook.at, outlook.size, outlook.free, (one for row in outlook.on for one in row))
    yield outlook, []
    for _ in range(steps):
        step = outlook.later()
        if step is None:
            return
        outlook = step[0]
        yield step


def _room(
    job: Pending, outlook: Outlook, spare_whole: bool, refused: dict[tuple[Hashable, ...], float], choose: Choose
) -> Sequence[int]:
    """Rows for the job, or none. Room only shrinks in a pass: what was refused before isn't asked for again."""
    like = (job.shape, job.nodes, job.cards, job.whole, spare_whole)
    if job.surely_s >= refused.get(like, NEVER):
        return ()
    rooms = outlook.open_rows(job)
    if spare_whole:
        rooms &= ~outlook.untouched
    rows = choose(outlook, job, rooms) if np.count_nonzero(rooms) >= job.nodes else ()
    if not rows:
        refused[like] = job.surely_s
    return rows


def _keeps_whole(job: Pending, at: float, policy: QueuePolicy) -> bool:
    return job.whole and at - job.submitted_at >= policy.keep_whole_after_s


def _wide(job: Pending) -> bool:
    return job.whole or job.nodes > 1


def _by_end(one: Running) -> tuple[float, int]:
    return one.ends_at, one.job
