"""What one node loses, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler.engine.prices import PARTS
from tests.bench import loss


def test_what_lacks_cpu_or_memory_is_lost() -> None:
    hinges, host = np.array([[1 / 1_000, 0.5], [1 / 2_000, 0.5]]), np.array([1 / 4_000, 1.0])
    assert loss.shortage(8_000, 16_000, 3.0, hinges, host) == 0
    assert loss.shortage(2_000, 16_000, 3.0, hinges, host) == pytest.approx(0.5 * 1 + 0.5 * 2)
    assert loss.shortage(8_000, 4_000, 3.0, hinges, host) == pytest.approx(2)


def test_a_share_takes_the_card_that_loses_least() -> None:
    worth = np.zeros(PARTS + 1)
    worth[50:], worth[100] = 0.5, 1.0
    free = np.array([1_000, 600, 550, 400])
    assert loss.cheapest_card(free, 10, 500, worth) == (0.5, 0)
    assert loss.cheapest_card(free, 10, 50, worth) == (0.0, 1)
    assert loss.cheapest_card(free, 10, 1_001, worth) == (0.0, loss.NOWHERE)
