"""What cards were like, read in buckets: least, mean and most, unknown never 0, hours and open hours without a sample twice."""

from __future__ import annotations

import datetime as dt

import pytest

from ledger import sample_reading
from ledger.models import Card, OpenHour
from ledger.sample_reading import TOGETHER, Point, Reading, Span
from tests import factories, sampled

pytestmark = pytest.mark.django_db
START = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
MINUTE, HOUR = dt.timedelta(minutes=1), dt.timedelta(hours=1)


@pytest.fixture
def card() -> Card:
    factories.node("n1", cards=2)
    return Card.objects.get(uuid="n1-card-0")


def read(card: Card, *, step: dt.timedelta = MINUTE, lasts: dt.timedelta = HOUR, hourly: bool = False) -> list[Point]:
    spans = [Span(card.pk, START, START + lasts)]
    return sample_reading.points(spans, step=step, hourly=hourly).get(card.pk, [])


def test_a_bucket_has_least_mean_and_most(card: Card) -> None:
    for second, heat in ((0, 40), (10, 50), (59, 66), (60, 70)):
        sampled.sample(card, START + dt.timedelta(seconds=second), temperature_c=heat)
    points = read(card)
    assert [(point.at, point.samples) for point in points] == [(START, 3), (START + MINUTE, 1)]
    assert points[0].values["temperature_c"] == Reading(40, 52, 66)


def test_what_no_sample_tells_is_none_and_not_nought(card: Card) -> None:
    sampled.sample(card, START, temperature_c=40, utilisation_pct=None)
    sampled.sample(card, START + MINUTE, temperature_c=None, utilisation_pct=0)
    first, second = read(card)
    assert (first.values["utilisation_pct"], second.values["temperature_c"]) == (None, None)
    assert second.values["utilisation_pct"] == Reading(0, 0, 0)


def test_a_window_is_half_open_and_a_gap_has_no_bucket(card: Card) -> None:
    for minute in (-1, 0, 30, 60):
        sampled.sample(card, START + minute * MINUTE, temperature_c=40)
    assert [point.at for point in read(card)] == [START, START + 30 * MINUTE]


def test_hours_are_merged_by_how_many_samples_they_have(card: Card) -> None:
    sampled.hour(card, START, samples=300, utilisation_pct=[0, 10, 20], temperature_c=[30, 40, 50])
    sampled.hour(card, START + HOUR, samples=100, utilisation_pct=[5, 50, 90])
    (point,) = read(card, step=2 * HOUR, lasts=2 * HOUR, hourly=True)
    assert (point.samples, point.values["utilisation_pct"]) == (400, Reading(0, 20, 90))
    assert point.values["temperature_c"] == Reading(30, 40, 50)


def test_an_hour_that_is_not_summed_up_is_read_from_its_samples_alone(card: Card) -> None:
    OpenHour.objects.create(hour=START + HOUR)
    sampled.hour(card, START, samples=1, temperature_c=[30, 30, 30])
    sampled.hour(card, START + HOUR, samples=1, temperature_c=[1, 1, 1])  # of before the late sample
    sampled.sample(card, START, temperature_c=99)  # its hour is summed up
    sampled.sample(card, START + HOUR, temperature_c=60)
    points = read(card, step=HOUR, lasts=2 * HOUR, hourly=True)
    assert [(point.samples, point.values["temperature_c"]) for point in points] == [
        (1, Reading(30, 30, 30)),
        (1, Reading(60, 60, 60)),
    ]


def test_cards_apart_and_together_each_in_its_own_time(card: Card) -> None:
    other = Card.objects.get(uuid="n1-card-1")
    for one, load in ((card, 20), (other, 60)):
        for minute in range(2):
            sampled.sample(one, START + minute * MINUTE, utilisation_pct=load)
    spans = [Span(card.pk, START, START + HOUR), Span(other.pk, START, START + MINUTE)]
    apart = sample_reading.points(spans, step=HOUR)
    assert {pk: points[0].samples for pk, points in apart.items()} == {card.pk: 2, other.pk: 1}
    (point,) = sample_reading.points(spans, step=HOUR, together=True)[TOGETHER]
    assert (point.samples, point.values["utilisation_pct"]) == (3, Reading(20, 100 / 3, 60))


def test_no_cards_no_points() -> None:
    assert sample_reading.points([], step=MINUTE) == {}


def test_all_points_in_one(card: Card) -> None:
    points = [
        Point(START, n, {"utilisation_pct": told})
        for n, told in ((1, Reading(1, 2, 3)), (3, Reading(0, 6, 9)), (5, None))
    ]
    assert sample_reading.whole(points, "utilisation_pct") == Reading(0, 5, 9)
    assert sample_reading.whole(points[2:], "utilisation_pct") is None
