"""What goes along with a report: faults, results of orders, and the samples of the time when the portal was away.

Faults and results are durable in the spool; samples live in memory alone, and of those only the newest. Something that
the portal refuses for its content holds up nothing else for long, and nothing is sent for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from scheduler.agent.model import Fault
from scheduler.agent.order_book import Result
from scheduler.agent.sender import MAX_FAULTS, Batch
from scheduler.agent.spool import Spool

MAX_RESULTS: Final = 50
MAX_EARLIER: Final = 100  # a report
MOST_KEPT: Final = 1000
REST_AFTER_REFUSAL: Final = 20  # accepted reports before results are tried again that the portal did not take
MEASURES: Final = (
    "uuid",
    "temperature_c",
    "utilisation_pct",
    "tensor_pct",
    "memory_busy_pct",
    "power_mw",
    "memory_used_mib",
)


@dataclass(frozen=True, slots=True)
class Parcel:
    faults: tuple[Fault, ...] = ()
    results: tuple[Result, ...] = ()
    earlier: tuple[Mapping[str, Any], ...] = ()


class Outbox:
    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._faults = Batch(MAX_FAULTS)
        self._samples: deque[Mapping[str, Any]] = deque(maxlen=MOST_KEPT)
        self._earlier = Batch(MAX_EARLIER)
        self._rest = 0

    @property
    def more(self) -> bool:
        """Whether the next report should follow at once."""
        return bool(self._samples) or (self._spool.pending > 0 and self._faults.size > 1)

    def keep(self, sequence: int, sent_at: str, body: Mapping[str, Any]) -> None:
        """The sample of a look that the portal does not have, or may not have. The oldest gives way."""
        cards = [{name: card[name] for name in MEASURES} for card in body["cards"] if not card["lost"]]
        if cards:
            self._samples.append({"sequence": sequence, "sent_at": sent_at, "cards": cards})

    def pack(self) -> Parcel:
        return Parcel(
            faults=self._spool.head(self._faults.size),
            results=() if self._rest else self._spool.orders.untold(MAX_RESULTS),
            earlier=tuple(sample for sample, _ in zip(self._samples, range(self._earlier.size), strict=False)),
        )

    def accepted(self, parcel: Parcel) -> None:
        self._faults.accepted()
        self._earlier.accepted()
        self._rest = max(0, self._rest - 1)
        for _ in parcel.earlier:
            self._samples.popleft()
        self._spool.acknowledge(parcel.faults)
        self._spool.confirm(parcel.results)

    def refused(self, parcel: Parcel) -> None:
        """For its content. Which part is to blame shows by sending less: a fault waits behind the others, a sample is
        given up, results rest. Where nothing goes along, it is the look itself, and the next one is another."""
        if self._faults.refused(len(parcel.faults)):
            self._spool.defer(parcel.faults[0])
        if self._earlier.refused(len(parcel.earlier)):
            self._samples.popleft()
        if parcel.results and not parcel.faults and not parcel.earlier:
            self._rest = REST_AFTER_REFUSAL
