"""Words of what is out of the pool and of drills: states, needs, what is waited for and who must act. Nothing here
decides anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from ledger.dwell import Waits, Who
from ledger.vocabulary import CaseState, Need, OrderKind
from portal import alert_looks
from portal.labels import Look, Text
from scheduler.drill_alerts import PAGES
from scheduler.drill_rows import DrillState, DrillVerdict
from scheduler.drill_verdict import Said

CASES: Final[Mapping[str, Look]] = {
    CaseState.WAITING: Look(pgettext_lazy("case", "work is still on it"), "◕", "wait"),
    CaseState.NEEDED: Look(pgettext_lazy("case", "something is to be done"), "○", "warn"),
    CaseState.TESTING: Look(pgettext_lazy("case", "being tested"), "▶", "go"),
    CaseState.PASSED: Look(pgettext_lazy("case", "passed, to be released"), "✓", "warn"),
    CaseState.FAILED: Look(pgettext_lazy("case", "test failed"), "✕", "alarm"),
    CaseState.RETURNED: Look(pgettext_lazy("case", "returned"), "✓", "good"),
    CaseState.SCRAPPED: Look(pgettext_lazy("case", "left the fleet"), "⊘", "quiet"),
    CaseState.ABORTED: Look(pgettext_lazy("case", "ended by hand"), "⊘", "quiet"),
}
NEEDS: Final[Mapping[str, Text]] = {
    Need.NOTHING: pgettext_lazy("need", "a test alone"),
    Need.RESET: pgettext_lazy("need", "a reset"),
    Need.REBOOT: pgettext_lazy("need", "a reboot"),
    Need.INSPECTION: pgettext_lazy("need", "an inspection"),
    Need.REPLACEMENT: pgettext_lazy("need", "a replacement"),
}
CHANNELS: Final[Mapping[str, Text]] = {PAGES: _("the portal’s pages")} | {
    str(channel): look.label for channel, look in alert_looks.CHANNELS.items()
}
ORDERS: Final[Mapping[str, Text]] = {
    OrderKind.RESET: pgettext_lazy("order", "reset"),
    OrderKind.BURN_IN: pgettext_lazy("order", "test"),
}
WAITS: Final[Mapping[str, Text]] = {
    Waits.WORK: _("what runs on it goes on to its end"),
    Waits.AGENT: _("the node’s agent has not asked for its order yet"),
    Waits.RESET: _("the agent resets it"),
    Waits.TEST: _("the agent tests it"),
    Waits.REBOOT: _("the node is to be rebooted; a new boot is seen by itself"),
    Waits.INSPECTION: _("somebody inspects it and says so"),
    Waits.REPLACEMENT: _("somebody replaces it and says so, or scraps it"),
    Waits.RELEASE: _("somebody releases it"),
    Waits.DECISION: _("its test failed: test again, or scrap it"),
    Waits.DRILL: _("its drill measures"),
    Waits.REPORTS: _("it ends by itself once it reports again"),
    Waits.ZONE_PLAN: _("its zone plan ends it"),
    Waits.RULE: _("the rule that placed it ends it"),
    Waits.HOLDER: _("whoever took it out returns it"),
}
WHO: Final[Mapping[str, Text]] = {
    Who.NOBODY: pgettext_lazy("who acts", "nobody"),
    Who.AGENT: pgettext_lazy("who acts", "the node’s agent"),
    Who.OPERATOR: pgettext_lazy("who acts", "an operator"),
    Who.HANDS: pgettext_lazy("who acts", "somebody at the machine"),
    Who.HOLDER: pgettext_lazy("who acts", "who took it out"),
}
DRILLS: Final[Mapping[str, Look]] = {
    DrillState.PLANNED: Look(pgettext_lazy("drill", "planned"), "◷", "wait"),
    DrillState.OUT: Look(pgettext_lazy("drill", "out, being measured"), "⚑", "warn"),
    DrillState.RETURNING: Look(pgettext_lazy("drill", "being tested and returned"), "▶", "go"),
    DrillState.ENDED: Look(pgettext_lazy("drill", "ended"), "■", "quiet"),
}
VERDICTS: Final[Mapping[str, Look]] = {
    DrillVerdict.PASSED: Look(pgettext_lazy("verdict", "passed"), "✓", "good"),
    DrillVerdict.PARTLY: Look(pgettext_lazy("verdict", "nothing missed, not all measured"), "◐", "warn"),
    DrillVerdict.FAILED: Look(pgettext_lazy("verdict", "failed"), "✕", "alarm"),
    DrillVerdict.ABORTED: Look(pgettext_lazy("verdict", "aborted"), "⊘", "quiet"),
}
SAID: Final[Mapping[str, Look]] = {
    Said.HELD: Look(pgettext_lazy("target", "held"), "✓", "good"),
    Said.MISSED: Look(pgettext_lazy("target", "missed"), "✕", "alarm"),
    Said.NOT_MEASURED: Look(pgettext_lazy("target", "not measured"), "?", "warn"),
}
STEPS: Final[Mapping[str, Text]] = {
    "hold": _("Held"),
    "avoid": _("Placing avoids it"),
    "alert": _("Alert out"),
    "test": _("Tested"),
    "return": _("Back in the pool"),
}
WHY: Final[Mapping[str, Text]] = {  # as scheduler.drill_verdict says it
    "no channel": _("no channel: its alert leaves the portal by none"),
    "nothing could be placed there anyway": _("nothing could be placed there anyway"),
    "not seen": _("not seen in time"),
    "it was not tested": _("it was not tested"),
    "it did not come to that": _("it did not come to that"),
}
# What ledger.cases, ledger.case_steps and scheduler.drills say of a step. What follows a colon is not translated.
STORY: Final[Mapping[str, Text]] = {
    "taken out": _("taken out"),
    "single cards of it go on being given out": _("single cards of it go on being given out"),
    "out for the test of what was done": _("out for the test of what was done"),
    "no work is on it": _("no work is on it"),
    "nothing but a test is needed": _("nothing but a test is needed"),
    "a reset is ordered": _("a reset is ordered"),
    "no card to reset": _("no card to reset"),
    "reset": _("it was reset"),
    "to be tested": _("to be tested"),
    "there is no card to test": _("there is no card to test"),
    "the test passed": _("the test passed"),
    "the test passed; a person releases it": _("the test passed; a person releases it"),
    "there is no card to test; a person releases it": _("there is no card to test; a person releases it"),
    "a new fault was counted": _("a new fault was counted"),
    "its hold was ended by hand": _("its hold was ended by hand"),
    "its hold had ended": _("its hold had ended"),
    "its hold had ended by a rule; held again": _("its hold had ended by a rule; held again"),
    "work is on it": _("work is on it"),
    "it is out of the pool already": _("it is out of the pool already"),
    "it sits elsewhere now": _("it sits elsewhere now"),
    "it has left the fleet": _("it has left the fleet"),
    "a fault was counted on it meanwhile; its case goes on": _("a fault was counted on it meanwhile; its case goes on"),
}
PREFIXES: Final[Mapping[str, Text]] = {
    "the test failed: ": _("the test failed: "),
    "the reset failed: ": _("the reset failed: "),
    "the test passed, but this still stands: ": _("the test passed, but this still stands: "),
    "to be tested again: ": _("to be tested again: "),
    "its drill was aborted: ": _("its drill was aborted: "),
    "done: ": _("done: "),
    "it stays out: ": _("it stays out: "),
    "rebooted: ": _("rebooted: "),
    "the card moved to ": _("the card moved to "),
}
TABLES: Final[Mapping[str, Mapping[str, Look]]] = {
    "case": CASES,
    "drill": DRILLS,
    "verdict": VERDICTS,
    "said": SAID,
}
WORDS: Final[Mapping[str, Mapping[str, Text]]] = {
    "channel": CHANNELS,
    "need": NEEDS,
    "order": ORDERS,
    "waits": WAITS,
    "who": WHO,
    "step": STEPS,
    "why": WHY,
}


def look(table: str, word: str) -> Look:
    return TABLES[table].get(word, Look(word))


def told(text: str) -> str:
    """What is said of a step, in the reader's language as far as it is ours; the words of people and agents as they
    are."""
    if text in STORY:
        return str(STORY[text])
    for prefix, translated in PREFIXES.items():
        if text.startswith(prefix):
            return f"{translated}{told(text.removeprefix(prefix))}"
    return text


def word(table: str, value: str) -> Text:
    return WORDS[table].get(value, value)
