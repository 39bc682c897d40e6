"""Changes of the rules and the ladder of alerts: what may be said, by whom, and that it is kept."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.errors import Conflict, Forbidden, Refused
from ledger.models import AuditEvent
from scheduler import alert_changes
from scheduler.alert_changes import RuleTerms
from scheduler.alert_rows import AlertRule, AlertRung
from tests import factories
from tests.scheduler.alert_world import act, change, ready

pytestmark = pytest.mark.django_db
GOOD: dict[str, Any] = {
    "metric": "temperature",
    "comparison": "above",
    "threshold": 80.0,
    "for_s": 60,
    "keep_s": 60,
    "severity": "warn",
    "selector": [],
    "name": "Hot in the small room",
}


def add(**values: Any) -> AlertRule:
    return alert_changes.add_rule(terms=RuleTerms(**GOOD | values), act=act("the small room has no cooling"))


def test_a_rule_of_the_site_s_own() -> None:
    first, second = add(), add()
    assert (first.key, second.key) == ("own-hot-in-the-small-room", "own-hot-in-the-small-room-2")
    assert add(name="机房过热").key == "own-rule"
    event = AuditEvent.objects.filter(verb="alert.rule.added").earliest("pk")
    assert (event.target_id, event.after["threshold"]) == (str(first.pk), 80)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"metric": "weather"}, "metric"),
        ({"metric": "utilisation", "threshold": 90.0}, "metric"),
        ({"comparison": "beside"}, "comparison"),
        ({"threshold": float("nan")}, "threshold"),
        ({"threshold": float("inf")}, "threshold"),
        ({"threshold": 1e13}, "threshold"),
        ({"for_s": -1}, "for_s"),
        ({"for_s": 86_400 * 31}, "for_s"),
        ({"keep_s": -5}, "keep_s"),
        ({"severity": "loud"}, "severity"),
        ({"selector": [["zone", "~", ["x"]]]}, "selector"),
        ({"selector": ["zone"]}, "selector"),
        ({"name": ""}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"summary": "x" * 301}, "summary"),
    ],
)
def test_rules_that_make_no_sense_are_refused(values: dict[str, Any], field: str) -> None:
    with pytest.raises(Refused) as refused:
        add(**values)
    assert refused.value.field == field
    assert AlertRule.objects.count() == 0


def test_low_utilisation_may_be_a_rule() -> None:
    assert add(metric="utilisation", comparison="below", threshold=5.0).pk


def test_a_change_is_kept_with_what_was_before() -> None:
    ready()
    changed = change("temperature-high", threshold=80.0)
    event = AuditEvent.objects.get(verb="alert.rule.changed")
    assert (event.before["threshold"], event.after["threshold"], changed.version) == (85, 80, 2)
    with pytest.raises(Refused, match="already"):
        change("temperature-high", threshold=80.0)


def test_a_change_of_what_was_changed_meanwhile_is_a_conflict() -> None:
    ready()
    rule = AlertRule.objects.get(key="drift")
    change("drift", threshold=1.0)
    with pytest.raises(Conflict):
        alert_changes.change_rule(rule=rule, terms=RuleTerms(**GOOD), act=act(), shown=1)


def test_others_may_not() -> None:
    ready()
    for person in (factories.user("researcher"), None):
        with pytest.raises(Forbidden):
            alert_changes.add_rule(terms=RuleTerms(**GOOD), act=alert_changes.Act(person, "test", "x"))


def test_a_rung_is_changed_with_a_reason() -> None:
    ready()
    rung = AlertRung.objects.get(key="warn")
    values: dict[str, Any] = {"matchers": rung.matchers, "enabled": True}
    with pytest.raises(Refused):
        alert_changes.change_rung(rung=rung, channels=["pigeon"], act=act(), **values)
    with pytest.raises(Refused):
        alert_changes.change_rung(rung=rung, channels=["mail"], act=act(""), **values)
    changed = alert_changes.change_rung(rung=rung, channels=["webhook", "mail"], act=act("fewer pages"), **values)
    assert (changed.channels, changed.version) == (["mail", "webhook"], 2)
    assert AuditEvent.objects.get(verb="alert.rung.changed").before["channels"] == ["alertmanager", "webhook"]
