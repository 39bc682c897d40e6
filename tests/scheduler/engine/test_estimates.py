"""How long jobs are expected to go on: what is learned, from whom, and what is assumed of those nothing is known of."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.engine.estimates import LONGEST_S, PER_OCTAVE, History, even_odds, groups_of
from tests.scheduler.engine.test_properties import every

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
BIN = 2 ** (1 / PER_OCTAVE)  # durations that differ by less are one to the history
SECONDS = st.floats(0, 60 * DAY)
MINE = groups_of("ann", "vgg", 8)
JOBS = st.lists(st.tuples(st.sampled_from(("ann", "bob")), st.sampled_from((1, 8)), SECONDS), max_size=30)


def history(*took: float, groups: tuple[object, ...] = MINE, times: int = 1) -> History:
    found = History()
    for seconds in took * times:
        found.ended(groups, seconds)
    return found


def test_of_a_job_of_which_nothing_is_known_a_few_hours_are_expected() -> None:
    known = History()
    assert 10 * MINUTE < known.left_at(0.5, MINE) < known.expected_left(MINE) < DAY
    assert known.expected_left(MINE) < known.expected_left(MINE, HOUR) < known.expected_left(MINE, DAY)


def test_what_its_own_kind_took_is_expected() -> None:
    known = history(2 * HOUR, times=200)
    for found in (known.expected_left(MINE), known.left_at(0.1, MINE), known.left_at(0.9, MINE)):
        assert 2 * HOUR / BIN < found < 2 * HOUR * BIN


@pytest.mark.parametrize(
    "asked", [groups_of("ann", "new", 8), groups_of("new", "new", 8), groups_of("new", "new", 2)], ids=str
)
def test_without_a_history_of_its_own_the_wider_group_stands_in(asked: tuple[object, ...]) -> None:
    known = history(9 * HOUR, times=100)
    assert 9 * HOUR / BIN < known.left_at(0.5, asked) < 9 * HOUR * BIN


def test_the_nearer_group_counts_for_more() -> None:
    known = history(10 * MINUTE, groups=groups_of("bob", "vgg", 8), times=50)
    for _ in range(50):
        known.ended(MINE, 10 * HOUR)
    assert known.expected_left(groups_of("bob", "vgg", 8)) < HOUR < 5 * HOUR < known.expected_left(MINE)
    between = known.expected_left(groups_of("new", "vgg", 8))
    assert known.expected_left(groups_of("bob", "vgg", 8)) < between < known.expected_left(MINE)


def test_two_jobs_of_its_own_do_not_outweigh_what_many_like_it_took() -> None:
    known = history(HOUR, groups=groups_of("bob", "vgg", 8), times=500)
    for _ in range(2):
        known.ended(MINE, 10 * DAY)
    assert known.left_at(0.5, MINE) < 2 * HOUR


def test_a_job_that_outlives_what_was_expected_is_expected_anew() -> None:
    known = history(*(10 * MINUTE,) * 9, 10 * HOUR, times=50)
    assert 0.5 * HOUR < known.expected_left(MINE) < 2 * HOUR
    assert 6 * HOUR < known.expected_left(MINE, HOUR) < 12 * HOUR


def test_nothing_goes_on_beyond_its_limit() -> None:
    known = history(10 * HOUR, times=500)
    assert known.expected_left(MINE, limit=3 * HOUR) == pytest.approx(3 * HOUR, rel=0.05)
    assert known.left_at(0.9, MINE, HOUR, limit=3 * HOUR) == pytest.approx(2 * HOUR)
    assert known.expected_left(MINE, 3 * HOUR, limit=3 * HOUR) == known.left_at(1, MINE, 4 * HOUR, limit=HOUR) == 0


@every
@given(JOBS, SECONDS, SECONDS, st.none() | st.floats(1, 30 * DAY))
def test_the_longer_a_job_has_run_the_later_it_ends(
    jobs: list[tuple[str, int, float]], one: float, other: float, limit: float | None
) -> None:
    known = History()
    for who, cards, seconds in jobs:
        known.ended(groups_of(who, "vgg", cards), seconds)
    early, late = sorted((one, other))
    ends = [at + known.expected_left(MINE, at, limit) for at in (early, late)]
    assert ends[0] <= ends[1] * (1 + 1e-9)
    if limit is None:
        assert known.expected_left(MINE, late) > 0
    else:
        assert ends[0] <= max(limit, early) * (1 + 1e-9)
    shares = [known.left_at(share, MINE, early, limit) for share in (0, 0.3, 0.9, 1)]
    assert shares == sorted(shares)


@every
@given(JOBS, st.randoms(use_true_random=False), SECONDS)
def test_only_what_ended_counts_and_not_in_which_order(
    jobs: list[tuple[str, int, float]], dice: Random, elapsed: float
) -> None:
    mixed = jobs.copy()
    dice.shuffle(mixed)
    one, other = History(), History()
    for known, order in ((one, jobs), (other, mixed)):
        for who, cards, seconds in order:
            known.ended(groups_of(who, "vgg", cards), seconds)
    assert one.expected_left(MINE, elapsed) == other.expected_left(MINE, elapsed)
    assert one.left_at(0.9, MINE, elapsed) == other.left_at(0.9, MINE, elapsed)


def test_absurd_durations_are_refused_or_count_as_the_longest() -> None:
    known = history(1e12, times=100)
    assert known.expected_left(MINE) < LONGEST_S
    assert known.expected_left(MINE, 2 * LONGEST_S) == pytest.approx(2 * LONGEST_S)
    for wrong in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="can't have taken"):
            known.ended(MINE, wrong)
    with pytest.raises(ValueError, match="not a share"):
        known.left_at(1.1, MINE)


def test_a_row_is_free_at_even_odds_when_each_of_its_jobs_has_ended_with_more() -> None:
    assert even_odds(1) == 0.5
    assert even_odds(3) ** 3 == pytest.approx(0.5)
