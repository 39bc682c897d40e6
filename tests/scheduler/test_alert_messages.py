"""Who is told of an alert, by what, and how few messages that takes; and that none is lost on the way."""

from __future__ import annotations

import datetime as dt
import hmac
import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.core import mail

from ledger.clock import database_now
from ledger.errors import Conflict, Forbidden, Refused
from ledger.inventory import end_hold, place_hold
from ledger.models import AuditEvent, Card, Hold, Node, User
from ledger.vocabulary import DeliveryState, HoldKind
from scheduler import alert_changes, alert_messages, alert_sending, alerts, outbox
from scheduler.alert_matchers import parse
from scheduler.alert_rows import Alert, AlertDelivery, AlertMessage, AlertRule, AlertRung
from scheduler.models import Drift
from tests import factories
from tests.scheduler.alert_world import SECRET, act, machine, only, passes, ready, says
from tests.scheduler.web import Server, reply, serving

pytestmark = pytest.mark.django_db


@pytest.fixture
def hook(settings: Any) -> Iterator[Server]:
    with serving() as web:
        settings.ALERT_WEBHOOK_URL = f"http://127.0.0.1:{web.port}/alerts"
        settings.ALERT_WEBHOOK_SECRET = SECRET
        settings.OUTBOUND_ALLOW = [f"127.0.0.1:{web.port}"]
        yield web


@pytest.fixture
def mails(settings: Any) -> None:
    settings.EMAIL_HOST, settings.ALERT_MAIL_TO = "mail.lab.example", ["ops@lab.example", "night@lab.example"]


def take_out(*cards: Card | Node, kind: HoldKind = HoldKind.FAULT) -> list[Hold]:
    return [
        place_hold(kind=kind, reason="x", actor=None, via="test", **{"card" if isinstance(c, Card) else "node": c})
        for c in cards
    ]


def cards_of(*nodes: Node) -> list[Card]:
    return list(Card.objects.filter(seats__node__in=nodes).order_by("uuid"))


def bodies(web: Server) -> list[dict[str, Any]]:
    return [json.loads(request.partition(b"\r\n\r\n")[2]) for request in web.got]


def send() -> dict[str, int]:
    """What was written at moments up to ten minutes from now."""
    return alert_sending.send_due(database_now() + dt.timedelta(minutes=10))


# -- the way of one alert ----------------------------------------------------------------------------------------------


def test_a_card_that_is_taken_out_is_told_to_the_webhook_signed_and_its_return_too(hook: Server) -> None:
    only("taken-out")
    (hold,) = take_out(*cards_of(machine()))
    passes(0)
    assert send()["sent"] == 1
    head, _gap, body = hook.got[0].partition(b"\r\n\r\n")
    mark = hmac.new(SECRET.encode(), body, "sha256").hexdigest()
    assert f"X-GPU-Commons-Signature: sha256={mark}".encode() in head
    message = AlertMessage.objects.get(channel="webhook")
    assert f"Idempotency-Key: alert-message-{message.pk}".encode() in head
    told = json.loads(body)
    assert (told["event"], told["rule"], told["severity"], told["place"]) == ("alert.fired", "taken-out", "warn", "n1")
    assert told["alerts"][0]["labels"]["hold"] == str(hold.pk)
    assert told["alerts"][0]["text"] == "n1 n1-card-0 is taken out of the pool (fault)."
    end_hold(hold_id=hold.pk, reason="x", actor=None, via="test")
    passes(5)
    assert send()["sent"] == 1
    assert bodies(hook)[1]["event"] == "alert.resolved"
    passes(10, 15)
    assert send()["sent"] == 0


def test_a_drill_finds_when_its_alert_went_out(hook: Server) -> None:
    only("taken-out")
    node = machine(cards=2)
    mine, _other = take_out(*cards_of(node), kind=HoldKind.DRILL)
    assert alerts.deliveries_for({"hold": str(mine.pk)}) == []
    passes(0)
    fired_at = Alert.objects.get(labels__hold=str(mine.pk)).fired_at
    send()
    found = alerts.deliveries_for({"hold": str(mine.pk)})
    assert [(channel, state) for channel, _at, state in found] == [
        ("pages", "sent"),
        ("webhook", "sent"),
        ("alertmanager", "not_configured"),
    ]
    assert found[0][1] == fired_at
    assert found[1][1] == AlertMessage.objects.get(channel="webhook").sent_at
    assert found[2][1] is None


