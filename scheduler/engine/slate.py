"""Lays a fleet out for the loops of kernel.py, and keeps the layout in step: rows that changed are copied anew.

Decides nothing; whatever NumPy code knows how to work out for a node that does not change is worked out by that code.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ledger.vocabulary import COMPUTE_UNITS, Form
from scheduler.engine import compiling, feasible, kernel, priced
from scheduler.engine.arrays import Floats, Some
from scheduler.engine.fleet import FORM_CODE, UNKNOWN, Drawn, Fleet
from scheduler.engine.kernel import Ask, Slate
from scheduler.engine.lens import Lens
from scheduler.engine.priced import Wishes
from scheduler.engine.prices import Prices
from scheduler.engine.score import BLOCK, LEAST_LOSS, POINTS, links, right_zone
from scheduler.engine.shape import Shape

FILTERS: Final = ("other_form", "cards_free", "card_memory_free", "cpu_free", "host_memory_free")
ONE, MORE = (Shape(Form.CONTAINER, cards, 0, 0, "", 0, 0, 0, frozenset(), False) for cards in (1, 2))


def applies(fleet: Fleet, shape: Shape, rule: str) -> bool:
    """Whether the loops know how to judge this shape."""
    usual = len(fleet.fixed.present) <= kernel.MOST_CARDS and fleet.yardsticks[0] <= kernel.MOST_MEMORY
    return compiling.COMPILED and usual and rule == LEAST_LOSS and shape.form is Form.CONTAINER


def ask_of(fleet: Fleet, shape: Shape) -> Ask:
    model = fleet.models.get(shape.model, -2) if shape.model else kernel.ANY_MODEL
    amounts = shape.cards, shape.memory_mib, shape.compute_milli, shape.cpu_milli, shape.host_memory_mib
    return Ask(*amounts, model, int(shape.linked))


def slate_of(fleet: Fleet, simulated: bool) -> Slate:
    """The layout of one world as the fleet is now. Not to be changed by the caller."""
    found = fleet.slates.get(simulated)
    if found is None or found.prices is not fleet.prices(simulated):
        found = fleet.slates[simulated] = _draw(fleet, simulated)
    if found.seen < len(fleet.log):
        rows = fleet.log.since(found.seen)
        found.seen = len(fleet.log)
        if fleet.base is None:
            _lay_out(fleet, found.slate, found.prices, rows)
        kernel.bring(found.slate, fleet.now, rows)
    return found.slate


def _draw(fleet: Fleet, simulated: bool) -> Drawn:
    prices = fleet.prices(simulated)
    if fleet.base is not None:
        slate = slate_of(fleet.base, simulated)
        own = slate._replace(rows=slate.rows.copy(), cards=slate.cards.copy())
        own.rows[:, kernel.RANK] = fleet.ranks
        return Drawn(own, prices, 0)
    cards, rows = fleet.fixed.present.shape
    slate = Slate(
        rows=np.zeros((rows, kernel.ROW_COLUMNS)),
        cards=np.zeros((rows, kernel.CARD_COLUMNS, cards), dtype=np.int32),
        tables=np.stack([prices.worth, prices.need]),
        numbers=_numbers(fleet, prices),
    )
    _lay_out(fleet, slate, prices, slice(None))
    kernel.bring(slate, fleet.now, np.arange(rows))
    return Drawn(slate, prices, len(fleet.log))


def _numbers(fleet: Fleet, prices: Prices) -> Floats:
    code_of = {refuses.__name__: code for code, (_, refuses) in enumerate(feasible.FILTERS, start=1)}
    wishes = (priced.BREAKING, priced.WRONG_LINKS, priced.CARDS_WITHOUT_CPU)
    units = (COMPUTE_UNITS, POINTS, FORM_CODE[Form.CONTAINER], fleet.yardsticks[2])
    codes = (*(code_of[name] for name in FILTERS), feasible.STANDING)
    return np.array([*wishes, *units, *codes, *prices.hinges.ravel(), *prices.host])


def _lay_out(fleet: Fleet, slate: Slate, prices: Prices, rows: Some) -> None:
    """What a plan does not change of these rows, and which cards count at all."""
    fixed, look = fleet.fixed, Lens(fleet, MORE, rows)
    counted = look.present & ~fixed.card_held[:, rows]
    size = np.searchsorted(prices.sizes, look.memory)
    size[~counted | (size == len(prices.sizes))] = 0  # as in priced.loss
    cards = slate.cards[rows]
    cards[:, kernel.FREE] = np.where(counted, 0, -1).T
    cards[:, kernel.MEMORY], cards[:, kernel.SIZE] = look.memory.T, size.T
    cards[:, kernel.MODEL], cards[:, kernel.BLOCK] = fixed.model[:, rows].T, look.block.T
    cards[:, kernel.ALONE] = fixed.card_alone[:, rows].T
    slate.cards[rows] = cards
    has_blocks = (look.block != UNKNOWN).any(axis=0)
    linked = np.array([bool(view.links) for view in np.array(fleet.views, dtype=object)[rows]], dtype=np.bool_)
    breaks = has_blocks & fixed.zone_forms[BLOCK, rows]
    for column, fast in ((kernel.ONE, links(Lens(fleet, ONE, rows))), (kernel.MORE, links(look))):
        slate.rows[rows, column] = np.where(breaks, np.nan, Wishes(right_zone(look), 1.0, fast, 1.0).cost)
    slate.rows[rows, kernel.FLEXIBLE] = priced.FLEXIBLE * (1.0 - right_zone(look))
    slate.rows[rows, kernel.FAST] = links(look)
    slate.rows[rows, kernel.OPENING] = _opening(look)
    slate.rows[rows, kernel.PLAIN] = ~has_blocks & ~linked


def _opening(look: Lens) -> Floats:
    """What an untouched node loses besides, each in its own world; kernel.judge knows whether it is one."""
    real, simulated = (look.fleet.openings(world).row_price[look.form, look.rows] for world in (False, True))
    opening: Floats = real + simulated
    return opening
