"""What NVIDIA's dcgm-exporter tells of a node's cards becomes a report like an agent's. Nodes with an agent of their
own are not asked: it knows more, and two would contradict each other.

The exporter has no boot id, so all its reports are of one boot, "dcgm", which never proves a reboot. Of XIDs it keeps
the last code alone: a change is one event, and the same code twice in a row can't be told from once. Names and units:
DCGM Field Identifiers and dcgm-exporter's default-counters.csv (NVIDIA documentation, 2025).
"""

from __future__ import annotations

import datetime as dt
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from django.db.models import F
from prometheus_client.samples import Sample

from ledger import quality, telemetry
from ledger.cases import NO_BOOT
from ledger.clock import database_now
from ledger.models import Node, NodeBoot
from ledger.vocabulary import FaultKind, NodeState, QualityKind
from scheduler.scrape_rows import NodeScrape
from scheduler.scraping import fetch_all, is_due, samples_of, words_of
from scheduler.wake import ring

log = logging.getLogger(__name__)
BOOT: Final = NO_BOOT
MOST: Final = 2_000  # nodes in one pass
INT32_BLANK: Final = 2_147_483_632  # from here on DCGM's values mean "not known", "not supported", …
MOST_CARDS: Final = 1024
NVLINK: Final = tuple(
    f"DCGM_FI_DEV_NVLINK_{name}_ERROR_COUNT_TOTAL" for name in ("CRC_FLIT", "CRC_DATA", "REPLAY", "RECOVERY")
)
Values = dict[str, float]  # by field, of one card


# -- reading its text: pure --------------------------------------------------------------------------------------------


def value_of(number: float) -> float | None:
    """None for NaN, infinity, negative numbers and DCGM's blanks."""
    return number if 0 <= number < INT32_BLANK else None


