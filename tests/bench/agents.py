"""What a fleet of agents sends to the portal in the benchmark `telemetry`: when, what, and what the senders saw."""

from __future__ import annotations

import argparse
import datetime as dt
import heapq
import http.client
import json
import math
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

WIDTH: Final = 8
SENDERS: Final = 8
XIDS: Final = 200  # one report in so many brings one
XID: Final = 43  # which the policy only logs
BOOT: Final = "bench-boot"
LATE_S: Final = (61.0, 90.0)
TOKEN: Final = "gpn_bench_"
PATIENCE_S: Final = 120.0
REPORTS: Final = "/api/v1/agents/reports/"
Row = dict[str, Any]


@dataclass
class Plan:
    """Every report that will be sent, by when, and what must be found of it afterwards."""

    queue: list[tuple[float, int, int, int, str]] = field(default_factory=list)  # when, node, sequence, copy, kind
    reports: int = 0
    copies: int = 0
    kinds: Counter[str] = field(default_factory=Counter)


def plan(nodes: int, asked: argparse.Namespace, draw: random.Random) -> Plan:
    made, rounds = Plan(), math.ceil(asked.minutes * 60 / asked.interval)
    for node in range(1, nodes + 1):
        phase = asked.interval * (node - 1) / nodes
        for sequence in range(1, rounds + 1):
            due, kind = phase + (sequence - 1) * asked.interval, "in time"
            dice = draw.random() * 100
            if dice < asked.reorder:
                due, kind = due + asked.interval * 1.1, "reordered"
            elif dice < asked.reorder + asked.late:
                due, kind = due + draw.uniform(*LATE_S), "late"
            made.queue.append((due, node, sequence, 0, kind))
            made.reports += 1
            made.kinds[kind] += 1
            if draw.random() * 100 < asked.dup:
                made.queue.append((due + draw.uniform(0, asked.interval), node, sequence, 1, "again"))
                made.copies += 1
    heapq.heapify(made.queue)
    return made


def temperature(node: int, sequence: int, slot: int) -> int:
    return 30 + (node * 7 + sequence * 3 + slot) % 50


def has_xid(node: int, sequence: int) -> bool:
    return (node * 31 + sequence) % XIDS == 0


def body(node: int, sequence: int, cards: list[str], made_at: dt.datetime) -> bytes:
    faults = []
    if has_xid(node, sequence):
        said = {"id": f"{BOOT}:{sequence}", "kind": "xid", "code": XID, "card_uuid": cards[0], "message": "bench"}
        faults = [said | {"at": made_at.isoformat()}]
    report = {
        "hostname": f"bench-{node}",
        "boot_id": BOOT,
        "sequence": sequence,
        "sent_at": made_at.isoformat(),
        "virtual": False,
        "node": {"cpu_milli": 128_000, "host_memory_mib": 1_048_576, "pci_cards": WIDTH, "storage": []},
        "links": [],
        "faults": faults,
        "cards": [
            {
                "uuid": uuid,
                "slot": slot,
                "model": "H100",
                "memory_mib": 81_920,
                "memory_used_mib": 1_000 + sequence,
                "temperature_c": temperature(node, sequence, slot),
                "utilisation_pct": (node + sequence) % 101,
                "tensor_pct": None,
                "memory_busy_pct": 40,
                "power_mw": 300_000,
                "nvlink_errors": 0,
                "slowdown": [],
                "reset_required": False,
                "ecc": {"volatile_uncorrected": 0, "remapped_pending": False, "remapped_failure": False},
                "processes": [{"pid": 4_000 + slot, "memory_mib": 900, "member": None, "name": "python"}],
                "lost": False,
            }
            for slot, uuid in enumerate(cards)
        ],
    }
    return json.dumps(report, separators=(",", ":")).encode()


@dataclass
class Sent:
    """What the senders saw."""

    answers: Counter[str] = field(default_factory=Counter)
    unanswered: int = 0
    refused: list[str] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)  # of reports in time: from the moment they were due to the answer
    lock: threading.Lock = field(default_factory=threading.Lock)


def send_all(made: Plan, cards: dict[int, list[str]], address: tuple[str, int], began: float, seen: Sent) -> None:
    """In this process, by SENDERS threads; returns when everything was answered."""
    lock, wall = threading.Lock(), dt.datetime.now(dt.UTC)

    def work() -> None:
        link = http.client.HTTPConnection(*address, timeout=30)
        while True:
            with lock:
                if not made.queue:
                    return
                due, node, sequence, _copy, kind = heapq.heappop(made.queue)
            time.sleep(max(0.0, began + due - time.monotonic()))
            made_at = wall + dt.timedelta(seconds=due if kind == "in time" else _first_due(made, node, sequence))
            link = _deliver(link, address, node, body(node, sequence, cards[node], made_at), seen, began + due, kind)

    threads = [threading.Thread(target=work) for _ in range(SENDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


SHAPE: dict[str, float] = {}


def _first_due(made: Plan, node: int, sequence: int) -> float:
    """When the report was made, whenever it is sent."""
    return SHAPE["interval"] * ((node - 1) / SHAPE["nodes"] + sequence - 1)


def _deliver(
    link: http.client.HTTPConnection,
    address: tuple[str, int],
    node: int,
    data: bytes,
    seen: Sent,
    due: float,
    kind: str,
) -> http.client.HTTPConnection:
    headers = {"Authorization": f"Agent {TOKEN}{node}", "Content-Type": "application/json"}
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            link.request("POST", REPORTS, data, headers)
            answer = link.getresponse()
            told = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError):
            link.close()
            link = http.client.HTTPConnection(*address, timeout=30)
            with seen.lock:
                seen.unanswered += 1
            time.sleep(0.05)
            continue
        if answer.status == 503:
            time.sleep(0.2)
            continue
        _note(seen, answer.status, told, time.monotonic() - due if kind == "in time" else None)
        return link
    with seen.lock:
        seen.refused.append(f"node {node}: no answer for {PATIENCE_S:g} s")
    return link


def _note(seen: Sent, status: int, told: Row, delay: float | None) -> None:
    with seen.lock:
        if status != 200:
            seen.refused.append(f"{status}: {told}"[:300])
            return
        word = "repeated" if told.get("repeated") else "newest" if told["accepted"] else "older"
        seen.answers[word] += 1
        if delay is not None and word == "newest":
            seen.delays.append(delay)
