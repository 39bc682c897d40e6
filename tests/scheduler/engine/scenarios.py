"""Reads the short form of the golden scenarios: nodes and jobs that name only what differs from the defaults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ledger.vocabulary import AskForm, Distance, Form, Interconnect
from scheduler.engine.types import DEFAULT_RULE, Ask, CardView, JobView, NodeView, Reserve, Snapshot
from tests.scheduler.engine.fleets import ALL_FORMS, card, job, node, snapshot

GOLDEN = Path(__file__).parents[2] / "golden"
ZONE = 4


def load() -> dict[str, dict[str, Any]]:
    """Scenarios of all files by name."""
    found: dict[str, dict[str, Any]] = {}
    for name in ("engine_forms", "engine_amounts", "engine_queue"):
        for scenario in json.loads((GOLDEN / f"{name}.json").read_text("utf-8"))["scenarios"]:
            if scenario["name"] in found:
                raise ValueError(f"two scenarios are called {scenario['name']!r}")
            found[scenario["name"]] = scenario
    return found


def as_snapshot(scenario: dict[str, Any]) -> Snapshot:
    nodes = [_node(n, dict(short)) for n, short in enumerate(scenario["nodes"], start=1)]
    reserves = tuple(Reserve(ZONE, r["model"], r["mib"]) for r in scenario.get("reserves", ()))
    jobs = (_job(dict(short)) for short in scenario["jobs"])
    return snapshot(nodes, *jobs, reserves=reserves, rule=scenario.get("rule", DEFAULT_RULE))


def _node(id_: int, short: dict[str, Any]) -> NodeView:
    forms = frozenset(Form(form) for form in short.pop("forms", ALL_FORMS))
    zone = short.pop("zone", ZONE)
    drivers = short.pop("drivers", [form.value for form in Form])
    blocks = [id_ * 10 + n for n, size in enumerate(short.pop("blocks", ())) for _ in range(size)]
    cards = _cards(id_, short.pop("cards", len(blocks) or 4), blocks)
    links = tuple((cards[a].id, cards[b].id, gbps) for a, b, gbps in short.pop("links", ()))
    for name, kind in (("used_form", Form), ("interconnect", Interconnect), ("labels", frozenset)):
        if name in short:
            short[name] = kind(short[name])
    return node(
        id_,
        cards,
        hostname=short.pop("host"),
        zone_id=zone,
        zone_forms=forms,
        managers={form: "local" for form in drivers},
        links=links,
        **short,
    )


def _cards(id_: int, short: int | list[dict[str, Any]], blocks: list[int]) -> tuple[CardView, ...]:
    rows: list[dict[str, Any]] = [{} for _ in range(short)] if isinstance(short, int) else short
    made = []
    for slot, row in enumerate(rows):
        taken = {name: tuple((lo, hi) for lo, hi in row.get(name, ())) for name in ("busy", "compute_busy")}
        block = blocks[slot] if blocks else None
        made.append(card(id_ * 100 + slot, slot, **{**row, **taken, "block_id": block}))
    return tuple(made)


def _job(short: dict[str, Any]) -> JobView:
    asks = [Ask(**{"memory_mib": 4, **ask, "form": AskForm(ask["form"])}) for ask in short.pop("asks")]
    asks = [_without_memory(ask) for ask in asks]
    for name, kind in (("distance", Distance), ("interconnect", Interconnect), ("labels", frozenset)):
        if name in short:
            short[name] = kind(short[name])
    return job(short.pop("id"), *asks, **{"submitted_at": 900.0, **short})


def _without_memory(ask: Ask) -> Ask:
    """The default of 4 MiB is meant for containers."""
    return (
        ask
        if ask.form is AskForm.CONTAINER
        else Ask(ask.form, ask.nodes, ask.cards_per_node, 0, ask.after_s, ask.model)
    )
