"""The health policy of each site: what is in force, and new versions of it (site admins alone). A version is the whole
table; the one before ends at the instant at which it begins. A site without its own has that of every site, and where
nobody has said anything the portal's own holds (ledger.health_defaults, version 0).
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

from django.db import connection, transaction
from django.utils.translation import gettext as _
from psycopg.types.range import TimestamptzRange

from ledger import audit
from ledger.acts import Act
from ledger.clock import database_now
from ledger.errors import Conflict, Forbidden, Refused
from ledger.health_defaults import DEFAULT
from ledger.health_rules import ALWAYS_BY_HAND, OF_CARDS, SEVERITY, Policy, Rule
from ledger.models import HealthRule, HealthVersion, Node, User
from ledger.reasons import check_reason
from ledger.roles import is_admin
from ledger.vocabulary import FaultKind, HealthAction

EVERY_SITE: Final = ""
NUMBERING: Final = 7_130_902  # the advisory lock under which versions get their numbers
HIGHEST_CODE: Final = 99_999
MOST_REPEATS: Final = 1_000
LONGEST_S: Final = 366 * 86_400
SHORTEST_S: Final = 60
MOST_RULES: Final = 2_000
MOST_INSPECT_AFTER: Final = 100
LONGEST_NOTE: Final = 200
OF_A_CARD_ALONE: Final = frozenset(
    {
        HealthAction.NO_GANG,
        HealthAction.RESTART_JOB,
        HealthAction.DRAIN_NOW,
        HealthAction.RESET,
        HealthAction.RMA,
    }
)


# -- what is in force --------------------------------------------------------------------------------------------------


def in_force(site: str) -> Policy:
    """What holds for the nodes of a site now."""
    found = {row.site: row for row in _open_rows().filter(site__in={site, EVERY_SITE}, withdrawn=False)}
    row = found.get(site) or found.get(EVERY_SITE)
    return DEFAULT if row is None else policy_of(row)


def own_of(site: str) -> HealthVersion | None:
    """The version that this site itself has, if it has one that is not withdrawn."""
    found: HealthVersion | None = _open_rows().filter(site=site, withdrawn=False).first()
    return found


def _open_rows() -> Any:
    return HealthVersion.objects.filter(period__upper_inf=True)


def policy_of(row: HealthVersion) -> Policy:
    """A version never changes: it is read once. Its beginning is in the key, should a database begin anew."""
    return _read(row.pk, row.period.lower)


@lru_cache(32)
def _read(pk: int, _since: dt.datetime) -> Policy:
    return policies_of(HealthVersion.objects.filter(pk=pk))[pk]


def policies_of(rows: Iterable[HealthVersion]) -> dict[int, Policy]:
    """Their tables by id, in one query whatever their number."""
    by_id = {row.pk: row for row in rows}
    rules: dict[int, list[Rule]] = {pk: [] for pk in by_id}
    for rule in HealthRule.objects.filter(version__in=by_id).order_by("pk"):
        rules[rule.version_id].append(_rule(rule))
    return {
        pk: Policy(row.number, row.site, tuple(rules[pk]), row.inspect_after, row.inspect_window_s)
        for pk, row in by_id.items()
    }


def _rule(row: HealthRule) -> Rule:
    return Rule(
        FaultKind(row.kind),
        row.code,
        HealthAction(row.action),
        HealthAction(row.then) if row.then else None,
        row.repeats,
        row.window_s,
        row.by_users,
        row.by_hand,
        row.note,
    )


def numbered(number: int) -> Policy | None:
    """The table of that number, whether it is in force or not."""
    if number == DEFAULT.number:
        return DEFAULT
    row = HealthVersion.objects.filter(number=number).first() if 0 < number < 2**31 else None
    return None if row is None else policy_of(row)


def sites() -> list[str]:
    """The names of sites that there are nodes of or a policy for, in order."""
    named = set(Node.objects.exclude(site="").values_list("site", flat=True).distinct())
    return sorted(named | set(_open_rows().exclude(site="").values_list("site", flat=True)))


# -- new versions ------------------------------------------------------------------------------------------------------


def put_version(
    *,
    site: str,
    rules: Collection[Rule],
    inspect_after: int,
    inspect_window_s: int,
    act: Act,
    shown: int | None = None,
) -> HealthVersion:
    """From now on the policy of this site says that. `shown`: the number of what was in force there when it was looked
    at; Conflict when another is now."""
    _require_admin(act)
    check_reason(act.reason)
    check_site(site)
    kept = tuple(tidied(rule) for rule in rules)
    check_rules(kept)
    check_inspection(inspect_after, inspect_window_s)
    with transaction.atomic(durable=True):
        before = _locked(site, shown)
        new = Policy(0, site, kept, inspect_after, inspect_window_s)
        if own_of(site) is not None and same(before, new):
            raise Refused(_("This is what the policy says already."), code="no_change")
        return _begin(site, new, before, act)


def withdraw(*, site: str, act: Act, shown: int | None = None) -> HealthVersion:
    """From now on that of every site holds there; of every site: the portal's own table. Its versions stay."""
    _require_admin(act)
    check_reason(act.reason)
    with transaction.atomic(durable=True):
        before = _locked(site, shown)
        if own_of(site) is None:
            raise Conflict(_("There is no policy of this site itself."), code="nothing_said")
        return _begin(site, None, before, act)


