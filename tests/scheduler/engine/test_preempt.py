"""Who is stopped for whom: as few as possible, nobody unlawfully, and never in vain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ledger.vocabulary import Form, JobKind
from scheduler.engine import preempt
from scheduler.engine.fairness import Shares
from scheduler.engine.preempt import Cause
from scheduler.engine.types import Standing, Stay, Tenant
from tests.scheduler.engine import fleets
from tests.scheduler.engine.pools import AT, MIN_RUN, Pool, some_pool

POOLS = 900


def _agrees(seed: int) -> bool:
    """True where somebody is stopped."""
    pool = some_pool(seed)
    found, wanted = pool.propose(), pool.fewest()
    if wanted is None:
        assert found is None, seed
        return False
    assert found is not None, seed
    chosen = [one for one in pool.tenants if one.attempt_id in found.victims]
    assert pool.lawful(chosen), seed
    leaving = {one.job_id for one in pool.tenants if one.closing}
    assert pool.helps(leaving | {one.job_id for one in chosen}), seed
    assert pool.cause is Cause.TIER or found.takes <= pool.left(), seed
    assert (len(found.victims), found.lost) == wanted, seed
    assert found.whole
    return True


def test_as_few_are_stopped_as_by_trying_every_set_on_many_small_pools() -> None:
    stopped = sum(_agrees(seed) for seed in range(POOLS))
    assert stopped > POOLS / 6


def test_what_is_found_node_by_node_alone_is_lawful_and_rarely_more_than_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The search of large pools, on small ones."""
    monkeypatch.setattr(preempt, "SEARCHED_WHOLLY", 0)
    missed = more = asked = 0
    for seed in range(POOLS // 2):
        pool = some_pool(seed)
        found, wanted = pool.propose(), pool.fewest()
        if wanted is None:
            assert found is None, seed
            continue
        asked += 1
        if found is None:
            missed += 1
            continue
        chosen = [one for one in pool.tenants if one.attempt_id in found.victims]
        assert pool.lawful(chosen), seed
        assert pool.helps({one.job_id for one in pool.tenants if one.closing} | {one.job_id for one in chosen}), seed
        more += len(found.victims) > wanted[0]
    print(f"of {asked}: {missed} not found, {more} with more than needed")
    assert missed <= 0.05 * asked
    assert more <= 0.05 * asked


CARDS = 4


def _full(nodes: int = 2, **job: Any) -> Pool:
    """Nodes of 4 cards full of jobs of project 2 with one card each, the later ones younger; project 1 comes back."""
    empty = [fleets.node(number, CARDS) for number in range(1, nodes + 1)]
    tenants, stays = [], []
    for number in range(nodes * CARDS):
        node_id, slot = number // CARDS + 1, number % CARDS
        stays.append(
            Stay(100 + number, node_id, Form.CONTAINER, AT + 50, 0, 0, ((node_id * 100 + slot, ((0, 16),), ()),))
        )
        tenants.append(_tenant(number))
    standings = [Standing(1, False, 4000, None, 1, 0), Standing(2, False, 4000, None, 1, 1000 * nodes * CARDS)]
    claimant = fleets.job(1, *[job.pop("ask", fleets.container(2, 0))], **{"kind": JobKind.TRAINING, **job})
    return Pool(empty, tenants, stays, standings, claimant, Cause.GUARANTEE)


def _tenant(number: int) -> Tenant:
    since = AT - 5000 + number
    return Tenant(1100 + number, 100 + number, 2, False, JobKind.TRAINING, 0, False, since, since + MIN_RUN)


def test_the_youngest_work_goes_from_one_node() -> None:
    found = _full().propose()
    assert found is not None
    assert (found.victims, found.node_ids, found.lost) == ((1106, 1107), (2,), 1000 * (4994 + 4993))


def test_nobody_goes_before_the_minimum_time() -> None:
    pool = _full()
    pool.tenants = [replace(one, safe_until=AT + 1) for one in pool.tenants]
    assert pool.propose() is None
    pool.tenants[0] = replace(pool.tenants[0], safe_until=AT)
    assert pool.propose() is None  # one card would not do
    pool.tenants[1] = replace(pool.tenants[1], safe_until=AT)
    found = pool.propose()
    assert found is not None
    assert found.victims == (1100, 1101)


def test_nobody_is_taken_below_its_own_guarantee() -> None:
    pool = _full(ask=fleets.container(4, 0))
    pool.standings[1] = replace(pool.standings[1], guaranteed=5000)  # of 8
    assert pool.propose() is None
    pool.standings[1] = replace(pool.standings[1], guaranteed=4000)
    found = pool.propose()
    assert found is not None
    assert len(found.victims) == 4


def test_what_is_being_stopped_already_is_waited_for() -> None:
    pool = _full()
    pool.tenants[:2] = [replace(one, closing=True) for one in pool.tenants[:2]]
    assert pool.propose() is None
    pool.tenants[1] = replace(pool.tenants[1], closing=False)
    found = pool.propose()
    assert found is not None
    assert found.victims == (1103,)


def test_in_a_large_pool_too_what_is_going_counts_as_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One node of the gang is free by that, where nobody else may go; on the other somebody has to."""
    monkeypatch.setattr(preempt, "SEARCHED_WHOLLY", 0)
    pool = _full(ask=fleets.container(1, 0, nodes=2))
    first = [replace(one, safe_until=AT + 1) for one in pool.tenants[:CARDS]]
    pool.tenants[:CARDS] = [replace(first[0], closing=True), *first[1:]]
    found = pool.propose()
    assert found is not None
    assert found.victims == (1107,)


def test_a_gang_is_one_victim_and_goes_whole() -> None:
    pool = _full()
    pool.stays[7] = replace(pool.stays[7], job_id=106)  # two cards of one job
    pool.stays[3] = replace(pool.stays[3], job_id=106)  # and one on the other node
    pool.tenants = [one for one in pool.tenants if one.job_id not in (103, 107)]
    found = pool.propose()
    assert found is not None
    assert (found.victims, found.lost) == ((1106,), 3000 * 4994)


@pytest.mark.parametrize(
    ("cause", "mine", "theirs", "may"),
    [
        (Cause.GUARANTEE, JobKind.TRAINING, {}, True),
        (Cause.GUARANTEE, JobKind.TRAINING, {"kind": JobKind.INFERENCE}, True),
        (Cause.GUARANTEE, JobKind.INFERENCE, {"kind": JobKind.INFERENCE}, True),
        (Cause.GUARANTEE, JobKind.TRAINING, {"simulated": True}, False),
        (Cause.GUARANTEE, JobKind.TRAINING, {"project_id": 1, "preemptible": True}, False),
        (Cause.TIER, JobKind.INFERENCE, {}, False),
        (Cause.TIER, JobKind.INFERENCE, {"preemptible": True}, True),
        (Cause.TIER, JobKind.INFERENCE, {"preemptible": True, "priority": 1}, False),
        (Cause.TIER, JobKind.INFERENCE, {"preemptible": True, "kind": JobKind.INFERENCE}, False),
        (Cause.TIER, JobKind.INFERENCE, {"preemptible": True, "project_id": 1}, True),
    ],
)
def test_who_may_be_stopped_for_whom(cause: Cause, mine: JobKind, theirs: dict[str, Any], may: bool) -> None:
    pool = _full(kind=mine)
    pool.cause = cause
    pool.tenants = [replace(one, **theirs) for one in pool.tenants]
    pool.standings[1] = replace(pool.standings[1], serving=pool.serving(2))
    assert (pool.propose() is not None) is may


def _two_sizes(left: int, *, lent: tuple[int, ...] = (1, 2), ask: Any = None) -> Pool:
    """A node of two cards of 16 MiB and one of two of 64, full of work of project 2; of project 1 so much is left. On
    nodes that are not lent nothing may be stopped."""
    empty = [fleets.node(1, fleets.cards_of(1, [16, 16])), fleets.node(2, fleets.cards_of(2, [64, 64]))]
    tenants, stays = [], []
    for number, (node_id, slot, size) in enumerate(((1, 0, 16), (1, 1, 16), (2, 0, 64), (2, 1, 64))):
        stays.append(
            Stay(100 + number, node_id, Form.CONTAINER, AT + 50, 0, 0, ((node_id * 100 + slot, ((0, size),), ()),))
        )
        tenants.append(replace(_tenant(number), safe_until=AT - 1 if node_id in lent else AT + 1))
    standings = [Standing(1, False, left, None, 1, 0), Standing(2, False, 0, None, 1, 4000)]
    claimant = fleets.job(1, ask or fleets.container(1, 16), kind=JobKind.TRAINING)
    return Pool(empty, tenants, stays, standings, claimant, Cause.GUARANTEE)


@pytest.mark.parametrize(
    ("left", "lent", "node"),
    [(1000, (1,), 1), (250, (1,), None), (999, (1,), None), (250, (2,), 2), (249, (2,), None), (250, (1, 2), 2)],
)
def test_what_it_gets_counts_for_no_more_than_is_left_of_the_guarantee(
    left: int, lent: tuple[int, ...], node: int | None
) -> None:
    """16 MiB are a whole small card or a quarter of a large one."""
    found = _two_sizes(left, lent=lent).propose()
    assert (found.node_ids[0] if found else None) == node
    assert found is None or found.takes <= left


def test_of_a_gang_all_nodes_count_together() -> None:
    gang = fleets.container(1, 16, nodes=2)
    assert _two_sizes(1249, ask=gang).propose() is None
    found = _two_sizes(1250, ask=gang).propose()
    assert found is not None
    assert (found.takes, len(found.victims)) == (1250, 2)


def test_what_others_of_its_project_were_promised_is_not_left() -> None:
    pool = _two_sizes(1000, lent=(1,))
    assert pool.propose(promised=1) is None
    assert pool.propose(promised=0) is not None


def _lent_to_serve(serving: int, guaranteed: int) -> Pool:
    """Of the four jobs of project 2 on one node so many are inference, the youngest."""
    pool = _full(nodes=1, ask=fleets.container(1, 0))
    kinds = [JobKind.TRAINING] * (CARDS - serving) + [JobKind.INFERENCE] * serving
    pool.tenants = [replace(one, kind=kind) for one, kind in zip(pool.tenants, kinds, strict=True)]
    pool.standings[1] = Standing(2, False, guaranteed, None, 1, 4000, 0, 1000 * serving)
    return pool


@pytest.mark.parametrize(
    ("serving", "guaranteed", "cards", "goes"),
    [
        (2, 2000, 1, ["training"]),  # inference stands on the guarantee, training is what is borrowed
        (2, 2000, 2, ["training", "training"]),
        (2, 2000, 3, None),
        (4, 4000, 1, None),  # never within the guarantee
        (3, 2000, 1, ["training"]),  # last, though it lost less
        (3, 2000, 2, ["inference", "training"]),  # borrowed is borrowed
        (4, 0, 2, ["inference", "inference"]),
        (4, 3000, 2, None),
    ],
)
def test_borrowed_inference_goes_last_and_within_its_guarantee_never(
    serving: int, guaranteed: int, cards: int, goes: list[str] | None
) -> None:
    pool = _lent_to_serve(serving, guaranteed)
    pool.job = replace(pool.job, asks=(fleets.container(cards, 0),))
    found = pool.propose()
    kinds = {one.attempt_id: one.kind.value for one in pool.tenants}
    assert (sorted(kinds[one] for one in found.victims) if found else None) == goes


def test_inference_that_was_taken_already_is_not_taken_twice() -> None:
    """What one claim stops is no longer held when the next is looked at."""
    shares = Shares([Standing(2, False, 1000, None, 1, 4000, 0, 2000)], {False: 4000})
    key = 2, False
    assert [shares.may_lose(key, kind) for kind in (JobKind.INFERENCE, JobKind.TRAINING)] == [1000, 3000]
    shares.take(key, -1000, JobKind.INFERENCE)
    assert [shares.may_lose(key, kind) for kind in (JobKind.INFERENCE, JobKind.TRAINING)] == [0, 2000]


def test_only_inference_has_others_stopped_without_a_guarantee() -> None:
    for kind in JobKind:
        cause = preempt.cause_of(fleets.job(1, kind=kind), covered=False)
        assert cause == (Cause.TIER if kind is JobKind.INFERENCE else None)
    assert preempt.cause_of(fleets.job(1), covered=True) is Cause.GUARANTEE
    assert preempt.cause_of(fleets.job(1, over_quota=True), covered=True) is None


def test_a_large_pool_is_searched_with_few_questions() -> None:
    pool = _full(nodes=60, ask=fleets.container(2, 0, nodes=6))
    pool.standings[0] = replace(pool.standings[0], guaranteed=12_000)
    found = pool.propose(checks=60)
    assert found is not None
    assert (len(found.victims), len(found.node_ids), found.whole) == (12, 6, False)
    assert found.checks <= 60


def test_a_search_without_questions_left_stops_nobody() -> None:
    assert _full().propose(checks=1) is None
    assert _full(ask=fleets.container(4, 0)).propose(victims=3) is None
