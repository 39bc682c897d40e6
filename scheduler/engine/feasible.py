"""Which nodes may take a shape, and for the others the first reason why not.

The filters stand in three lists: what a node can never give, what people or faults withhold, and what is taken by
work. A reason from the first therefore means "this node is no use, ever", one from the last "it may come free".
Headroom and reservations are not here: they depend on more than the node (headroom.py, kept.py).
"""

# mypy: disable-error-code="no-any-return"
# NumPy's stubs give Any for comparisons and reductions of arrays, so the declared types are the only ones there are.

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

import numpy as np

from ledger.vocabulary import COMPUTE_UNITS, Refusal
from scheduler.engine.arrays import Bools, Codes
from scheduler.engine.fleet import FORM_CODE, UNKNOWN, Fleet
from scheduler.engine.lens import Lens

Filter = Callable[[Lens], Bools | None]  # True where the row is refused; None where it can refuse no row


def _every(look: Lens) -> Bools:
    return np.ones(look.size, dtype=np.bool_)


def simulated(look: Lens) -> Bools:
    return look.fixed.simulated[look.rows] != look.shape.simulated


def no_driver(look: Lens) -> Bools:
    return ~look.fixed.drivers[look.form, look.rows]


def model(look: Lens) -> Bools | None:
    """One matching card is enough to pass on; a whole machine must have no others. Work without cards has no model."""
    if not look.shape.model or (look.is_container and look.shape.cards == 0):
        return None
    refused: Bools = look.match.sum(axis=0) == 0
    if look.is_whole:
        refused |= (look.present & ~look.match).sum(axis=0) > 0
    return refused


def hardware(look: Lens) -> Bools | None:
    if not look.shape.hardware:
        return None
    return look.fleet.hardware_codes()[look.rows] != look.fleet.hardwares.get(look.shape.hardware, UNKNOWN)


def interconnect(look: Lens) -> Bools | None:
    if look.shape.interconnect == 0:
        return None
    return look.fixed.interconnect[look.rows] < look.shape.interconnect


def labels(look: Lens) -> Bools | None:
    refused: Bools | None = None
    for label in look.shape.labels:
        has = look.fleet.labels.get(label)
        lacking = _every(look) if has is None else ~has[look.rows]
        refused = lacking if refused is None else refused | lacking
    return refused


def zone(look: Lens) -> Bools | None:
    if not look.shape.zones:
        return None
    codes = [look.fleet.zones[zone_id] for zone_id in look.shape.zones if zone_id in look.fleet.zones]
    return ~np.isin(look.fixed.zone[look.rows], codes)


def cards_total(look: Lens) -> Bools:
    if not look.shape.compute_possible:
        return _every(look)
    return look.match.sum(axis=0) < look.shape.cards


def card_memory_total(look: Lens) -> Bools | None:
    if not look.shape.memory_mib:
        return None
    return look.big.sum(axis=0) < look.shape.cards_of_size


def cpu_total(look: Lens) -> Bools | None:
    return look.fixed.cpu[look.rows] < look.shape.cpu_milli


def host_memory_total(look: Lens) -> Bools | None:
    return look.fixed.host_memory[look.rows] < look.shape.host_memory_mib


def blocks_total(look: Lens) -> Bools | None:
    return None if not look.is_block else ~look.blocks_reach(look.big)


def form_not_in_zone(look: Lens) -> Bools:
    return ~look.fixed.zone_forms[look.form, look.rows]


def node_down(look: Lens) -> Bools:
    return ~look.fixed.up[look.rows]


def node_held(look: Lens) -> Bools:
    return look.fixed.held[look.rows]


def other_form(look: Lens) -> Bools:
    used = look.now.used_form[look.rows]
    return (used != 0) & (used != FORM_CODE[look.shape.form])


def not_empty(look: Lens) -> Bools | None:
    """A whole machine takes everything, so nothing of it may be taken."""
    if not look.is_whole:
        return None
    fixed, now, rows = look.fixed, look.now, look.rows
    taken = (now.used_form[rows] != 0) | (now.allocations[rows] > 0)
    taken |= (now.cpu[rows] != fixed.cpu[rows]) | (now.host_memory[rows] != fixed.host_memory[rows])
    tenants = (look.free != look.memory) | (look.present & (look.compute != COMPUTE_UNITS))
    return taken | (tenants.sum(axis=0) > 0)


def card_held(look: Lens) -> Bools:
    if look.is_whole:
        return look.barred.sum(axis=0) > 0
    return look.usable.sum(axis=0) < look.shape.cards


def cards_free(look: Lens) -> Bools | None:
    return None if look.is_whole else look.open.sum(axis=0) < look.shape.cards


def card_memory_free(look: Lens) -> Bools | None:
    return None if look.full_cards else look.fit.sum(axis=0) < look.shape.cards


