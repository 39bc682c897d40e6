"""What a health policy says about a fault. Pure: no clock, no database.

Times are seconds since the Unix epoch. A rule names a kind and a code; a code that no rule names is asked about, never
guessed. An incident is what begins where nothing is being done about the place yet: the hundred further messages of one
bad card are not a hundred repeats.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ledger.vocabulary import FaultKind, HealthAction, Need

SEVERITY: Final = tuple(HealthAction)  # the mildest first
UNCHANGED: Final = frozenset({HealthAction.LOG, HealthAction.WATCH})  # nothing is taken out
OF_NODES: Final = frozenset({HealthAction.REBOOT, HealthAction.HOLD_NODE})  # the whole node is taken out
ENDS_JOBS: Final = frozenset(
    {
        HealthAction.RESTART_JOB,
        HealthAction.DRAIN_NOW,
        HealthAction.RESET,
        HealthAction.REBOOT,
        HealthAction.HOLD_NODE,
        HealthAction.RMA,
    }
)
ALWAYS_BY_HAND: Final = frozenset({HealthAction.ASK, HealthAction.HOLD_NODE, HealthAction.RMA, HealthAction.NO_GANG})
NEEDS: Final[Mapping[HealthAction, Need]] = {
    HealthAction.NO_GANG: Need.INSPECTION,
    HealthAction.DRAIN_SOFT: Need.RESET,
    HealthAction.RESTART_JOB: Need.RESET,
    HealthAction.ASK: Need.INSPECTION,
    HealthAction.DRAIN_NOW: Need.RESET,
    HealthAction.RESET: Need.RESET,
    HealthAction.REBOOT: Need.REBOOT,
    HealthAction.HOLD_NODE: Need.INSPECTION,
    HealthAction.RMA: Need.REPLACEMENT,
}
# of a card: what is a state of a node alone has no such faults
OF_CARDS: Final = frozenset(FaultKind) - {FaultKind.CLOCK, FaultKind.STORAGE, FaultKind.SILENT, FaultKind.MISSING}
RECOVERY_CHANGED: Final = 154  # an XID that tells what the driver itself wants next
RECOVERIES: Final[Mapping[str, HealthAction]] = {
    "none": HealthAction.LOG,
    "gpu reset required": HealthAction.RESET,
    "node reboot required": HealthAction.REBOOT,
    "drain p2p": HealthAction.NO_GANG,
    "drain and reset": HealthAction.DRAIN_SOFT,
}
RECOVERY_TO: Final = re.compile(r"\bto 0x[0-9a-f]+ \(([^)]{1,40})\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Rule:
    kind: FaultKind
    code: int | None
    action: HealthAction
    then: HealthAction | None = None
    repeats: int = 0
    window_s: int = 0
    by_users: bool = False
    by_hand: bool = False
    note: str = ""

    @property
    def name(self) -> str:
        return name_of(self.kind, self.code)


@dataclass(frozen=True)
class Policy:
    """One version. `number` 0 is the portal's own table."""

    number: int
    site: str
    rules: tuple[Rule, ...]
    inspect_after: int
    inspect_window_s: int
    by_code: Mapping[tuple[str, int | None], Rule] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_code", {(str(rule.kind), rule.code): rule for rule in self.rules})

    @property
    def longest_s(self) -> int:
        """How far back it ever looks."""
        return max((self.inspect_window_s, *(rule.window_s for rule in self.rules)))


@dataclass(frozen=True, slots=True)
class Past:
    """An earlier count on the same node. `place`: the card's id, None for the node itself."""

    at: float
    kind: str
    code: int | None
    action: HealthAction
    began: bool
    users: frozenset[int] = frozenset()
    place: int | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """`rule` names the rule; `why` is one English sentence with the numbers that decided. `began`: an incident."""

    action: HealthAction
    rule: str
    escalated: bool
    by_hand: bool
    why: str
    began: bool


