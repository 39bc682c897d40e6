"""What is shown before it happens is what the next round does; and who might be stopped is told by the same rules."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ledger.clock import database_now
from ledger.models import Attempt, Job, Project, QuotaGrant
from ledger.vocabulary import JobKind, NodeState, ProjectRole, Resource
from scheduler import placing, preempt_preview, preempting, snapshot, whatif
from scheduler.models import Preemption
from scheduler.possible import fleet_lock
from tests import factories
from tests.scheduler import flow

pytestmark = pytest.mark.django_db(transaction=True)
CARD = {"form": "container", "memory_mib": 0}
SLUGS = ("vision", "audio", "speech")


@pytest.fixture(autouse=True)
def quick(settings: Any) -> None:
    settings.PREEMPT_MIN_RUN_S, settings.PREEMPT_GRACE_S, settings.PREEMPT_KEPT_S = 30, 20, 300


def _guarantee(slug: str, milli: int) -> Project:
    project = Project.objects.filter(slug=slug).first() or factories.project(slug, researcher=ProjectRole.MEMBER)
    grant = factories.grant(project, Resource.CARD_MILLI, 64_000)
    grant.guaranteed = milli
    grant.save(update_fields=["guaranteed"])
    return project


def _told() -> list[tuple[int, str, list[str], list[int]]]:
    return [
        (one.job_id, str(one.cause), list(one.nodes), sorted(victim.attempt_id for victim in one.victims))
        for one in preempt_preview.next_round().previews
    ]


def _done() -> list[tuple[int, str, list[str], list[int]]]:
    names = dict(factories.Node.objects.values_list("pk", "hostname"))
    return [
        (
            row.job_id,
            row.cause,
            sorted(names[pk] for pk in row.nodes),
            sorted(row.victims.values_list("attempt_id", flat=True)),
        )
        for row in Preemption.objects.order_by("pk")
    ]


def _some_world(dice: Random) -> None:
    """Two sizes of cards, three projects of which some borrow, jobs of every kind that run and wait."""
    factories.project("vision", researcher=ProjectRole.MEMBER)
    for number in range(1, dice.randint(2, 3) + 1):
        factories.node(f"n{number}", cards=dice.choice((2, 4)), memory_mib=dice.choice((16_000, 64_000)))
    for slug in SLUGS:
        _guarantee(slug, dice.choice((0, 1000, 2000, 3000)))
    filling = []
    for _ in range(14):
        kind = dice.choice(("training", "training", "inference"))
        slug = dice.choice(("audio", "audio", "speech"))
        filling.append(flow.long_job(asks=[_wish(dice)], kind=kind, project=slug, preemptible=dice.random() < 0.4))
    flow.start(*filling)
    flow.grow_old()
    for _ in range(5):
        flow.long_job(
            asks=[_wish(dice)],
            kind=dice.choice(("training", "inference")),
            project=dice.choice(("vision", "vision", "speech")),
            priority=dice.choice((0, 0, 1)),
        )


def _wish(dice: Random) -> dict[str, Any]:
    memory = dice.choice((0, 0, 8_000, 16_000))
    return {"form": "container", "memory_mib": memory, "cards_per_node": dice.choice((1, 1, 2))}


@pytest.mark.parametrize(("seed", "somebody"), [(0, True), (1, False), (2, True), (4, True), (9, True), (10, True)])
def test_the_preview_is_what_the_next_round_does(seed: int, somebody: bool) -> None:
    _some_world(Random(seed))
    told = _told()
    assert not Preemption.objects.exists()
    placing.place_queued()
    assert told == _done()
    assert bool(told) is somebody


def _owed(cards: int = 4, **values: Any) -> Job:
    """One node full of jobs of audio, which has nothing guaranteed; vision, which has two cards, comes back."""
    flow.world(cards=cards)
    _guarantee("vision", 2000)
    _guarantee("audio", 0)
    filling = [flow.long_job(project="audio", asks=[CARD], **values) for _ in range(4)]
    flow.start(*filling)
    flow.grow_old()
    return flow.long_job(asks=[CARD])


def test_the_preview_goes_by_what_the_round_places_first() -> None:
    """A card is free for one of the two; for the other somebody has to go."""
    first = _owed(cards=5)
    second = flow.long_job(asks=[CARD])
    told = _told()
    assert [job for job, *_ in told] == [second.pk]
    placing.place_queued()
    assert told == _done()
    assert flow.open_allocations(first)


def test_what_the_round_places_first_leaves_less_of_every_limit() -> None:
    """The guarantee covers both jobs, the processors of the project only the one that finds a card."""
    flow.world(cards=3)
    factories.grant(_guarantee("vision", 2000), Resource.CPU_MILLI, 1500)
    _guarantee("audio", 0)
    flow.start(*(flow.long_job(project="audio", asks=[CARD]) for _ in range(2)))
    flow.grow_old()
    first, second = (flow.long_job(asks=[CARD], cpu_milli=1000) for _ in range(2))
    assert (_told(), whatif.outlook(second).stops) == ([], None)
    placing.place_queued()
    assert (len(flow.open_allocations(first)), _done()) == (1, [])


def test_a_claim_that_is_met_is_not_taken_off_twice() -> None:
    """One job gets its kept card, and what the project has left is enough for the other."""
    mine = _owed()
    placing.place_queued()
    flow.turn()
    QuotaGrant.objects.filter(project=mine.project).update(amount=2000)
    other = flow.long_job(asks=[CARD])
    told = _told()
    placing.place_queued()
    assert flow.open_allocations(mine)
    assert [job for job, *_ in told] == [other.pk]
    assert told == _done()[1:]


def test_a_preview_says_who_why_and_what_is_lost() -> None:
    job = _owed()
    found = preempt_preview.preview(job)
    assert found is not None
    [victim] = found.victims
    assert (found.cause, found.rule, found.nodes) == ("guarantee", "fewest-victims/2", ("n1",))
    assert (found.guaranteed, found.held, found.takes, found.grace_s) == (2000, 0, 1000, 20)
    assert (victim.milli, victim.min_run_s, victim.borrowed) == (1000, 30, True)
    assert 60 <= victim.ran_s < 120
    assert found.lost == victim.lost == 1000 * victim.ran_s
    assert not Preemption.objects.exists()
    assert set(Attempt.objects.values_list("state", flat=True)) == {"running"}


def test_a_job_that_need_not_wait_or_may_have_nobody_stopped_is_shown_nothing() -> None:
    owed = _owed()
    beyond = flow.long_job(asks=[{**CARD, "cards_per_node": 3}])  # more than is guaranteed
    assert preempt_preview.preview(beyond) is None
    Job.objects.filter(pk=owed.pk).update(held_at=database_now(), held_by=owed.by, held_reason="test")
    owed.refresh_from_db()
    assert preempt_preview.preview(owed) is None


def test_the_outlook_of_a_job_says_who_would_be_stopped_for_it() -> None:
    waits = _owed()
    project = Project.objects.get(slug="vision")
    drafts = {
        cards: whatif.candidate(
            factories.job_data(factories.user("researcher"), asks=[{**CARD, "cards_per_node": cards}]), project
        )
        for cards in (1, 2)
    }
    found = {cards: whatif.outlook(job).stops for cards, job in drafts.items()}
    assert found[2] is None  # the one that waits has the other half of the guarantee
    assert found[1] is not None
    assert (len(found[1].victims), found[1].job_id) == (1, 0)
    told = whatif.outlook(waits).stops
    placing.place_queued()
    assert told is not None
    assert [victim.attempt_id for victim in told.victims] == _done()[0][-1]


def test_a_long_queue_is_looked_at_from_the_front_and_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    _owed()
    for _ in range(3):
        flow.long_job(asks=[CARD])
    monkeypatch.setattr(preempt_preview, "MOST_AHEAD", 2)
    found = preempt_preview.next_round()
    assert (len(found.previews), found.looked_at, found.waiting, found.cut) == (2, 2, 4, False)
    monkeypatch.setattr(preempt_preview, "LOOKS_S", -1.0)
    found = preempt_preview.next_round()
    assert (found.previews, found.cut) == ((), True)


def test_what_a_project_holds_above_its_guarantee_is_at_risk_and_says_for_whom() -> None:
    _owed()
    vision, audio = (Project.objects.get(slug=slug) for slug in ("vision", "audio"))
    [found] = preempt_preview.exposures(audio.pk)
    assert (found.simulated, found.guaranteed, found.held, found.borrowed) == (True, 0, 4000, 4000)
    assert len(found.lent) == 4
    assert found.owed == ((vision.pk, 2000),)
    assert preempt_preview.exposures(vision.pk) == []


def test_inference_within_the_guarantee_is_not_at_risk_and_work_that_says_so_is() -> None:
    _owed(kind=JobKind.INFERENCE)
    audio = Project.objects.get(slug="audio")
    grant = audio.quota_grants.get()
    grant.guaranteed = 4000
    grant.save(update_fields=["guaranteed"])
    assert preempt_preview.exposures(audio.pk) == []
    loose = Job.objects.filter(project=audio).first()
    assert loose is not None
    Job.objects.filter(pk=loose.pk).update(kind=JobKind.TRAINING, preemptible=True)
    [found] = preempt_preview.exposures(audio.pk)
    assert [(one.job_id, one.borrowed, one.preemptible) for one in found.jobs] == [(loose.pk, False, True)]


def test_where_nothing_is_ever_stopped_nothing_is_shown(settings: Any) -> None:
    job = _owed()
    settings.PREEMPT_MOST_VICTIMS = 0
    assert preempt_preview.next_round().previews == ()
    assert preempt_preview.exposures(Project.objects.get(slug="audio").pk) == []
    assert whatif.outlook(job).stops is None


def test_a_claim_under_way_is_not_shown_again_and_counts_for_what_is_kept() -> None:
    """The first has taken the one half of the guarantee, so that of two more only one has somebody stopped."""
    _owed()
    placing.place_queued()
    assert _told() == []
    more = [flow.long_job(asks=[CARD]) for _ in range(2)]
    told = _told()
    assert [job for job, *_ in told] == [more[0].pk]
    placing.place_queued()
    assert told == _done()[1:]


def test_what_the_database_would_refuse_is_not_thought_of_as_placed() -> None:
    """On paper the greedy job has the free card, and then nobody's stop would help the one that is owed two."""
    flow.world(cards=2)
    _guarantee("vision", 2000)
    _guarantee("audio", 0)
    grant = _guarantee("speech", 0).quota_grants.get()
    grant.amount = 100
    grant.save(update_fields=["amount"])
    flow.start(flow.long_job(asks=[CARD], project="audio"))
    flow.grow_old()
    flow.long_job(asks=[{"form": "container", "memory_mib": 16_000}], project="speech", priority=5)
    owed = flow.long_job(asks=[{**CARD, "cards_per_node": 2}])
    told = _told()
    placing.place_queued()
    assert told == _done()
    assert [job for job, *_ in told] == [owed.pk]


def test_nobody_waits_for_the_look_and_a_node_that_leaves_meanwhile_keeps_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job, free = _owed(), list[bool]()
    real = preempting.choices

    def meanwhile(*values: Any) -> Any:
        free.append(fleet_lock.acquire(blocking=False))
        if free[-1]:
            fleet_lock.release()
        made = real(*values)
        factories.Node.objects.update(state=NodeState.RETIRED)
        snapshot.node_views()  # another thread looks
        return made

    monkeypatch.setattr(preempting, "choices", meanwhile)
    [found] = preempt_preview.next_round().previews
    assert (found.job_id, found.nodes, free) == (job.pk, ("n1",), [True])
