"""How tests of the zone pages choose, preview and confirm plans."""

from __future__ import annotations

from typing import Any

from django.test import Client

from ledger.models import NodeZone, Zone
from ledger.vocabulary import Form
from tests import factories

CONFIRM = "/zones/plan/confirm/"
HOSTILE = "<script>alert(1)</script>\u202e\"'&" + "x" * 400


def lay_out() -> dict[str, Zone]:
    """n1 is there and runs a job in `flexible`; n2 … n4 are idle there; `whole` takes whole machines."""
    for number in range(2, 5):
        factories.node(f"n{number}", cards=2)
    return {"flexible": factories.zone(), "whole": factories.zone("whole", [Form.WHOLE])}


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
