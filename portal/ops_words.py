"""Words of the operators' pages: causes of waiting, kinds of drift, scheduled tasks, acts on the queue, and things that
the audit trail tells of. Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop, pgettext_lazy

from ledger.vocabulary import Refusal
from portal import labels
from portal.labels import Look, Text

# The cause that is told of a job is its first in this order: what would have to change first for it to start.
UNSEEN, TURN, NEVER = "unseen", "turn", "never"
NEAREST: Final = (
    Refusal.HELD_BY_OPERATOR,
    Refusal.PROJECT_ENDED,
    Refusal.QUOTA,
    Refusal.CEILING,
    Refusal.MEMBER_LIMIT,
    Refusal.LOST_RACE,
    Refusal.HEADROOM,
    Refusal.RESERVED,
    Refusal.GANG,
    Refusal.LEAF,
    Refusal.RACK,
    Refusal.ROOM,
    Refusal.SITE,
    Refusal.MIXED,
    Refusal.UNLIKE,
    Refusal.CARDS_FREE,
    Refusal.CARD_MEMORY_FREE,
    Refusal.CPU,
    Refusal.HOST_MEMORY,
    Refusal.NO_BLOCK,
    Refusal.NOT_EMPTY,
    Refusal.OTHER_FORM,
    Refusal.CARD_HELD,
    Refusal.NODE_HELD,
    Refusal.NODE_DOWN,
    Refusal.ASK_LATER,
    Refusal.FORM_NOT_IN_ZONE,
    Refusal.NO_DRIVER,
    Refusal.LABELS,
    Refusal.ZONE,
    Refusal.INTERCONNECT,
    Refusal.MODEL,
    Refusal.HARDWARE,
    Refusal.CARD_MEMORY_TOTAL,
    Refusal.CARDS_TOTAL,
    Refusal.SIMULATED,
)
CAUSES: Final[Mapping[str, Text]] = {
    **{str(word): labels.REFUSALS[word] for word in NEAREST},
    NEVER: _("as the fleet is now, nothing can ever meet it"),
    TURN: _("nothing refuses it; it waits for its turn"),
    UNSEEN: _("the scheduler has not looked at it yet"),
}

DRIFTS: Final[Mapping[str, Look]] = {
    "attempt_unknown": Look(pgettext_lazy("drift", "attempt unknown"), "?", "warn"),
    "agent_silent": Look(pgettext_lazy("drift", "agent silent"), "⚠", "alarm"),
    "driver_silent": Look(pgettext_lazy("drift", "driver silent"), "⚠", "alarm"),
    "orphan_member": Look(pgettext_lazy("drift", "runs without an allocation"), "✕", "alarm"),
    "member_missing": Look(pgettext_lazy("drift", "allocated, but the driver does not know it"), "✕", "alarm"),
    "inventory": Look(pgettext_lazy("drift", "inventory"), "≠", "warn"),
}
# the proposed fixes as scheduler.reconcile and ledger.inventory write them, so that the catalogue has them
FIXES: Final = (
    gettext_noop("wait for the driver; its cards stay taken until there is evidence"),
    gettext_noop("start the agent; the node gets no new work until then"),
    gettext_noop("check the driver's server"),
    gettext_noop("stop it"),
    gettext_noop("the attempt is closed as lost and tried again"),
    gettext_noop("register it with import_fleet"),
    gettext_noop("end those jobs first"),
)

TASKS: Final[Mapping[str, Text]] = {
    "scheduler.tick": _("places jobs that wait"),
    "scheduler.run_commands": _("tells drivers what to start and stop"),
    "scheduler.observe": _("looks at what runs"),
    "scheduler.sync_inventory": _("brings nodes and cards in line with agents and drivers"),
    "scheduler.zones": _("carries out zone plans: drains and moves nodes"),
    "scheduler.learn": _("learns what jobs ask for, which placing goes by"),
    "scheduler.reconcile": _("compares the book with drivers and agents"),
    "ledger.expire_requests": _("ends requests that nobody has decided in time"),
    "scheduler.reclaim": _("takes back what projects hold whose time is over"),
    "scheduler.tell": _("tells people of projects that end, requests, invitations and extra rights"),
    "scheduler.alerts": _("finds what is bad by the rules of alerts"),
    "scheduler.send_alerts": _("sends alerts to Alertmanager, by mail and to the webhook"),
    "scheduler.drain_quota": _("ends jobs above a quota that was cut, from its date on"),
    "scheduler.service": _("brings back what was taken out: resets, tests, releases"),
    "scheduler.drills": _("carries drills out and measures them"),
    "ledger.seal_audit": _("chains new rows of the audit trail"),
    "scheduler.health": _("ends jobs that hardware hit, and refunds what they used"),
    "scheduler.watch_processes": _("looks at what processes hold on cards, and for those of no allocation"),
    "scheduler.scrape": _("reads exporters of nodes and what applications tell of themselves"),
    "ledger.trim_metrics": _("drops old values of applications"),
    "scheduler.trim_alerts": _("drops alerts that have been over for long"),
    "ledger.copy_samples": _("copies what agents told of cards into their history"),
    "ledger.sum_up_hours": _("sums the history of cards up by hours"),
    "ledger.drop_old_samples": _("drops history of cards that is older than what is kept"),
    "ledger.roll_up": _("rolls the balance up by quarters of an hour"),
    "ledger.check_books": _("proves the invariants of the books"),
}

ACTS: Final[Mapping[str, Text]] = {
    "hold": pgettext_lazy("queue", "Hold jobs"),
    "release": pgettext_lazy("queue", "Release jobs"),
    "bump": pgettext_lazy("queue", "Change priority"),
    "cancel": pgettext_lazy("queue", "Cancel jobs"),
}
ACT_MEANINGS: Final[Mapping[str, Text]] = {
    "hold": _("A held job keeps its place in the queue and is not placed until it is released."),
    "release": _("A released job is placed as soon as its turn comes; it kept its place in the queue."),
    "bump": _("Jobs of a higher priority are placed first; the order inside a priority is told on the queue’s page."),
    "cancel": _("Only jobs that still wait are cancelled; one that has started meanwhile goes on."),
}

THINGS: Final[Mapping[str, Text]] = {
    "job": pgettext_lazy("thing", "job"),
    "attempt": pgettext_lazy("thing", "attempt"),
    "allocation": pgettext_lazy("thing", "allocation"),
    "node": pgettext_lazy("thing", "node"),
    "card": pgettext_lazy("thing", "card"),
    "cardseat": pgettext_lazy("thing", "card seat"),
    "hold": pgettext_lazy("thing", "hold"),
    "case": pgettext_lazy("thing", "case of something that is out"),
    "drill": pgettext_lazy("thing", "drill"),
    "zone": pgettext_lazy("thing", "zone"),
    "zoneplan": pgettext_lazy("thing", "zone plan"),
    "project": pgettext_lazy("thing", "project"),
    "department": pgettext_lazy("thing", "department"),
    "membership": pgettext_lazy("thing", "membership"),
    "invitation": pgettext_lazy("thing", "invitation"),
    "projectrequest": pgettext_lazy("thing", "request"),
    "notice": pgettext_lazy("thing", "notice"),
    "jobpolicy": pgettext_lazy("thing", "policy"),
    "healthversion": pgettext_lazy("thing", "health policy"),
    "fault": pgettext_lazy("thing", "fault"),
    "letter": pgettext_lazy("thing", "letter"),
    "alertrule": pgettext_lazy("thing", "rule of alerts"),
    "alertrung": pgettext_lazy("thing", "rung of the ladder of alerts"),
    "silence": pgettext_lazy("thing", "silence"),
    "alertmessage": pgettext_lazy("thing", "message about alerts"),
    "oddgrant": pgettext_lazy("thing", "extra right"),
    "user": pgettext_lazy("thing", "person"),
    "apitoken": pgettext_lazy("thing", "token"),
    "savedvalues": pgettext_lazy("thing", "saved values"),
}


def cause(word: str) -> Text:
    return CAUSES.get(word, word)


def drift(word: str) -> Look:
    return DRIFTS.get(word, Look(word, "≠", "warn"))


def thing(word: str) -> Text:
    return THINGS.get(word, word)
