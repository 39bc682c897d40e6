"""Legends of the fleet map: for each choice of colour its classes, each with a word, a fill and a pattern, so that no
class is told by colour alone. Fills are --map-… of static/css/ops.css; static/js/fleet-map.js draws the patterns.
"""

from __future__ import annotations

from typing import Any, Final

from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from ledger.vocabulary import Form, HoldKind, NodeState
from portal import labels
from portal.health_words import LOOKS, Health
from portal.ops_forms import COLOURS
from portal.views.fleet_cells import NOBODY, OTHERS, SEVERAL, CardState

PALETTE: Final = 8  # --map-p0 … of the style sheet
PATTERNS: Final = ("none", "diagonal", "dots", "back", "cross")  # with the palette, 40 projects apart
Entry = dict[str, Any]


def _entry(key: Any, label: Any, fill: str, pattern: str = "none") -> Entry:
    return {"key": key, "label": str(label), "fill": fill, "pattern": pattern}


def card_states() -> dict[int, str]:
    return {
        CardState.FREE: pgettext("card state", "free"),
        CardState.PARTLY: pgettext("card state", "partly given out"),
        CardState.USED: pgettext("card state", "fully given out"),
        CardState.CLEANING: pgettext("card state", "being cleaned"),
        CardState.STRANDED: pgettext("card state", "free, stranded"),
        CardState.HELD: pgettext("card state", "held"),
        CardState.HELD_IN_USE: pgettext("card state", "held, still in use"),
        CardState.OFFLINE: pgettext("card state", "offline"),
    }


STATE_MARKS: Final[dict[int, tuple[str, str]]] = {
    CardState.FREE: ("free", "none"),
    CardState.PARTLY: ("used", "half"),
    CardState.USED: ("used", "none"),
    CardState.CLEANING: ("cleaning", "dots"),
    CardState.STRANDED: ("free", "back"),
    CardState.HELD: ("held", "diagonal"),
    CardState.HELD_IN_USE: ("held", "dots"),
    CardState.OFFLINE: ("offline", "cross"),
}


def _states() -> list[Entry]:
    return [_entry(int(code), label, *STATE_MARKS[code]) for code, label in card_states().items()]


def _forms() -> list[Entry]:
    marks = {Form.CONTAINER: ("p0", "none"), Form.BLOCK: ("p1", "diagonal"), Form.WHOLE: ("p2", "dots")}
    named = [_entry(str(form), labels.look("form", form).label, *mark) for form, mark in marks.items()]
    return [_entry("", pgettext("form", "not in use"), "free"), *named]


def _temperatures() -> list[Entry]:
    steps = [(0, _("below 40 °C")), (40, _("40 to 59 °C")), (60, _("60 to 74 °C")), (75, _("75 to 84 °C"))]
    cool = [_entry(start, label, f"s{i + 1}") for i, (start, label) in enumerate(steps)]
    return [*cool, _entry(85, _("85 °C or more"), "alarm", "cross"), _unknown()]


def _percents() -> list[Entry]:
    steps = [(0, _("nothing")), (1, _("below 25 %")), (25, _("25 to 49 %")), (50, _("50 to 74 %"))]
    low = [_entry(start, label, f"s{i}") for i, (start, label) in enumerate(steps)]
    return [*low, _entry(75, _("75 to 99 %"), "s4"), _entry(100, _("all of it"), "s5", "back")]


def _loads() -> list[Entry]:
    steps = [(0, "0 %"), (1, _("1 to 24 %")), (25, _("25 to 49 %")), (50, _("50 to 74 %"))]
    low = [_entry(start, label, f"s{i}") for i, (start, label) in enumerate(steps)]
    return [*low, _entry(75, _("75 to 99 %"), "s4"), _entry(100, "100 %", "s5", "back"), _unknown()]


HEALTH_MARKS: Final[dict[Health, tuple[str, str]]] = {
    Health.SILENT: ("offline", "cross"),
    Health.FAULT: ("alarm", "back"),
    Health.HELD: ("held", "diagonal"),
    Health.WATCH: ("cleaning", "dots"),
    Health.UNKNOWN: ("unknown", "dots"),
    Health.OK: ("free", "none"),
}


def _healths() -> list[Entry]:
    return [_entry(int(health), LOOKS[health].label, *mark) for health, mark in HEALTH_MARKS.items()]


def _faults() -> list[Entry]:
    return [
        _entry(0, _("no open fault"), "free"),
        _entry(1, _("1 open fault"), "held", "diagonal"),
        _entry(2, _("2 or more open faults"), "offline", "cross"),
    ]


def _unknown() -> Entry:
    return _entry(None, _("not told"), "unknown", "dots")


def _owners() -> list[Entry]:
    return [
        _entry(NOBODY, pgettext("owner", "nobody"), "free"),
        _entry(OTHERS, _("another project"), "unknown"),
        _entry(SEVERAL, _("several projects"), "unknown", "back"),
    ]


def legends() -> dict[str, Any]:
    """By choice of colour: how a card finds its class (`kind`), and the classes."""
    return {
        "state": {"kind": "code", "entries": _states()},
        "form": {"kind": "code", "entries": _forms()},
        "owner": {"kind": "owner", "entries": _owners(), "palette": PALETTE, "patterns": PATTERNS},
        "temperature": {"kind": "step", "entries": _temperatures()},
        "given": {"kind": "step", "entries": _percents()},
        "memory": {"kind": "step", "entries": [*_percents(), _unknown()]},
        "load": {"kind": "step", "entries": _loads()},
        "faults": {"kind": "step", "entries": _faults()},
        "health": {"kind": "code", "entries": _healths()},
    }


def texts() -> dict[str, Any]:
    """Everything that the script of the map writes."""
    return {
        "colours": {name: str(label) for name, label in COLOURS},
        "legends": legends(),
        "nodes": {str(s): str(labels.look("node", s).label) for s in NodeState},
        "forms": {str(f): str(labels.look("form", f).label) for f in Form} | {"": pgettext("form", "not in use")},
        "holds": {str(k): str(labels.look("hold", k).label) for k in HoldKind},
        "words": {
            "node": _("Node"),
            "place": _("Place"),
            "zone": _("Zone"),
            "form": _("Form in use"),
            "card": _("Card"),
            "state": _("State"),
            "given": _("Memory given out"),
            "owner": _("Project"),
            "tenants": _("Allocations"),
            "temperature": _("Temperature"),
            "used": _("Memory used"),
            "load": _("Load"),
            "faults": _("Open faults"),
            "health": _("Health"),
            "no_place": _("no rack"),
            "not_told": _("not told"),
            "failed": _("The map can't be loaded now; it tries again in a moment."),
            "ended": _("You are signed out; reload the page."),
            "slot": _("slot %(n)s"),
            "shown": _("cards: %(n)s, nodes: %(m)s"),
            "bare": _("nodes without cards, not drawn: %(n)s"),
        },
    }
