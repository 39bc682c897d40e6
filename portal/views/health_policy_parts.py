"""Parts of the pages of the health policy: its table, its versions, the sealed change that travels through the preview
and what is shown of its effect. Reads only."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from django.core import signing
from django.utils.translation import gettext as _

from ledger import health_policy, health_preview
from ledger.errors import Refused
from ledger.health_defaults import DEFAULT
from ledger.health_preview import Effect, Outcome
from ledger.health_rules import Policy, Rule
from ledger.models import HealthVersion
from ledger.vocabulary import FaultKind, HealthAction
from portal import health_policy_words as words
from portal.labels import Look

SALT: Final = "health-policy-change"
KEPT_FOR: Final = dt.timedelta(hours=1)
MOST_BEFORE: Final = 20  # versions that a page shows
MOST_READ: Final = 200  # versions among which the one before is looked for
RULE, REMOVE, INSPECTION, PUT_BACK, WITHDRAW = "rule", "remove", "inspection", "put_back", "withdraw"


@dataclass(frozen=True, slots=True)
class RuleRow:
    rule: Rule

    @property
    def name(self) -> str:
        return words.name(self.rule.kind, self.rule.code)

    @property
    def look(self) -> Look:
        return words.ACTIONS[self.rule.action]

    @property
    def then(self) -> Look | None:
        return words.ACTIONS[self.rule.then] if self.rule.then is not None else None

    @property
    def escalation(self) -> str:
        return words.escalation(self.rule)

    @property
    def anchor(self) -> str:
        return f"?kind={self.rule.kind}&code={'' if self.rule.code is None else self.rule.code}"


def table(policy: Policy) -> list[RuleRow]:
    """XIDs by number, then the other kinds."""
    kinds = tuple(FaultKind)
    ordered = sorted(policy.rules, key=lambda rule: (kinds.index(rule.kind), rule.code is None, rule.code or 0))
    return [RuleRow(rule) for rule in ordered]


# -- versions ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Past:
    """A version, and what differs in it from what was in force at its site before."""

    row: HealthVersion
    changed: list[tuple[str, str, str]]

    @property
    def site(self) -> str:
        return words.site_name(self.row.site)


def difference(before: Policy, after: Policy) -> list[tuple[str, str, str]]:
    """(rule, before, after) in words."""
    found = [
        (words.name(one.kind, one.code), words.in_words(old), words.in_words(new))
        for old, new in health_policy.differing(before, after)
        if (one := new or old) is not None
    ]
    was, now = ((one.inspect_after, one.inspect_window_s) for one in (before, after))
    if was != now:
        found.append((_("inspection"), *(_inspection(after_n, window) for after_n, window in (was, now))))
    return found


def _inspection(after: int, window_s: int) -> str:
    return _("after %(n)d reboots within %(h)d hours") % {"n": after, "h": window_s // 3600}


def history(before: int | None = None, most: int = MOST_BEFORE) -> list[Past]:
    """Of all sites, the newest first, those up to a number where one is given; in two queries whatever their number."""
    rows = HealthVersion.objects.select_related("by").order_by("-number")
    found = list((rows if before is None else rows.filter(number__lte=before))[: MOST_READ + most])
    wanted = found[:most]
    last = {
        row.pk: next((old for old in found[at + 1 :] if old.site == row.site), None) for at, row in enumerate(wanted)
    }
    policies = health_policy.policies_of(row for row in {*wanted, *filter(None, last.values())} if not row.withdrawn)
    return [Past(row, difference(_said(last[row.pk], policies), _said(row, policies))) for row in wanted]


def _said(row: HealthVersion | None, policies: Mapping[int, Policy]) -> Policy:
    """What the site's own policy said with it; the portal's where it had none."""
    return DEFAULT if row is None else policies.get(row.pk, DEFAULT)


def after(row: HealthVersion) -> Policy:
    return DEFAULT if row.withdrawn else health_policy.policy_of(row)


# -- a change ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be changed of the policy of a site, of which version `shown` was in force when it was previewed."""

    what: str
    site: str
    shown: int
    days: int
    values: Mapping[str, Any] = field(default_factory=dict)


def sealed(change: Change) -> str:
    """As one signed text: what was previewed is what will be made."""
    packed = [change.what, change.site, change.shown, change.days, dict(change.values)]
    return signing.dumps(packed, salt=SALT, compress=True)


