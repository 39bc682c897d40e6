"""Agents' reports become the latest values, the history, boots and counted faults. Late, repeated and reordered ones,
clocks that are wrong and values that no card can have are counted (ledger.quality) and change nothing else.

A report is known by (node, boot, sequence): NodeBoot.taken holds the sequences that were taken in, so that each sample
comes into the history once, whatever is sent again. It never moves work or cards: inventory sync and the health policy
do, on what stands here.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from django.db import connection, transaction

from ledger import cases, faults, quality, samples, states
from ledger.models import Card, Node
from ledger.quality import Tally
from ledger.vocabulary import FaultKind, QualityKind

CLOCK_SLACK: Final = dt.timedelta(minutes=5)
BEHIND: Final = dt.timedelta(days=1)  # the newest report of a node that says so has a wrong clock
REORDERED_WITHIN: Final = dt.timedelta(seconds=60)
MOST_GAPS: Final = 500  # in the sequences of a boot; what lies before the oldest then counts as taken
MEASURES: Final = tuple(samples.VALUES)
LOCK: Final = "SELECT clock_timestamp() FROM ledger_node WHERE id = %s FOR NO KEY UPDATE"
BOOT: Final = """
SELECT b.id, NOT EXISTS (SELECT FROM ledger_nodeboot n WHERE n.node_id = b.node_id AND n.id > b.id),
  ARRAY(SELECT s FROM unnest(%(sequences)s::bigint[]) s WHERE NOT b.taken @> s),
  r.boot_id, r.sequence, r.sent_at
FROM ledger_nodeboot b LEFT JOIN ledger_nodereport r ON r.node_id = b.node_id
WHERE b.node_id = %(node)s AND b.boot_id = %(boot)s
"""
NEW_BOOT: Final = "INSERT INTO ledger_nodeboot (node_id, boot_id, first_seen, taken) VALUES (%s, %s, %s, '{}')"
TAKE: Final = """
UPDATE ledger_nodeboot SET taken = taken + %s::int8multirange WHERE id = %s
RETURNING (SELECT count(*) FROM unnest(taken))
"""
# half of the gaps, the oldest, are given up
GIVE_UP_GAPS: Final = """
UPDATE ledger_nodeboot SET taken = taken + int8multirange(int8range(lower(taken),
  (SELECT max(upper(part)) FROM (SELECT part FROM unnest(taken) part ORDER BY part LIMIT %s) old))) WHERE id = %s
"""
CARDS: Final = """
SELECT c.uuid, c.id, s.node_id, s.node_id IS NOT NULL AND NOT EXISTS (
  SELECT FROM ledger_hold h WHERE h.card_id = c.id AND h.kind = 'lost' AND upper_inf(h.period))
