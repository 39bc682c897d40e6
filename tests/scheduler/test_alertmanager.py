"""Alertmanager: what it is told, again and again, and how silences get there; and the same with a real one."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.clock import database_now
from ledger.inventory import end_hold, place_hold
from ledger.models import Card, Hold
from ledger.vocabulary import HoldKind
from scheduler import alert_changes, alert_sending, alertmanager, alerts
from scheduler.alert_matchers import parse
from scheduler.alert_rows import AlertMessage, AlertPush, Silence
from tests.scheduler.alert_world import act, machine, only, passes
from tests.scheduler.real_alertmanager import Alertmanager
from tests.scheduler.real_alertmanager import alertmanager as running
from tests.scheduler.web import Server, reply, serving

pytestmark = pytest.mark.django_db


@pytest.fixture
def server(settings: Any) -> Iterator[Server]:
    """Somebody who takes what Alertmanager would."""
    with serving() as web:
        settings.ALERTMANAGER_URL = f"http://127.0.0.1:{web.port}"
        settings.OUTBOUND_ALLOW = [f"127.0.0.1:{web.port}"]
        web.answer = lambda _request: reply(200, b'{"silenceID": "abc"}')
        yield web


def sent(web: Server) -> list[tuple[str, Any]]:
    found = []
    for request in web.got:
        head, _gap, body = request.partition(b"\r\n\r\n")
        method, path = head.split(b" ")[:2]
        found.append((f"{method.decode()} {path.decode()}", json.loads(body or b"null")))
    return found


def out(name: str = "n1") -> Hold:
    machine(name)
    card = Card.objects.get(uuid=f"{name}-card-0")
    return place_hold(kind=HoldKind.DRILL, reason="x", actor=None, via="test", card=card)


def test_what_fires_is_told_with_its_end_in_the_future_and_again_each_minute(server: Server) -> None:
    only("taken-out")
    out()
    passes(0)
    now = database_now() + dt.timedelta(seconds=1)
    assert alert_sending.send_due(now)["sent"] == 1
    (first, second) = sent(server)  # the message, then what stands
    assert first[0] == second[0] == "POST /api/v2/alerts"
    (alert,) = first[1]
    assert alert["labels"] | {"hold": ""} == {
        "alertname": "taken-out",
        "severity": "warn",
        "simulated": "false",
        "source": "gpu-commons",
        "kind": "drill",
        "hold": "",
        "node": "n1",
        "zone": "flexible",
        "card": "n1-card-0",
    }
    assert dt.datetime.fromisoformat(alert["endsAt"]) == now + alertmanager.LIVES
    assert "/health/alerts/" in alert["generatorURL"]
    alert_sending.send_due(now + dt.timedelta(seconds=59))
    assert len(server.got) == 2
    alert_sending.send_due(now + dt.timedelta(seconds=60))
    again = sent(server)[2][1][0]
    assert again["startsAt"] == alert["startsAt"]
    assert dt.datetime.fromisoformat(again["endsAt"]) > dt.datetime.fromisoformat(alert["endsAt"])
    push = AlertPush.objects.get()
    assert (push.alerts, push.last_error, push.ok_at is not None) == (1, "", True)


def test_what_is_over_is_told_with_its_end_in_the_past(server: Server) -> None:
    only("taken-out")
    hold = out()
    passes(0)
    alert_sending.send_due(database_now() + dt.timedelta(seconds=1))
    end_hold(hold_id=hold.pk, reason="x", actor=None, via="test")
    start = database_now()
    passes(5, start=start)
    alert_sending.send_due(start + dt.timedelta(seconds=6))
    (over,) = sent(server)[-1][1]
    assert dt.datetime.fromisoformat(over["endsAt"]) == start + dt.timedelta(seconds=5)
    alert_sending.send_due(start + dt.timedelta(seconds=120))
    assert len(server.got) == 3  # nothing stands any more


def test_a_silence_goes_there_and_so_does_its_early_end(server: Server) -> None:
    only("taken-out")
    out()
    passes(0)
    alert_sending.send_due(database_now() + dt.timedelta(seconds=1))
    until = database_now() + dt.timedelta(hours=2)
    made = alert_changes.silence(matchers=parse("node=n1|n2\nseverity!=page"), until=until, act=act("fan"))
    later = database_now() + dt.timedelta(seconds=100)
    alert_sending.send_due(later)
    where, told = sent(server)[2]
    assert (where, told["comment"], told["createdBy"]) == ("POST /api/v2/silences", "fan", "operator")
    assert told["matchers"][1:] == [
        {"name": "node", "value": "n1|n2", "isRegex": True, "isEqual": True},
        {"name": "severity", "value": "page", "isRegex": False, "isEqual": False},
    ]
    assert dt.datetime.fromisoformat(told["endsAt"]) == until
    assert sent(server)[3][0] == "POST /api/v2/alerts"  # it goes on there, silenced
    alert_changes.end_silence(silence=made, act=act("done"))
    alert_sending.send_due(later + dt.timedelta(seconds=60))
    assert "DELETE /api/v2/silence/abc" in [where for where, _told in sent(server)]
    count = len(server.got)
    alert_sending.send_due(later + dt.timedelta(seconds=120))
    assert [where for where, _told in sent(server)[count:]] == ["POST /api/v2/alerts"]


def test_a_silence_that_it_cannot_hold_keeps_the_alert_from_it(server: Server) -> None:
    only("taken-out")
    out()
    passes(0)
    alert_sending.send_due(database_now() + dt.timedelta(seconds=1))
    until = database_now() + dt.timedelta(hours=2)
    alert_changes.silence(matchers=parse("hold>=0"), until=until, act=act())
    alert_sending.send_due(database_now() + dt.timedelta(seconds=100))
    assert len(server.got) == 2
    assert Silence.objects.get().mirror == ""


@pytest.mark.parametrize(("method", "status"), [("DELETE", 404), ("DELETE", 500), ("POST", 400)])
def test_a_silence_that_it_refuses_keeps_no_alert_from_it(server: Server, method: str, status: int) -> None:
    """It lost what it kept, or it does not like one silence: what it is not told again would be over there."""
    only("taken-out")
    out()
    passes(0)
    now = database_now()
    alert_sending.send_due(now + dt.timedelta(seconds=1))
    silenced = f"{method} /api/v2/silence".encode()
    until = now + dt.timedelta(hours=2)
    first = alert_changes.silence(matchers=parse("node=n2"), until=until, act=act())
    if method == "DELETE":
        alert_sending.send_due(now + dt.timedelta(seconds=100))
        alert_changes.end_silence(silence=first, act=act())
    server.answer = lambda request: reply(status if request.startswith(silenced) else 200)
    server.got.clear()
    alert_sending.send_due(now + dt.timedelta(seconds=200))
    assert "POST /api/v2/alerts" in [where for where, _told in sent(server)]
    push = AlertPush.objects.get()
    assert (push.alerts, str(status) in push.last_error) == (1, status != 404)
    alert_sending.send_due(now + dt.timedelta(seconds=300))
    tries = [where for where, _told in sent(server) if where.encode().startswith(silenced)]
    assert len(tries) == (1 if status == 404 else 2)


def test_one_that_is_away_is_told_of_later(server: Server) -> None:
    only("taken-out")
    out()
    passes(0)
    server.answer = lambda _request: reply(503, b"away")
    now = database_now() + dt.timedelta(seconds=1)
    alert_sending.send_due(now)
    message = AlertMessage.objects.get(channel="alertmanager")
    assert (message.state, "503" in message.last_error) == ("pending", True)
    server.answer = lambda _request: reply()
    assert alert_sending.send_due(message.due_at)["sent"] == 1


def test_a_token_is_sent_where_there_is_one(server: Server, settings: Any) -> None:
    settings.ALERTMANAGER_TOKEN = "secret-token"
    alert_changes.send_test(channel="alertmanager", act=act())
    assert alert_sending.send_due()["sent"] == 1
    assert b"Authorization: Bearer secret-token" in server.got[0]


def test_on_this_machine_it_needs_the_site_s_leave(server: Server, settings: Any) -> None:
    settings.OUTBOUND_ALLOW = []
    alert_changes.send_test(channel="alertmanager", act=act())
    assert alert_sending.send_due()["tried"] == 1
    assert server.got == []


# -- a real one --------------------------------------------------------------------------------------------------------


@pytest.fixture
def real(tmp_path: Path, settings: Any) -> Iterator[tuple[Alertmanager, Server]]:
    with serving() as hook, running(tmp_path, hook.port) as found:
        settings.ALERTMANAGER_URL = found.url
        settings.OUTBOUND_ALLOW = [found.url.removeprefix("http://")]
        yield found, hook


def _told(hook: Server, status: str) -> list[str]:
    """Cards in what Alertmanager's webhook got."""
    documents = [document for _where, document in sent(hook)]
    return [a["labels"].get("card", "") for d in documents for a in d["alerts"] if a["status"] == status]


