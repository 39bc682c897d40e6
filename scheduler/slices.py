"""Asks for a slice as large as a MIG profile: what the cards of the fleet know, and such an ask as asks for memory and
compute of a model of card.

The book reserves shares; no driver switches a card into MIG mode yet. So a slice is a share as large as the profile,
its compute reserved for it alone, on a card that such a slice is cut from.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.utils.translation import gettext as _

from ledger import mig
from ledger.errors import Refused
from ledger.models import Card, Job
from ledger.units import card_milli

MOST_ASKS: Final = 8  # of a job; and so many that slices make of it
FIELD: Final = "profile"
MADE_OF: Final = frozenset({"form", "model", "memory_mib"})  # what it gives beside the reserved compute
Sizes = Mapping[str, Sequence[int]]  # by model, how many MiB its cards have, ascending


@dataclass(frozen=True, slots=True)
class Cut:
    """A slice as the cards of one model give it; `milli` are the thousandths of a card that quota counts for it."""

    profile: str
    model: str
    memory_mib: int
    compute_milli: int
    milli: int


def sizes(simulated: bool | None = None) -> Sizes:
    """The cards that are in a seat now, of one of the two worlds or of both."""
    world = {} if simulated is None else {"seats__node__simulated": simulated}
    cards = Card.objects.filter(seats__period__upper_inf=True, **world)
    found: dict[str, list[int]] = defaultdict(list)
    for model, mib in cards.order_by("model", "memory_mib").values_list("model", "memory_mib").distinct():
        found[model].append(mib)
    return found


def cuts(known: Sizes) -> dict[str, list[Cut]]:
    """By profile, what each model that knows it gives: what takes the least of a card first. Every size of a model must
    know the profile; where they differ a little, what the smallest gives fits all."""
    found: dict[str, list[Cut]] = defaultdict(list)
    for model, all_mib in known.items():
        of_each = [mig.profiles_of(model, mib) for mib in all_mib]
        for profile in of_each[0]:
            if all(profile in one for one in of_each):
                least = min((one[profile] for one in of_each), key=lambda one: one.memory_mib)
                milli = max(card_milli(least.memory_mib, mib) for mib in all_mib)
                found[profile].append(Cut(profile, model, least.memory_mib, least.compute_milli, milli))
    ordered = sorted(found, key=lambda name: (found[name][0].compute_milli, found[name][0].memory_mib, name))
    return {name: sorted(found[name], key=lambda cut: (cut.milli, cut.memory_mib, cut.model)) for name in ordered}


def cuts_of(job: Job) -> list[Cut]:
    """What the job's first wish is on each model of card that it names; nothing when it is for no slice."""
    profile = job.asks[0].get(FIELD)
    models = {ask["model"] for ask in job.asks if profile and ask.get(FIELD) == profile}
    return [cut for cut in cuts(sizes(job.simulated)).get(profile, ()) if cut.model in models] if models else []


def asks_of(asks: Iterable[Mapping[str, Any]], simulated: bool) -> list[dict[str, Any]]:
    """The asks as the scheduler takes them: one for a slice becomes one a model of card that gives it, each with its
    memory, compute and model; the word stays with it. Refused, naming the field, where no card gives it, and where too
    many models do."""
    asks = list(asks)
    known = sizes(simulated) if any(ask.get(FIELD) for ask in asks) else {}
    found: list[dict[str, Any]] = []
    made = 0
    for number, ask in enumerate(asks):
        part = _of_slice(ask, known, f"asks.{number}.{FIELD}") if ask.get(FIELD) else [dict(ask)]
        found += part
        made += len(part) if ask.get(FIELD) else 0
        if made > MOST_ASKS:
            raise Refused(
                _(
                    "Too many kinds of card give such a slice: a job has at most %(most)d wishes, one a kind. "
                    "Name a card model."
                )
                % {"most": MOST_ASKS},
                field=f"asks.{number}.model",
                code="too_many_asks",
            )
    return found


def _of_slice(ask: Mapping[str, Any], known: Sizes, field: str) -> list[dict[str, Any]]:
    of_fleet = cuts(known)
    model, profile = ask["model"], ask[FIELD]
    wanted = [cut for cut in of_fleet.get(profile, ()) if model in ("", cut.model)]
    if not wanted:
        given = [name for name, all_ in of_fleet.items() if not model or any(cut.model == model for cut in all_)]
        facts = {"profile": profile, "model": model, "known": ", ".join(given) or "—"}
        message = (
            _("No slice %(profile)s is cut from the cards of the model %(model)s here; their slices are: %(known)s.")
            if model
            else _("No slice %(profile)s is cut from any card of this fleet; there are: %(known)s.")
        )
        raise Refused(message % facts, field=field, code="no_such_slice")
    return [
        {**ask, "memory_mib": cut.memory_mib, "compute_milli": cut.compute_milli, "model": cut.model} for cut in wanted
    ]


def siblings(asks: Sequence[Mapping[str, Any]]) -> int:
    """How many of a job's asks, from the first on, are one wish: for the same slice on several models of card."""
    first = asks[0]
    same = ("form", FIELD, "nodes", "cards_per_node", "after_s")
    if not first.get(FIELD):
        return 1
    alike = (all(ask.get(name) == first.get(name) for name in same) for ask in asks)
    return next((number for number, is_same in enumerate(alike) if not is_same), len(asks))
