"""The balance: both sides equal, equal to a reference that looks at every second, and the same however time is cut."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest

from ledger import reports
from ledger.balance import NOWHERE
from ledger.models import Allocation
from ledger.vocabulary import JobState, ProjectRole
from scheduler import commands, observing, placing
from tests import factories
from tests.ledger.balance_reference import FOREVER, LENGTH_S, Key, Span, accounts, at, lay_out
from tests.ledger.raw import insert, one, run

pytestmark = [pytest.mark.django_db, pytest.mark.breaks_books]
HISTORIES = 12


def _rows(start: float, end: float, **cut: Any) -> Counter[Key]:
    found = reports.rows(at(start), at(end), **cut)
    assert len({row[:4] for row in found}) == len(found)
    return Counter({row[:4]: row[4] for row in found})


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_the_balance_of_a_random_history_is_the_references(seed: int) -> None:
    history = lay_out(seed)
    draw = random.Random(f"windows {seed}")
    cuts: list[dict[str, Any]] = [
        {}, {"simulated": True}, {"zone": "z1"}, {"model": "A"}, {"project": "vision"},
        {"zone": "z2", "model": "B", "simulated": True}, {"zone": "z1", "project": "speech"}, {"zone": "nowhere"},
    ]  # fmt: skip
    assert history.shares
    assert accounts(history, 0, LENGTH_S)
    for cut in cuts:
        assert _rows(0, LENGTH_S, **cut) == accounts(history, 0, LENGTH_S, **cut), cut
    for _ in range(4):
        lo, hi = sorted(draw.uniform(-30, LENGTH_S + 30) for _ in range(2))
        assert _rows(lo, hi) == accounts(history, lo, hi), (lo, hi)


def test_the_random_histories_show_every_account() -> None:
    seen: Counter[str] = Counter()
    history = lay_out(5)
    for simulated in (False, True):
        seen.update(key[0] for key in accounts(history, 0, LENGTH_S, simulated=simulated))
    assert set(seen) == set(reports.ACCOUNTS)
    assert len({share.form for share in history.shares}) == 3


@pytest.mark.parametrize("seed", [100, 101, 102])
def test_any_cut_of_the_window_adds_up(seed: int) -> None:
    lay_out(seed)
    draw = random.Random(seed)
    whole = _rows(-10, LENGTH_S + 10)
    edges = [-10.0, *sorted(draw.uniform(-10, LENGTH_S + 10) for _ in range(6)), LENGTH_S + 10.0]
    parts: Counter[Key] = Counter()
    for lo, hi in zip(edges, edges[1:], strict=False):
        parts.update(_rows(lo, hi))
    assert parts == whole
    by_zone = _rows(-10, LENGTH_S + 10, zone="z1") + _rows(-10, LENGTH_S + 10, zone="z2")
    assert all(by_zone[key] <= whole[key] for key in by_zone)  # the rest was in no zone
    assert _rows(-10, LENGTH_S + 10, model="A") + _rows(-10, LENGTH_S + 10, model="B") == whole


def _sides(part: dict[str, Any]) -> tuple[int, int]:
    accounts_ = part["used"]["total"] + part["cleaning"] + part["held"] + part["headroom"] + part["idle"]["total"]
    return part["capacity"], accounts_


@pytest.mark.parametrize("seed", range(HISTORIES, HISTORIES + 4))
def test_both_sides_agree_in_both_units(seed: int) -> None:
    history = lay_out(seed)
    answer = reports.balance(at(0.25), at(LENGTH_S))
    for part in (answer, answer["exact"]):
        capacity, total = _sides(part)
        assert capacity == total
        assert part["idle"]["total"] == part["idle"]["free"] + part["idle"]["stranded"]
        for split in reports.SPLITS:
            assert sum(part["used"][split].values()) == part["used"]["total"], split
    seats = [seat for seat in history.seats if not history.simulated[seat.node]]
    seconds = [(seat.mib, sum(t in seat.span for t in range(1, LENGTH_S))) for seat in seats]
    assert answer["exact"]["capacity"] == sum(mib * n for mib, n in seconds)
    assert answer["capacity"] == sum(n for _, n in seconds)  # every card is whole in card-seconds
    assert (answer["unit"], answer["exact"]["unit"], answer["time_zone"]) == ("card_seconds", "mib_seconds", "UTC")


def test_rounding_loses_nothing_and_is_off_by_less_than_one() -> None:
    draw = random.Random(7)
    for _ in range(200):
        size = draw.randrange(1, 12)
        parts = [Fraction(draw.randrange(0, 1000), draw.choice([3, 7, 16])) for _ in range(size)]
        parts.append(-sum(parts) % 1 if draw.random() < 0.7 else Fraction(0))
        values = {("used", str(n), ""): part for n, part in enumerate(parts)}
        rounded = reports._rounded(values)
        assert sum(rounded.values()) == round(sum(parts))
        assert all(abs(rounded[key] - value) < 1 for key, value in values.items())


def test_one_job_is_booked_with_memory_times_whole_seconds() -> None:
    factories.project("vision", researcher=ProjectRole.MEMBER)
    node = factories.node(cards=1)
    work = factories.job(command=["simulate", "--seconds", "0"], asks=[{"form": "container", "memory_mib": 1000}])
    placing.place_queued()
    while work.state != JobState.SUCCEEDED:
        commands.run_due()
        observing.observe_all()
        work.refresh_from_db()
    held = Allocation.objects.get()
    start, end = node.seats.get().period.lower, held.period.upper + dt.timedelta(seconds=1)
    rows = {(account, slug): n for account, slug, _, _, n in reports.rows(start, end, simulated=True)}
    whole = {edge: one("SELECT ceil(extract(epoch FROM %s::timestamptz))::bigint", when)
             for edge, when in (("lo", held.period.lower), ("turn", held.closing_at), ("hi", held.period.upper))}  # fmt: skip
    assert rows.get(("used", "vision"), 0) == 1000 * (whole["turn"] - whole["lo"])
    assert rows.get(("cleaning", "vision"), 0) == 1000 * (whole["hi"] - whole["turn"])
    assert reports.rows(start, end, simulated=False) == []


@pytest.mark.parametrize(
    ("lo", "hi", "seconds"), [(5.0, 8.0, 3), (5.1, 7.9, 2), (5.1, 5.9, 0), (4.999999, 5.000001, 1)]
)
def test_a_period_counts_the_whole_seconds_between_its_ceilings(lo: float, hi: float, seconds: int) -> None:
    history = lay_out(0)
    run("DELETE FROM ledger_hold")
    pk = insert("ledger_card", uuid="x", model="X", memory_mib=10, memory_assumed=False, virtual=False, mig_layout=[])
    node = next(node for node, simulated in history.simulated.items() if not simulated)
    insert("ledger_cardseat", card_id=pk, node_id=node, slot=99, period=Span(lo, hi).sql)
    assert sum(_rows(-FOREVER / 1e6, LENGTH_S, model="X").values()) == 10 * seconds


def test_projects_out_of_sight_stand_together() -> None:
    lay_out(1)
    everything = reports.balance(at(0), at(LENGTH_S))
    stranger = factories.user("stranger")
    factories.project("speech", stranger=ProjectRole.VIEWER)
    seen = reports.balance(at(0), at(LENGTH_S), viewer=stranger)
    assert set(seen["exact"]["used"]["by_project"]) <= {"speech", reports.OTHERS}
    hidden = everything["exact"]["used"]["by_project"]["vision"]
    assert seen["exact"]["used"]["by_project"][reports.OTHERS] == hidden
    assert seen["exact"]["capacity"] == everything["exact"]["capacity"]


def test_a_series_adds_up_to_the_whole_window() -> None:
    lay_out(2)
    whole = reports.balance(at(0), at(LENGTH_S))["exact"]
    parts = reports.balance_series([at(LENGTH_S * n / 7) for n in range(8)])
    assert len(parts) == 7
    for name in ("capacity", "cleaning", "held", "headroom"):
        assert sum(part["exact"][name] for part in parts) == whole[name]
    assert sum(part["exact"]["used"]["total"] for part in parts) == whole["used"]["total"]


def test_what_is_in_no_zone_is_a_cut_of_its_own() -> None:
    lay_out(4)
    whole = _rows(0, LENGTH_S)
    parts = sum((_rows(0, LENGTH_S, zone=zone) for zone in ("z1", "z2", NOWHERE)), Counter())
    assert _rows(0, LENGTH_S, zone=NOWHERE)
    assert parts == whole


def test_several_balances_at_once_say_the_same_as_one_by_one() -> None:
    lay_out(6)
    windows = [(at(-5), at(20)), (at(20), at(21.5)), (at(60), at(LENGTH_S))]
    assert reports.balances(windows, zone="z1") == [reports.balance(*window, zone="z1") for window in windows]


def test_the_sessions_time_zone_changes_nothing() -> None:
    lay_out(3)
    plain = _rows(0, LENGTH_S)
    run("SET LOCAL timezone = 'Europe/Berlin'")
    assert _rows(0, LENGTH_S) == plain
