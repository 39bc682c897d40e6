"""What the portal's own health policy says: every code of the table, codes that are in none, and when it says more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from ledger.health_defaults import DEFAULT
from ledger.health_rules import ENDS_JOBS, NEEDS, UNCHANGED, Past, Seen, decide, need_of
from ledger.vocabulary import FaultKind, HealthAction, Need

A, XID = HealthAction, FaultKind.XID
HOUR, DAY = 3_600, 86_400
AT = 1_000_000.0
# by what is done at first; written out from the table once more, so that the two are compared
CODES: dict[HealthAction, Sequence[int]] = {
    A.LOG: (
        *(13, 31, 32, 69, 11, 25, 8, 39, 40, 41, 60, 68, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84, 85, 86, 88, 89),
        *(96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 139),
        *(43, 37, 38, 44, 66, 67, 137, 141, 45, 121, 93, 157, 160, 161, 106, 107, 152, 153),
    ),
    A.DRAIN_SOFT: (63,),
    A.DRAIN_NOW: (64, 48, 171, 172, 95),
    A.RESTART_JOB: (94,),
    A.RESET: (140, 46, 62, 109, 110, 119, 120, 136, 143, 155, 156, 158),
    A.REBOOT: (79, 167),
    A.NO_GANG: (74, 144, 145, 146, 147, 148, 149, 150),
    A.WATCH: (92,),
    A.HOLD_NODE: (54, 78, 151, 159),
    A.ASK: (154, 162, 163, 164, 165, 166, 168, 169, 170),
}
EVERY = [(code, action) for action, codes in CODES.items() for code in codes]


def xid(code: int, at: float = AT, **more: object) -> Seen:
    return replace(Seen(XID, code, at), **more)  # type: ignore[arg-type]


def past(code: int, ago: float, action: HealthAction, **more: object) -> Past:
    return replace(Past(AT - ago, XID, code, action, True), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("code", "action"), EVERY)
def test_each_code_of_the_table(code: int, action: HealthAction) -> None:
    found = decide(DEFAULT, xid(code))
    assert (found.action, found.rule, found.escalated) == (action, f"xid {code}", False)


def test_the_table_has_these_codes_and_no_others() -> None:
    codes = [rule.code for rule in DEFAULT.rules if rule.kind is XID]
    assert sorted(code for code in codes if code is not None) == sorted(code for code, _ in EVERY)
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("code", [0, 1, 7, 42, 122, 138, 142, 173, 9999, None])
def test_a_code_that_nobody_knows_is_asked_about(code: int | None) -> None:
    found = decide(DEFAULT, Seen(XID, code, AT))
    assert found.action is A.ASK
    assert found.by_hand


@pytest.mark.parametrize(
    ("kind", "action"),
    [
        (FaultKind.ECC, A.DRAIN_NOW),
        (FaultKind.REMAP_PENDING, A.DRAIN_SOFT),
        (FaultKind.REMAP_FAILED, A.RMA),
        (FaultKind.RESET_REQUIRED, A.RESET),
        (FaultKind.LOST, A.REBOOT),
        (FaultKind.MISSING, A.REBOOT),
        (FaultKind.CORRECTABLE, A.WATCH),
        (FaultKind.NVLINK, A.WATCH),
        (FaultKind.THERMAL, A.WATCH),
        (FaultKind.POWER, A.WATCH),
        (FaultKind.STORAGE, A.WATCH),
        (FaultKind.CLOCK, A.LOG),
        (FaultKind.SILENT, A.LOG),
        (FaultKind.ORPHAN, A.WATCH),
        (FaultKind.OVERUSE, A.LOG),
    ],
)
def test_each_state(kind: FaultKind, action: HealthAction) -> None:
    assert decide(DEFAULT, Seen(kind, None, AT)).action is action


def test_every_kind_is_spoken_of() -> None:
    assert {rule.kind for rule in DEFAULT.rules} == set(FaultKind)


@pytest.mark.parametrize(
    ("message", "action"),
    [
        ("154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", A.RESET),
        ("154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", A.REBOOT),
        ("154, GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)", A.NO_GANG),
        ("154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)", A.DRAIN_SOFT),
        ("154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", A.LOG),
        ("154, GPU recovery action changed from 0x0 (None) to 0x9 (Something New)", A.ASK),
        ("", A.ASK),
    ],
)
def test_154_does_what_the_driver_asks_for(message: str, action: HealthAction) -> None:
    assert decide(DEFAULT, xid(154, message=message)).action is action


@pytest.mark.parametrize(
    ("seen", "before", "action"),
    [
        # what programs cause is counted by different people
        (xid(13, users=frozenset({3})), [past(13, 60, A.LOG, users=frozenset({n})) for n in (1, 2)], A.DRAIN_SOFT),
        (xid(13, users=frozenset({1})), [past(13, 60, A.LOG, users=frozenset({1}))] * 9, A.LOG),
        (xid(13, users=frozenset({3})), [past(13, DAY + 1, A.LOG, users=frozenset({1, 2}))], A.LOG),
        (xid(13, users=frozenset({3})), [past(13, 60, A.LOG, users=frozenset({1, 2}), place=9)], A.LOG),
        (xid(8, users=frozenset({2})), [past(8, 60, A.LOG, users=frozenset({1}))], A.DRAIN_SOFT),
        # resets: the second within a day is a reboot, unless it is still the same incident
        (xid(119), [past(119, HOUR, A.RESET)], A.REBOOT),
        (xid(119), [past(119, DAY + 1, A.RESET)], A.RESET),
        (xid(119), [past(120, HOUR, A.RESET)], A.RESET),
        (xid(119, in_hand=A.RESET), [past(119, HOUR, A.RESET)] + [past(119, 60, A.RESET, began=False)] * 5, A.RESET),
        (xid(119, in_hand=A.REBOOT), [past(119, HOUR, A.RESET), past(119, 60, A.REBOOT)], A.REBOOT),
        (xid(119), [past(119, HOUR, A.RESET, place=9)], A.RESET),
        # after two reboots of the node, wherever they came from, a person looks at it
        (xid(119), [past(119, HOUR, A.RESET), past(79, DAY, A.REBOOT, place=9)], A.REBOOT),
        (xid(119), [past(119, HOUR, A.RESET)] + [past(79, DAY, A.REBOOT, place=9)] * 2, A.HOLD_NODE),
        (xid(79), [past(79, DAY, A.REBOOT)], A.HOLD_NODE),
        (xid(79, in_hand=A.RESET), [], A.REBOOT),
        (xid(167, in_hand=A.REBOOT), [past(79, DAY, A.REBOOT), past(119, 60, A.REBOOT)], A.REBOOT),
        (xid(79), [past(79, 8 * DAY, A.REBOOT)], A.REBOOT),
        (xid(79), [past(119, DAY, A.REBOOT)] * 2, A.HOLD_NODE),
        # a remap that fails again is the end of the card
        (xid(64), [past(64, 20 * DAY, A.DRAIN_NOW)], A.RMA),
        (xid(64), [past(64, 31 * DAY, A.DRAIN_NOW)], A.DRAIN_NOW),
    ],
)
def test_repeats_escalate(seen: Seen, before: list[Past], action: HealthAction) -> None:
    found = decide(DEFAULT, seen, before)
    assert found.action is action
    assert found.escalated is (action is not decide(DEFAULT, replace(seen, in_hand=None)).action)


def test_what_always_wants_a_person_says_so() -> None:
    by_action = {rule.action: decide(DEFAULT, Seen(rule.kind, rule.code, AT)).by_hand for rule in DEFAULT.rules}
    assert {action for action, by_hand in by_action.items() if by_hand} == {A.ASK, A.HOLD_NODE, A.RMA, A.NO_GANG}


def test_every_action_that_takes_out_has_a_need() -> None:
    assert set(NEEDS) == set(HealthAction) - UNCHANGED
    assert set(NEEDS) >= ENDS_JOBS


def test_a_card_that_nobody_can_name_is_not_reset_but_its_node_rebooted() -> None:
    assert need_of(A.RESET, XID, on_card=True) is Need.RESET
    assert need_of(A.RESET, XID, on_card=False) is Need.REBOOT
    assert need_of(A.DRAIN_SOFT, FaultKind.STORAGE, on_card=False) is Need.NOTHING
