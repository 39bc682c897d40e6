"""Looks at the processes of every card sample that is newer than the last one it saw, and acts on what it finds.

Levels, not edges: what was counted stands in ShareUse and CardWatch, and every pass acts on what stands there, so one
that was killed is made good by the next. A sample counts once; late and repeated ones never reach CardStatus.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.db import connection, transaction

from ledger.clock import database_now
from ledger.models import AgentOrder, Allocation, ShareUse
from scheduler import overuse, strays
from scheduler.drivers.local_plan import instance_of
from scheduler.processes import KEY, Known, above, counted, use_of, with_keys
from scheduler.processes import strays as strays_of

log = logging.getLogger(__name__)
MOST: Final = 20_000  # cards in one pass
KEPT: Final = dt.timedelta(days=1)  # what was used of a share, after its end
NEWER: Final = """
SELECT s.card_id, s.boot_id, s.sequence, s.received_at, s.processes::text, coalesce(w.seen, 0), coalesce(w.without, 0)
FROM ledger_cardstatus s LEFT JOIN ledger_cardwatch w ON w.card_id = s.card_id
WHERE s.processes IS NOT NULL
  AND (w.card_id IS NULL OR (w.boot_id, w.sequence) IS DISTINCT FROM (s.boot_id, s.sequence))
ORDER BY s.received_at, s.card_id LIMIT %s
"""
SHARES: Final = """
SELECT h.card_id, h.id, h.allocation_id, h.memory_mib, h.card_memory_mib, coalesce(u.over, 0), u.over_at
FROM ledger_cardshare h LEFT JOIN ledger_shareuse u ON u.share_id = h.id
WHERE h.card_id = ANY(%s) AND upper_inf(h.period)
"""
KEEP_USES: Final = """
INSERT INTO ledger_shareuse (share_id, used_mib, over, over_at, boot_id, sequence, at)
SELECT share, used, n, over_at, boot, sequence, at FROM jsonb_to_recordset(%s::jsonb)
  AS x(share bigint, used integer, n smallint, over_at timestamptz, boot bigint, sequence bigint, at timestamptz)
ON CONFLICT (share_id) DO UPDATE SET used_mib = excluded.used_mib, over = excluded.over, over_at = excluded.over_at,
  boot_id = excluded.boot_id, sequence = excluded.sequence, at = excluded.at,
  warned_at = CASE WHEN excluded.over > 0 THEN ledger_shareuse.warned_at END
"""
KEEP_WATCHES: Final = """
INSERT INTO ledger_cardwatch (card_id, boot_id, sequence, at, strays, seen, without)
SELECT card, boot, sequence, at, strays, seen, without FROM jsonb_to_recordset(%s::jsonb)
  AS x(card bigint, boot bigint, sequence bigint, at timestamptz, strays jsonb, seen smallint, without smallint)
ON CONFLICT (card_id) DO UPDATE SET boot_id = excluded.boot_id, sequence = excluded.sequence, at = excluded.at,
  strays = excluded.strays, seen = excluded.seen, without = excluded.without
"""


@dataclass(frozen=True, slots=True)
class _Sample:
    card_id: int
    boot_id: int
    sequence: int
    at: dt.datetime
    processes: list[Any]
    seen: int
    without: int


@dataclass(frozen=True, slots=True)
class _Share:
    id: int
    member: str
    promised_mib: int
    whole: bool
    over: int
    over_at: dt.datetime | None


def look() -> dict[str, int]:
    """One pass over everything. Returns counts for the task's record."""
    looked = _look_at_new()
    counts = {"cards": looked, **_each(overuse.cards_to_act_on(), overuse.act_on_card)}
    counts |= _each(strays.cards_to_act_on(), strays.act_on_card)
    ShareUse.objects.filter(share__period__endswith__lt=database_now() - KEPT).delete()
    return counts


def _each(card_ids: Iterable[int], act: Callable[[int], str]) -> dict[str, int]:
    """Act on each card on its own: an odd one stops no other."""
    counts: dict[str, int] = defaultdict(int)
    for card_id in card_ids:
        try:
            counts[act(card_id)] += 1
        except Exception:  # whatever it is: the next pass looks again
            log.exception("the processes of card %d", card_id)
            counts["odd"] += 1
    counts.pop("", None)
    return dict(counts)


