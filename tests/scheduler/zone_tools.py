"""A small fleet in three zones, and the words in which tests of zone plans speak of it."""

from __future__ import annotations

from typing import Any

import pytest

from ledger import inventory
from ledger.errors import Refused
from ledger.models import Allocation, Node, NodeZone, Zone
from ledger.vocabulary import Form, HoldKind, SiteRole
from scheduler import zones
from scheduler.models import ZonePlan
from scheduler.zone_proposals import (
    Proposal,
    propose_list,
    propose_ratio,
)
from tests import factories
from tests.scheduler import flow


def lay_out() -> dict[str, Zone]:
    """Zones a (containers), b (whole machines), c (all forms); n1 … n4 simulated in a."""
    made = {
        "a": factories.zone("a", [Form.CONTAINER]),
        "b": factories.zone("b", [Form.WHOLE]),
        "c": factories.zone("c"),
    }
    flow.world(nodes=4, cards=2, in_zone=made["a"])
    return made


def plan_of(proposal: Proposal, **values: Any) -> ZonePlan:
    admin = factories.user("admin", SiteRole.ADMIN)
    return zones.make_plan(**{"proposal": proposal, "reason": "test", "actor": admin, "via": "test"} | values)


def to(zone: Zone, *hostnames: str) -> Proposal:
    return propose_list(hostnames=hostnames, to_zone=zone)


def ratio(**values: Any) -> Proposal:
    wanted = {"percent": False, "simulated": True, "zones": list(Zone.objects.order_by("slug"))} | values
    return propose_ratio(**wanted)


def where() -> dict[str, str]:
    rows = NodeZone.objects.filter(period__upper_inf=True).order_by("node")
    return dict(rows.values_list("node__hostname", "zone__slug"))


def states(plan: ZonePlan) -> dict[str, str]:
    return dict(plan.moves.values_list("node__hostname", "state"))


def busy(hostname: str, **values: Any) -> Any:
    """A long job that stands on this node: all the others are held while it is placed."""
    others = [
        inventory.place_hold(kind=HoldKind.DRILL, reason="test", actor=None, via="test", node=node)
        for node in Node.objects.exclude(hostname=hostname)
    ]
    job = flow.long_job(**values)
    flow.start(job)
    for hold in others:
        inventory.end_hold(hold_id=hold.pk, reason="test", actor=None, via="test")
    assert Allocation.objects.get(attempt__job=job, period__upper_inf=True).node.hostname == hostname
    return job


def end(job: Any) -> None:
    flow.run_on()
    flow.finish(job)


def refusal(call: Any) -> tuple[str, str]:
    with pytest.raises(Refused) as caught:
        call()
    return caught.value.field, caught.value.code
