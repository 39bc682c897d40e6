"""Rates of the API and of heavy pages: 429 as a problem with Retry-After, open when Redis is away. And /metrics."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client

from ledger.models import Job, User
from ledger.people import create_node_token
from portal.api import throttles
from tests import factories
from tests.portal.api.client import Api, api, is_problem, token_of
from tests.portal.api.reports import report

pytestmark = pytest.mark.django_db
REAL_RATES = throttles.RATES


@pytest.fixture(autouse=True)
def counted(settings: Any, monkeypatch: pytest.MonkeyPatch, services: Any) -> Iterator[None]:
    """Small rates, a clean count, and a clock that stands still in the middle of a minute."""
    settings.RATE_FACTOR = 1
    small = {"read": 4, "submit": 2, "heavy": 2, "agent": 3, "stranger": 3, "export": 2, "search": 2}
    monkeypatch.setattr(throttles, "RATES", small)
    monkeypatch.setattr(throttles, "_away_until", 0.0)
    stand_still(monkeypatch, 20)
    url = settings.REDIS_URL
    forget(url)
    yield
    forget(url)


def stand_still(monkeypatch: pytest.MonkeyPatch, second: int) -> None:
    """The clock of the module stands at this second after a full minute."""
    now = int(time.time()) // 3600 * 3600 + second
    monkeypatch.setattr(throttles, "time", SimpleNamespace(time=lambda: now, monotonic=time.monotonic))


def forget(url: str) -> None:
    client = throttles._client(url)
    for key in client.scan_iter("rate:*"):
        client.delete(key)


def codes(call: Callable[[], Any], times: int) -> list[int]:
    return [call().status_code for _n in range(times)]


def test_one_too_many_is_a_problem_with_a_wait(researcher: Api) -> None:
    assert codes(lambda: researcher.get("jobs/"), 5) == [200] * 4 + [429]
    answer = researcher.get("jobs/")
    assert is_problem(answer)
    assert (answer["Retry-After"], answer.json()["code"]) == ("40", "throttled")
    assert answer.json()["title"] == "Too many requests."


def test_the_next_minute_starts_anew(researcher: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    codes(lambda: researcher.get("jobs/"), 5)
    stand_still(monkeypatch, 60)
    assert researcher.get("jobs/").status_code == 200


def test_people_are_counted_apart_and_their_tokens_together(people: dict[str, User]) -> None:
    first, second, other = api(people["researcher"]), api(people["researcher"]), api(people["member"])
    assert codes(lambda: first.get("jobs/"), 2) + codes(lambda: second.get("jobs/"), 3) == [200] * 4 + [429]
    assert other.get("jobs/").status_code == 200


def test_submitting_has_a_rate_of_its_own(researcher: Api, spec: Callable[..., Any]) -> None:
    assert codes(lambda: researcher.post("jobs/", spec()), 3) == [201, 201, 429]
    assert Job.objects.count() == 2
    assert researcher.get("jobs/").status_code == 200


def test_submitting_on_the_page_counts_too(researcher: Api, people: dict[str, User], spec: Callable[..., Any]) -> None:
    codes(lambda: researcher.post("jobs/", spec()), 2)
    browser = Client()
    browser.force_login(people["researcher"])
    answer = browser.post("/jobs/new/", {"name": "x"})
    assert (answer.status_code, answer["Retry-After"]) == (429, "40")
    assert "what you typed is sent again" in answer.content.decode()
    assert browser.get("/jobs/new/").status_code == 200


def test_heavy_answers_have_a_rate_of_their_own(researcher: Api) -> None:
    assert codes(lambda: researcher.get("books/balance/"), 3) == [200, 200, 429]


def test_exports_of_pages_have_a_rate(people: dict[str, User]) -> None:
    browser = Client()
    browser.force_login(people["researcher"])
    assert codes(lambda: browser.get("/account/tokens/?export=csv"), 3) == [200, 200, 429]
    assert browser.get("/account/tokens/").status_code == 200


def test_without_a_good_token_an_address_is_counted(people: dict[str, User]) -> None:
    stranger, guesser = Api(), Api("gpc_guess")
    assert codes(lambda: stranger.get("jobs/"), 2) == [401, 401]
    assert codes(lambda: guesser.get("jobs/"), 2) == [401, 429]
    assert is_problem(guesser.get("jobs/"))
    assert api(people["researcher"]).get("jobs/").status_code == 200  # the same address, with a token
    elsewhere = stranger.http.get("/api/v1/jobs/", REMOTE_ADDR="192.0.2.1")
    assert elsewhere.status_code == 401


def test_each_node_has_its_own_generous_rate(people: dict[str, User]) -> None:
    def agent(name: str) -> Callable[[], Any]:
        caller = Api(create_node_token(node=factories.node(name, cards=1), actor=None, via="test"), "Agent")
        return lambda: caller.post("agents/reports/", report(hostname=name))

    first, second = agent("n1"), agent("n2")
    assert codes(first, 4)[-1] == 429
    assert second().status_code != 429


def test_the_real_rates_leave_agents_room() -> None:
    assert REAL_RATES["agent"] >= 10 * 60  # ten reports a second while a spool is sent


def test_when_redis_is_away_nobody_is_refused_and_it_is_logged_once(
    researcher: Api, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.REDIS_URL = "redis://:canary-password@127.0.0.1:1/0"
    start = time.monotonic()
    with caplog.at_level(logging.WARNING):
        assert codes(lambda: researcher.get("jobs/"), 12) == [200] * 12
    assert time.monotonic() - start < 5
    told = [r.getMessage() for r in caplog.records if "not counted" in r.getMessage()]
    assert len(told) == 1
    assert "canary" not in caplog.text


def test_a_redis_that_hangs_costs_a_moment_once(researcher: Api, settings: Any) -> None:
    import socket

    with socket.socket() as silent:  # takes connections and never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        settings.REDIS_URL = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        start = time.monotonic()
        assert throttles.take("read", "somebody") == 0
        first = time.monotonic() - start
        assert throttles.take("read", "somebody") == 0
        both = time.monotonic() - start
    assert first < 1.5
    assert both - first < 0.1


def test_counting_can_be_switched_off(researcher: Api, settings: Any) -> None:
    settings.RATE_FACTOR = 0
    assert set(codes(lambda: researcher.get("jobs/"), 8)) == {200}


def test_callers_at_once_get_exactly_the_rate() -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        waits = list(pool.map(lambda _n: throttles.take("submit", "user:1"), range(40)))
    assert waits.count(0) == 2


# -- /metrics ---------------------------------------------------------------------------------------------------------


def read_metrics(address: str = "192.0.2.1", **headers: str) -> Any:
    return Client().get("/metrics", REMOTE_ADDR=address, headers={k.replace("_", "-"): v for k, v in headers.items()})


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"])
def test_programs_of_this_machine_read_metrics(address: str) -> None:
    assert read_metrics(address).status_code == 200


@pytest.mark.parametrize("address", ["192.0.2.1", "10.0.0.1", "2001:db8::1", ""])
def test_metrics_are_closed_to_the_world(address: str) -> None:
    answer = read_metrics(address)
    assert (answer.status_code, answer["WWW-Authenticate"]) == (401, "Bearer")
    assert b"gpu_commons" not in answer.content


@pytest.mark.parametrize("header", ["X_Forwarded_For", "Forwarded", "X_Real_IP", "Via"])
def test_a_proxy_on_this_machine_does_not_open_metrics(header: str) -> None:
    assert read_metrics("127.0.0.1", **{header: "198.51.100.1"}).status_code == 401


def test_a_silent_proxy_that_is_known_does_not_open_metrics(settings: Any) -> None:
    settings.PROXIES = 1
    assert read_metrics("127.0.0.1").status_code == 401
    assert read_metrics("127.0.0.1", X_Forwarded_For="127.0.0.1").status_code == 401


def test_the_metrics_token_opens(settings: Any) -> None:
    assert read_metrics(Authorization="Bearer ").status_code == 401  # no token is set: an empty one opens nothing
    settings.METRICS_TOKEN = "m" * 40
    assert read_metrics(Authorization=f"Bearer {'m' * 40}").status_code == 200
    assert read_metrics(Authorization=f"Bearer {'m' * 39}").status_code == 401
    assert read_metrics(Authorization=f"Basic {'m' * 40}").status_code == 401
    guess = read_metrics(Authorization="Bearer guess")  # the fourth stranger of this minute
    assert (guess.status_code, guess["Retry-After"]) == (429, "40")


@pytest.mark.parametrize(
    ("name", "status"),
    [("operator", 200), ("auditor", 200), ("admin", 200), ("researcher", 403), ("manager", 403), ("owner", 403)],
)
def test_tokens_and_sessions_by_role(people: dict[str, User], name: str, status: int) -> None:
    assert read_metrics(Authorization=f"Bearer {token_of(people[name])}").status_code == status
    browser = Client()
    browser.force_login(people[name])
    assert browser.get("/metrics", REMOTE_ADDR="192.0.2.1").status_code == status


def test_health_stays_open() -> None:
    for path in ("/healthz", "/readyz"):
        assert Client().get(path, REMOTE_ADDR="192.0.2.1").status_code == 200
