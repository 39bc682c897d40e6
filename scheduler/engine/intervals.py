"""Half-open integer intervals [lo, hi): the free gaps of a card and what to take from them. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Iterable

Interval = tuple[int, int]
Intervals = tuple[Interval, ...]


def merged(intervals: Iterable[Interval]) -> Intervals:
    """Sorted, disjoint, touching neighbours joined, empty ones dropped."""
    out: list[Interval] = []
    for lo, hi in sorted(intervals):
        if lo >= hi:
            continue
        if out and lo <= out[-1][1]:
            out[-1] = (out[-1][0], max(hi, out[-1][1]))
        else:
            out.append((lo, hi))
    return tuple(out)


def length(intervals: Iterable[Interval]) -> int:
    return sum(hi - lo for lo, hi in intervals)


def gaps(busy: Iterable[Interval], size: int) -> Intervals:
    """What `busy` leaves of [0, size)."""
    out: list[Interval] = []
    at = 0
    for lo, hi in merged(busy):
        if min(lo, size) > at:
            out.append((at, min(lo, size)))
        at = max(at, hi)
    if at < size:
        out.append((at, size))
    return tuple(out)


def minus(busy: Intervals, gone: Intervals, size: int) -> Intervals:
    """What is left of `busy` within [0, size)."""
    return gaps(gaps(busy, size) + gone, size)


def best_fit(free: Intervals, amount: int) -> Intervals:
    """The low end of the smallest gap that holds `amount`; without one, as few pieces as possible. 0 takes none."""
    if amount <= 0:
        return ()
    one = [gap for gap in free if gap[1] - gap[0] >= amount]
    if one:
        lo, _ = min(one, key=lambda gap: (gap[1] - gap[0], gap[0]))
        return ((lo, lo + amount),)
    return _collect(sorted(free, key=lambda gap: (gap[0] - gap[1], gap[0])), amount)


def lowest_fit(free: Intervals, amount: int) -> Intervals:
    """The lowest gap that holds `amount`; without one, pieces from the bottom up. 0 takes none."""
    if amount <= 0:
        return ()
    for lo, hi in free:
        if hi - lo >= amount:
            return ((lo, lo + amount),)
    return _collect(list(free), amount)


def _collect(ordered: list[Interval], amount: int) -> Intervals:
    pieces: list[Interval] = []
    for lo, hi in ordered:
        take = min(hi - lo, amount)
        if take <= 0:
            break
        pieces.append((lo, lo + take))
        amount -= take
    if amount > 0:
        raise ValueError(f"{amount} more asked for than is free")
    return tuple(sorted(pieces))
