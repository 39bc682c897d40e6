"""The portal's own health policy, version 0: it holds where a site has said nothing else.

Sources: NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors) as transcribed in leptonai/gpud (Apache-2.0),
components/accelerator/nvidia/xid/catalog_generated.go of 2025-10-29, with gpud's own severities and its threshold of
two reboots before an inspection; NVIDIA GPU Memory Error Management; what NVIDIA's k8s-device-plugin ignores (13, 31,
43, 45, 68, 109). Where they disagree the note says so. Codes that stand nowhere here are asked about.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ledger.health_rules import ALWAYS_BY_HAND, Policy, Rule
from ledger.vocabulary import FaultKind, HealthAction

HOUR: Final = 3_600
DAY: Final = 24 * HOUR
WEEK: Final = 7 * DAY
MONTH: Final = 30 * DAY
INSPECT_AFTER: Final = 2  # reboots; gpud's threshold
A = HealthAction
# One program that fails again and again says nothing of the card: what programs cause is counted by different people.
APP: Final = {"action": A.LOG, "then": A.DRAIN_SOFT, "window_s": DAY, "by_users": True}
RESET: Final = {"action": A.RESET, "then": A.REBOOT, "repeats": 2, "window_s": DAY}
NODE: Final = {"action": A.REBOOT, "then": A.HOLD_NODE, "repeats": 2, "window_s": WEEK}

ENGINES: Final = (
    *(8, 39, 40, 41, 60, 68, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84, 85, 86, 88, 89, 139),
    *range(96, 106),
    *range(126, 136),
)

Row = tuple[tuple[int, ...], dict[str, Any], str]
XIDS: Final[tuple[Row, ...]] = (
    ((13, 31, 32, 69, 11, 25), {**APP, "repeats": 3}, "engine exception, MMU fault or bad push buffer of a program"),
    (
        ENGINES,
        {**APP, "repeats": 2},
        "copy, video, JPEG or OFA engine, idle timeout",
    ),
    (
        (43, 37, 38, 44, 66, 67, 137, 141),
        {**APP, "repeats": 3},
        "stopped channel or driver firmware; gpud reboots 38, 44",
    ),
    ((45,), {"action": A.LOG}, "preemptive clean-up after another XID"),
    ((63,), {"action": A.DRAIN_SOFT}, "row remap recorded; takes effect at the next reset; gpud reboots"),
    ((64,), {"action": A.DRAIN_NOW, "then": A.RMA, "repeats": 2, "window_s": MONTH}, "row remap failed"),
    ((48, 171, 172), {"action": A.DRAIN_NOW}, "double-bit ECC error (171 DRAM, 172 SRAM)"),
    ((94,), {"action": A.RESTART_JOB}, "contained uncorrectable ECC error: only the job that was hit"),
    ((95,), {"action": A.DRAIN_NOW}, "uncontained uncorrectable ECC error: the whole card with all its slices"),
    (
        (140, 46, 62, 109, 110, 119, 120, 136, 143, 155, 156, 158),
        RESET,
        "unrecovered ECC, time-out, halt, GSP or initialisation; NVIDIA's device plugin ignores 109",
    ),
    ((79,), NODE, "fell off the bus (on NVSwitch nodes often with SXID 20034)"),
    ((74, *range(144, 151)), {"action": A.NO_GANG}, "NVLink; its peer is suspect too; 149 depends on its sub-code"),
    ((92,), {"action": A.WATCH}, "high rate of corrected single-bit errors"),
    ((54,), {"action": A.HOLD_NODE}, "auxiliary power is missing"),
    ((78, 151, 159), {"action": A.HOLD_NODE}, "vGPU start, key rotation or CHI: software of the node"),
    (
        (121, 93, 157, 160, 161, 106, 107, 152, 153),
        {"action": A.LOG},
        "C2C, InfoROM wear, retirement, tests; gpud reboots 121",
    ),
    ((154,), {"action": A.ASK}, "recovery action changed: what its message asks for is done, this if it names none"),
    ((162, 163, 164, 165, 166, 168, 169, 170), {"action": A.ASK}, "listed without an action"),
    ((167,), NODE, "fatal PCIe time-out, as 79"),
)
STATES: Final[tuple[tuple[FaultKind, dict[str, Any], str], ...]] = (
    (FaultKind.ECC, {"action": A.DRAIN_NOW}, "volatile uncorrected errors rose"),
    (FaultKind.REMAP_PENDING, {"action": A.DRAIN_SOFT}, "rows are remapped at the next reset"),
    (FaultKind.REMAP_FAILED, {"action": A.RMA}, "no spare rows are left: sent back after the maker's field diagnosis"),
    (FaultKind.RESET_REQUIRED, RESET, "the driver asks for a reset"),
    (FaultKind.LOST, NODE, "the driver has lost the card"),
    (FaultKind.MISSING, NODE, "fewer cards are listed than sit on the bus; EKS calls it fatal"),
    (FaultKind.CORRECTABLE, {"action": A.WATCH}, "corrected errors or remapped rows"),
    (
        FaultKind.NVLINK,
        {"action": A.WATCH, "then": A.NO_GANG, "repeats": 5, "window_s": DAY},
        "error counters of links rose",
    ),
    (FaultKind.THERMAL, {"action": A.WATCH}, "clocks held down by heat"),
    (FaultKind.POWER, {"action": A.WATCH}, "clocks held down by power"),
    (
        FaultKind.STORAGE,
        {"action": A.WATCH, "then": A.DRAIN_SOFT, "repeats": 3, "window_s": DAY},
        "its storage does not answer; one blip of a shared server would drain the whole fleet",
    ),
    (FaultKind.CLOCK, {"action": A.LOG}, "the node's clock is wrong"),
    (FaultKind.SILENT, {"action": A.LOG}, "the inventory holds a silent node by itself"),
    (FaultKind.ORPHAN, {"action": A.WATCH}, "a process without an allocation; it is held by a rule of its own"),
    (FaultKind.OVERUSE, {"action": A.LOG}, "more memory than promised; the offender is stopped, not the card"),
)


def _rules() -> Iterator[Rule]:
    for codes, what, note in XIDS:
        for code in codes:
            yield Rule(FaultKind.XID, code, note=note, by_hand=what["action"] in ALWAYS_BY_HAND, **what)
    for kind, what, note in STATES:
        yield Rule(kind, None, note=note, by_hand=what["action"] in ALWAYS_BY_HAND, **what)


DEFAULT: Final = Policy(0, "", tuple(_rules()), INSPECT_AFTER, WEEK)