def test_a_site_without_channels_says_so(settings: Any) -> None:
    only("taken-out")
    take_out(*cards_of(machine()))
    passes(0)
    assert set(AlertMessage.objects.values_list("channel", "state")) == {
        ("alertmanager", "not_configured"),
        ("webhook", "not_configured"),
    }
    assert send()["sent"] == 0


def test_mails_are_in_the_language_of_whose_address_it_is(mails: None) -> None:
    ready()
    factories.user("night")
    User.objects.filter(username="night").update(email="night@lab.example", locale="zh-hans")
    says(machine(), temperature_c=99)
    passes(0, 10)
    assert send()["sent"] == 1
    assert sorted(message.to[0] for message in mail.outbox) == ["night@lab.example", "ops@lab.example"]
    english = next(message for message in mail.outbox if message.to == ["ops@lab.example"])
    assert english.subject == "ACT NOW: Card is too hot, n1"
    assert "n1 n1-card-0: temperature of a card is 99 °C, above 92 °C." in english.body


def test_simulated_things_stay_on_the_pages_unless_the_site_wants_them_told(hook: Server, settings: Any) -> None:
    only("taken-out")
    take_out(*cards_of(machine("s1", simulated=True)))
    passes(0)
    assert (Alert.objects.count(), AlertMessage.objects.count()) == (1, 0)
    settings.ALERT_SIMULATED = True
    take_out(*cards_of(machine("s2", simulated=True)))
    passes(5)
    assert send()["sent"] == 1
    assert bodies(hook)[0]["alerts"][0]["simulated"] is True


# -- the ladder --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "channels"),
    [
        ({"kind": "inference", "priority": "50", "severity": "warn"}, ["alertmanager", "mail", "webhook"]),
        ({"kind": "inference", "priority": "49", "severity": "warn"}, ["alertmanager", "webhook"]),
        ({"kind": "training", "preemptible": "true", "severity": "page"}, []),
        ({"kind": "training", "preemptible": "false", "severity": "page"}, ["alertmanager", "mail", "webhook"]),
        ({"supply": "spot", "severity": "warn"}, []),
        ({"severity": "page"}, ["alertmanager", "mail", "webhook"]),
        ({"severity": "event"}, []),
        ({"priority": "urgent", "kind": "inference", "severity": "event"}, []),
    ],
)
def test_the_ladder_as_it_comes(labels: dict[str, str], channels: list[str]) -> None:
    ready()
    alert = Alert(labels=labels, simulated=False)
    assert alert_messages.channels_of(alert, alert_messages.ladder()) == channels


def test_a_machine_that_is_not_the_site_s_own_says_so_and_its_warnings_stay_on_the_pages(hook: Server) -> None:
    only("taken-out")
    take_out(*cards_of(machine("n1", supply="spot")), *cards_of(machine("n2")))
    passes(0)
    assert sorted((a.labels["node"], a.labels.get("supply")) for a in Alert.objects.all()) == [
        ("n1", "spot"),
        ("n2", None),
    ]
    send()
    assert [told["place"] for told in bodies(hook)] == ["n2"]


def test_a_rung_that_is_switched_off_is_stepped_over() -> None:
    ready()
    rung = AlertRung.objects.get(key="urgent-inference")
    alert_changes.change_rung(rung=rung, matchers=rung.matchers, channels=rung.channels, enabled=False, act=act())
    alert = Alert(labels={"kind": "inference", "priority": "90", "severity": "event"}, simulated=False)
    assert alert_messages.channels_of(alert, alert_messages.ladder()) == []


# -- few messages ------------------------------------------------------------------------------------------------------


