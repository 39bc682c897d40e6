"""What the fleet can't give, and what would run instead, in words. The facts are scheduler.possible's."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _lazy
from django.utils.translation import pgettext

from ledger.errors import Refused
from ledger.vocabulary import Distance
from portal import labels
from portal.forms import PAGE_FIELDS, SubmitForm
from portal.labels import Text
from portal.templatetags import ui
from scheduler.possible import Impossible, Limit, Sooner
from scheduler.queue import NeverRuns

# how amounts of a job's fields are told; what is not here is told as it is
SHOWN: Final[Mapping[str, Callable[[Any], str]]] = {
    "memory_mib": ui.mib,
    "host_memory_mib": ui.mib,
    "cpu_milli": ui.cores,
}


TOGETHER: Final[Mapping[Distance, Text]] = {
    Distance.SAME_LEAF: _lazy("At most %(most)s nodes that could serve it are under one leaf switch (%(where)s)."),
    Distance.SAME_RACK: _lazy("At most %(most)s nodes that could serve it are in one rack (%(where)s)."),
    Distance.SAME_ROOM: _lazy("At most %(most)s nodes that could serve it are in one room (%(where)s)."),
    Distance.SAME_SITE: _lazy("At most %(most)s nodes that could serve it are at one site (%(where)s)."),
}

GIVEN_UP: Final[Mapping[str, Any]] = {
    "reproducible": _lazy("not reproducible"),
    "like_job": _lazy("like no other job"),
    "profile": _lazy("no MIG profile"),
}


def refusal_words(refused: Refused) -> str:
    """Why a job was not queued, as fully as it can be told."""
    return impossible_words(refused.why) if isinstance(refused, NeverRuns) else str(refused)


def impossible_words(why: Impossible) -> str:
    """Why a job can never run here, and the nearest one that could."""
    said = [limit_words(limit) for limit in why.limits]
    said = said or [_("No node of this fleet has all that the job asks for together.")]
    if why.nearest is not None:
        said.append(_("Nearest that could run: %(change)s.") % {"change": change_words(why.nearest.change)})
    return " ".join(said)


def limit_words(limit: Limit) -> str:
    """A sentence: what was asked for, and the nearest that there is."""
    shown = SHOWN.get(limit.what, str)
    facts = {"wanted": shown(limit.wanted), "most": shown(limit.nearest), "where": limit.where}
    if limit.what == "form":
        facts["wanted"] = str(labels.look("ask_form", str(limit.wanted)).label)
        names = [str(labels.look("form", form).label) for form in str(limit.nearest).split(", ")]
        facts["most"] = ", ".join(names)
    if limit.what == "distance":
        return TOGETHER[Distance(str(limit.wanted))] % facts
    if limit.what == "like_job" and limit.where:
        facts["where"] = str(labels.look("span", limit.where).label)
        return (
            _("No %(wanted)s machines of the same hardware stand to each other as those of that job did (%(where)s).")
            % facts
        )
    return {
        "memory_mib": _("No card has %(wanted)s; the largest has %(most)s (%(where)s)."),
        "cards_per_node": _("No node has %(wanted)s such cards; the most is %(most)s (%(where)s)."),
        "cpu_milli": _("No node has %(wanted)s CPU cores; the most is %(most)s (%(where)s)."),
        "host_memory_mib": _("No node has %(wanted)s of host memory; the most is %(most)s (%(where)s)."),
        "model": _("There is no card of the model %(wanted)s; there are %(most)s."),
        "form": _("No zone takes the form “%(wanted)s”; the zones take: %(most)s."),
        "like_job": _("%(wanted)s machines of the same hardware are wanted; there are %(most)s that could serve it."),
        "reproducible": _("%(wanted)s machines of one kind are wanted; of no kind are there more than %(most)s."),
        "zones": _(
            "A policy keeps it inside %(wanted)s, where too few nodes could serve it; others that could: in %(most)s."
        ),
        "nodes": _("%(wanted)s nodes are wanted; %(most)s of the fleet could serve it."),
    }[limit.what] % facts


def sooner_words(sooner: Sooner) -> dict[str, Any]:
    """A change in words, and as fields of the submit form, so that one click applies it."""
    fields = {
        PAGE_FIELDS.get(name, name): value / 1000 if name == "cpu_milli" else value
        for name, value in sooner.change.items()
    }
    return {"words": change_words(sooner.change), "fields": json.dumps(fields), "hostname": sooner.hostname}


def change_words(change: Mapping[str, Any]) -> str:
    words = []
    for name, value in change.items():
        if not value and name in GIVEN_UP:
            if name == "reproducible" or "reproducible" not in change:
                words.append(str(GIVEN_UP[name]))
            continue
        table = {"form": "ask_form", "interconnect": "interconnect", "distance": "distance"}.get(name)
        word = str(labels.look(table, str(value)).label) if table else _amount(name, value)
        label = str(SubmitForm.base_fields[PAGE_FIELDS.get(name, name)].label)
        words.append(f"{label}{pgettext('separator', ': ')}{word}")
    return pgettext("separator", "; ").join(words)


def _amount(name: str, value: Any) -> str:
    if name == "model":
        return str(value) or _("any")
    return SHOWN.get(name, str)(value)
