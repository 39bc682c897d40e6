"""What the list of processes of one card says: what a share holds, and who belongs to no allocation. Pure: no database,
no clock. The list comes from an agent as it is, so every part of it may be missing or nonsense."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

MOST_MIB: Final = 1 << 20
MOST_SUM: Final = (1 << 31) - 1  # of all its processes, however many a report makes up
MOST_STRAYS: Final = 50  # told of one card
LONGEST_NAME: Final = 60
KEY: Final = re.compile(r"a[0-9]{1,18}", re.ASCII)  # as Allocation.key
CERTAIN: Final = 2  # samples in a row from which on something counts


@dataclass(frozen=True, slots=True)
class Use:
    """What the processes of one member hold on a card. `complete` False: some of them don't tell."""

    mib: int
    complete: bool


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a card while its processes are looked at."""

    live: Collection[str] = ()  # the members that hold a share of it
    just_closed: Collection[str] = ()  # closed so short before the sample that it may be older
    taken_whole: bool = False  # by one allocation, whose own a process without a name then is
    under_test: bool = False  # the agent was asked to test it
    system: Sequence[str] = ()  # names of processes that belong to the machine, with * and ?


def with_keys(processes: Sequence[Any], instance: str) -> list[Any]:
    """The same with the keys of their allocations as members. `instance`: of this portal's local driver; its members
    are called by it and the key. Those of other portals keep their names, and are nobody's here."""
    return [p | {"member": _key(_text(p, "member"), instance)} if isinstance(p, dict) else p for p in processes]


def _key(member: str, instance: str) -> str:
    prefix, dash, key = member.rpartition("-")
    return key if dash and prefix == instance and KEY.fullmatch(key) else member


def use_of(processes: Sequence[Any], member: str) -> Use:
    amounts = [_mib(process) for process in processes if _text(process, "member") == member]
    return Use(min(sum(amount for amount in amounts if amount is not None), MOST_SUM), None not in amounts)


def above(use: Use, promised_mib: int, tolerance_mib: int) -> bool | None:
    """None: it can't be told, because some processes don't tell and the others alone are not above."""
    if use.mib > promised_mib + tolerance_mib:
        return True
    return False if use.complete else None


def counted(before: int, is_above: bool | None) -> int:
    """Samples in a row above the promise; a sample that does not tell changes nothing."""
    if is_above is None:
        return before
    return min(before + 1, 30_000) if is_above else 0


def strays(processes: Sequence[Any], known: Known) -> list[dict[str, Any]]:
    """The processes that belong to no allocation. `sure`: of a member that is over; without a name it may also be one
    that has only just begun, so it takes two samples in a row."""
    found = []
    for process in processes:
        member = _text(process, "member")
        if member in known.live or member in known.just_closed or (not member and _explained(process, known)):
            continue
        name = _text(process, "name")[:LONGEST_NAME]
        pid = process.get("pid") if isinstance(process, Mapping) else None
        pid = pid if isinstance(pid, int) and not isinstance(pid, bool) and 0 <= pid < 2**31 else None
        told = {"pid": pid, "member": member[:LONGEST_NAME], "name": name, "memory_mib": _mib(process)}
        found.append(told | {"sure": bool(member)})
    return found[:MOST_STRAYS]


def _explained(process: Any, known: Known) -> bool:
    name = _text(process, "name").rpartition("/")[2]
    return known.taken_whole or known.under_test or any(fnmatchcase(name, p) for p in known.system)


def alarming(found: Sequence[Mapping[str, Any]], seen: int) -> bool:
    return bool(found) and (seen >= CERTAIN or any(stray.get("sure") for stray in found))


def named(found: Sequence[Mapping[str, Any]]) -> str:
    """The first few in words: pid, name and member."""
    parts = [f"{s['pid'] or '?'} {s['name'] or '?'}{' of ' + s['member'] if s['member'] else ''}" for s in found[:5]]
    return ", ".join(parts) + (f" and {len(found) - 5} more" if len(found) > 5 else "")


def _text(process: Any, name: str) -> str:
    value = process.get(name) if isinstance(process, Mapping) else None
    return "".join(c if c.isprintable() else "?" for c in value[:300]) if isinstance(value, str) else ""


def _mib(process: Any) -> int | None:
    value = process.get("memory_mib") if isinstance(process, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_MIB else None
