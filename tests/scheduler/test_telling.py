"""The outbox of notices: what is sent, to whom, signed; and a try that fails or dies is made again, never left out."""

from __future__ import annotations

import datetime as dt
import hmac
import json
import smtplib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from django.core import mail

from ledger import invitations, letters
from ledger.acts import Act
from ledger.clock import database_now
from ledger.models import Delivery, Invitation, Notice, Project, User
from ledger.vocabulary import Channel, DeliveryState, ProjectRole
from scheduler import outbox, reclaim, tasks, telling
from tests import factories
from tests.scheduler import ending

pytestmark = pytest.mark.django_db
SECRET = "a secret of the two of us"


class Hook:
    """A web server that takes one webhook and keeps what it got; `answers` are its next statuses, then 200."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[int] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
                status = hook.answers.pop(0) if hook.answers else 200
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_arguments: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}/notices"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def hook(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    found = Hook()
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    settings.PROJECT_WEBHOOK_URL, settings.PROJECT_WEBHOOK_SECRET = found.address, SECRET
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.fixture
def mails(settings: Any) -> None:
    settings.EMAIL_HOST = "mail.lab.example"


def notice(channel: Channel) -> Delivery:
    """Of a project that ends in three days."""
    ending.ends_in(3)
    reclaim.reclaim_all()
    return Delivery.objects.get(channel=channel, state=DeliveryState.PENDING)


def test_a_mail_goes_to_each_person_in_their_language_once(mails: None, settings: Any) -> None:
    project = ending.ends_in(3, title="Seeing\nthings")
    User.objects.filter(username="deputy").update(email="deputy@lab.example", locale="zh-hans")
    reclaim.reclaim_all()
    assert telling.tell_due() == {"sent": 2, "tried": 0, "failed": 0}
    assert telling.tell_due() == {"sent": 0, "tried": 0, "failed": 0}
    by_person = {message.to[0]: message for message in mail.outbox}
    assert set(by_person) == {"owner@lab.example", "deputy@lab.example"}
    message = by_person["owner@lab.example"]
    assert message.subject == f"Project Seeing things ends after {project.ends_on}."
    assert settings.PORTAL_URL in message.body
    assert set(Delivery.objects.filter(channel=Channel.MAIL).values_list("state", flat=True)) == {DeliveryState.SENT}


def test_the_webhook_gets_a_signed_document(hook: Hook) -> None:
    delivery = notice(Channel.WEBHOOK)
    assert telling.tell_due()["sent"] == 1
    headers, body = hook.got[0]
    assert headers["x-gpu-commons-signature"] == "sha256=" + hmac.new(SECRET.encode(), body, "sha256").hexdigest()
    assert headers["idempotency-key"] == f"notice-{delivery.notice_id}"
    told, project = json.loads(body), delivery.notice.project
    assert (told["event"], told["project"], told["owner"]) == ("project.notice.days_3", "vision", "owner")
    assert told["ends_on"] == project.ends_on.isoformat()  # type: ignore[union-attr]


@pytest.mark.parametrize("status", [302, 307, 400, 404, 500])
def test_any_answer_but_2xx_is_tried_again_later(hook: Hook, status: int) -> None:
    delivery = notice(Channel.WEBHOOK)
    hook.answers = [status]
    now = database_now()
    assert telling.tell_due(now) == {"sent": 0, "tried": 1, "failed": 0}
    delivery.refresh_from_db()
    assert (delivery.state, delivery.tries, str(status) in delivery.last_error) == (DeliveryState.PENDING, 1, True)
    assert delivery.due_at == now + dt.timedelta(seconds=outbox.FIRST_BACK_OFF_S)
    assert telling.tell_due(now)["sent"] == 0  # not before its time
    assert telling.tell_due(delivery.due_at)["sent"] == 1
    delivery.refresh_from_db()
    assert (delivery.state, delivery.last_error, len(hook.got)) == (DeliveryState.SENT, "", 2)


def test_the_wait_grows_and_in_the_end_it_has_failed(hook: Hook) -> None:
    delivery = notice(Channel.WEBHOOK)
    hook.answers = [500] * 99
    waits, now = [], database_now()
    while Delivery.objects.get(pk=delivery.pk).state == DeliveryState.PENDING:
        telling.tell_due(now)
        due = Delivery.objects.get(pk=delivery.pk).due_at
        waits.append((due - now).total_seconds())
        now = due
    assert waits[:4] == [30, 60, 120, 240]
    assert max(waits) == outbox.LONGEST_BACK_OFF_S
    assert len(hook.got) == outbox.MOST_TRIES
    assert Delivery.objects.get(pk=delivery.pk).state == DeliveryState.FAILED


def test_one_that_fails_keeps_no_other_waiting(mails: None, hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    ending.ends_in(3)
    reclaim.reclaim_all()

    def fails(_delivery: Delivery) -> None:
        raise smtplib.SMTPServerDisconnected("Connection unexpectedly closed")

    monkeypatch.setitem(telling.SENDERS, Channel.MAIL, fails)
    assert telling.tell_due() == {"sent": 1, "tried": 1, "failed": 0}
    mailed = Delivery.objects.get(channel=Channel.MAIL, to__username="owner")
    assert mailed.last_error == "Connection unexpectedly closed"


class Killed(BaseException):
    pass


@pytest.mark.parametrize("channel", Channel)
def test_killed_between_sending_and_noting_it_is_sent_again(
    mails: None, hook: Hook, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending.ends_in(3)
    reclaim.reclaim_all()
    Delivery.objects.exclude(channel=channel).update(state=DeliveryState.NOT_CONFIGURED)
    now = database_now()
    with monkeypatch.context() as patch:
        patch.setattr(telling, "_note_sent", _dies)
        with pytest.raises(Killed):
            telling.tell_due(now)
    assert telling.tell_due(now) == {"sent": 0, "tried": 0, "failed": 0}  # it may be under way still
    assert telling.tell_due(now + outbox.LEASE)["sent"] == 1
    assert len(mail.outbox if channel == Channel.MAIL else hook.got) == 2


def _dies(_delivery: Delivery) -> int:
    raise Killed


def test_killed_before_sending_it_is_sent(mails: None, monkeypatch: pytest.MonkeyPatch) -> None:
    notice(Channel.MAIL)
    now = database_now()
    with monkeypatch.context() as patch:
        patch.setitem(telling.SENDERS, Channel.MAIL, _dies)
        with pytest.raises(Killed):
            telling.tell_due(now)
    assert telling.tell_due(now + outbox.LEASE)["sent"] == 1
    assert len(mail.outbox) == 1


def test_who_has_left_is_not_written_to(mails: None) -> None:
    factories.cast()
    User.objects.filter(username="owner").update(is_active=False)
    ending.ends_in(3)
    reclaim.reclaim_all()
    assert not Delivery.objects.filter(to__username="owner").exists()
    assert Notice.objects.count() == 1


# -- letters -----------------------------------------------------------------------------------------------------------


def invited(**values: Any) -> Invitation:
    """Of somebody with an address, into a project whose letter is written."""
    factories.project("vision")
    User.objects.update_or_create(username="guest", defaults={"email": "guest@lab.example"} | values)
    project, act = Project.objects.get(slug="vision"), Act(factories.user("owner"), "test", "come")
    guest = User.objects.get(username="guest")
    made = invitations.invite(project=project, user=guest, role=ProjectRole.MEMBER, act=act)
    letters.write_due()
    return made


def test_a_letter_goes_by_mail_once_in_the_language_of_its_reader(mails: None) -> None:
    invited(locale="en")
    assert telling.tell_due()["sent"] == 1
    assert telling.tell_due()["sent"] == 0
    (sent,) = mail.outbox
    assert (sent.to, sent.subject) == (["guest@lab.example"], "You are invited into project Vision.")
    assert "owner asks you in." in sent.body


def test_a_letter_that_no_longer_holds_is_dropped(mails: None) -> None:
    invitations.withdraw(invitation=invited(), act=Act(factories.user("owner"), "test"))
    assert telling.tell_due() == {"sent": 0, "tried": 0, "failed": 0, "dropped": 1}
    assert Delivery.objects.get().state == DeliveryState.DROPPED
    assert mail.outbox == []


def test_a_letter_is_tried_again_and_sent_after_a_crash(mails: None, monkeypatch: pytest.MonkeyPatch) -> None:
    invited()

    def killed(delivery: Delivery) -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(telling.SENDERS, Channel.MAIL, killed)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        telling.tell_due()
    monkeypatch.setitem(telling.SENDERS, Channel.MAIL, telling._send_mail)  # type: ignore[arg-type]
    assert telling.tell_due()["sent"] == 0
    assert telling.tell_due(database_now() + outbox.LEASE)["sent"] == 1


def test_the_task_tidies_writes_and_sends(mails: None) -> None:
    invited()
    result = tasks._tell()
    assert {"tidied", "letters", "odd", "sent"} <= set(result)
    assert result["sent"] == 1


def test_notices_of_projects_come_before_letters(mails: None) -> None:
    invited()
    Delivery.objects.update(due_at=database_now() - dt.timedelta(hours=1))
    ending.ends_in(3)
    reclaim.reclaim_all()
    assert telling.tell_due(limit=1)["sent"] == 1
    assert [sent.to for sent in mail.outbox] == [["owner@lab.example"]]
    assert telling.tell_due()["sent"] == 1
    assert mail.outbox[-1].to == ["guest@lab.example"]


def test_what_is_dropped_takes_nobody_s_turn(mails: None) -> None:
    act = Act(factories.user("owner"), "test", "come")
    for number in range(3):
        factories.project(f"p{number}")
        guest = User.objects.update_or_create(username="guest", defaults={"email": "guest@lab.example"})[0]
        project = Project.objects.get(slug=f"p{number}")
        made = invitations.invite(project=project, user=guest, role=ProjectRole.MEMBER, act=act)
        letters.write_due()
        invitations.withdraw(invitation=made, act=act)
    invited()
    assert telling.tell_due(limit=1) == {"sent": 1, "tried": 0, "failed": 0, "dropped": 3}
    assert [sent.to for sent in mail.outbox] == [["guest@lab.example"]]
