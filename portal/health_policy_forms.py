"""The forms of the health policy: one rule at a time, as people type it. What may be said is judged by
ledger.health_policy."""

from __future__ import annotations

from typing import Any, Final

from django import forms
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from ledger import health_policy
from ledger.health_policy import HIGHEST_CODE, LONGEST_NOTE, LONGEST_S, MOST_INSPECT_AFTER, MOST_REPEATS
from ledger.health_rules import Policy, Rule
from ledger.reasons import LONGEST_REASON
from ledger.vocabulary import FaultKind, HealthAction
from portal import health_policy_words as words
from portal.forms import StyledForm, choices_of, style
from portal.labels import Text

HOUR: Final = 3_600
DAYS: Final = ((30, _("30 days")), (90, _("90 days")))
HOURS: Final = LONGEST_S // HOUR


def action_choices() -> list[tuple[str, Text]]:
    return [(str(action), words.ACTIONS[action].label) for action in HealthAction]


def kind_choices() -> list[tuple[str, Text]]:
    return [(str(kind), words.KINDS[kind]) for kind in FaultKind]


class OfASite(StyledForm):
    """What every change of a policy says: of which site, and by which faults it is previewed."""

    site = forms.ChoiceField(label=_("Site"), required=False)
    days = forms.TypedChoiceField(label=_("Preview over the faults of the last"), choices=DAYS, coerce=int)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        every = (health_policy.EVERY_SITE, pgettext_lazy("site", "every site"))
        choices_of(self, "site").choices = [every, *((name, name) for name in health_policy.sites())]
        style(self)


class RuleForm(OfASite):
    """One rule: of any code of its kind where the code is left empty."""

    kind = forms.ChoiceField(label=_("Fault"), choices=kind_choices)
    code = forms.IntegerField(
        label=_("Code"),
        required=False,
        min_value=0,
        max_value=HIGHEST_CODE,
        help_text=_("Of an XID; empty: any other."),
    )
    action = forms.ChoiceField(label=_("What is done"), choices=action_choices)
    repeats = forms.IntegerField(
        label=_("After so many times"),
        required=False,
        min_value=2,
        max_value=MOST_REPEATS,
        help_text=_("Empty: never."),
    )
    window_h = forms.IntegerField(label=_("Within (hours)"), required=False, min_value=1, max_value=HOURS)
    then = forms.ChoiceField(
        label=_("This is done instead"), required=False, choices=lambda: [("", "—"), *action_choices()]
    )
    by_users = forms.BooleanField(label=_("Count different people whose work it hit, not times"), required=False)
    by_hand = forms.BooleanField(label=_("A person releases it, whatever its test says"), required=False)
    note = forms.CharField(label=_("What it means"), required=False, max_length=LONGEST_NOTE)
    remove = forms.BooleanField(
        label=_("Take the rule away: the code is unknown then, and what it befalls is held"), required=False
    )

    field_order = ("site", "kind", "code", "action", "repeats", "window_h", "then", "note", "days")

    @property
    def plain(self) -> list[forms.BoundField]:
        return [self[name] for name in self.field_order]

    @property
    def ticks(self) -> list[forms.BoundField]:
        return [self[name] for name in ("by_users", "by_hand", "remove")]

    @property
    def rule(self) -> Rule:
        data = self.cleaned_data
        return Rule(
            FaultKind(data["kind"]),
            data["code"],
            HealthAction(data["action"]),
            HealthAction(data["then"]) if data["then"] else None,
            data["repeats"] or 0,
            (data["window_h"] or 0) * HOUR,
            data["by_users"],
            data["by_hand"],
            data["note"],
        )


class InspectionForm(OfASite):
    """After how many reboots a person looks at a node."""

    inspect_after = forms.IntegerField(
        label=_("Reboots of a node"),
        min_value=1,
        max_value=MOST_INSPECT_AFTER,
        help_text=_("Then a person looks at it."),
    )
    inspect_h = forms.IntegerField(label=_("Within (hours)"), min_value=1, max_value=HOURS)


def initial(policy: Policy, site: str, rule: Rule | None) -> dict[str, Any]:
    """The rule form as it is first shown."""
    values: dict[str, Any] = {"site": site, "days": 30}
    if rule is None:
        return values
    hours = rule.window_s / HOUR
    return values | {
        "kind": rule.kind,
        "code": rule.code,
        "action": rule.action,
        "then": rule.then or "",
        "repeats": rule.repeats or None,
        "window_h": (int(hours) if hours == int(hours) else f"{hours:g}") if rule.window_s else None,
        "by_users": rule.by_users,
        "by_hand": rule.by_hand,
        "note": rule.note,
    }


class ConfirmForm(StyledForm):
    """`change` is the signed change of the preview."""

    change = forms.CharField(widget=forms.HiddenInput, max_length=20_000)
    reason = forms.CharField(
        label=_("Why it is changed"),
        max_length=LONGEST_REASON,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text=_("It is kept with the version, and in the audit trail."),
    )


FIELDS: Final = {"window_s": "window_h", "inspect_window_s": "inspect_h"}
