"""What a drill has measured against its targets, line by line: held, missed or not measured and why. Pure reading."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from scheduler.drill_alerts import PAGES
from scheduler.drill_rows import Drill, DrillVerdict


class Said(StrEnum):
    HELD = "held"
    MISSED = "missed"
    NOT_MEASURED = "not_measured"


@dataclass(frozen=True, slots=True)
class Line:
    """`what`: hold, avoid, alert, test or return; of an alert with its channel. Seconds."""

    what: str
    took_s: float | None
    target_s: float | None
    said: Said
    why: str = ""
    channel: str = ""


def lines(drill: Drill, *, now: dt.datetime | None = None, broken: int = 0) -> list[Line]:
    """Without `now` as of its end: what is missing was not measured or missed. With it, what may still come in time is
    not told."""
    return list(_lines(drill, now, broken))


def as_data(found: Sequence[Line]) -> list[dict[str, Any]]:
    return [asdict(line) for line in found]


def verdict(found: Sequence[Line]) -> DrillVerdict:
    said = {line.said for line in found}
    if Said.MISSED in said:
        return DrillVerdict.FAILED
    return DrillVerdict.PARTLY if Said.NOT_MEASURED in said else DrillVerdict.PASSED


def _lines(drill: Drill, now: dt.datetime | None, broken: int) -> Iterator[Line]:
    yield from _timed("hold", drill.started_at, drill.held_at, drill.hold_target_s, now)
    if broken:
        yield Line("avoid", None, drill.avoid_target_s, Said.MISSED, f"{broken} placements on it while it was out")
    elif drill.held_at is not None and drill.probe is None and drill.avoided_at is None:
        if now is None or _late(drill.held_at, drill.avoid_target_s, now):
            yield Line("avoid", None, drill.avoid_target_s, Said.NOT_MEASURED, "nothing could be placed there anyway")
    else:
        yield from _timed("avoid", drill.held_at, drill.avoided_at, drill.avoid_target_s, now)
    yield from _alerts(drill, now)
    if drill.tested_at is not None:
        yield Line("test", _between(drill.went_on_at, drill.tested_at), None, Said.HELD)
    elif now is None:
        yield Line("test", None, None, Said.NOT_MEASURED, "it was not tested")
    yield from _timed("return", drill.held_at, drill.returned_at, drill.return_target_s, now)


def _alerts(drill: Drill, now: dt.datetime | None) -> Iterator[Line]:
    due = drill.held_at is not None and (now is None or _late(drill.held_at, drill.alert_target_s, now))
    channels = {*drill.channels, *drill.alerted}
    for channel in sorted(channels, key=lambda one: (one != PAGES, one)):
        at = drill.alerted.get(channel)
        out = dt.datetime.fromisoformat(at) if at else None
        yield from _timed("alert", drill.held_at, out, drill.alert_target_s, now, channel)
    if not channels - {PAGES} and (due or now is None):
        yield Line("alert", None, drill.alert_target_s, Said.NOT_MEASURED, "no channel")


def _timed(
    what: str,
    since: dt.datetime | None,
    until: dt.datetime | None,
    target_s: float,
    now: dt.datetime | None,
    channel: str = "",
) -> Iterator[Line]:
    took = _between(since, until)
    if took is not None:
        yield Line(what, took, target_s, Said.HELD if took <= target_s else Said.MISSED, channel=channel)
    elif since is None:
        if now is None:
            yield Line(what, None, target_s, Said.NOT_MEASURED, "it did not come to that", channel)
    elif now is None or _late(since, target_s, now):
        yield Line(what, None, target_s, Said.MISSED, "not seen", channel)


def _late(since: dt.datetime, target_s: float, now: dt.datetime) -> bool:
    return (now - since).total_seconds() > target_s


def _between(since: dt.datetime | None, until: dt.datetime | None) -> float | None:
    return None if since is None or until is None else max(0.0, (until - since).total_seconds())
