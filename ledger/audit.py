"""The audit trail: one row a state change in the same transaction, and the sealer that chains the rows afterwards."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db import connection, models, transaction

from ledger.clock import database_now
from ledger.models import AuditEvent, AuditSeal, Project, User
from ledger.rows import insert

SEALER_LOCK = 7_130_001  # advisory lock: one sealer at a time
GENESIS = "0" * 64

COLUMNS = (
    "id, at, actor_id, on_behalf_of_id, via, verb, target_type, target_id, project_id, before, after, "
    "reason, request_id"
)


def row(
    *,
    actor: User | None,
    via: str,
    verb: str,
    target: models.Model,
    at: dt.datetime,
    project: Project | int | None = None,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    reason: str = "",
    request_id: str = "",
    on_behalf_of: User | None = None,
) -> AuditEvent:
    """An unsaved audit row."""
    return AuditEvent(
        at=at,
        actor=actor,
        on_behalf_of=on_behalf_of,
        via=via,
        verb=verb,
        target_type=target._meta.model_name or "",
        target_id=str(target.pk),
        project_id=project.pk if isinstance(project, Project) else project,
        before=before,
        after=after,
        reason=reason[:500],
        request_id=request_id,
    )


def record(*, at: dt.datetime | None = None, **values: Any) -> AuditEvent:
    """Write one row (arguments as for `row`). Call inside the transaction of the change that it records."""
    event = row(at=at or database_now(), **values)
    event.save(force_insert=True)
    return event


def record_many(rows: Iterable[AuditEvent]) -> None:
    """Write several rows at once, inside the transaction of the changes that they record."""
    names = [field.attname for field in AuditEvent._meta.concrete_fields if not field.primary_key]
    insert(AuditEvent, [{name: getattr(event, name) for name in names} for event in rows])


def record_alike(rows: Sequence[dict[str, Any]], *, target: type[models.Model], reason: str = "", **same: Any) -> None:
    """Write rows of one verb without a model each, for thousands at once: `rows` name what differs by attname, `same`
    what is equal in all."""
    insert(AuditEvent, rows, target_type=target._meta.model_name, reason=reason[:500], **same)


def canonical(row: Sequence[Any]) -> bytes:
    """The bytes that are hashed: a JSON list with sorted keys and times in microseconds of UTC."""
    values = [value.isoformat() if hasattr(value, "isoformat") else value for value in row]
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def link(previous: str, row: Sequence[Any]) -> str:
    return hashlib.sha256(previous.encode() + canonical(row)).hexdigest()


def seal(limit: int = 5_000) -> int:
    """Chain every row older than the oldest running transaction. Returns how many; 0 when another sealer works."""
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [SEALER_LOCK])
        if not cursor.fetchone()[0]:
            return 0
        head = AuditSeal.objects.order_by("-position").first()
        position, digest, horizon = (head.position, head.digest, head.horizon) if head else (0, GENESIS, 0)
        cursor.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
        xmin = cursor.fetchone()[0]
        cursor.execute(
            f"SELECT {COLUMNS} FROM ledger_auditevent e "  # noqa: S608  constant column list
            "WHERE txid >= %s::text::xid8 AND txid < %s::text::xid8 "
            "AND NOT EXISTS (SELECT 1 FROM ledger_auditseal s WHERE s.event_id = e.id) ORDER BY id LIMIT %s",
            [horizon if horizon <= xmin else 0, xmin, limit],  # a restored dump starts counting anew
        )
        rows = _decoded(cursor.fetchall())
        reached = xmin if len(rows) < limit else min(horizon, xmin)
        seals = []
        for row in rows:
            position, digest = position + 1, link(digest, row)
            seals.append(AuditSeal(position=position, event_id=row[0], digest=digest, horizon=reached))
        AuditSeal.objects.bulk_create(seals)
    return len(seals)


def _decoded(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """psycopg hands jsonb over as text through Django's cursor; decode columns 9 and 10."""
    decoded = []
    for row in rows:
        values = list(row)
        for index in (9, 10):
            if isinstance(values[index], str):
                values[index] = json.loads(values[index])
        decoded.append(values)
    return decoded


def write_anchor(path: Path) -> None:
    """Append the head of the chain to a file outside the database, when it has moved."""
    head = AuditSeal.objects.order_by("-position").first()
    if head is None:
        return
    line = f"{head.position} {head.digest}\n"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    if not lines or lines[-1] != line:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(line)


@dataclass(frozen=True)
class Verdict:
    ok: bool
    sealed: int
    message: str


def verify(anchor: Path | None = None) -> Verdict:
    """Recompute the chain and compare it with the anchor file; names the first bad place."""
    digest, position = GENESIS, 0
    anchors = _anchors(anchor)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            f"SELECT s.position, s.digest, s.event_id, {COLUMNS} FROM ledger_auditseal s "  # noqa: S608
            "LEFT JOIN ledger_auditevent e ON e.id = s.event_id ORDER BY s.position"
        )
        for row in cursor.fetchall():
            position += 1
            bad = _check_row(row, position, digest, anchors)
            if bad:
                return Verdict(False, position - 1, bad)
            digest = row[1]
        cursor.execute(
            "SELECT count(*), min(e.id) FROM ledger_auditevent e LEFT JOIN ledger_auditseal s ON s.event_id = e.id "
            "WHERE s.event_id IS NULL AND e.at < clock_timestamp() - interval '10 minutes'"
        )
        late, first = cursor.fetchone()
    if late:
        return Verdict(False, position, f"{late} rows are older than 10 minutes and not sealed, the first is {first}")
    missing = [p for p in anchors if p > position]
    if missing:
        return Verdict(
            False, position, f"the chain ends at {position}, but position {min(missing)} was anchored outside"
        )
    return Verdict(True, position, f"{position} rows, head {digest}")


def _check_row(row: Sequence[Any], position: int, previous: str, anchors: dict[int, str]) -> str:
    if row[0] != position:
        return f"position {position} is missing"
    if row[3] is None:
        return f"audit row {row[2]} (position {position}) was deleted"
    if link(previous, _decoded([row[3:]])[0]) != row[1]:
        return f"audit row {row[2]} (position {position}) was changed, or the one before it"
    if anchors.get(position, row[1]) != row[1]:
        return f"position {position} differs from the head that was anchored outside"
    return ""


def _anchors(path: Path | None) -> dict[int, str]:
    if path is None or not path.exists():
        return {}
    pairs = (line.split() for line in path.read_text().splitlines())
    return {int(pair[0]): pair[1] for pair in pairs if len(pair) == 2}
