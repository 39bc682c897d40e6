"""The ledger lines: they add up to the number that they stand behind, whatever it is, and name nobody out of sight."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from typing import Any

import pytest

from ledger import lines, quarters, reports
from ledger.balance import NOWHERE, Cut
from ledger.lines import Chosen, LineSet
from ledger.models import RollUp
from ledger.vocabulary import Form, ProjectRole
from tests import factories
from tests.ledger.balance_reference import LENGTH_S, accounts, at, lay_out

pytestmark = [pytest.mark.django_db, pytest.mark.breaks_books]
CUTS = [
    Cut(), Cut(simulated=True), Cut(zone="z1"), Cut(model="A"), Cut(project="vision"), Cut(zone=NOWHERE),
    Cut(zone="z2", model="B", simulated=True), Cut(zone="z1", project="speech"), Cut(zone="nowhere"),
]  # fmt: skip


def found(start: float, end: float, cut: Cut, **chosen: Any) -> LineSet:
    return LineSet(Chosen(at(start), at(end), cut, **chosen))


@pytest.mark.parametrize("seed", range(8))
def test_the_lines_of_a_random_history_add_up_to_each_number_of_the_balance(seed: int) -> None:
    history = lay_out(seed)
    draw = random.Random(f"lines {seed}")
    windows = [(0.0, float(LENGTH_S)), sorted(draw.uniform(-30, LENGTH_S + 30) for _ in "ab")]
    for cut, (lo, hi) in itertools.product(CUTS, windows):
        right = accounts(history, lo, hi, zone=cut.zone if cut.zone != NOWHERE else None, project=cut.project,
                         model=cut.model, simulated=cut.simulated)  # fmt: skip
        for account in [None, *reports.ACCOUNTS]:
            some = found(lo, hi, cut, account=account)
            told = list(some)
            assert some.amount == sum(line.amount for line in told)
            assert some.count() == len(told)
            if cut.zone != NOWHERE:
                wanted = sum(n for key, n in right.items() if account in (None, key[0]))
                assert some.amount == wanted, (cut, account)


@pytest.mark.parametrize("seed", range(6))
def test_the_lines_of_each_member_of_each_split_add_up(seed: int) -> None:
    lay_out(seed)
    answer = reports.balance(at(0), at(LENGTH_S))["exact"]["used"]
    for split, part in (("zone", "by_zone"), ("model", "by_model"), ("form", "by_form"), ("project", "by_project")):
        for name, amount in answer[part].items():
            cut, form = (Cut(), name) if split == "form" else (Cut(**{split: name}), None)
            assert found(0, LENGTH_S, cut, account="used", form=form).amount == amount, (split, name)
            rest = found(0, LENGTH_S, Cut(), account="used", split=split, but=(name,))
            assert rest.amount == answer["total"] - amount, (split, name)


@pytest.mark.parametrize("seed", range(4))
def test_lines_know_what_the_balance_says_of_them_without_reading_themselves(seed: int) -> None:
    lay_out(seed)
    viewer = factories.user("stranger")
    factories.project("speech", stranger=ProjectRole.VIEWER)
    choices: list[dict[str, Any]] = [
        {}, {"account": "held"}, {"account": "used", "form": Form.BLOCK.value}, {"form": Form.WHOLE.value},
        {"account": "cleaning", "split": "project", "but": ("speech",)}, {"split": "zone", "but": (NOWHERE,)},
    ]  # fmt: skip
    for values, project in itertools.product(choices, (None, "speech", "vision", reports.OTHERS)):
        chosen = Chosen(at(0), at(LENGTH_S), Cut(project=project), **values)
        told = chosen.amount(reports.cells(at(0), at(LENGTH_S), Cut(), viewer))
        assert LineSet(chosen, viewer).amount == told, (values, project)


def test_a_long_window_read_from_the_roll_up_has_the_same_lines() -> None:
    lay_out(5)
    day = dt.timedelta(days=1)
    since = quarters.floor(at(0)) - quarters.QUARTER
    RollUp.objects.create(pk=1, since=since, until=since, fence=1, fence_at=since + 4 * quarters.QUARTER)
    assert quarters.roll_up() == 4
    answer = reports.balance(at(0) - day, at(0) + day)
    assert answer["exact"]["capacity"] > 0
    for account, amount in (("used", answer["exact"]["used"]["total"]), (None, answer["exact"]["capacity"])):
        assert LineSet(Chosen(at(0) - day, at(0) + day, Cut(), account=account)).amount == amount


def test_a_line_of_a_share_says_whose_it_was_and_multiplies_out() -> None:
    history = lay_out(1)
    told = list(found(0, LENGTH_S, Cut(), account="used"))
    assert told
    for line in told:
        assert line.mib is not None
        assert line.size is not None
        seconds = int((line.until - line.since).total_seconds())
        assert at(0) <= line.since < line.until <= at(LENGTH_S)
        assert line.amount == line.mib * seconds
        assert abs(line.card_seconds * line.size - line.amount) < 1
        assert (line.job, line.node[0], line.card[:5]) == ("raw", "n", "card-")
        assert {line.form} <= {share.form for share in history.shares if share.project == line.project}


def test_holds_have_one_line_each_and_overlapping_ones_share_nothing() -> None:
    history = lay_out(5)
    held = list(found(-1000, LENGTH_S + 1000, Cut(), account="held"))
    assert held
    assert len(held) <= len(history.holds)
    assert {line.hold for line in held} <= {"fault", "drill", "maintenance"}
    assert all(line.cards for line in held)


def test_idle_memory_has_one_line_a_zone_and_model_and_headroom_too() -> None:
    lay_out(5)
    cells = [
        line for account in ("free", "stranded", "headroom") for line in found(0, LENGTH_S, Cut(), account=account)
    ]
    keys = [(line.account, line.zone, line.model, line.size) for line in cells]
    assert len(set(keys)) == len(keys) > 0
    assert {line.account for line in found(0, LENGTH_S, Cut(simulated=True))} | set(
        dict.fromkeys(k[0] for k in keys)
    ) >= {"free", "stranded"}


@pytest.mark.parametrize("order", [("amount",), ("-amount",), ("project", "-lo"), ("-card",), ("zone",), ("-mib",)])
def test_pages_in_any_order_are_the_whole_list_once(order: tuple[str, ...]) -> None:
    lay_out(2)
    some = found(0, LENGTH_S, Cut()).order_by(*order)
    whole = list(some[0:1000])
    assert len(whole) == some.count() > 10
    paged = [
        line
        for start in range(0, len(whole), 7)
        for line in found(0, LENGTH_S, Cut()).order_by(*order)[start : start + 7]
    ]
    assert paged == whole
    assert list(some.iterator(1000)) == whole
    assert list(some.iterator(3)) == whole[:3]
    assert some[10_000:10_050] == []


def test_only_known_names_order_lines() -> None:
    with pytest.raises(ValueError, match="hidden"):
        found(0, 1, Cut()).order_by("hidden; DROP TABLE ledger_card")


@pytest.mark.parametrize("order", lines.ORDERS)
def test_lines_of_projects_out_of_sight_tell_neither_project_nor_job(order: str) -> None:
    lay_out(1)
    viewer = factories.user("stranger")
    factories.project("speech", stranger=ProjectRole.VIEWER)
    told = list(LineSet(Chosen(at(0), at(LENGTH_S), Cut(), account="used"), viewer).order_by(order))
    assert {line.project for line in told} == {"speech", reports.OTHERS}
    assert all(bool(line.job_id) == bool(line.job) == (line.project == "speech") for line in told)
    hidden = LineSet(Chosen(at(0), at(LENGTH_S), Cut(project="vision")), viewer)
    assert hidden.count() == 0  # asking for the name finds nothing either
    others = LineSet(Chosen(at(0), at(LENGTH_S), Cut(project=reports.OTHERS), account="used"), viewer)
    everything = reports.balance(at(0), at(LENGTH_S))["exact"]["used"]["by_project"]
    assert others.amount == everything["vision"]


def test_a_page_of_lines_is_one_query_and_a_later_page_one_more(
    django_assert_num_queries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "FIRST", 5)
    lay_out(2)
    some = found(0, LENGTH_S, Cut())
    with django_assert_num_queries(1):
        assert some.count() + some.amount > 0
        assert len(some[0:5]) == 5
    with django_assert_num_queries(1):
        assert len(some[5:8]) == 3