FROM ledger_card c LEFT JOIN ledger_cardseat s ON s.card_id = c.id AND upper_inf(s.period) WHERE c.uuid = ANY(%s)
"""
REPORT: Final = """
INSERT INTO ledger_nodereport (node_id, boot_id, sequence, sent_at, received_at, virtual, facts)
VALUES (%s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (node_id) DO UPDATE SET boot_id = excluded.boot_id, sequence = excluded.sequence,
  sent_at = excluded.sent_at, received_at = excluded.received_at, virtual = excluded.virtual, facts = excluded.facts
"""
STATUS_TYPES: Final[dict[str, str]] = {
    **{name: kind for name, (kind, _least, _most) in samples.VALUES.items()},
    "ecc": "jsonb",
    "nvlink_errors": "int8",
    "slowdown": "varchar[]",
    "processes": "jsonb",
    "lost": "boolean",
}
STATUSES: Final = f"""
INSERT INTO ledger_cardstatus (card_id, boot_id, sequence, received_at, {", ".join(STATUS_TYPES)})
SELECT x.card_id, %(boot)s, %(sequence)s, %(now)s, {", ".join(f"x.{name}" for name in STATUS_TYPES)}
FROM jsonb_to_recordset(%(rows)s::jsonb)
  AS x(card_id bigint, {", ".join(f"{name} {kind}" for name, kind in STATUS_TYPES.items())})
ON CONFLICT (card_id) DO UPDATE SET boot_id = excluded.boot_id, sequence = excluded.sequence,
  received_at = excluded.received_at, {", ".join(f"{name} = excluded.{name}" for name in STATUS_TYPES)}
"""  # noqa: S608  names of this module


@dataclass(frozen=True)
class SetAside:
    """A reading that was not believed: no card can have this value."""

    card: str
    field: str
    value: int


@dataclass(frozen=True)
class Receipt:
    accepted: bool  # False: older than what is known, or here before; its faults were counted all the same
    faults: int  # newly counted
    note: str = ""
    repeated: bool = False  # its samples had come in before
    set_aside: tuple[SetAside, ...] = ()
    foreign: tuple[str, ...] = ()  # cards that sit in another node, which still reports them


@dataclass
class _Work:
    """One report on its way in."""

    node: Node
    report: Mapping[str, Any]
    now: dt.datetime
    cursor: Any
    tally: Tally = field(default_factory=Tally)
    cards: dict[str, int] = field(default_factory=dict)  # known cards that may be told of here: uuid → id
    foreign: list[str] = field(default_factory=list)
    set_aside: list[SetAside] = field(default_factory=list)


def ingest(node: Node, report: Mapping[str, Any]) -> Receipt:
    """Store one validated report of this node's agent. Repeatable."""
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute(LOCK, [node.pk])
        work = _Work(node, report, cursor.fetchone()[0], cursor)
        receipt = _take_in(work)
        quality.write_inside(work.tally, work.now)
    return receipt


def _take_in(work: _Work) -> Receipt:
    report = work.report
    _find_cards(work)
    earlier = report.get("earlier", ())
    # the boot first: a fault that the first report of a boot tells of was not before that boot
    boot, newest, fresh, last = _boot(work, [report["sequence"], *(part["sequence"] for part in earlier)])
    _take(work, boot, fresh)
    cases.take_results_inside(work.node, report.get("results", ()), work.now)
    counted = _count_faults(work.node, report["faults"], work.now)
    first_time = report["sequence"] in fresh
    fresh.discard(report["sequence"])
    for part in earlier:
        _take_earlier(work, boot, part, fresh)
    if not first_time:
        work.tally.add(work.node.pk, None, QualityKind.DUPLICATE)
        return _receipt(work, False, counted, "it was here before", repeated=True)
    newer = _newer(report, boot, newest, last)
    good = _good_cards(work)
    at = _moment(work, newer)
    if at is not None:
        _keep_samples(work, boot, report["sequence"], at, good)
    if not newer:
        return _receipt(work, False, counted, "older than what is known")
    _store(work, boot, good)
    return _receipt(work, True, counted, "your clock is ahead; the portal's clock counts" if _ahead(work) else "")


def _receipt(work: _Work, accepted: bool, counted: int, note: str, repeated: bool = False) -> Receipt:
    return Receipt(accepted, counted, note, repeated, tuple(work.set_aside), tuple(sorted(work.foreign)))


def _find_cards(work: _Work) -> None:
    """A card that sits in another node may appear here only once that node has reported it gone."""
    uuids = {card["uuid"] for card in work.report["cards"]}
    uuids.update(card["uuid"] for part in work.report.get("earlier", ()) for card in part["cards"])
    if not uuids:
        return
    work.cursor.execute(CARDS, [sorted(uuids)])
    for uuid, pk, seat, present in work.cursor.fetchall():
        if seat is not None and seat != work.node.pk and present:
            work.foreign.append(uuid)
            work.tally.add(work.node.pk, pk, QualityKind.FOREIGN_CARD)
        else:
            work.cards[uuid] = pk


# -- which report it is ------------------------------------------------------------------------------------------------

Last = tuple[int, int, dt.datetime] | None  # boot, sequence and clock of the newest report


def _boot(work: _Work, sequences: Sequence[int]) -> tuple[int, bool, set[int], Last]:
    """The boot, whether it is the newest one that the portal has heard of, which of these sequences were not here
    before, and the newest report."""
    asked = {"node": work.node.pk, "boot": work.report["boot_id"], "sequences": list(sequences)}
    work.cursor.execute(BOOT, asked)
    row = work.cursor.fetchone()
    if row is None:
        work.cursor.execute(NEW_BOOT, [work.node.pk, work.report["boot_id"], work.now])
        work.cursor.execute(BOOT, asked)
        row = work.cursor.fetchone()
    boot, newest, fresh, *last = row
    return boot, newest, set(fresh), None if last[0] is None else (last[0], last[1], last[2])


def _take(work: _Work, boot: int, fresh: Iterable[int]) -> None:
    ranges = ",".join(f"[{number},{number}]" for number in sorted(fresh))
    if not ranges:
        return
    work.cursor.execute(TAKE, [f"{{{ranges}}}", boot])
    if work.cursor.fetchone()[0] > MOST_GAPS:
        work.cursor.execute(GIVE_UP_GAPS, [MOST_GAPS // 2, boot])


def _newer(report: Mapping[str, Any], boot: int, newest: bool, last: Last) -> bool:
    if last is None:
        return True
    if last[0] == boot:
        return bool(report["sequence"] > last[1])
    # A late report of a boot never heard of before looks like a new boot; the node's next own report puts it right.
    return newest or bool(report["sent_at"] > last[2])


# -- when it was -------------------------------------------------------------------------------------------------------


def _ahead(work: _Work) -> bool:
    return bool(work.report["sent_at"] - work.now > CLOCK_SLACK)


def _clock(work: _Work) -> states.State:
    """A clock that is ahead is a fault of the node."""
    seconds = int((work.report["sent_at"] - work.now).total_seconds())
    return None, FaultKind.CLOCK, _ahead(work), f"the node's clock is {seconds} s ahead"


def _moment(work: _Work, newer: bool) -> dt.datetime | None:
    """When the samples were taken: by the agent's clock where that can be. None: older than what is kept."""
    return _placed(work, work.report["sent_at"], newer)


def _placed(work: _Work, sent_at: dt.datetime, newer: bool) -> dt.datetime | None:
    age, node = work.now - sent_at, work.node.pk
    if age < -CLOCK_SLACK:
        work.tally.add(node, None, QualityKind.FUTURE, f"{-int(age.total_seconds())} s ahead")
        return work.now
    if newer and age > BEHIND:
        work.tally.add(node, None, QualityKind.BEHIND, f"{int(age.total_seconds())} s behind")
        return work.now
    if age > samples.keep_days() - BEHIND:
        work.tally.add(node, None, QualityKind.TOO_OLD, f"{int(age.total_seconds())} s old")
        return None
    if not newer:
        kind = QualityKind.REORDERED if age < REORDERED_WITHIN else QualityKind.LATE
        work.tally.add(node, None, kind, f"{int(age.total_seconds())} s on its way")
    return min(sent_at, work.now)


# -- what it says ------------------------------------------------------------------------------------------------------


def _good_cards(work: _Work) -> list[Mapping[str, Any]]:
    """The cards whose readings can be true and that may be told of here."""
    found = []
    for card in work.report["cards"]:
        if card["uuid"] in work.foreign or not _possible(work, card):
            continue
        if card["uuid"] not in work.cards:
            work.tally.add(work.node.pk, None, QualityKind.UNKNOWN_CARD, card["uuid"])
            continue
        found.append(card)
    return found


def _possible(work: _Work, card: Mapping[str, Any]) -> bool:
    wrong = [name for name in MEASURES if samples.impossible(name, card.get(name), card.get("memory_mib"))]
    for name in wrong:
        work.set_aside.append(SetAside(card["uuid"], name, card[name]))
        known = work.cards.get(card["uuid"])
        work.tally.add(work.node.pk, known, QualityKind.IMPOSSIBLE, f"{name} = {card[name]}")
    return not wrong


def _take_earlier(work: _Work, boot: int, part: Mapping[str, Any], fresh: set[int]) -> None:
    """Samples that the agent kept while the portal was away: history alone."""
    if part["sequence"] not in fresh:
        work.tally.add(work.node.pk, None, QualityKind.DUPLICATE)
        return
    fresh.discard(part["sequence"])  # one report may name a number twice
    at = _placed(work, part["sent_at"], False)
    if at is not None:
        cards = [c for c in part["cards"] if c["uuid"] in work.cards and _possible(work, c)]
        _keep_samples(work, boot, part["sequence"], at, cards)


def _keep_samples(work: _Work, boot: int, sequence: int, at: dt.datetime, cards: Sequence[Mapping[str, Any]]) -> None:
    told = (card for card in cards if not card.get("lost"))  # one that is lost tells nothing
    rows = [[work.cards[card["uuid"]], *(card.get(name) for name in MEASURES)] for card in told]
    if rows:
        work.cursor.execute(
            "INSERT INTO ledger_samplebatch (boot_id, sequence, at, samples) VALUES (%s, %s, %s, %s)",
            [boot, sequence, at, json.dumps(rows, separators=(",", ":"))],
        )


def _store(work: _Work, boot: int, good: Sequence[Mapping[str, Any]]) -> None:
    report, now = work.report, work.now
    told = [card for card in report["cards"] if card["uuid"] not in work.foreign]
    facts = {"node": report["node"], "cards": told, "links": report["links"]}
    work.cursor.execute(
        REPORT,
        [work.node.pk, boot, report["sequence"], report["sent_at"], now, report["virtual"], json.dumps(facts)],
    )
    rows = [_status(work.cards[card["uuid"]], card) for card in good]
    if rows:
        values = {"boot": boot, "sequence": report["sequence"], "now": now, "rows": json.dumps(rows)}
        work.cursor.execute(STATUSES, values)
    work.cursor.execute("UPDATE ledger_node SET seen_at = %s WHERE id = %s", [now, work.node.pk])
    said = states.told(report["node"], [(work.cards[card["uuid"]], card) for card in good], len(report["cards"]))
    states.follow_inside(work.node, (_clock(work), *said), now)


def _status(card_id: int, card: Mapping[str, Any]) -> dict[str, Any]:
    told = {name: card.get(name) for name in STATUS_TYPES}
    return told | {"card_id": card_id, "ecc": card.get("ecc") or {}, "lost": bool(card.get("lost"))}


# -- events ------------------------------------------------------------------------------------------------------------


def _count_faults(node: Node, events: Sequence[Mapping[str, Any]], now: dt.datetime) -> int:
    if not events:
        return 0
    uuids = [e["card_uuid"] for e in events if e.get("card_uuid")]
    here = Card.objects.filter(uuid__in=uuids, seats__node=node, seats__period__upper_inf=True)
    cards = {card.uuid: card for card in here}
    return sum(
        faults.count_inside(
            node=node,
            card=cards.get(event.get("card_uuid") or ""),
            kind=FaultKind(event["kind"]),
            code=event.get("code"),
            message=event.get("message", ""),
            now=now,
            event_id=event["id"],
            at=event["at"],
        )
        is not None
        for event in events
    )