def test_a_node_with_eight_cards_out_is_one_message(hook: Server, mails: None) -> None:
    only("taken-out")
    take_out(*cards_of(machine(cards=8)))
    passes(0)
    send()
    assert len(hook.got) == 1
    told = bodies(hook)[0]
    assert (told["place"], len(told["alerts"]), told["more"]) == ("n1", 8, 0)
    assert told["text"] == "Warning: Taken out of the pool, n1 (8)"


def test_a_site_that_goes_dark_is_a_few_messages_and_no_alert_is_left_out(
    hook: Server, mails: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert_sending, "LISTED", 10)
    monkeypatch.setattr(alert_sending, "NAMED", 5)
    ready()
    nodes = [machine(f"n{n:02}", in_zone=factories.zone(f"z{n % 5}"), cards=2) for n in range(10)]
    for node in nodes:
        for slot in range(2):
            says(node, slot, temperature_c=99)
    passes(0, 60)
    assert Alert.objects.filter(rule__key="temperature-critical").count() == 20
    send()
    assert len([told for told in bodies(hook) if told["rule"] == "temperature-critical"]) == 1
    assert {(len(told["alerts"]), told["more"]) for told in bodies(hook)} == {(10, 10)}
    assert len(mail.outbox) == 1
    assert "… and 15 more." in mail.outbox[0].body
    assert AlertDelivery.objects.filter(message__channel="webhook").count() == 40


def test_one_after_another_they_are_bounded_and_the_rest_waits_in_one(hook: Server) -> None:
    only("taken-out")
    start = database_now()
    for n in range(12):
        take_out(*cards_of(machine(f"n{n:02}")))
        passes(5 * n, start=start)
    most = alert_messages.MOST_MESSAGES
    sent = AlertMessage.objects.filter(channel="webhook").order_by("pk")
    assert sent.count() == most + 1
    last = sent.last()
    assert last is not None
    assert (last.due_at, last.place) == (sent[0].created_at + alert_messages.WINDOW, "")
    assert last.deliveries.count() == 12 - most
    assert alert_sending.send_due(start + dt.timedelta(seconds=60))["sent"] == most
    assert alert_sending.send_due(last.due_at)["sent"] == 1
    assert sum(len(told["alerts"]) for told in bodies(hook)) == 12


def test_where_no_channel_is_the_rows_are_bounded_too() -> None:
    only("taken-out")
    start = database_now()
    for n in range(9):
        take_out(*cards_of(machine(f"n{n:02}")))
        passes(5 * n, start=start)
    assert AlertMessage.objects.filter(channel="webhook").count() <= alert_messages.MOST_MESSAGES + 1
    assert AlertDelivery.objects.filter(message__channel="webhook").count() == 9


def test_nobody_is_told_twice(hook: Server) -> None:
    only("taken-out")
    take_out(*cards_of(machine()))
    passes(0, 5, 10, 400)
    send()
    send()
    assert len(hook.got) == 1


# -- silences ----------------------------------------------------------------------------------------------------------


def test_a_silence_keeps_the_record_and_tells_nobody_until_it_is_over(hook: Server) -> None:
    only("taken-out")
    now = database_now()
    made = alert_changes.silence(matchers=parse("node=n1"), until=now + dt.timedelta(hours=1), act=act())
    take_out(*cards_of(machine("n1")), *cards_of(machine("n2")))
    passes(1)
    send()
    assert [told["place"] for told in bodies(hook)] == ["n2"]
    assert Alert.objects.count() == 2
    alert_changes.end_silence(silence=made, act=act("it is mended"))
    passes(5)
    send()
    assert [told["place"] for told in bodies(hook)] == ["n2", "n1"]


def test_what_ends_during_its_silence_is_never_told(hook: Server) -> None:
    only("taken-out")
    until = database_now() + dt.timedelta(seconds=60)
    alert_changes.silence(matchers=parse("alertname=taken-out"), until=until, act=act())
    (hold,) = take_out(*cards_of(machine()))
    passes(1)
    end_hold(hold_id=hold.pk, reason="x", actor=None, via="test")
    passes(5, 100)
    assert AlertMessage.objects.count() == 0


