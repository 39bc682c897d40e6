"""Agents' reports for tests: a good one, with changes."""

from __future__ import annotations

import datetime as dt
from typing import Any

from ledger.models import Node
from ledger.people import create_node_token
from tests.portal.api.client import Api


def agent_of(node: Node, language: str = "en") -> Api:
    return Api(create_node_token(node=node, actor=None, via="test"), "Agent", language)


def card(uuid: str = "n1-card-0", slot: int = 0, **values: Any) -> dict[str, Any]:
    known = {
        "uuid": uuid,
        "slot": slot,
        "model": "A100",
        "memory_mib": 16_000,
        "memory_used_mib": 100,
        "temperature_c": 40,
    }
    return known | values


def fault(**values: Any) -> dict[str, Any]:
    return {
        "id": "boot-1:1",
        "kind": "xid",
        "code": 79,
        "card_uuid": "n1-card-0",
        "at": now(),
        "message": "gone",
    } | values


def report(hostname: str = "n1", sequence: int = 1, **values: Any) -> dict[str, Any]:
    return {
        "hostname": hostname,
        "boot_id": "boot-1",
        "sequence": sequence,
        "sent_at": now(),
        "node": {"cpu_milli": 64_000, "host_memory_mib": 256_000},
        "cards": [card()],
    } | values


def now(ahead_s: float = 0) -> str:
    return (dt.datetime.now(dt.UTC) + dt.timedelta(seconds=ahead_s)).isoformat()