def _look_at_new() -> int:
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute(NEWER, [MOST])
        instance = instance_of(Path(os.path.realpath(settings.DATA_DIR)))
        samples = [_sample(row, instance) for row in cursor.fetchall()]
        if not samples:
            return 0
        shares = _shares(cursor, [sample.card_id for sample in samples])
        closed, tested = _just_closed(samples), _under_test()
        uses, watches = [], []
        for sample in samples:
            here = shares.get(sample.card_id, [])
            uses += [_use(sample, share) for share in here]
            watches.append(_watch(sample, here, closed, sample.card_id in tested))
        cursor.execute(KEEP_USES, [json.dumps(uses)])
        cursor.execute(KEEP_WATCHES, [json.dumps(watches)])
    return len(samples)


def _sample(row: Sequence[Any], instance: str) -> _Sample:
    card_id, boot_id, sequence, at, text, seen, without = row
    processes = json.loads(text)
    known = with_keys(processes if isinstance(processes, list) else [], instance)
    return _Sample(card_id, boot_id, sequence, at, known, seen, without)


def _shares(cursor: Any, card_ids: Sequence[int]) -> dict[int, list[_Share]]:
    found: dict[int, list[_Share]] = defaultdict(list)
    cursor.execute(SHARES, [list(card_ids)])
    for card_id, pk, allocation_id, mib, card_mib, over, over_at in cursor.fetchall():
        found[card_id].append(_Share(pk, f"a{allocation_id}", mib, mib == card_mib, over, over_at))
    return found


def _just_closed(samples: Sequence[_Sample]) -> dict[str, dt.datetime]:
    """When the members ended that are named in these samples and hold nothing any more."""
    names = {str(p.get("member")) for sample in samples for p in sample.processes if isinstance(p, dict)}
    numbers = [int(name[1:]) for name in names if KEY.fullmatch(name)]
    if not numbers:
        return {}
    rows = Allocation.objects.filter(pk__in=numbers, period__upper_inf=False).only("period")
    return {allocation.key: allocation.period.upper for allocation in rows}


def _under_test() -> set[int]:
    """Cards that an agent tests now, or has tested not long ago."""
    since = database_now() - _grace()
    orders = AgentOrder.objects.exclude(card=None).exclude(ended_at__lt=since)
    return {card_id for card_id in orders.values_list("card_id", flat=True) if card_id is not None}


def _use(sample: _Sample, share: _Share) -> dict[str, Any]:
    use = use_of(sample.processes, share.member)
    is_above = above(use, share.promised_mib, tolerance_mib(share.promised_mib))
    over_at = sample.at if is_above else share.over_at
    return {
        "share": share.id,
        "used": use.mib if use.complete or is_above else None,
        "n": counted(share.over, is_above),
        "over_at": over_at.isoformat() if over_at else None,
        **_seen_at(sample),
    }


def _watch(sample: _Sample, here: Sequence[_Share], closed: dict[str, dt.datetime], tested: bool) -> dict[str, Any]:
    known = Known(
        live={share.member for share in here},
        just_closed={name for name, at in closed.items() if at > sample.at - _grace()},
        taken_whole=len(here) == 1 and here[0].whole,
        under_test=tested,
        system=settings.SYSTEM_PROCESSES,
    )
    found = strays_of(sample.processes, known)
    if found:
        seen, without = min(sample.seen + 1, 30_000), 0
    elif tested:  # what has no name is taken for the test's own, so it tells nothing of what was there before
        seen, without = sample.seen, sample.without
    else:
        seen, without = 0, min(sample.without + 1, 30_000)
    return {"card": sample.card_id, "strays": found, "seen": seen, "without": without, **_seen_at(sample)}


def _seen_at(sample: _Sample) -> dict[str, Any]:
    return {"boot": sample.boot_id, "sequence": sample.sequence, "at": sample.at.isoformat()}


def tolerance_mib(promised_mib: int) -> int:
    """What a share may hold above its promise: the larger of a part of it and a fixed amount."""
    return max(promised_mib * settings.OVERUSE_TOLERANCE_PERCENT // 100, settings.OVERUSE_TOLERANCE_MIB)


def _grace() -> dt.timedelta:
    return dt.timedelta(seconds=settings.ORPHAN_GRACE_S)
