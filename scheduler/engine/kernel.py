# mypy: disable-error-code="no-any-return"
# NumPy's stubs give Any for comparisons and reductions of arrays, so the declared types are the only ones there are.

"""The inner loops of decisions by prices, one node at a time, for a compiler: what feasible.py, priced.py and cards.py
say for all rows at once with NumPy, to the last bit. Compiled code is kept on disk and only this file is looked at for
changes: what the loops read is laid out by types of this file, numbers of others are handed in, never imported."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from scheduler.engine.arrays import Codes, Floats, Ints, SmallInts
from scheduler.engine.compiling import compiled, inlined

NOTHING: Final = np.iinfo(np.int64).max  # the key of a row that may not be taken
UNDECIDED: Final = -1  # as a set of columns: cards.choose has to look at it
ANY_MODEL: Final = -1
MOST_CARDS: Final = 62  # of a node: sets of columns are bits of one number
MOST_MEMORY: Final = np.iinfo(np.int32).max  # of a card, MiB
FAN: Final = 8  # branches of a tree
# Columns of Slate.rows. Always read, a cache line: what is left, FORM_CODE of what is there or UNTOUCHED, need of all
# cards and what is short of it, rank, and what the wishes cost for one card and for more (not a number: see `wishes`).
CPU, HOST, FORM, NEEDED, SHORT, RANK, ONE, MORE = range(8)
OPENING, USEFUL, FLEXIBLE, FAST, PLAIN, ROW_COLUMNS = 8, 9, 10, 11, 12, 16
# Of Slate.cards: what is free (-1 = no card, or held), its level by prices.py and its largest stretch; what stays.
FREE, COMPUTE, MEMORY, SIZE, LEVEL, GAP, MODEL, BLOCK, ALONE, CARD_COLUMNS = range(10)
# Of Slate.numbers: wishes and what they cost; units; codes of filters; then cards that a milli-core serves and what one
# without costs, hinge by hinge, and the same of a MiB of host memory.
BREAKING, WRONG_LINKS, WITHOUT_CPU, UNITS, POINTS, CONTAINER, MOST = range(7)
OTHER_FORM, CARDS_FREE, MEMORY_FREE, CPU_FREE, HOST_FREE, STANDING, HINGES = range(7, 14)
UNTOUCHED: Final = -1


class Slate(NamedTuple):
    """What the loops read of n nodes with up to c cards; slate.py fills it. Floats hold whole amounts exactly."""

    rows: Floats  # (n, ROW_COLUMNS)
    cards: SmallInts  # (n, CARD_COLUMNS, c)
    tables: Floats  # (2, s, 101) worth and need by prices.py
    numbers: Floats


class Moving(NamedTuple):
    """What a plan uses up of a fleet. (n,) or (c, n)."""

    used_form: Ints  # FORM_CODE
    allocations: Ints
    cpu: Ints  # free
    host_memory: Ints  # free
    memory: Ints  # (c, n) free
    compute: Ints  # (c, n) free
    gap: Ints  # (c, n) the largest stretch of free memory


class Ask(NamedTuple):
    """A container shape, for one node."""

    cards: int
    memory: int  # of each card, 0 = full cards
    compute: int
    cpu: int
    host: int
    model: int  # code or ANY_MODEL
    linked: int  # 1 = Shape.linked


class Log(NamedTuple):
    """Rows that changed, in order."""

    rows: Ints  # as many as there is room for
    length: Ints  # (1,)
    last: Ints  # (n,) the row's last entry, -1 = none
    work: Ints  # (n,) rows to be looked at


class Board(NamedTuple):
    """k shapes and what is known of every row for each. `trees` holds the rows' keys and, level by level, the least
    of each FAN of them; the smaller a key, the better its row. Where nobody asks why rows are refused, `codes` and
    `points` are (k, 0)."""

    asks: Ints  # (k, 7) fields of Ask
    codes: Codes  # (k, n) as in fleet.Answer
    points: Ints  # (k, n)
    trees: Ints  # (k, t)
    levels: Ints  # where each level of a tree begins
    seen: Ints  # (k,) entries of the log that are worked in
    by_rank: Ints  # (n,) rows


@inlined
def level_of(slate: Slate, free: int, compute: int, memory: int) -> int:
    """As prices.parts."""
    return int(min(free * 100.0 / max(memory, 1), compute * 100.0 / slate.numbers[UNITS]))


@inlined
def shortage(slate: Slate, cpu: float, host: float, need: float) -> float:
    """As priced.shortage."""
    lost, last = 0.0, len(slate.numbers) - 2
    for hinge in range(HINGES, last, 2):
        lost += slate.numbers[hinge + 1] * max(need - cpu * slate.numbers[hinge], 0.0)
    return lost + slate.numbers[last + 1] * max(need - host * slate.numbers[last], 0.0)


@inlined
def describe(slate: Slate, row: int) -> None:
    """Work out what follows from what is left of the row."""
    needed, useful = 0.0, 0
    for card in range(slate.cards.shape[2]):
        free, compute = int(slate.cards[row, FREE, card]), int(slate.cards[row, COMPUTE, card])
        if free >= 0:
            level = level_of(slate, free, compute, int(slate.cards[row, MEMORY, card]))
            slate.cards[row, LEVEL, card] = level
            needed += slate.tables[1, slate.cards[row, SIZE, card], level]
            useful += free > 0
    slate.rows[row, NEEDED], slate.rows[row, USEFUL] = needed, useful
    slate.rows[row, SHORT] = shortage(slate, slate.rows[row, CPU], slate.rows[row, HOST], needed)


@inlined
def idle(slate: Slate, ask: Ask, row: int, card: int) -> bool:
    """As Lens.idle."""
    suits = ask.model == ANY_MODEL or slate.cards[row, MODEL, card] == ask.model
    if ask.linked and slate.cards[row, ALONE, card]:
        return False
    memory = slate.cards[row, MEMORY, card]
    whole = slate.cards[row, FREE, card] == memory and slate.cards[row, COMPUTE, card] == slate.numbers[UNITS]
    return suits and whole and memory >= ask.memory


@inlined
def fits(slate: Slate, ask: Ask, row: int, card: int) -> int:
    """2 the card can be given, 1 it is open to the shape but lacks memory now, 0 neither: Lens.fit and Lens.open."""
    if ask.memory == 0:
        return 2 * int(idle(slate, ask, row, card))
    free = slate.cards[row, FREE, card]
    if free <= 0 or slate.cards[row, MEMORY, card] < ask.memory or slate.cards[row, COMPUTE, card] < ask.compute:
        return 0
    if ask.model != ANY_MODEL and slate.cards[row, MODEL, card] != ask.model:
        return 0
    if ask.linked and slate.cards[row, ALONE, card]:
        return 0
    return 2 if free >= ask.memory else 1


@inlined
def judge(slate: Slate, ask: Ask, row: int) -> tuple[int, int]:
    """The code of the first filter of feasible.TAKEN that refuses the row, 0 = none, and the points of score.points."""
    form = slate.rows[row, FORM]
    if form > 0 and form != slate.numbers[CONTAINER]:
        return int(slate.numbers[OTHER_FORM]), 0
    opened, fitting, taken, freed = cheapest(slate, ask, row)
    cpu, host = slate.rows[row, CPU] - ask.cpu, slate.rows[row, HOST] - ask.host
    if opened < ask.cards:
        return int(slate.numbers[CARDS_FREE]), 0
    if fitting < ask.cards:
        return int(slate.numbers[MEMORY_FREE]), 0
    if cpu < 0:
        return int(slate.numbers[CPU_FREE]), 0
    if host < 0:
        return int(slate.numbers[HOST_FREE]), 0
    lost = wishes(slate, ask, row) - slate.rows[row, SHORT]
    lost = lost + taken + shortage(slate, cpu, host, slate.rows[row, NEEDED] - freed)
    if form == UNTOUCHED:
        lost += slate.rows[row, OPENING]
    return 0, -int(np.rint(lost * slate.numbers[POINTS]))


@inlined
def levels_of(slate: Slate, ask: Ask, row: int, card: int) -> tuple[int, int, int]:
    """Size of a card that fits, and its level before and after it is given: where in the tables it stands."""
    size, before, after = slate.cards[row, SIZE, card], slate.cards[row, LEVEL, card], 0
    if ask.memory > 0:
        free, compute = slate.cards[row, FREE, card] - ask.memory, slate.cards[row, COMPUTE, card] - ask.compute
        after = level_of(slate, free, compute, int(slate.cards[row, MEMORY, card]))
    return size, before, after


@inlined
def cheapest(slate: Slate, ask: Ask, row: int) -> tuple[int, int, float, float]:
    """How many cards are open and fit, and what the cards that lose least lose in worth and in need, together. Of
    cards that lose the same the first ones are taken."""
    opened, fitting, chosen, taken, freed = 0, 0, 0, 0.0, 0.0
    for turn in range(ask.cards):
        least, loses, at = np.inf, 0.0, 0
        for card in range(slate.cards.shape[2]):
            fit = fits(slate, ask, row, card)
            if turn == 0:
                opened += fit > 0
                fitting += fit == 2
            if fit == 2 and not chosen >> card & 1:
                size, before, after = levels_of(slate, ask, row, card)
                lost = slate.tables[0, size, before] - slate.tables[0, size, after]
                if lost < least:
                    least, at = lost, card
                    loses = slate.tables[1, size, before] - slate.tables[1, size, after]
        if fitting < ask.cards:
            break
        chosen |= 1 << at
        taken += least
        freed += loses
    return opened, fitting, taken, freed


@inlined
def wishes(slate: Slate, ask: Ask, row: int) -> float:
    """As priced.Wishes.cost."""
    cost = slate.rows[row, MORE if ask.cards > 1 else ONE]
    if np.isnan(cost):  # blocks may be broken here
        fast = slate.rows[row, FAST]
        cost = slate.rows[row, FLEXIBLE] + slate.numbers[BREAKING] * (1.0 - keep_blocks(slate, ask, row))
        cost += slate.numbers[WRONG_LINKS] * (1.0 - (fast if ask.cards > 1 else 1.0 - fast))
    if ask.cards == 0:
        spare = 1.0 - slate.rows[row, USEFUL] / slate.numbers[MOST]
        cost += slate.numbers[WITHOUT_CPU] * (1.0 - spare)
    return cost


@inlined
def keep_blocks(slate: Slate, ask: Ask, row: int) -> float:
    """As score.keep_blocks: the share of the cards asked for that need not break a block whose cards are all idle."""
    count = 0
    for card in range(slate.cards.shape[2]):
        if fits(slate, ask, row, card) == 2:
            block = slate.cards[row, BLOCK, card]
            unbroken = block >= 0
            for other in range(slate.cards.shape[2]):
                if unbroken and slate.cards[row, BLOCK, other] == block:
                    unbroken = idle(slate, ask, row, other)
            count += not unbroken
    return min(count, ask.cards) / ask.cards if ask.cards > 0 else 1.0


@compiled
def choose(slate: Slate, ask: Ask, row: int) -> int:
    """The columns that cards.choose gives a shape that the row can take, as bits; UNDECIDED where that is not plain:
    cards belong together or differ, or memory would come in pieces."""
    if ask.cards == 0:
        return 0
    if not slate.rows[row, PLAIN]:
        return UNDECIDED
    chosen, fitting, least, dearest = 0, 0, np.inf, -np.inf
    for card in range(slate.cards.shape[2]):
        if fits(slate, ask, row, card) < 2:
            continue
        if slate.cards[row, GAP, card] < ask.memory:
            return UNDECIDED
        size, before, after = levels_of(slate, ask, row, card)
        cost = slate.tables[0, size, before] - slate.tables[0, size, after]
        if ask.cards == 1:
            cost = np.rint((cost - 1.0) * slate.numbers[POINTS])
            chosen = 1 << card if cost < least else chosen
        elif fitting < ask.cards:
            chosen |= 1 << card
        fitting += 1
        least, dearest = min(least, cost), max(dearest, cost)
    for card in range(slate.cards.shape[2]):
        if chosen >> card & 1 and ask.memory > 0 and slate.cards[row, GAP, card] < slate.cards[row, FREE, card]:
            return UNDECIDED
    return chosen if ask.cards == 1 or fitting == ask.cards or least == dearest else UNDECIDED


@inlined
def take(slate: Slate, ask: Ask, row: int, columns: int) -> None:
    """As Fleet.take, for cards whose free memory is in one piece."""
    slate.rows[row, FORM] = slate.numbers[CONTAINER]
    slate.rows[row, CPU] -= ask.cpu
    slate.rows[row, HOST] -= ask.host
    for card in range(slate.cards.shape[2]):
        if columns >> card & 1:
            memory = ask.memory if ask.memory > 0 else slate.cards[row, MEMORY, card]
            slate.cards[row, FREE, card] -= memory
            slate.cards[row, COMPUTE, card] -= ask.compute
            slate.cards[row, GAP, card] -= memory
    describe(slate, row)


@inlined
def ask_of(asks: Ints, n: int) -> Ask:
    return Ask(asks[n, 0], asks[n, 1], asks[n, 2], asks[n, 3], asks[n, 4], asks[n, 5], asks[n, 6])


@inlined
def set_key(tree: Ints, levels: Ints, row: int, key: int) -> None:
    """Change the key of a row, and the least of its branches as far up as that changes anything."""
    at, was, now = row, tree[row], key
    tree[row] = now
    for level in range(1, len(levels)):
        branch = at // FAN
        above = levels[level] + branch
        least = tree[above]
        if now > least and was > least:
            return
        if now > least:  # the least of them has grown
            first = levels[level - 1] + branch * FAN
            for other in range(first, first + FAN):
                now = min(now, tree[other])
        if now == least:
            return
        tree[above] = now
        at, was = branch, least


@compiled
def catch_up(slate: Slate, log: Log, board: Board, number: int) -> None:
    """Work the changes since the shape was last asked for into what is known of it. A plan only takes: a row that is
    refused stays so, and is looked at again only where its code is kept and may change."""
    ask = ask_of(board.asks, number)
    codes, points, tree, rows = board.codes[number], board.points[number], board.trees[number], slate.rows
    kept, count = len(codes) > 0, 0
    for entry in range(board.seen[number], log.length[0]):  # first which rows, so that memory is fetched side by side
        row = log.rows[entry]
        if log.last[row] == entry and not (0 < codes[row] <= slate.numbers[STANDING] if kept else tree[row] == NOTHING):
            log.work[count] = row
            count += 1
    for row in log.work[:count]:
        key = NOTHING
        if kept or (rows[row, CPU] >= ask.cpu and rows[row, HOST] >= ask.host):
            code, found = judge(slate, ask, row)
            key = int(rows[row, RANK]) - found * len(rows) if code == 0 else NOTHING
            if kept:
                codes[row], points[row] = code, found
        if key != tree[row]:
            set_key(tree, board.levels, row, key)
    board.seen[number] = log.length[0]


@compiled
def place(
    slate: Slate, now: Moving, log: Log, board: Board, wanted: Ints, halt: bool, start: int, row: Ints, columns: Ints,
    points: Ints,
) -> int:  # fmt: skip
    """Decide requests for the shapes `wanted` (m,) from number `start` on, each before the next; the others (m,) are as
    in batch.Decided. Returns m, or the number of one whose cards cards.choose must choose, or one refused (`halt`)."""
    rows, logged, number = len(board.by_rank), log.length[0], start
    while number < len(wanted):
        shape = wanted[number]
        if not 0 <= shape < len(board.asks):
            raise IndexError("there is no shape of that number")
        ask = ask_of(board.asks, shape)
        catch_up(slate, log, board, shape)
        key = board.trees[shape, board.levels[-1]]
        row[number], columns[number], points[number] = -1, 0, 0
        if key == NOTHING and halt:
            break
        if key != NOTHING:
            best = board.by_rank[key % rows]
            row[number], columns[number], points[number] = best, choose(slate, ask, best), -(key // rows)
            if columns[number] == UNDECIDED:
                break
            take(slate, ask, best, columns[number])
            log.rows[log.length[0]], log.last[best] = best, log.length[0]
            log.length[0] += 1
        number += 1
    hand_back(slate, now, log, logged)
    return number


@inlined
def hand_back(slate: Slate, now: Moving, log: Log, logged: int) -> None:
    """Write into the fleet what was taken since the log had that length."""
    for entry in range(logged, log.length[0]):
        row = log.rows[entry]
        now.allocations[row] += 1
        if log.last[row] == entry:
            now.used_form[row] = int(slate.rows[row, FORM])
            now.cpu[row], now.host_memory[row] = int(slate.rows[row, CPU]), int(slate.rows[row, HOST])
            for card in range(slate.cards.shape[2]):
                if slate.cards[row, FREE, card] >= 0:
                    now.memory[card, row] = slate.cards[row, FREE, card]
                    now.compute[card, row] = slate.cards[row, COMPUTE, card]
                    now.gap[card, row] = slate.cards[row, GAP, card]


@compiled
def best(board: Board, number: int, found: Ints) -> int:
    """Write the best rows for a shape, best first, and return how many there are: as many as asked for, or all."""
    tree, levels, rows, count = board.trees[number], board.levels, len(board.by_rank), 0
    while count < len(found) and tree[-1] != NOTHING:  # take the best out, look again, and put all back
        found[count] = tree[-1]
        set_key(tree, levels, board.by_rank[found[count] % rows], NOTHING)
        count += 1
    for each in range(count):
        key = found[each]
        found[each] = board.by_rank[key % rows]
        set_key(tree, levels, found[each], key)
    return count


@compiled
def bring(slate: Slate, now: Moving, changed: Ints) -> None:
    """Take over what is left of these rows from the fleet."""
    rows, cards = slate.rows, slate.cards
    for row in changed:
        rows[row, CPU], rows[row, HOST] = now.cpu[row], now.host_memory[row]
        touched = now.used_form[row] != 0 or now.allocations[row] > 0
        rows[row, FORM] = now.used_form[row] if touched else UNTOUCHED
        for card in range(cards.shape[2]):
            if cards[row, FREE, card] >= 0:
                cards[row, FREE, card] = now.memory[card, row]
                cards[row, COMPUTE, card] = now.compute[card, row]
                cards[row, GAP, card] = now.gap[card, row]
        describe(slate, row)
