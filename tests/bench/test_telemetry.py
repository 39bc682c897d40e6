"""The benchmark of reports, small: it finds what it made, and what is not as it made it."""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from pathlib import Path

from portal.management.commands.bench import OURS
from tests.bench import agents

CHECKOUT = Path(__file__).resolve().parents[2]


def test_the_plan_sends_each_report_and_the_asked_share_again() -> None:
    asked = argparse.Namespace(minutes=1, interval=10, reorder=10, late=5, dup=20)
    made = agents.plan(500, asked, random.Random(1))
    assert made.reports == 500 * 6 == sum(made.kinds.values())
    assert len(made.queue) == made.reports + made.copies
    assert {(node, sequence) for _, node, sequence, copy, _ in made.queue if not copy} == {
        (node, sequence) for node in range(1, 501) for sequence in range(1, 7)
    }
    assert 0.15 < made.copies / made.reports < 0.25
    assert 0.07 < made.kinds["reordered"] / made.reports < 0.13
    assert 0.03 < made.kinds["late"] / made.reports < 0.07


def test_a_small_fleet_loses_and_doubles_nothing_through_kills() -> None:
    options = [
        "--cards",
        "80",
        "--interval",
        "2",
        "--minutes",
        "0.2",
        "--dup",
        "30",
        "--reorder",
        "20",
        "--late",
        "0",
        "--kills",
        "2",
    ]
    own = {name: value for name, value in os.environ.items() if name not in OURS}  # it starts servers of its own
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.telemetry", *options],
        cwd=CHECKOUT, env=own, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    found = json.loads(done.stdout)
    assert (found["lost"], found["double"], found["samples_kept"]) == (0, 0, 10 * 6 * 8)
    assert all(found["checks"].values())
    assert sum(found["kills"].values()) == 2
