"""What tests of alerts have in common: nodes with cards that report, passes at chosen moments, a webhook."""

from __future__ import annotations

import datetime as dt
from typing import Any

from ledger import telemetry
from ledger.acts import Act
from ledger.clock import database_now
from ledger.models import Card, CardStatus, Node
from ledger.vocabulary import SiteRole
from scheduler import alert_defaults, alerting
from scheduler.alert_changes import RuleTerms, change_rule, terms_of
from scheduler.alert_rows import Alert, AlertRule
from tests import factories

SECRET = "a secret of the two of us"


def operator() -> Any:
    return factories.user("operator", SiteRole.OPERATOR)


def act(reason: str = "test") -> Act:
    return Act(operator(), "test", reason)


def ready() -> None:
    alert_defaults.ensure(database_now())


def only(*keys: str) -> None:
    """All other rules are off."""
    ready()
    AlertRule.objects.exclude(key__in=keys).update(enabled=False)


def change(key: str, **values: Any) -> AlertRule:
    rule = AlertRule.objects.get(key=key)
    said = {name: getattr(terms_of(rule), name) for name in RuleTerms.__dataclass_fields__}
    return change_rule(rule=rule, terms=RuleTerms(**said | values), act=act())


def machine(name: str = "n1", cards: int = 1, **values: Any) -> Node:
    return factories.node(name, cards=cards, **{"simulated": False} | values)


def says(node: Node, slot: int = 0, **values: Any) -> Card:
    """What a card of the node told last, a moment ago."""
    card = Card.objects.get(uuid=f"{node.hostname}-card-{slot}")
    boot, _new = node.boots.get_or_create(boot_id="b", defaults={"first_seen": database_now()})
    about = {"boot": boot, "sequence": 1, "received_at": database_now()}
    CardStatus.objects.update_or_create(card=card, defaults=about | values)
    return card


def faulty(node: Node, code: int = 79, number: int = 1, slot: int = 0) -> None:
    now = database_now()
    uuid = f"{node.hostname}-card-{slot}"
    fault = {"id": f"b:{slot}:{number}", "kind": "xid", "code": code, "card_uuid": uuid, "at": now, "message": "x"}
    report = {"boot_id": "b", "sequence": number, "sent_at": now, "virtual": False, "node": {}, "links": []}
    telemetry.ingest(node, report | {"cards": [{"uuid": uuid, "slot": slot}], "faults": [fault]})


def passes(*seconds: float, start: dt.datetime | None = None) -> list[dict[str, int]]:
    """One pass at each of these moments after now."""
    start = start or database_now()
    return [alerting.evaluate(start + dt.timedelta(seconds=each)) for each in seconds]


def states(key: str | None = None) -> list[str]:
    rows = Alert.objects.order_by("pk")
    return [str(alert.state) for alert in (rows.filter(rule__key=key) if key else rows)]
