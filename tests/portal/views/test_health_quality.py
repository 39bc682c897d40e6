"""The page of bad telemetry, and utilisation against the target."""

from __future__ import annotations

import datetime as dt

import pytest

from ledger import card_use
from ledger.clock import database_now
from ledger.models import Card, CardSeat, CardShare, Job, Node, NodeZone, QualityCount, SampleBatch, User
from ledger.vocabulary import QualityKind
from portal import health_words
from tests import factories, sampled
from tests.portal.views.conftest import ClientAs

pytestmark = pytest.mark.django_db


def count(kind: str, n: int, *, back: int = 0, hostname: str = "") -> None:
    now = database_now()
    day = now.astimezone(dt.UTC).date() - dt.timedelta(days=back)
    node = Node.objects.get(hostname=hostname) if hostname else None
    QualityCount.objects.create(kind=kind, day=day, count=n, node=node, first_seen=now, last_seen=now, detail="<b>")


def test_every_kind_has_its_meaning_and_what_to_do() -> None:
    assert set(health_words.QUALITY) == set(QualityKind)
    assert all(str(one.name) and str(one.means) and str(one.todo) for one in health_words.QUALITY.values())


def test_counts_by_kind_node_and_day(client_as: ClientAs, people: dict[str, User]) -> None:
    factories.node("n1", cards=1, simulated=False)
    count("late", 3, hostname="n1")
    count("late", 4, back=1)
    count("future", 5, back=20)
    client = client_as("auditor")

    def found(query: str) -> list[int]:
        return [row.count for _key, row in client.get(f"/health/quality/?{query}").context["t"]["rows"]]

    assert found("") == [3, 4, 5]
    assert found("kind=future") == [5]
    assert found("q=n1") == [3]
    assert found("sort=-count") == [5, 4, 3]
    day = database_now().astimezone(dt.UTC).date() - dt.timedelta(days=1)
    assert found(f"day={day}") == [4]
    page = client.get("/health/quality/?day=tomorrow")
    assert set(page.context["form"].errors) == {"day"}
    assert page.context["trend_kinds"] == ["late"]
    assert [numbers for _day, numbers in page.context["trend"][:3]] == [[3], [4], [0]]
    assert "<b>" not in page.content.decode()


def test_who_never_reported_and_what_waits(client_as: ClientAs, people: dict[str, User]) -> None:
    node = factories.node("quiet", cards=1, simulated=False)
    factories.node("made-up", cards=1)
    batch = SampleBatch.objects.create(boot=sampled.boot(node), sequence=1, at=database_now(), samples=[])
    context = client_as("operator").get("/health/quality/").context
    assert context["never"] == ["quiet"]
    assert context["waiting"] == {"n": 1, "at": batch.at}
    assert context["figure"] is None


def test_the_days_of_the_history_are_those_of_its_partitions(client_as: ClientAs, people: dict[str, User]) -> None:
    factories.node("n1", cards=1)
    for day in (3, 7):
        sampled.sample(Card.objects.get(), dt.datetime(2020, 5, day, 9, tzinfo=dt.UTC), temperature_c=4)
    context = client_as("operator").get("/health/quality/").context
    assert context["first_day"] == dt.date(2020, 5, 3)
    assert context["last_day"] >= dt.date(2020, 5, 7)


def test_utilisation_by_zone_for_all_and_by_project_for_who_sees_it(
    client_as: ClientAs, people: dict[str, User]
) -> None:
    factories.node("n1", cards=1, in_zone=factories.zone("pool"))
    hour = database_now().replace(minute=0, second=0, microsecond=0) - dt.timedelta(hours=2)
    for table in (CardSeat, NodeZone):
        table.objects.update(period=(hour - dt.timedelta(days=1), None))
    sampled.hour(Card.objects.get(), hour, utilisation_pct=[0, 61, 90])
    page = client_as("outsider").get("/health/use/?hardware=simulated")
    assert [(row.slug, row.load) for row in page.context["zones"]] == [("pool", 61.0)]
    assert page.context["projects"] == []
    assert "target reached" in page.content.decode()
    assert client_as("outsider").get("/health/use/").context["zones"] == []


def test_a_project_has_the_load_of_the_cards_it_held_by_its_part_of_each(running: Job, turn: object) -> None:
    """Its 1,024 of 16,000 MiB on one card, and another card whole; the hour in which it began is not a whole one."""
    asks = [{"form": "container", "cards_per_node": 1}]
    factories.job(running.by, asks=asks, command=["simulate", "--seconds", "3600"])
    turn()  # type: ignore[operator]
    hour = database_now().replace(minute=0, second=0, microsecond=0) + dt.timedelta(hours=1)
    for share in CardShare.objects.select_related("card"):
        load = 10 if share.memory_mib == 1024 else 80
        sampled.hour(share.card, hour, utilisation_pct=[0, load, 99])
        sampled.hour(share.card, hour - dt.timedelta(hours=1), utilisation_pct=[0, 100, 100])
    about = {"simulated": True, "projects": [running.project_id]}
    (found,) = card_use.by_project(hour - dt.timedelta(hours=1), hour + dt.timedelta(hours=1), **about)
    part = 1024 / 16_000
    assert (found.slug, found.hours, found.load) == ("vision", 2, pytest.approx((10 * part + 80) / (part + 1)))
    assert card_use.by_project(hour, hour + dt.timedelta(hours=1), simulated=False, projects=[running.project_id]) == []