@dataclass(frozen=True, slots=True)
class Seen:
    """What was just counted. `in_hand`: the worst that is being done already about its card or node; `message` is read
    for what XID 154 asks for."""

    kind: FaultKind
    code: int | None
    at: float
    in_hand: HealthAction | None = None
    users: frozenset[int] = frozenset()
    message: str = ""
    place: int | None = None  # as in Past


def name_of(kind: str, code: int | None) -> str:
    return kind if code is None else f"{kind} {code}"


def decide(policy: Policy, seen: Seen, past: Iterable[Past] = ()) -> Decision:
    """What is done about a fault that was just counted, after what was counted before it."""
    rule = policy.by_code.get((str(seen.kind), seen.code)) or policy.by_code.get((str(seen.kind), None))
    name = name_of(seen.kind, seen.code)
    if rule is None:
        began = _begins(seen, HealthAction.ASK)
        return Decision(HealthAction.ASK, name, False, True, f"no rule says what {name} means", began)
    before = [one for one in past if one.at <= seen.at]
    action, escalated, why = _by_rule(rule, seen, before)
    began = _begins(seen, action)
    if action is HealthAction.REBOOT:
        reboots = _reboots(before, seen, policy.inspect_window_s) - (not began)
        if reboots >= policy.inspect_after:
            action, escalated = HealthAction.HOLD_NODE, True
            why = f"{why}; {reboots} reboots of the node within {told(policy.inspect_window_s)} did not help"
    by_hand = rule.by_hand or action in ALWAYS_BY_HAND
    return Decision(action, rule.name, escalated, by_hand, why, began)


def _by_rule(rule: Rule, seen: Seen, before: Sequence[Past]) -> tuple[HealthAction, bool, str]:
    asked = recovery(seen)
    if asked is not None:
        return asked, False, f"{rule.name}: the driver asks for it"
    if rule.then is None:
        return rule.action, False, f"{rule.name} means {rule.action}"
    count, of = repeats(rule, seen, before)
    if count >= rule.repeats:
        return rule.then, True, f"{rule.name}: {count} {of} within {told(rule.window_s)}, of {rule.repeats}"
    return rule.action, False, f"{rule.name} means {rule.action}: {count} of {rule.repeats} {of}"


def recovery(seen: Seen) -> HealthAction | None:
    """What the driver says it needs next, told by XID 154."""
    if seen.kind != FaultKind.XID or seen.code != RECOVERY_CHANGED:
        return None
    found = RECOVERY_TO.search(seen.message)
    return RECOVERIES.get(found[1].strip().lower()) if found else None


def repeats(rule: Rule, seen: Seen, before: Iterable[Past]) -> tuple[int, str]:
    """How many times it came within the rule's window, with this one, and of what."""
    same = seen.kind, seen.code, seen.place
    alike = [one for one in before if (one.kind, one.code, one.place) == same and seen.at - one.at <= rule.window_s]
    if rule.by_users:
        return len(seen.users.union(*(one.users for one in alike))), "different users"
    if rule.action in UNCHANGED:
        return len(alike) + 1, "times"
    return sum(one.began for one in alike) + _begins(seen, rule.action), "incidents"


def _begins(seen: Seen, action: HealthAction) -> bool:
    return seen.in_hand is None or SEVERITY.index(seen.in_hand) < SEVERITY.index(action)


def _reboots(before: Iterable[Past], seen: Seen, window_s: int) -> int:
    return sum(one.began and one.action is HealthAction.REBOOT and seen.at - one.at <= window_s for one in before)


def need_of(action: HealthAction, kind: FaultKind, *, on_card: bool) -> Need:
    """What a place needs before its test. A card that nobody can name can't be reset: its node is rebooted."""
    need = NEEDS[action]
    if need is Need.RESET and not on_card:
        return Need.REBOOT if kind in OF_CARDS else Need.NOTHING
    return need


def told(seconds: int) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds % size == 0 and seconds:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