def opened(text: str) -> Change | None:
    """None when the text is not ours or older than an hour."""
    try:
        return Change(*signing.loads(text, salt=SALT, max_age=KEPT_FOR))
    except signing.BadSignature:
        return None


def packed_rule(rule: Rule) -> dict[str, Any]:
    return {
        "kind": str(rule.kind),
        "code": rule.code,
        "action": str(rule.action),
        "then": str(rule.then) if rule.then else None,
        "repeats": rule.repeats,
        "window_s": rule.window_s,
        "by_users": rule.by_users,
        "by_hand": rule.by_hand,
        "note": rule.note,
    }


def _unpacked(values: Mapping[str, Any]) -> Rule:
    then = values["then"]
    words_of = {"kind": FaultKind(values["kind"]), "action": HealthAction(values["action"])}
    return Rule(**{**values, **words_of, "then": HealthAction(then) if then else None})


def made_of(change: Change) -> Policy | None:
    """The whole table as it will be; None: the site has none of its own any more."""
    standing = health_policy.in_force(change.site)
    if change.what == WITHDRAW:
        return None
    if change.what == PUT_BACK:
        found = health_policy.numbered(change.values["number"])
        if found is None:
            raise Refused(_("There is no version of this number."), code="unknown")
        return replace(found, number=0, site=change.site)
    if change.what == INSPECTION:
        return replace(standing, **change.values)
    rule = _unpacked(change.values)
    kept = [one for one in standing.rules if (one.kind, one.code) != (rule.kind, rule.code)]
    if change.what == REMOVE and len(kept) == len(standing.rules):
        raise Refused(_("There is no such rule."), field="code", code="unknown")
    new = [] if change.what == REMOVE else [health_policy.tidied(rule)]
    return replace(standing, rules=tuple([*kept, *new]))


def checked(change: Change) -> Policy:
    """The same, judged as its writer will; of what is withdrawn, what holds then."""
    made = made_of(change)
    if made is None:
        return health_policy.in_force(health_policy.EVERY_SITE) if change.site else DEFAULT
    health_policy.check_rules(made.rules)
    health_policy.check_inspection(made.inspect_after, made.inspect_window_s)
    standing = health_policy.in_force(change.site)
    if change.what != PUT_BACK and health_policy.same(standing, made):
        raise Refused(_("This is what the policy says already."), code="no_change")
    return made


# -- preview -----------------------------------------------------------------------------------------------------------


def preview(change: Change) -> dict[str, Any]:
    """What the policy says before and after, and what that would have done about the faults of the last days."""
    standing, made = health_policy.in_force(change.site), checked(change)
    effect = health_preview.effect(standing, made, site=change.site, days=change.days)
    return {
        "site": words.site_name(change.site),
        "site_key": change.site,
        "own": health_policy.own_of(change.site) is not None,
        "rows": difference(standing, made),
        "withdraws": change.what == WITHDRAW,
        "days": change.days,
        "effect": effect,
        "sums": _sums(effect),
        "actions": _actions(effect),
        "examples": [
            {
                "name": words.name(one.kind, one.code),
                "one": one,
                "at": dt.datetime.fromtimestamp(one.at, dt.UTC),
                "before": words.ACTIONS[was.action],
                "after": words.ACTIONS[now.action],
            }
            for one, was, now in effect.examples
        ],
    }


def _sums(effect: Effect) -> Sequence[tuple[str, int, int]]:
    def both(label: str, of: str) -> tuple[str, int, int]:
        return label, len(getattr(effect.before, of)), len(getattr(effect.after, of))

    return [
        both(_("Cards held"), "cards"),
        both(_("Cards for single work only"), "links"),
        both(_("Nodes held"), "nodes"),
        both(_("Attempts of jobs ended"), "attempts"),
    ]


def _actions(effect: Effect) -> Sequence[tuple[Look, int, int]]:
    def count(outcome: Outcome, action: HealthAction) -> int:
        return outcome.actions.get(action, 0)

    both = [(words.ACTIONS[one], count(effect.before, one), count(effect.after, one)) for one in HealthAction]
    return [row for row in both if row[1] or row[2]]


def rule_named(policy: Policy, kind: str, code: int | None) -> Rule | None:
    return policy.by_code.get((kind, code)) if kind in list(FaultKind) else None
