"""What a list of processes says, table by table; no database."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.processes import Known, Use, above, alarming, counted, named, strays, use_of, with_keys

A, B = "a1", "a2"


def proc(member: Any = A, mib: Any = 100, pid: Any = 7, name: Any = "python") -> dict[str, Any]:
    return {"pid": pid, "memory_mib": mib, "member": member, "name": name}


@pytest.mark.parametrize(
    ("processes", "use"),
    [
        ([], Use(0, True)),
        ([proc(), proc(mib=50), proc(B, 900)], Use(150, True)),
        ([proc(), proc(mib=None)], Use(100, False)),
        ([proc(mib=-1)], Use(0, False)),
        ([proc(mib=True)], Use(0, False)),
        ([proc(mib="100")], Use(0, False)),
        ([proc(mib=1.5)], Use(0, False)),
        ([proc(mib=2**40)], Use(0, False)),
        (["x", 3, None, {}, {"member": ["a1"]}], Use(0, True)),
    ],
)
def test_what_a_member_holds(processes: list[Any], use: Use) -> None:
    assert use_of(processes, A) == use


@pytest.mark.parametrize(
    ("use", "told"),
    [
        (Use(100, True), False),
        (Use(110, True), False),  # within the tolerance
        (Use(111, True), True),
        (Use(111, False), True),  # those that tell are above alone
        (Use(110, False), None),
    ],
)
def test_what_is_not_known_never_counts_as_above(use: Use, told: bool | None) -> None:
    assert above(use, 100, 10) is told


@pytest.mark.parametrize(
    ("samples", "n"),
    [
        ([True], 1), ([True, True, True], 3), ([True, False, True], 1), ([True, None, True], 2), ([None, None], 0),
        ([True, True, None], 2), ([True, True, False], 0),
    ],
)  # fmt: skip
def test_samples_in_a_row(samples: list[bool | None], n: int) -> None:
    found = 0
    for sample in samples:
        found = counted(found, sample)
    assert found == n


SYSTEM = ("Xorg", "nvidia-cuda-mps*")


@pytest.mark.parametrize(
    ("process", "known", "sure"),
    [
        (proc(A), Known(live={A}), None),
        (proc(A), Known(live={B}), True),
        (proc(A), Known(just_closed={A}), None),
        (proc("somebody"), Known(live={A}), True),
        (proc(None), Known(live={A}), False),
        (proc(""), Known(), False),
        (proc(None), Known(live={A}, taken_whole=True), None),
        (proc(B), Known(live={A}, taken_whole=True), True),
        (proc(None), Known(under_test=True), None),
        (proc(B), Known(under_test=True), True),
        (proc(None, name="Xorg"), Known(system=SYSTEM), None),
        (proc(None, name="/usr/lib/xorg/Xorg"), Known(system=SYSTEM), None),
        (proc(None, name="nvidia-cuda-mps-server"), Known(system=SYSTEM), None),
        (proc(None, name="Xorg2"), Known(system=SYSTEM), False),
        (proc(B, name="Xorg"), Known(system=SYSTEM), True),  # whoever calls itself so
        ("nonsense", Known(), False),
    ],
)
def test_who_belongs_to_no_allocation(process: Any, known: Known, sure: bool | None) -> None:
    assert [stray["sure"] for stray in strays([process], known)] == ([] if sure is None else [sure])


@pytest.mark.parametrize(
    ("told", "member"),
    [
        ("a17", "a17"), ("0f0f0f0f-a17", "a17"), ("1e1e1e1e-a17", "1e1e1e1e-a17"), ("0f0f0f0f-b17", "0f0f0f0f-b17"),
        ("-a17", "-a17"), ("0f0f0f0f-a1\u0661", "0f0f0f0f-a1\u0661"), (None, ""), (7, ""),
    ],
)  # fmt: skip
def test_members_of_the_local_driver_are_known_by_their_key_and_those_of_other_portals_are_not(
    told: Any, member: str
) -> None:
    assert with_keys([proc(told), "x"], "0f0f0f0f") == [proc(member), "x"]


def test_a_process_without_a_name_takes_two_samples() -> None:
    doubtful, certain = strays([proc(None)], Known()), strays([proc(B)], Known())
    assert [alarming(doubtful, seen) for seen in (0, 1, 2)] == [False, False, True]
    assert alarming(certain, 1)
    assert not alarming([], 9)


def test_what_is_told_of_strays_is_bounded_and_printable() -> None:
    found = strays([proc(None, name="x\n\x00" * 200, pid=2**40)] * 100, Known())
    assert len(found) == 50
    assert found[0]["name"].isprintable()
    assert len(found[0]["name"]) <= 60
    assert found[0]["pid"] is None
    assert named(found).endswith("and 45 more")
    assert named(strays([proc(B, pid=12)], Known())) == "12 python of a2"