def test_many_that_are_silenced_keep_no_other_waiting(hook: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert_messages, "MOST_ALERTS", 2)
    only("taken-out")
    alert_changes.silence(matchers=parse("node=n1"), until=database_now() + dt.timedelta(hours=1), act=act())
    take_out(*cards_of(machine("n1", cards=3)))
    passes(1)
    take_out(*cards_of(machine("n2", cards=3)))
    passes(5, 10)
    send()
    assert [(told["place"], len(told["alerts"])) for told in bodies(hook)] == [("n2", 2), ("n2", 1)]


def test_who_was_told_before_a_silence_is_told_of_the_end_after_it(hook: Server) -> None:
    only("taken-out")
    (hold,) = take_out(*cards_of(machine()))
    passes(1)
    send()
    until = database_now() + dt.timedelta(seconds=60)
    alert_changes.silence(matchers=parse("node=n1"), until=until, act=act())
    end_hold(hold_id=hold.pk, reason="x", actor=None, via="test")
    passes(5, 10)
    send()
    assert [told["event"] for told in bodies(hook)] == ["alert.fired"]
    passes(70, 75)
    send()
    assert [told["event"] for told in bodies(hook)] == ["alert.fired", "alert.resolved"]


@pytest.mark.parametrize(
    ("matchers", "hours", "field"),
    [
        ("", 1, "matchers"),
        ("node", 1, "matchers"),
        ("no de=x", 1, "matchers"),
        ("node=~x", 1, ""),
        ("priority>=x", 1, "matchers"),
        ("priority>=1|2", 1, "matchers"),
        ("node=" + "x" * 201, 1, "matchers"),
        ("\n".join(f"a{n}=1" for n in range(21)), 1, "matchers"),
        ("nosuch=", 1, "matchers"),
        ("node!=n1\nzone=a|", 1, "matchers"),
        ("node=n1", 0, "until"),
        ("node=n1", -1, "until"),
        ("node=n1", 24 * 91, "until"),
    ],
)
def test_silences_that_make_no_sense_are_refused(matchers: str, hours: float, field: str) -> None:
    until = database_now() + dt.timedelta(hours=hours)
    if not field:  # it is a value that begins with “~”, which is no label's
        assert parse(matchers) == [["node", "=", ["~x"]]]
        return
    with pytest.raises(Refused) as refused:
        alert_changes.silence(matchers=parse(matchers), until=until, act=act())
    assert refused.value.field == field


def test_acts_are_for_operators_have_reasons_and_are_audited() -> None:
    until = database_now() + dt.timedelta(hours=1)
    stranger = alert_changes.Act(factories.user("researcher"), "test", "x")
    with pytest.raises(Forbidden):
        alert_changes.silence(matchers=parse("node=n1"), until=until, act=stranger)
    with pytest.raises(Refused):
        alert_changes.silence(matchers=parse("node=n1"), until=until, act=act(""))
    made = alert_changes.silence(matchers=parse("node=n1"), until=until, act=act("fan is changed"))
    alert_changes.end_silence(silence=made, act=act("done"))
    with pytest.raises(Conflict):
        alert_changes.end_silence(silence=made, act=act("again"))
    verbs = AuditEvent.objects.filter(target_type="silence").order_by("pk").values_list("verb", "reason")
    assert list(verbs) == [("alert.silenced", "fan is changed"), ("alert.silence_ended", "done")]


# -- kills and failures ------------------------------------------------------------------------------------------------


class Killed(BaseException):
    pass