def _await(hook: Server, status: str, card: str) -> None:
    deadline = time.monotonic() + 10
    while card not in _told(hook, status):
        assert time.monotonic() < deadline, hook.got
        time.sleep(0.1)


def test_a_real_alertmanager_has_the_alert_passes_it_on_silences_it_and_ends_it(
    real: tuple[Alertmanager, Server],
) -> None:
    found, hook = real
    only("taken-out")
    hold, _other = out("n1"), out("n2")
    began = time.monotonic()
    passes(0)
    assert alert_sending.send_due()["sent"] == 1
    found.await_alerts({"n1-card-0": "active", "n2-card-0": "active"})
    _await(hook, "firing", "n1-card-0")
    assert time.monotonic() - began < 8
    by_channel = {channel: at for channel, at, _state in alerts.deliveries_for({"hold": str(hold.pk)})}
    sent_at = by_channel["alertmanager"]
    assert sent_at is not None
    assert sent_at <= database_now()
    shown = subprocess.run(
        ["amtool", f"--alertmanager.url={found.url}", "alert", "query", "-o", "json", "node=n1"],
        capture_output=True,
        check=True,
    )
    (listed,) = json.loads(shown.stdout)
    assert listed["annotations"]["summary"] == "n1 n1-card-0 is taken out of the pool (drill)."

    until = database_now() + dt.timedelta(hours=1)
    made = alert_changes.silence(matchers=parse("node=n2"), until=until, act=act("fan"))
    alertmanager.push_standing(database_now() + dt.timedelta(seconds=60))
    found.await_alerts({"n1-card-0": "active", "n2-card-0": "suppressed"})
    alert_changes.end_silence(silence=made, act=act("done"))
    alertmanager.push_standing(database_now() + dt.timedelta(seconds=121))
    found.await_alerts({"n1-card-0": "active", "n2-card-0": "active"})

    end_hold(hold_id=hold.pk, reason="x", actor=None, via="test")
    passes(0)
    assert alert_sending.send_due()["sent"] == 1
    found.await_alerts({"n2-card-0": "active"})
    _await(hook, "resolved", "n1-card-0")
