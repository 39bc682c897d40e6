"""What was asked for so far, as the arrays that prices are worked out from, and a first guess where little was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from ledger.vocabulary import AskForm
from scheduler.engine.prices import Stock, Workload, first_guess
from scheduler.engine.shape import FORMS, FORMS_OF
from scheduler.engine.types import Demand

GUESSED: Final = 20.0  # made-up requests beside the real ones: what came first must not decide everything


def workloads(demand: Iterable[Demand]) -> dict[bool, Workload]:
    """By simulated. A world for which nothing is known has none."""
    by_world: dict[bool, list[Demand]] = {}
    for shape in demand:
        by_world.setdefault(shape.simulated, []).append(shape)
    return {simulated: _workload(shapes) for simulated, shapes in by_world.items()}


def _workload(shapes: list[Demand]) -> Workload:
    return Workload(
        cpu_milli=np.array([shape.cpu_milli for shape in shapes], dtype=np.float64),
        host_memory_mib=np.array([shape.host_memory_mib for shape in shapes], dtype=np.float64),
        cards=np.array([shape.cards for shape in shapes], dtype=np.int64),
        memory_mib=np.array([shape.memory_mib for shape in shapes], dtype=np.int64),
        count=np.array([shape.count for shape in shapes], dtype=np.float64),
        form=np.array([FORMS.index(FORMS_OF[shape.form][0]) for shape in shapes], dtype=np.int64),
    )


def guessed(stock: Stock, simulated: bool) -> Iterator[Demand]:
    """GUESSED requests as they might come to a fleet of this stock; none to a fleet without cards."""
    if not stock.cards.sum():
        return
    guess = first_guess(stock)
    columns = (guess.cards, guess.memory_mib, guess.cpu_milli, guess.host_memory_mib, guess.count)
    for cards, memory, cpu, host_memory, count in zip(*(column.tolist() for column in columns), strict=True):
        yield Demand(simulated, AskForm.CONTAINER, cards, memory, int(cpu), int(host_memory), GUESSED * count)