def test_killed_between_sending_and_noting_it_is_sent_again(hook: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    only("taken-out")
    take_out(*cards_of(machine()))
    passes(0)
    now = database_now()

    def dies(_message: AlertMessage) -> int:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(alert_sending, "_note_sent", dies)
        with pytest.raises(Killed):
            alert_sending.send_due(now)
    assert alert_sending.send_due(now)["sent"] == 0  # it may be under way still
    assert alert_sending.send_due(now + outbox.LEASE)["sent"] == 1
    keys = {next(line for line in head.split(b"\r\n") if line.startswith(b"Idempotency")) for head in hook.got}
    assert (len(hook.got), len(keys)) == (2, 1)


def test_killed_after_the_pass_that_found_it_it_is_told_by_the_next(
    hook: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    only("taken-out")
    take_out(*cards_of(machine()))

    def dies(_now: dt.datetime) -> dict[str, int]:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(alert_messages, "write_due", dies)
        with pytest.raises(Killed):
            passes(0)
    passes(5)
    assert send()["sent"] == 1


@pytest.mark.parametrize("status", [302, 400, 500])
def test_any_answer_but_2xx_is_tried_again(hook: Server, status: int) -> None:
    only("taken-out")
    take_out(*cards_of(machine()))
    passes(0)
    hook.answer = lambda _request: reply(status, b"", "Location: http://127.0.0.1/")
    now = database_now()
    assert alert_sending.send_due(now) == {"sent": 0, "tried": 1, "failed": 0}
    message = AlertMessage.objects.get(channel="webhook")
    assert (message.state, str(status) in message.last_error) == (DeliveryState.PENDING, True)
    hook.answer = lambda _request: reply()
    assert alert_sending.send_due(message.due_at)["sent"] == 1


def test_a_webhook_on_this_machine_is_refused_unless_the_site_allows_it(hook: Server, settings: Any) -> None:
    settings.OUTBOUND_ALLOW = []
    only("taken-out")
    take_out(*cards_of(machine()))
    passes(0)
    assert send()["tried"] == 1
    assert "OUTBOUND_ALLOW" in AlertMessage.objects.get(channel="webhook").last_error
    assert hook.got == []


def test_one_channel_that_fails_keeps_no_other_waiting(
    hook: Server, mails: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready()
    says(machine(), temperature_c=99)
    passes(0, 10)

    def fails(_message: AlertMessage, _now: dt.datetime) -> None:
        raise ConnectionError("away")

    monkeypatch.setitem(alert_sending.SENDERS, alert_sending.AlertChannel.MAIL, fails)
    result = send()
    assert (result["tried"], result["sent"]) == (1, 1)


# -- tests of channels -------------------------------------------------------------------------------------------------


def test_a_test_goes_the_way_of_every_other_message(hook: Server) -> None:
    made = alert_changes.send_test(channel="webhook", act=act())
    assert send()["sent"] == 1
    assert bodies(hook)[0]["event"] == "alert.test"
    assert AuditEvent.objects.get(verb="alert.tested").target_id == str(made.pk)
    with pytest.raises(Conflict):
        alert_changes.send_test(channel="webhook", act=act())
    with pytest.raises(Conflict):
        alert_changes.send_test(channel="mail", act=act())
    with pytest.raises(Refused):
        alert_changes.send_test(channel="pigeon", act=act())


def test_an_end_is_never_told_before_its_beginning_and_what_is_told_late_says_so(hook: Server) -> None:
    only("taken-out")
    hook.answer = lambda _request: reply(503)
    (hold,) = take_out(*cards_of(machine()))
    now = database_now()
    passes(1)
    alert_sending.send_due(now + dt.timedelta(seconds=2))
    end_hold(hold_id=hold.pk, reason="x", actor=None, via="test")
    passes(3)
    hook.got.clear()
    hook.answer = lambda _request: reply()
    assert alert_sending.send_due(now + dt.timedelta(seconds=4))["sent"] == 0  # the first waits for its next try
    send()
    send()
    assert [told["text"] for told in bodies(hook)] == [
        "Over already: Taken out of the pool, n1",
        "Over: Taken out of the pool, n1",
    ]


def test_one_thing_without_a_place_is_named(hook: Server) -> None:
    only("drift")
    Drift.objects.create(
        kind="agent_silent", subject="n1", detail="x", first_seen=database_now(), last_seen=database_now()
    )
    AlertRule.objects.filter(key="drift").update(for_s=0)
    passes(0)
    send()
    assert [told["text"] for told in bodies(hook)] == ["Warning: Book and machines differ, agent_silent"]
