"""The history of cards: every sample once whatever is sent, hours that are summed up anew, and what goes after its time."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import pytest
from django.db import connection, transaction

from ledger import samples, telemetry
from ledger.clock import database_now
from ledger.models import Card, CardHour, CardSample, Node, NodeBoot, OpenHour, QualityCount, SampleBatch
from tests import factories
from tests.ledger.reports import report

pytestmark = pytest.mark.django_db
HOUR = dt.timedelta(hours=1)


@pytest.fixture
def node() -> Node:
    return factories.node("n1", cards=2, simulated=False)


def _quality() -> dict[str, int]:
    return dict(QualityCount.objects.values_list("kind", "count"))


def _kept() -> list[tuple[int, int | None]]:
    return list(CardSample.objects.order_by("sequence").values_list("sequence", "temperature_c"))


def test_a_report_is_on_its_way_until_it_is_copied(node: Node) -> None:
    telemetry.ingest(node, report(1))
    assert (SampleBatch.objects.count(), CardSample.objects.count()) == (1, 0)
    assert samples.copy_batches() == {"reports": 1, "samples": 1}
    assert samples.copy_batches() == {"reports": 0, "samples": 0}
    row = CardSample.objects.get()
    assert (row.card.uuid, row.sequence, row.temperature_c, row.utilisation_pct) == ("n1-card-0", 1, 1, None)
    assert SampleBatch.objects.count() == 0


@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_sent_twice_or_in_any_order_each_sample_is_kept_once(node: Node, seed: int) -> None:
    draw = random.Random(seed)
    numbers = draw.sample(range(1, 200), 40)
    sent = numbers + draw.choices(numbers, k=25)
    draw.shuffle(sent)
    for number in sent:
        telemetry.ingest(node, report(number, temperature_c=number % 90))
        if draw.random() < 0.2:
            samples.copy_batches()
    samples.copy_batches()
    assert _kept() == [(n, n % 90) for n in sorted(numbers)]
    assert _quality()["duplicate"] == 25
    highest, behind = 0, 0
    for number in dict.fromkeys(sent):
        behind, highest = behind + (number < highest), max(highest, number)
    assert _quality()["reordered"] == behind


def test_samples_kept_while_the_portal_was_away_come_into_the_history_alone(node: Node) -> None:
    ago = [database_now() - dt.timedelta(minutes=m) for m in (3, 2)]
    earlier = [
        {"sequence": n, "sent_at": at, "cards": [{"uuid": "n1-card-0", "temperature_c": 50 + n}]}
        for n, at in enumerate(ago, 1)
    ]
    assert telemetry.ingest(node, report(3, earlier=earlier)).accepted
    telemetry.ingest(node, report(4, earlier=earlier))
    samples.copy_batches()
    assert _kept() == [(1, 51), (2, 52), (3, 3), (4, 4)]
    assert _quality() == {"late": 2, "duplicate": 2}
    assert list(CardSample.objects.order_by("sequence").values_list("at", flat=True))[:2] == ago


def test_a_number_that_one_report_names_twice_is_taken_once(node: Node) -> None:
    at = database_now() - dt.timedelta(minutes=2)
    part = {"sequence": 1, "sent_at": at, "cards": [{"uuid": "n1-card-0", "temperature_c": 50}]}
    same = {**part, "sequence": 3}
    assert telemetry.ingest(node, report(3, earlier=[part, part, same])).accepted
    samples.copy_batches()
    assert _kept() == [(1, 50), (3, 3)]
    assert _quality()["duplicate"] == 2


def test_a_sample_that_came_twice_all_the_same_stops_no_other(node: Node) -> None:
    telemetry.ingest(node, report(1))
    batch = SampleBatch.objects.get()
    batch.pk = None
    batch.save(force_insert=True)
    telemetry.ingest(node, report(2))
    samples.copy_batches()
    assert _kept() == [(1, 1), (2, 2)]


def test_what_no_card_can_have_is_counted_and_changes_nothing_else(node: Node) -> None:
    telemetry.ingest(node, report(1, temperature_c=50))
    told = telemetry.ingest(node, report(2, temperature_c=300, memory_used_mib=16_001, power_mw=-1))
    assert told.accepted
    assert {(one.field, one.value) for one in told.set_aside} == {
        ("temperature_c", 300), ("memory_used_mib", 16_001), ("power_mw", -1),
    }  # fmt: skip
    samples.copy_batches()
    assert _kept() == [(1, 50)]
    assert _quality() == {"impossible": 3}
    assert Card.objects.get(uuid="n1-card-0").status.temperature_c == 50


def test_another_card_of_the_same_report_goes_on(node: Node) -> None:
    other = {"uuid": "n1-card-1", "slot": 1, "model": "A100", "memory_mib": 16_000, "temperature_c": 44}
    good = report(1, temperature_c=999)
    telemetry.ingest(node, good | {"cards": [*good["cards"], other]})
    samples.copy_batches()
    assert list(CardSample.objects.values_list("card__uuid", "temperature_c")) == [("n1-card-1", 44)]


@pytest.mark.parametrize(
    ("ago", "kind", "kept"),
    [
        (dt.timedelta(days=-365), "future", True),
        (dt.timedelta(minutes=-6), "future", True),
        (dt.timedelta(minutes=-4), None, True),
        (dt.timedelta(days=2), "behind", True),
    ],
)
def test_a_wrong_clock_of_the_newest_report_is_counted_and_the_portals_clock_is_taken(
    node: Node, ago: dt.timedelta, kind: str | None, kept: bool
) -> None:
    before = database_now()
    telemetry.ingest(node, report(1, sent_at=before - ago))
    samples.copy_batches()
    assert _quality() == ({kind: 1} if kind else {})
    assert CardSample.objects.exists() == kept
    assert before <= CardSample.objects.get().at <= database_now()


def test_what_is_older_than_what_is_kept_is_counted_and_left_out(node: Node) -> None:
    telemetry.ingest(node, report(5))
    telemetry.ingest(node, report(4, sent_at=database_now() - dt.timedelta(days=14)))
    samples.copy_batches()
    assert _kept() == [(5, 5)]
    assert _quality() == {"too_old": 1}


def test_a_boot_with_many_gaps_forgets_the_oldest_and_doubles_nothing(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "MOST_GAPS", 10)
    for number in range(2, 60, 2):
        telemetry.ingest(node, report(number))
    gaps = NodeBoot.objects.get().taken
    assert len(gaps) <= 10
    assert gaps[-1] == (58, 59)
    for number in range(2, 60, 2):
        telemetry.ingest(node, report(number))
    samples.copy_batches()
    assert [number for number, _ in _kept()] == list(range(2, 60, 2))


def test_a_card_of_another_node_is_left_out_and_counted(node: Node) -> None:
    factories.node("n2", cards=1, simulated=False)
    told = telemetry.ingest(node, report(1, uuid="n2-card-0"))
    assert told.foreign == ("n2-card-0",)
    samples.copy_batches()
    assert not CardSample.objects.exists()
    assert _quality() == {"foreign_card": 1}


def test_hours_are_summed_up_once_they_are_over_and_anew_after_late_samples(node: Node) -> None:
    now = database_now()
    start = (now - 2 * HOUR).replace(minute=0, second=0, microsecond=0)
    telemetry.ingest(node, report(9))
    for number, heat in ((1, 40), (2, 50), (3, 90)):
        at = start + dt.timedelta(minutes=number)
        telemetry.ingest(node, report(number, temperature_c=heat, power_mw=None, sent_at=at))
    samples.copy_batches()
    assert samples.sum_up_hours() == {"hours": 1}
    row = CardHour.objects.get()
    assert (row.hour, row.samples, row.temperature_c, row.power_mw) == (start, 3, [40, 60, 90], None)
    assert samples.sum_up_hours() == {"hours": 0}
    telemetry.ingest(node, report(4, temperature_c=20, sent_at=start + dt.timedelta(minutes=30)))
    samples.copy_batches()
    assert samples.sum_up_hours() == {"hours": 1}
    assert CardHour.objects.get().temperature_c == [20, 50, 90]
    assert [hour for hour in OpenHour.objects.values_list("hour", flat=True) if hour <= now - HOUR] == []


def test_old_days_and_hours_go_and_newer_ones_stay(node: Node, settings: Any) -> None:
    settings.SAMPLES_KEPT_DAYS, settings.SAMPLE_HOURS_KEPT_DAYS = 5, 10
    now, card = database_now(), Card.objects.get(uuid="n1-card-0")
    boot = NodeBoot.objects.create(node=node, boot_id="b", first_seen=now)
    for number, days in enumerate((1, 4, 7, 9)):
        at = now - dt.timedelta(days=days)
        SampleBatch.objects.create(boot=boot, sequence=number, at=at, samples=[[card.pk, 40, 1, 1, 1, 1, 1]])
        CardHour.objects.create(card=card, hour=now - dt.timedelta(days=3 * days), samples=1)
    samples.copy_batches()
    assert samples.drop_old() == {"days": 4, "hours": 3}
    assert sorted(number for number, _ in _kept()) == [0, 1]
    assert CardHour.objects.count() == 1
    assert samples.drop_old() == {"days": 0, "hours": 0}


def test_a_copy_that_is_killed_leaves_its_batches(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    telemetry.ingest(node, report(1))
    monkeypatch.setattr(samples, "_note_hours", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        samples.copy_batches()
    assert (SampleBatch.objects.count(), CardSample.objects.count()) == (1, 0)
    monkeypatch.undo()
    samples.copy_batches()
    assert _kept() == [(1, 1)]


def test_the_application_makes_days_by_the_function_alone() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL ROLE gpu_commons_app")
        cursor.execute("SELECT ledger_sample_days('2030-01-01', '2030-01-02')")
        assert cursor.fetchone() == (2,)
        cursor.execute("SELECT ledger_sample_days('2030-01-01', '2030-01-02')")
        assert cursor.fetchone() == (0,)
        cursor.execute("SELECT has_schema_privilege('gpu_commons_app', 'public', 'CREATE')")
        assert cursor.fetchone() == (False,)
