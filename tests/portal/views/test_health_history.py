"""What cards were like over time, on their pages, as JSON and as files; and what happened in the meantime."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise

import pytest

from ledger.clock import database_now
from ledger.inventory import place_hold
from ledger.models import Card, CardSeat, Case, Fault, FaultEvent, Hold, Job, Node, NodeBoot, User
from ledger.sample_reading import Point, Reading
from ledger.vocabulary import CaseState, HoldKind, Need
from portal.health_charts import with_gaps
from portal.views.health_history import WINDOWS
from tests import factories, sampled
from tests.portal.views.conftest import ClientAs

pytestmark = pytest.mark.django_db
MINUTE, HOUR = dt.timedelta(minutes=1), dt.timedelta(hours=1)


@pytest.fixture
def card(people: dict[str, User]) -> Card:
    factories.node("n1", cards=2)
    return Card.objects.get(uuid="n1-card-0")


def test_no_window_has_more_than_500_points() -> None:
    assert {name: window.length / window.step for name, window in WINDOWS.items()} == {
        "1h": 360,
        "6h": 360,
        "24h": 288,
        "7d": 168,
        "30d": 360,
    }
    assert all(window.step % HOUR == dt.timedelta(0) for window in WINDOWS.values() if window.hourly)


def test_a_program_gets_least_mean_and_most(client_as: ClientAs, card: Card) -> None:
    at = database_now().replace(second=0, microsecond=0) - 30 * MINUTE
    for second, heat in ((0, 40), (20, 60)):
        sampled.sample(card, at + dt.timedelta(seconds=second), temperature_c=heat)
    answer = client_as("outsider").get("/health/history/n1-card-0.json?window=6h").json()
    (point,) = answer["points"]
    assert (point["temperature_c"], point["utilisation_pct"], point["samples"]) == ([40, 50, 60], None, 2)
    assert (answer["window"], answer["step_s"]) == ("6h", 60)
    assert client_as("outsider").get("/health/history/n1-card-0.json?window=9y").json()["window"] == "6h"


def test_what_happened_is_told_and_drawn(client_as: ClientAs, card: Card) -> None:
    now, node = database_now(), Node.objects.get(hostname="n1")
    CardSeat.objects.update(period=(now - 10 * HOUR, None))
    sampled.sample(card, now - MINUTE, temperature_c=40)
    fault = Fault.objects.create(
        node=node, card=card, kind="xid", code=79, count=3, first_seen=now - HOUR, last_seen=now - MINUTE
    )
    for n in range(3):
        FaultEvent.objects.create(fault=fault, node=node, event_id=str(n), at=now - n * MINUTE - MINUTE)
    Fault.objects.create(node=node, kind="storage", first_seen=now - 9 * HOUR, last_seen=now - 8 * HOUR)
    other = Card.objects.get(uuid="n1-card-1")
    Fault.objects.create(node=node, card=other, kind="ecc", first_seen=now, last_seen=now)
    Hold.objects.create(card=card, kind=HoldKind.DRILL, reason="drill", period=(now - 2 * HOUR, now - HOUR))
    place_hold(kind=HoldKind.MAINTENANCE, reason="fan", actor=None, via="test", node=node)
    NodeBoot.objects.create(node=node, boot_id="b2", first_seen=now - HOUR)
    answer = client_as("researcher").get("/health/history/n1-card-0.json").json()
    assert next((row["kind"], row["end"] is None) for row in answer["happened"]) == ("band-drill", False)
    assert sorted(row["kind"] for row in answer["happened"]) == [
        "band-boot",  # that of the sample
        "band-boot",
        "band-drill",
        "band-hold",
        "fault",
    ]
    assert [mark["what"] for mark in answer["faults"]] == ["XID 79"] * 3
    context = client_as("researcher").get("/health/history/n1-card-0/").context
    layout = context["figure"]["layout"]
    assert sorted(shape["name"] for shape in layout["shapes"]) == ["band-boot", "band-boot", "band-drill", "band-hold"]


def test_the_part_of_a_card_has_the_same_numbers_as_a_table_and_as_a_file(client_as: ClientAs, card: Card) -> None:
    sampled.sample(card, database_now() - 3 * MINUTE, temperature_c=47, memory_used_mib=None)
    client = client_as("researcher")
    page = client.get("/health/history/n1-card-0/?window=1h").content.decode()
    assert '<td class="num">47.0</td>' in page
    assert 'data-figure="card-figure"' in page
    file = b"".join(client.get("/health/history/n1-card-0/?window=1h&export=csv").streaming_content)  # type: ignore[attr-defined]
    line = file.decode("utf-8-sig").strip().splitlines()[-1].split(",")
    assert [cell.strip('"') for cell in line[1:5]] == ["1", "47.0", "47.0", "47.0"]
    assert set(line[-3:]) <= {"", '""'}
    assert "No reading in this time." in client.get("/health/history/n1-card-1/?window=1h").content.decode()


def test_a_node_shows_a_line_a_card_of_the_value_asked_for(client_as: ClientAs, card: Card) -> None:
    sampled.sample(card, database_now() - MINUTE, temperature_c=47, utilisation_pct=80)
    client = client_as("researcher")
    context = client.get("/health/history/node/n1/?value=utilisation_pct").context
    assert [(seat.slot, told and told.mean) for seat, told, _points in context["rows"]] == [(0, 80.0), (1, None)]
    assert [trace["name"] for trace in context["figure"]["data"]] == ["slot 0", "slot 1"]
    assert client.get("/health/history/node/n1/?value=taste").context["value"] == "temperature_c"


def test_a_time_without_readings_is_a_gap_in_the_line() -> None:
    start = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
    told = {"temperature_c": Reading(1, 1, 1)}
    points = [Point(start + minutes * MINUTE, 1, told) for minutes in (0, 1, 2, 10, 11, 12)]
    known = with_gaps(points)
    assert [at for at, one in enumerate(known) if isinstance(one, dt.datetime)] == [3]
    moments = [one.at if isinstance(one, Point) else one for one in known]
    assert all(before < after for before, after in pairwise(moments))


@pytest.mark.parametrize("path", ["/cards/n1-card-0/", "/nodes/n1/"])
def test_the_pages_ask_for_their_part(client_as: ClientAs, card: Card, path: str) -> None:
    page = client_as("researcher").get(path).content.decode()
    assert page.count('hx-get="/health/history/') == 1


def test_the_life_of_a_card_tells_cases_and_boots_of_its_node(client_as: ClientAs, card: Card) -> None:
    now, node = database_now(), Node.objects.get(hostname="n1")
    hold = place_hold(kind=HoldKind.FAULT, reason="XID 48", actor=None, via="test", card=card)
    boot = NodeBoot.objects.create(node=node, boot_id="b1", first_seen=now)
    Case.objects.create(
        node=node,
        card=card,
        hold=hold,
        action="reset",
        rule="health/1",
        need=Need.RESET,
        by_hand=False,
        state=CaseState.RETURNED,
        boot=boot,
        opened_at=now,
        done_at=now + MINUTE,
        tested_at=now + 2 * MINUTE,
        ended_at=now + 3 * MINUTE,
    )
    lines = client_as("researcher").get("/cards/n1-card-0/").context["story"].object_list
    said = [str(line.look.label) for line in lines]
    assert said[:3] == ["the case ends: back in the pool", "tested", "reset"]
    assert {"a case begins", "first report after a boot"} <= set(said)
    of_other = client_as("researcher").get("/cards/n1-card-1/").context["story"].object_list
    assert "a case begins" not in [str(line.look.label) for line in of_other]


class TestJob:
    def test_a_shared_card_tells_for_all_on_it_and_that_is_said(self, client_as: ClientAs, running: Job) -> None:
        card = Card.objects.get(uuid="n1-card-0")
        sampled.sample(card, database_now() - HOUR, utilisation_pct=90)  # before the job
        sampled.sample(card, database_now(), utilisation_pct=30, memory_used_mib=700, tensor_pct=20)
        page = client_as("researcher").get(f"/jobs/{running.pk}/metrics/")
        (line,) = page.context["shares"]
        assert (line.load, line.memory, line.shared) == (Reading(30, 30, 30), Reading(700, 700, 700), True)
        assert (line.bandwidth, page.context["hint"]) == (None, None)
        assert "the whole card, with others" in page.content.decode()

    def test_faults_of_its_hardware_while_it_ran(self, client_as: ClientAs, running: Job) -> None:
        now, node = database_now(), Node.objects.get(hostname="n1")
        first, second = Card.objects.order_by("uuid")
        about = {"node": node, "kind": "xid", "first_seen": now - HOUR, "last_seen": now}
        fault = Fault.objects.create(card=first, code=48, count=3, **about)
        for n, at in enumerate((now - HOUR, now, now)):
            FaultEvent.objects.create(fault=fault, node=node, event_id=str(n), at=at)
        Fault.objects.create(card=second, code=79, **about)
        (line,) = client_as("researcher").get(f"/jobs/{running.pk}/metrics/").context["faults"]
        assert (line.name, line.count, line.first) == ("XID 48", 2, now)

    @pytest.fixture
    def whole(self, people: dict[str, User], turn: object) -> Job:
        """A job that holds a whole card of 16,000 MiB."""
        factories.node("n1", cards=1, memory_mib=16_000)
        asks = [{"form": "container", "cards_per_node": 1}]
        job = factories.job(people["researcher"], asks=asks, command=["simulate", "--seconds", "3600"])
        turn()  # type: ignore[operator]
        return job

    @pytest.mark.parametrize(("minutes", "load", "told"), [(40, 12, True), (40, 80, False), (20, 12, False)])
    def test_a_whole_card_half_used_for_half_an_hour_is_told_in_words(
        self, client_as: ClientAs, whole: Job, monkeypatch: pytest.MonkeyPatch, minutes: int, load: int, told: bool
    ) -> None:
        from portal.views import job_metrics

        now = database_now()
        sampled.sample(Card.objects.get(), now, utilisation_pct=load, memory_used_mib=15_000 if load > 50 else 4_000)
        monkeypatch.setattr(job_metrics, "database_now", lambda: now + minutes * MINUTE)
        page = client_as("researcher").get(f"/jobs/{whole.pk}/metrics/")
        assert (page.context["hint"] is not None) is told
        text = page.content.decode()
        assert ("Held whole, but half used." in text) is told
        if told:
            assert "mean load 12 %" in text
            assert "at most 25 % of the memory" in text
            assert "A container of 5 GiB" in text

    def test_jobs_that_hold_whole_cards_half_used_stand_in_a_list(
        self, client_as: ClientAs, whole: Job, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from portal.views import health_use

        now = database_now()
        hour = now.replace(minute=0, second=0, microsecond=0) + HOUR
        monkeypatch.setattr(health_use, "database_now", lambda: now + 3 * HOUR)
        read = client_as("operator").get
        assert read("/health/half-used/?hardware=simulated").context["t"]["rows"] == []
        sampled.hour(Card.objects.get(), hour - HOUR, utilisation_pct=[0, 99, 99])  # it began in this hour
        sampled.hour(Card.objects.get(), hour, utilisation_pct=[0, 12, 60], memory_used_mib=[0, 1, 15_000])
        ((_key, row),) = read("/health/half-used/?hardware=simulated").context["t"]["rows"]
        assert (row.job.pk, row.found.cards, row.found.load) == (whole.pk, 1, 12.0)
        assert row.found.memory == pytest.approx(93.75)
        assert read("/health/half-used/").context["t"]["rows"] == []


def test_what_met_a_node_before_the_card_sat_there_is_not_the_card_s(client_as: ClientAs, card: Card) -> None:
    now, node = database_now(), Node.objects.get(hostname="n1")
    CardSeat.objects.filter(card=card).update(period=(now - 10 * MINUTE, None))
    for code, at in ((1, now - 30 * MINUTE), (2, now - 5 * MINUTE)):
        Fault.objects.create(node=node, kind="xid", code=code, first_seen=at, last_seen=at)
        NodeBoot.objects.create(node=node, boot_id=f"boot-{code}", first_seen=at)
    Hold.objects.create(
        kind=HoldKind.MAINTENANCE, reason="early", node=node, period=(now - 30 * MINUTE, now - 20 * MINUTE)
    )
    Hold.objects.create(
        kind=HoldKind.MAINTENANCE, reason="late", node=node, period=(now - 15 * MINUTE, now - 5 * MINUTE)
    )
    told = client_as("outsider").get("/health/history/n1-card-0.json?window=1h").json()["happened"]
    assert [row["detail"] for row in told if row["kind"] == "band-hold"] == ["late"]
    assert [row["detail"] for row in told if row["kind"] == "band-boot"] == ["boot-2"]
    assert [row["what"] for row in told if row["kind"] == "fault"] == ["fault XID 2"]
