"""The pages of alerts: what they say, and what people do there."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from ledger.clock import database_now
from ledger.inventory import place_hold
from ledger.models import AuditEvent, Card, CardHour, User
from ledger.vocabulary import HoldKind
from scheduler import alert_preview, alerting
from scheduler.alert_rows import Alert, AlertMessage, AlertRule, AlertRung, Silence
from tests import factories
from tests.scheduler.alert_world import machine, ready, says

pytestmark = pytest.mark.django_db
RULE = {
    "name": "Hot in the small room",
    "metric": "temperature",
    "comparison": "above",
    "threshold": "80",
    "for_s": "0",
    "keep_s": "60",
    "severity": "warn",
    "selector": "zone=small",
    "enabled": "on",
}


@pytest.fixture
def operator(people: dict[str, User]) -> Client:
    return signed(people["operator"])


def signed(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def fires(name: str = "n1", **values: Any) -> Alert:
    node = machine(name, **values)
    place_hold(kind=HoldKind.FAULT, reason="x", actor=None, via="test", node=node)
    alerting.evaluate()
    return Alert.objects.get(rule__key="taken-out", subject=name)


def page(client: Client, name: str, *arguments: Any, query: str = "") -> str:
    answer = client.get(reverse(name, args=arguments) + query)
    assert answer.status_code == 200, answer.content[:500]
    return answer.content.decode()


def test_the_list_says_what_is_bad_where_and_since_when(operator: Client) -> None:
    alert = fires("n1")
    fires("s1", simulated=True)
    text = page(operator, "alerts", query="?state=open")
    assert f"/health/alerts/{alert.pk}/" in text
    for words in ("Taken out of the pool", "n1 is taken out of the pool (fault).", "/nodes/n1/", "firing", "simulated"):
        assert words in text
    real = page(operator, "alerts", query="?hardware=real&severity=warn&rule=taken-out&q=n1")
    assert "n1 is taken" in real
    assert "s1 is taken" not in real
    assert "No alert matches the filter." in page(operator, "alerts", query="?state=resolved")
    assert "text/csv" in operator.get(reverse("alerts") + "?export=csv")["Content-Type"]


def test_an_empty_list_says_the_next_step(operator: Client) -> None:
    assert "Nothing is bad, and nothing ever was." in page(operator, "alerts")
    assert "No rule yet." in page(operator, "alert-rules")
    assert "Nothing is silenced" in page(operator, "silences")


def test_the_page_of_an_alert_tells_who_was_told(operator: Client) -> None:
    text = page(operator, "alert", fires("n1").pk)
    for words in ("alertname=taken-out", "not sent: not configured", "Alertmanager", "Silence it"):
        assert words in text
    assert "ALERT_SIMULATED" in page(operator, "alert", fires("s1", simulated=True).pk)


def test_an_alert_is_silenced_from_its_page_and_the_silence_ended(operator: Client) -> None:
    alert = fires("n1")
    until = timezone.localtime() + dt.timedelta(hours=2)
    form = {"matchers": "node=n1\nalertname=taken-out", "until": until.strftime("%Y-%m-%dT%H:%M"), "reason": "fan"}
    answer = operator.post(reverse("silences"), form)
    assert answer.status_code == 302
    silence = Silence.objects.get()
    assert silence.matchers == [["node", "=", ["n1"]], ["alertname", "=", ["taken-out"]]]
    assert "silenced" in page(operator, "alert", alert.pk)
    assert "silent now" in page(operator, "silences")
    operator.post(reverse("silence-end", args=[silence.pk]), {"reason": "mended"})
    assert "ended early by operator" in page(operator, "silences")
    refused = operator.post(reverse("silence-end", args=[silence.pk]), {"reason": "again"}, follow=True)
    assert "over already" in refused.content.decode()


@pytest.mark.parametrize(
    "change",
    [
        {"matchers": ""},
        {"matchers": "node"},
        {"until": "2020-01-01T00:00"},
        {"until": "x"},
        {"until": "2150-01-01T00:00"},
        {"reason": ""},
    ],
)
def test_a_bad_silence_is_told_beside_its_field(operator: Client, change: dict[str, str]) -> None:
    until = timezone.localtime() + dt.timedelta(hours=2)
    form = {"matchers": "node=n1", "until": until.strftime("%Y-%m-%dT%H:%M"), "reason": "fan"} | change
    answer = operator.post(reverse("silences"), form)
    assert answer.status_code == 422
    assert "field-error" in answer.content.decode()
    assert Silence.objects.count() == 0


# -- rules -------------------------------------------------------------------------------------------------------------


def hours(card: Card, *hottest: float) -> None:
    """One hour each, the last one two hours ago."""
    now = database_now().replace(minute=0, second=0, microsecond=0)
    for ago, value in enumerate(reversed(hottest), 2):
        about = {"samples": 360, "temperature_c": [value - 20, value - 10, value]}
        CardHour.objects.create(card=card, hour=now - dt.timedelta(hours=ago), **about)


def proposed(**values: Any) -> AlertRule:
    said = {
        "metric": "temperature",
        "comparison": "above",
        "threshold": 80.0,
        "for_s": 0,
        "keep_s": 60,
        "severity": "warn",
    }
    return AlertRule(key="new", **said | {"selector": []} | values)


def test_the_preview_counts_times_in_the_hours_that_are_kept() -> None:
    node = machine("n1", cards=2, in_zone=factories.zone("small"))
    first, second = Card.objects.filter(seats__node=node).order_by("uuid")
    hours(first, 85, 90, 70, 95)  # two times: the first went on for two hours
    hours(second, 70, 70, 81)
    says(node, 0, temperature_c=99)
    effect = alert_preview.effect(proposed())
    past = effect.past
    assert past is not None
    assert (effect.now, past.times, past.things, past.at_most) == (1, 3, 2, True)
    assert past.examples[0] == ("n1 n1-card-0", 2)
    # longer than an hour goes by the means, of whole hours: 75 and 80 above 72
    long = alert_preview.effect(proposed(threshold=72.0, for_s=7_200)).past
    assert long is not None
    assert (long.times, long.at_most) == (1, False)
    elsewhere = alert_preview.effect(proposed(selector=[["zone", "=", ["big"]]]))
    assert (elsewhere.now, elsewhere.past and elsewhere.past.times) == (0, 0)


def test_the_preview_counts_what_began_and_says_what_has_no_history() -> None:
    fires("n1")
    past = alert_preview.effect(proposed(metric="taken_out", threshold=0.0)).past
    assert past is not None
    assert (past.times, past.at_most) == (1, False)
    assert alert_preview.effect(proposed(metric="queue_wait")).past is None
    for metric in ("memory_share", "tensor_active_busy", "memory_bandwidth_busy", "open_faults", "drift"):
        assert alert_preview.effect(proposed(metric=metric, threshold=0.5)).past is not None


def test_a_rule_is_previewed_then_saved_with_a_reason(operator: Client) -> None:
    hours(Card.objects.get(uuid="n1-card-0") if machine(in_zone=factories.zone("small")) else Card(), 85)
    address = reverse("alert-rule-new")
    preview = operator.post(address, RULE)
    text = preview.content.decode()
    assert preview.status_code == 200
    assert "at most 1 time;" in text
    assert AlertRule.objects.count() == 0
    assert operator.post(address, RULE | {"confirm": "yes"}).status_code == 422  # no reason
    saved = operator.post(address, RULE | {"confirm": "yes", "reason": "no cooling"})
    assert saved.status_code == 302
    rule = AlertRule.objects.get()
    assert (rule.selector, rule.threshold, rule.by_id) == (
        [["zone", "=", ["small"]]],
        80,
        User.objects.get(username="operator").pk,
    )
    assert "Hot in the small room" in page(operator, "alert-rules")
    changed = operator.post(
        reverse("alertrule", args=[rule.pk]),
        RULE | {"threshold": "82", "version": "1", "confirm": "yes", "reason": "too many"},
    )
    assert changed.status_code == 302
    stale = operator.post(
        reverse("alertrule", args=[rule.pk]),
        RULE | {"threshold": "83", "version": "1", "confirm": "yes", "reason": "too many"},
    )
    assert stale.status_code == 409
    assert [e.verb for e in AuditEvent.objects.filter(target_type="alertrule").order_by("pk")] == [
        "alert.rule.added",
        "alert.rule.changed",
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"metric": "utilisation", "threshold": "90"}, "High utilisation alone is no fault"),
        ({"threshold": "nan"}, "field-error"),
        ({"threshold": "warm"}, "field-error"),
        ({"for_s": "-1"}, "field-error"),
        ({"selector": "zone"}, "is not label=value"),
        ({"severity": "loud"}, "field-error"),
    ],
)
def test_a_bad_rule_is_told_beside_its_field(operator: Client, change: dict[str, str], words: str) -> None:
    for extra in ({}, {"confirm": "yes", "reason": "x"}):
        answer = operator.post(reverse("alert-rule-new"), RULE | change | extra)
        assert answer.status_code == 422
        assert words in answer.content.decode()
    assert AlertRule.objects.count() == 0


def test_a_summary_names_only_what_it_may(operator: Client) -> None:
    ready()
    odd = "{subject} at {value}: {alert.rule} {0.__class__} %(x)s"
    AlertRule.objects.filter(key="taken-out").update(summary=odd)
    text = page(operator, "alert", fires("n1").pk)
    assert "n1 at 1: {alert.rule} {0.__class__} %(x)s" in text


# -- channels and the ladder -------------------------------------------------------------------------------------------


def test_channels_say_how_they_are_and_are_tested(operator: Client, settings: Any) -> None:
    ready()
    text = page(operator, "alert-channels")
    assert "not configured: set ALERT_WEBHOOK_URL, ALERT_WEBHOOK_SECRET" in text
    settings.ALERT_WEBHOOK_URL = "http://hooks.example/"
    operator.post(reverse("alertchannel-test", args=["webhook"]))
    assert AlertMessage.objects.get().event == "test"
    assert "to be sent" in page(operator, "alert-channels")
    again = operator.post(reverse("alertchannel-test", args=["webhook"]), follow=True)
    assert "wait ten seconds" in again.content.decode()


def test_the_ladder_is_changed(operator: Client) -> None:
    ready()
    rung = AlertRung.objects.get(key="warn")
    address = reverse("alertrung", args=[rung.pk])
    form = {
        "version": "1",
        "matchers": "severity=warn",
        "channels": ["mail", "webhook"],
        "enabled": "on",
        "reason": "so",
    }
    assert operator.post(address, form).status_code == 302
    rung.refresh_from_db()
    assert rung.channels == ["mail", "webhook"]
    assert operator.post(address, form | {"channels": ["mail"]}).status_code == 409
    assert operator.post(address, form | {"version": "2", "channels": ["pigeon"]}).status_code == 422
    assert operator.post(address, form | {"version": "2", "matchers": "x"}).status_code == 422


def test_the_file_for_prometheus_is_given_out(people: dict[str, User]) -> None:
    answer = signed(people["auditor"]).get(reverse("alert-file"))
    assert "attachment" in answer["Content-Disposition"]
    assert b"GPUCommonsAbsent" in answer.content


def test_who_only_reads_sees_no_form_and_acts_on_nothing(people: dict[str, User]) -> None:
    auditor, alert = signed(people["auditor"]), fires("n1")
    assert "Silence it" not in page(auditor, "alert", alert.pk)
    assert "Send a test" not in page(auditor, "alert-channels")
    assert auditor.post(reverse("silences"), {}).status_code == 403
    assert Silence.objects.count() == 0