def cpu_free(look: Lens) -> Bools | None:
    return look.now.cpu[look.rows] < look.shape.cpu_milli


def host_memory_free(look: Lens) -> Bools | None:
    return look.now.host_memory[look.rows] < look.shape.host_memory_mib


def blocks_free(look: Lens) -> Bools | None:
    return None if not look.is_block else ~look.blocks_reach(look.idle)


NEVER: Final[tuple[tuple[Refusal, Filter], ...]] = (
    (Refusal.SIMULATED, simulated),
    (Refusal.NO_DRIVER, no_driver),
    (Refusal.MODEL, model),
    (Refusal.HARDWARE, hardware),
    (Refusal.INTERCONNECT, interconnect),
    (Refusal.LABELS, labels),
    (Refusal.ZONE, zone),
    (Refusal.CARDS_TOTAL, cards_total),
    (Refusal.CARD_MEMORY_TOTAL, card_memory_total),
    (Refusal.CPU, cpu_total),
    (Refusal.HOST_MEMORY, host_memory_total),
    (Refusal.NO_BLOCK, blocks_total),
)
WITHHELD: Final[tuple[tuple[Refusal, Filter], ...]] = (
    (Refusal.FORM_NOT_IN_ZONE, form_not_in_zone),
    (Refusal.NODE_DOWN, node_down),
    (Refusal.NODE_HELD, node_held),
    (Refusal.CARD_HELD, card_held),
)
TAKEN: Final[tuple[tuple[Refusal, Filter], ...]] = (
    (Refusal.OTHER_FORM, other_form),
    (Refusal.NOT_EMPTY, not_empty),
    (Refusal.CARDS_FREE, cards_free),
    (Refusal.CARD_MEMORY_FREE, card_memory_free),
    (Refusal.CPU, cpu_free),
    (Refusal.HOST_MEMORY, host_memory_free),
    (Refusal.NO_BLOCK, blocks_free),
)
FILTERS: Final = NEVER + WITHHELD + TAKEN
STANDING: Final = len(NEVER) + len(WITHHELD)  # codes up to here stand for the whole of a plan

# A code is 0 for "may take it", else 1 + the filter's number: the greater, the nearer the node came to being chosen.
HEADROOM: Final = len(FILTERS) + 1
RESERVED: Final = len(FILTERS) + 2
GANG: Final = len(FILTERS) + 3
NO_PLACE: Final = len(FILTERS) + 4  # of a gang that must share a leaf; then a rack, a room, a site, as in fleet.LEVELS
LEVELS: Final = (Refusal.LEAF, Refusal.RACK, Refusal.ROOM, Refusal.SITE)
MIXED: Final = NO_PLACE + len(LEVELS)
UNLIKE: Final = MIXED + 1
USED_UP: Final = UNLIKE + 1  # cards of a model of which the project has too little left
BEYOND: Final = (
    Refusal.HEADROOM,
    Refusal.RESERVED,
    Refusal.GANG,
    *LEVELS,
    Refusal.MIXED,
    Refusal.UNLIKE,
    Refusal.QUOTA,
)
REASONS: Final[tuple[Refusal, ...]] = (*(refusal for refusal, _ in FILTERS), *BEYOND)


def codes(look: Lens, after: int = 0, upto: int = len(FILTERS)) -> Codes:
    """The code of every row, by the first filter that refuses it; of the filters `after` + 1 to `upto`."""
    out = np.zeros(look.size, dtype=np.int8)
    for number in range(upto, after, -1):  # backwards, so that the first filter has the last word
        refused = FILTERS[number - 1][1](look)
        if refused is not None:
            np.putmask(out, refused, number)
    return out


def reason(code: int) -> Refusal:
    return REASONS[code - 1]


def could_ever(found: Codes) -> Bools:
    """Rows that would do if nothing were busy, held or down, and zones that are open to it took every form."""
    return (found == 0) | (found > len(NEVER))


def could_come_free(found: Codes) -> Bools:
    """Rows that would do if no work were on them; of the codes of the filters alone."""
    return (found == 0) | (found > STANDING)


def of_models(fleet: Fleet, models: Collection[str]) -> Bools:
    """(n,): rows with a card of any of these models, also where others are beside it."""
    codes = [fleet.models[model] for model in models if model in fleet.models]
    found: Bools = (fleet.fixed.present & np.isin(fleet.fixed.model, codes)).sum(axis=0) > 0
    return found


def counted(found: Codes) -> dict[Refusal, int]:
    """Rows refused, by reason, in the order of the filters. Two filters may share a reason."""
    out: dict[Refusal, int] = {}
    for code, count in enumerate(np.bincount(found).tolist()):
        if code and count:
            out[reason(code)] = out.get(reason(code), 0) + count
    return out