def cards_of(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """The cards as an agent reports them, by slot. Of a card that is cut into MIG instances no one's activity is that
    of the card: unknown."""
    labels: dict[str, Mapping[str, str]] = {}
    own: dict[str, Values] = defaultdict(dict)
    parts: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for sample in samples:
        name, uuid = sample.name.removesuffix("_total"), sample.labels.get("UUID", "")
        value = value_of(sample.value)
        if not name.startswith("DCGM_FI_") or not uuid.isprintable() or not 0 < len(uuid) <= 100:
            continue
        labels.setdefault(uuid, sample.labels)
        if value is None:
            continue
        if sample.labels.get("GPU_I_ID"):
            parts[uuid].append((name, value))
        else:
            own[uuid][name] = max(value, own[uuid].get(name, 0.0))
    cut = {sample.labels.get("UUID") for sample in samples if sample.labels.get("GPU_I_ID")}
    cards = [
        _card(uuid, at, labels[uuid], own[uuid], parts[uuid] if uuid in cut else None)
        for at, uuid in enumerate(sorted(labels)[:MOST_CARDS])
    ]
    return sorted(cards, key=lambda card: (card["slot"], card["uuid"]))


def _card(
    uuid: str, at: int, labels: Mapping[str, str], own: Values, parts: Sequence[tuple[str, float]] | None
) -> dict[str, Any]:
    values = dict(own)
    memory = _memory(own)
    if parts is not None:
        for name, value in parts:  # what belongs to the whole card stands beside each instance of it
            values[name] = max(value, values.get(name, 0.0))
        memory = memory if memory[1] is not None else _memory(_summed(parts))
    active = values if parts is None else {}
    gpu = labels.get("gpu", "")
    return {
        "uuid": uuid,
        "slot": int(gpu) if gpu.isascii() and gpu.isdigit() and len(gpu) < 4 else at,
        "model": "".join(c for c in labels.get("modelName", "")[:64] if c.isprintable()) or "unknown",
        "memory_mib": memory[0],
        "memory_used_mib": memory[1],
        "temperature_c": _whole(values.get("DCGM_FI_DEV_GPU_TEMP")),
        "utilisation_pct": _whole(active.get("DCGM_FI_DEV_GPU_UTIL")),
        "tensor_pct": _percent(active.get("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")),
        "memory_busy_pct": _busy(active),
        "power_mw": _whole(values.get("DCGM_FI_DEV_POWER_USAGE"), 1000),
        "ecc": _ecc(values),
        "nvlink_errors": _whole(sum(values[n] for n in NVLINK if n in values) if set(NVLINK) & set(values) else None),
        "processes": None,
        "lost": False,
        "xid": _whole(values.get("DCGM_FI_DEV_XID_ERRORS")),
    }


def _summed(parts: Sequence[tuple[str, float]]) -> Values:
    found: Values = defaultdict(float)
    for name, value in parts:
        found[name] += value
    return found


def _memory(values: Values) -> tuple[int | None, int | None]:
    """All of it and what is used, in MiB; the frame buffer that the driver keeps is part of neither's free."""
    used, free = values.get("DCGM_FI_DEV_FB_USED"), values.get("DCGM_FI_DEV_FB_FREE")
    total = values.get("DCGM_FI_DEV_FB_TOTAL")
    if total is None and used is not None and free is not None:
        total = used + free + values.get("DCGM_FI_DEV_FB_RESERVED", 0.0)
    return (_whole(total) or None), _whole(used)


def _busy(values: Values) -> int | None:
    active = _percent(values.get("DCGM_FI_PROF_DRAM_ACTIVE"))
    return _whole(values.get("DCGM_FI_DEV_MEM_COPY_UTIL")) if active is None else active


def _ecc(values: Values) -> dict[str, Any]:
    flags = {"remapped_pending": "DCGM_FI_DEV_ROW_REMAP_PENDING", "remapped_failure": "DCGM_FI_DEV_ROW_REMAP_FAILURE"}
    counts = {
        "volatile_uncorrected": "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        "volatile_corrected": "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
        "aggregate_uncorrected": "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL",
        "remapped_correctable": "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        "remapped_uncorrectable": "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    }
    told: dict[str, Any] = {name: values[field] > 0 for name, field in flags.items() if field in values}
    return told | {name: _whole(values[field]) for name, field in counts.items() if field in values}


def _whole(value: float | None, times: int = 1) -> int | None:
    return None if value is None else round(value * times)


def _percent(ratio: float | None) -> int | None:
    return None if ratio is None else round(ratio * 100)


# -- what changed since the last time: pure ----------------------------------------------------------------------------

Seen = dict[str, dict[str, int]]  # by card: its counters, and how many events were made of each
Event = tuple[FaultKind, int | None, str]
FIRST_COUNTS: Final = ("xid", "dbe")  # above 0 at the first look is an event; of the others it is where they begin


def _counters(card: Mapping[str, Any]) -> dict[str, int]:
    told = {
        "xid": card["xid"],
        "dbe": card["ecc"].get("volatile_uncorrected"),
        "sbe": card["ecc"].get("volatile_corrected"),
        "nvlink": card["nvlink_errors"],
    }
    return {name: value for name, value in told.items() if value is not None}


def _event(name: str, value: int, before: int) -> Event:
    if name == "xid":
        return FaultKind.XID, value, f"XID {value}, the last that dcgm-exporter tells of"
    kind = {"dbe": FaultKind.ECC, "sbe": FaultKind.CORRECTABLE, "nvlink": FaultKind.NVLINK}[name]
    return kind, None, f"{value - before} more, {value} in all"


def events_of(cards: Sequence[Mapping[str, Any]], seen: Seen, at: dt.datetime) -> tuple[list[dict[str, Any]], Seen]:
    """The faults to report and what to remember. The same scrape against the same memory gives the same ids, so what
    was reported and not remembered is counted once."""
    found: list[dict[str, Any]] = []
    fresh: Seen = dict(seen)
    for card in cards:
        known = dict(fresh.pop(card["uuid"], {}))
        for name, value in _counters(card).items():
            before = known.get(name, 0 if name in FIRST_COUNTS else value)
            known[name] = value
            if value == 0 or value == before or (name != "xid" and value < before):
                continue
            number = known[f"{name}_events"] = known.get(f"{name}_events", 0) + 1
            kind, code, message = _event(name, value, before)
            found.append(
                {
                    "id": f"dcgm:{card['uuid']}:{name}:{value}:{number}",
                    "kind": str(kind),
                    "code": code,
                    "card_uuid": card["uuid"],
                    "at": at,
                    "message": message,
                }
            )
        fresh[card["uuid"]] = known
    return found, dict(list(fresh.items())[-MOST_CARDS:])


# -- a pass ------------------------------------------------------------------------------------------------------------


def scrape_nodes(fetch: Callable[..., Any] = fetch_all) -> dict[str, int]:
    """Read every exporter that is due. Returns counts for the task's record."""
    counts = {"read": 0, "failed": 0}
    nodes = {node.pk: node for node in _due()}
    for pk, answer in fetch({pk: node.dcgm_url for pk, node in nodes.items()}):
        try:
            if isinstance(answer, Exception):
                raise answer
            take(nodes[pk], answer)
            counts["read"] += 1
        except Exception as error:  # of the network, of the text, or of the report: told in the row
            log.info("dcgm-exporter of %s: %s", nodes[pk], error)
            _note_failure(nodes[pk], error)
            counts["failed"] += 1
    return counts


def _due() -> list[Node]:
    """Those that were not read for the longest time first."""
    nodes = Node.objects.exclude(dcgm_url="").filter(simulated=False, agent_digest="").exclude(state=NodeState.RETIRED)
    rows, now = NodeScrape.objects.in_bulk(), database_now()
    oldest = nodes.order_by(F("scrape__tried_at").asc(nulls_first=True), "pk")
    return [node for node in oldest if is_due(rows.get(node.pk), now)][:MOST]


def take(node: Node, text: str) -> telemetry.Receipt:
    """One answer of the exporter of this node. Raises scraping.Unreadable and ValueError."""
    cards = cards_of(samples_of(text))
    if not cards:
        raise ValueError("it tells of no card")
    now = database_now()
    known = NodeScrape.objects.filter(node=node).first()
    faults, seen = events_of(cards, known.seen if known else {}, now)
    receipt = telemetry.ingest(node, _report(node, cards, faults, now))
    told = {"tried_at": now, "ok_at": now, "failures": 0, "error": "", "seen": seen}
    NodeScrape.objects.update_or_create(node=node, defaults=told)
    if receipt.faults:
        ring("scheduler.health")
    return receipt


def _report(
    node: Node, cards: Sequence[Mapping[str, Any]], faults: Sequence[Mapping[str, Any]], now: dt.datetime
) -> dict[str, Any]:
    taken = NodeBoot.objects.filter(node=node, boot_id=BOOT).values_list("taken", flat=True).first()
    return {
        "hostname": node.hostname,
        "boot_id": BOOT,
        "sequence": taken[-1][1] if taken else 1,  # without gaps, which would have to be remembered
        "sent_at": now,
        "virtual": False,
        "node": {"cpu_milli": node.cpu_milli, "host_memory_mib": node.host_memory_mib},
        "cards": [{name: value for name, value in card.items() if name != "xid"} for card in cards],
        "links": [],
        "faults": faults,
        "earlier": [],
        "results": [],
    }


def _note_failure(node: Node, error: Exception) -> None:
    now, text = database_now(), words_of(error)
    row, _ = NodeScrape.objects.get_or_create(node=node, defaults={"tried_at": now})
    NodeScrape.objects.filter(pk=row.pk).update(
        tried_at=now, failures=F("failures") + 1, failed=F("failed") + 1, error=text
    )
    quality.count(node.pk, QualityKind.SCRAPE_FAILED, text)
