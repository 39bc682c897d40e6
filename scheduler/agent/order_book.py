"""What became of the portal's orders: begun, ended, and told to the portal. The spool makes it durable.

An order runs at most once. One that had begun when the agent stopped has ended, and not well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

MOST_KEPT: Final = 100  # results the portal has, kept in case it asks for the order again
STOPPED: Final = "the agent was stopped during it"


@dataclass(frozen=True, slots=True)
class Result:
    order: int
    ok: bool
    seconds: float
    detail: str


class OrderBook:
    def __init__(self) -> None:
        self._running: set[int] = set()
        self._untold: dict[int, Result] = {}
        self._told: dict[int, Result] = {}

    def knows(self, order: int) -> bool:
        return order in self._running or order in self._untold or order in self._told

    def untold(self, count: int) -> tuple[Result, ...]:
        """The oldest results that the portal has not confirmed."""
        return tuple(result for result, _ in zip(self._untold.values(), range(count), strict=False))

    def tell_again(self, order: int) -> None:
        """The portal still asks for it: it has lost the result."""
        if order in self._told:
            self._untold[order] = self._told.pop(order)

    def begin(self, order: int) -> None:
        self._running.add(order)

    def end(self, result: Result) -> None:
        self._running.discard(result.order)
        self._untold[result.order] = result

    def confirm(self, results: Iterable[Result]) -> None:
        self._confirm([result.order for result in results])

    def take(self, entry: Mapping[str, Any]) -> None:
        """Of the journal: `began`, `ended` and `told`, each a list. Raises TypeError or ValueError for others."""
        began = [int(order) for order in entry.get("began", ())]
        ended = [Result(**values) for values in entry.get("ended", ())]
        told = [int(order) for order in entry.get("told", ())]
        self._running.update(began)
        for result in ended:
            self.end(result)
        self._confirm(told)

    def end_unfinished(self) -> None:
        """After a restart. The journal still says that they began, so that each restart finds the same."""
        for order in sorted(self._running):
            self.end(Result(order, False, 0.0, STOPPED))

    def as_json(self) -> dict[str, Any]:
        """One entry that `take` makes everything from; nothing where there were no orders."""
        results: Sequence[Result] = (*self._told.values(), *self._untold.values())
        entry = {
            "began": sorted(self._running),
            "ended": [asdict(result) for result in results],
            "told": list(self._told),
        }
        return {name: listed for name, listed in entry.items() if listed}

    def _confirm(self, orders: Iterable[int]) -> None:
        for order in orders:
            result = self._untold.pop(order, None)
            if result is not None:
                self._told[order] = result
        for order in list(self._told)[:-MOST_KEPT]:
            del self._told[order]