def same(one: Policy, other: Policy) -> bool:
    """Whether they say the same, in whatever order."""
    return one.by_code == other.by_code and (one.inspect_after, one.inspect_window_s) == (
        other.inspect_after,
        other.inspect_window_s,
    )


def tidied(rule: Rule) -> Rule:
    """As it is kept: what always wants a person says so."""
    by_hand = rule.by_hand or rule.action in ALWAYS_BY_HAND
    return Rule(
        rule.kind, rule.code, rule.action, rule.then, rule.repeats, rule.window_s, rule.by_users, by_hand, rule.note
    )


def _locked(site: str, shown: int | None) -> Policy:
    """What is in force, under the lock of all versions."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [NUMBERING])
    standing = in_force(site)
    if shown is not None and shown != standing.number:
        text = _("The policy was changed by somebody else since the preview. Look at it again.")
        raise Conflict(text, code="changed")
    return standing


def _begin(site: str, policy: Policy | None, before: Policy, act: Act) -> HealthVersion:
    now = database_now()
    last = _open_rows().filter(site=site).first()
    if last is not None:
        last.period = TimestamptzRange(last.period.lower, now)
        last.save(update_fields=["period"])
    told = policy or before
    new = HealthVersion.objects.create(
        number=1 + (HealthVersion.objects.order_by("-number").values_list("number", flat=True).first() or 0),
        site=site,
        period=TimestamptzRange(now, None),
        withdrawn=policy is None,
        inspect_after=told.inspect_after,
        inspect_window_s=told.inspect_window_s,
        by=_person(act),
        reason=act.reason,
    )
    HealthRule.objects.bulk_create(_row(new, rule) for rule in (policy.rules if policy else ()))
    after = DEFAULT if policy is None else policy
    audit.record(
        verb="health_policy.withdrawn" if policy is None else "health_policy.set",
        target=new,
        before={"site": site, "version": before.number},
        after={"site": site, "version": new.number, "changed": changed(before, after)[:100] if policy else []},
        at=now,
        **act.said(),
    )
    return new


def _row(version: HealthVersion, rule: Rule) -> HealthRule:
    return HealthRule(
        version=version,
        kind=rule.kind,
        code=rule.code,
        action=rule.action,
        then=rule.then or "",
        repeats=rule.repeats,
        window_s=rule.window_s,
        by_users=rule.by_users,
        by_hand=rule.by_hand,
        note=rule.note,
    )


def differing(before: Policy, after: Policy) -> list[tuple[Rule | None, Rule | None]]:
    """The rules that are not the same in both, in the order of kind and code."""
    keys = sorted(
        before.by_code.keys() | after.by_code.keys(), key=lambda key: (key[0], -1 if key[1] is None else key[1])
    )
    pairs = [(before.by_code.get(key), after.by_code.get(key)) for key in keys]
    return [(old, new) for old, new in pairs if old != new]


def changed(before: Policy, after: Policy) -> list[dict[str, Any]]:
    """The same as data, for the audit trail."""
    return [
        {"rule": one.name, "before": _said(old), "after": _said(new)}
        for old, new in differing(before, after)
        if (one := new or old) is not None
    ]


def _said(rule: Rule | None) -> dict[str, Any] | None:
    if rule is None:
        return None
    said: dict[str, Any] = {"action": rule.action, "by_hand": rule.by_hand}
    if rule.then is not None:
        said |= {"then": rule.then, "repeats": rule.repeats, "window_s": rule.window_s, "by_users": rule.by_users}
    return said


def _person(act: Act) -> User:
    if act.actor is None:
        raise Refused(_("A policy is set by a person."), code="actor")
    return act.actor


def _require_admin(act: Act) -> None:
    if not is_admin(act.actor):
        raise Forbidden(_("Only site admins change the health policy."), code="role")


# -- checks ------------------------------------------------------------------------------------------------------------


def check_site(site: str) -> None:
    if site != EVERY_SITE and site not in sites():
        raise Refused(_("There is no site of this name."), field="site", code="unknown")


def check_rules(rules: Sequence[Rule]) -> None:
    """Refused, naming what is wrong, unless these can be a version."""
    if len(rules) > MOST_RULES:
        raise Refused(_("At most %(n)d rules.") % {"n": MOST_RULES}, field="rules", code="too_many")
    for rule in rules:
        check_rule(rule)
    for (kind, code), count in Counter((rule.kind, rule.code) for rule in rules).items():
        if count > 1:
            text = _("%(rule)s stands there twice.") % {"rule": kind if code is None else f"{kind} {code}"}
            raise Refused(text, field="rules", code="twice")
    general = {rule.kind for rule in rules if rule.code is None}
    missing = [kind for kind in FaultKind if kind not in general and kind is not FaultKind.XID]
    if missing:
        text = _("Nothing is said about: %(kinds)s.") % {"kinds": ", ".join(missing)}
        raise Refused(text, field="rules", code="missing")


def check_rule(rule: Rule) -> None:
    if rule.code is not None and rule.kind is not FaultKind.XID:
        raise Refused(_("Only XIDs have codes; leave it empty."), field="code", code="not_an_xid")
    if rule.code is not None and not 0 <= rule.code <= HIGHEST_CODE:
        text = _("Give a whole number from %(least)d to %(most)d.") % {"least": 0, "most": HIGHEST_CODE}
        raise Refused(text, field="code", code="out_of_range")
    if len(rule.note) > LONGEST_NOTE:
        raise Refused(_("At most %(n)d characters.") % {"n": LONGEST_NOTE}, field="note", code="too_long")
    for field, action in (("action", rule.action), ("then", rule.then)):
        if rule.kind not in OF_CARDS and action in OF_A_CARD_ALONE:
            raise Refused(_("This fault is of a node, and this is done to cards."), field=field, code="of_a_card")
    _check_escalation(rule)


def _check_escalation(rule: Rule) -> None:
    if rule.then is None:
        if rule.repeats or rule.window_s or rule.by_users:
            raise Refused(_("Say what is done then, or leave the repeats empty."), field="then", code="missing")
        return
    if SEVERITY.index(rule.then) <= SEVERITY.index(rule.action):
        raise Refused(_("What is done then must be more than what is done at first."), field="then", code="not_more")
    if not 2 <= rule.repeats <= MOST_REPEATS:
        text = _("Give a whole number from %(least)d to %(most)d.") % {"least": 2, "most": MOST_REPEATS}
        raise Refused(text, field="repeats", code="out_of_range")
    _check_seconds(rule.window_s, "window_s")


def check_inspection(inspect_after: int, inspect_window_s: int) -> None:
    if not 1 <= inspect_after <= MOST_INSPECT_AFTER:
        text = _("Give a whole number from %(least)d to %(most)d.") % {"least": 1, "most": MOST_INSPECT_AFTER}
        raise Refused(text, field="inspect_after", code="out_of_range")
    _check_seconds(inspect_window_s, "inspect_window_s")


def _check_seconds(seconds: int, field: str) -> None:
    if not SHORTEST_S <= seconds <= LONGEST_S:
        text = _("Give a whole number from %(least)d to %(most)d.") % {"least": SHORTEST_S, "most": LONGEST_S}
        raise Refused(text, field=field, code="out_of_range")
