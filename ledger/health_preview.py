"""What another health policy would have done about the faults of the last weeks: each is decided anew, in order, by
what was counted and by whose work was on the card. Reads only.

How long each place was out then, and what was done about it, is not known of another policy: what comes within an hour
of an incident on a place is taken to belong to it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from django.db import connection

from ledger import health_policy
from ledger.health_rules import ENDS_JOBS, OF_NODES, SEVERITY, UNCHANGED, Decision, Past, Policy, Seen, decide
from ledger.models import HealthVersion
from ledger.vocabulary import FaultKind, HealthAction

MOST: Final = 5_000  # faults that are looked at, the newest
MOST_PAST: Final = 500  # earlier counts of a node that a decision looks at
MOST_SHOWN: Final = 20
INCIDENT_S: Final = 3_600.0
# each counted event; of faults that came without events, their beginning
COUNTED: Final = """
WITH counted AS (
  SELECT f.id, f.kind, f.code, f.message, f.node_id, f.card_id, e.at
  FROM ledger_faultevent e JOIN ledger_fault f ON f.id = e.fault_id
  UNION ALL
  SELECT f.id, f.kind, f.code, f.message, f.node_id, f.card_id, f.first_seen FROM ledger_fault f
  WHERE NOT EXISTS (SELECT FROM ledger_faultevent e WHERE e.fault_id = f.id)
)
SELECT c.id, c.kind, c.code, c.message, c.node_id, c.card_id, extract(epoch FROM c.at)::float8, n.hostname, k.uuid,
  coalesce(on_it.users, '{}'), coalesce(on_it.attempts, '{}')
FROM counted c JOIN ledger_node n ON n.id = c.node_id LEFT JOIN ledger_card k ON k.id = c.card_id
LEFT JOIN LATERAL (SELECT array_agg(DISTINCT j.by_id) FILTER (WHERE j.by_id IS NOT NULL) AS users,
    array_agg(DISTINCT t.id) AS attempts
  FROM ledger_cardshare s JOIN ledger_allocation a ON a.id = s.allocation_id
    JOIN ledger_attempt t ON t.id = a.attempt_id JOIN ledger_job j ON j.id = t.job_id
  WHERE s.card_id = c.card_id AND s.period @> c.at AND (a.closing_at IS NULL OR a.closing_at > c.at)) AS on_it ON true
WHERE c.at > clock_timestamp() - make_interval(days => %(days)s)
  AND CASE WHEN %(site)s = '' THEN NOT n.site = ANY (%(own)s) ELSE n.site = %(site)s END
ORDER BY c.at DESC, c.id LIMIT %(most)s
"""


@dataclass(frozen=True, slots=True)
class Counted:
    """One count of a fault. `users`, `attempts`: whose work was on the card then."""

    fault_id: int
    kind: str
    code: int | None
    message: str
    node_id: int
    card_id: int | None
    at: float
    hostname: str
    uuid: str | None
    users: frozenset[int]
    attempts: frozenset[int]


@dataclass
class Outcome:
    """What one policy does about all of it: how often each action, and what it takes out and ends."""

    decisions: list[Decision] = field(default_factory=list)
    actions: Counter[HealthAction] = field(default_factory=Counter)
    cards: set[int] = field(default_factory=set)
    links: set[int] = field(default_factory=set)
    nodes: set[int] = field(default_factory=set)
    attempts: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Effect:
    """`examples`: the newest that would be answered otherwise, with what is done before and after."""

    faults: int
    cut_off: bool
    before: Outcome
    after: Outcome
    changed: int
    examples: Sequence[tuple[Counted, Decision, Decision]]


def effect(before: Policy, after: Policy, *, site: str, days: int) -> Effect:
    """Of the nodes that the policy of this site is about."""
    found = counted(site, days)
    some = sorted(found[:MOST], key=lambda one: (one.at, one.fault_id))
    old, new = replay(before, some), replay(after, some)
    other = [
        (one, was, now)
        for one, was, now in zip(some, old.decisions, new.decisions, strict=True)
        if (was.action, was.by_hand) != (now.action, now.by_hand)
    ]
    return Effect(len(some), len(found) > MOST, old, new, len(other), other[: -MOST_SHOWN - 1 : -1])


def counted(site: str, days: int) -> list[Counted]:
    """The newest first; one more than MOST where there are more."""
    own = HealthVersion.objects.filter(period__upper_inf=True, withdrawn=False).exclude(site=health_policy.EVERY_SITE)
    values: dict[str, Any] = {
        "site": site,
        "days": days,
        "own": list(own.values_list("site", flat=True)),
        "most": MOST + 1,
    }
    with connection.cursor() as cursor:
        cursor.execute(COUNTED, values)
        return [Counted(*(*row[:9], frozenset(row[9]), frozenset(row[10]))) for row in cursor.fetchall()]


def replay(policy: Policy, found: Iterable[Counted]) -> Outcome:
    """In order of time."""
    out, past = Outcome(), defaultdict[int, list[Past]](list)
    for one in found:
        before = past[one.node_id]
        seen = Seen(
            FaultKind(one.kind),
            one.code,
            one.at,
            in_hand=_in_hand(before, one),
            users=one.users,
            message=one.message,
            place=one.card_id,
        )
        decision = decide(policy, seen, before)
        _count(out, one, decision)
        before.append(Past(one.at, one.kind, one.code, decision.action, decision.began, one.users, one.card_id))
        del before[:-MOST_PAST]
    return out


def _in_hand(before: Sequence[Past], one: Counted) -> HealthAction | None:
    recent = (
        earlier.action
        for earlier in before
        if one.at - earlier.at <= INCIDENT_S
        and earlier.action not in UNCHANGED
        and (earlier.action in OF_NODES or earlier.place in (None, one.card_id))
    )
    return max(recent, key=SEVERITY.index, default=None)


def _count(out: Outcome, one: Counted, decision: Decision) -> None:
    out.decisions.append(decision)
    out.actions[decision.action] += 1
    if decision.action in ENDS_JOBS and one.card_id is not None:
        out.attempts |= one.attempts
    if decision.action in UNCHANGED:
        return
    if decision.action in OF_NODES or one.card_id is None:
        out.nodes.add(one.node_id)
    elif decision.action is HealthAction.NO_GANG:
        out.links.add(one.card_id)
    else:
        out.cards.add(one.card_id)
