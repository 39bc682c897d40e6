"""How tests of the zone pages choose, preview and confirm plans."""

from __future__ import annotations

from typing import Any

from django.test import Client

from ledger.models import NodeZone

CONFIRM = "/zones/plan/confirm/"
HOSTILE = "<script>alert(1)</script>\u202e\"'&" + "x" * 400


def by_list(client: Client, nodes: str, zone: str = "whole", **more: str) -> Any:
    return client.post("/zones/plan/", {"mode": "list", "nodes": nodes, "to_zone": zone, **more})


def by_ratio(client: Client, **targets: str) -> Any:
    base = {"mode": "ratio", "hardware": "simulated", "unit": "nodes", "model": ""}
    return client.post("/zones/plan/", base | {name.replace("_", "-"): value for name, value in targets.items()})


def token(preview: Any) -> str:
    return str(preview.context["form"]["plan"].value())


def confirm(client: Client, preview: Any, **values: str) -> Any:
    return client.post(CONFIRM, {"plan": token(preview), "reason": "more whole machines"} | values)


def where(hostname: str) -> str:
    return NodeZone.objects.get(node__hostname=hostname, period__upper_inf=True).zone.slug
