"""A counted fault is answered in the commit that counts it: hold, case and what was done stand together."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from ledger import faults, health_policy, inventory
from ledger.acts import Act
from ledger.clock import database_now
from ledger.health_defaults import DEFAULT
from ledger.health_rules import Rule
from ledger.models import Card, Case, Fault, HealthEvent, HealthRule, HealthVersion, Hold, Node
from ledger.vocabulary import CaseState, FaultKind, HealthAction, HoldKind, Need, SiteRole
from tests import factories

pytestmark = pytest.mark.django_db
A = HealthAction


@pytest.fixture
def node() -> Node:
    return factories.node("n1", cards=2, simulated=False)


def card(slot: int = 0) -> Card:
    return Card.objects.get(uuid=f"n1-card-{slot}")


def count(
    node: Node, code: int | None, on: Card | None, kind: FaultKind = FaultKind.XID, message: str = ""
) -> HealthEvent:
    with transaction.atomic():
        inventory.lock_node(node.pk)
        faults.count_inside(node=node, card=on, kind=kind, code=code, message=message, now=database_now())
    return HealthEvent.objects.order_by("-pk")[0]


def held(event: HealthEvent) -> tuple[Any, ...]:
    hold, case = event.hold, event.case
    assert hold is not None
    assert case is not None
    place = "node" if hold.node_id else "card"
    return place, hold.kind, hold.rule, case.need, case.by_hand


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (63, ("card", HoldKind.FAULT, "health/0", Need.RESET, False)),
        (94, ("card", HoldKind.FAULT, "health/0", Need.RESET, False)),
        (48, ("card", HoldKind.FAULT, "health/0", Need.RESET, False)),
        (119, ("card", HoldKind.FAULT, "health/0", Need.RESET, False)),
        (74, ("card", HoldKind.LINK, "health/0", Need.INSPECTION, True)),
        (79, ("node", HoldKind.FAULT, "health/0", Need.REBOOT, False)),
        (54, ("node", HoldKind.FAULT, "health/0", Need.INSPECTION, True)),
        (9999, ("card", HoldKind.FAULT, "health/0", Need.INSPECTION, True)),
    ],
)
def test_what_is_taken_out_and_what_it_needs(node: Node, code: int, expected: tuple[Any, ...]) -> None:
    event = count(node, code, card())
    assert held(event) == expected
    assert (event.version, event.rule, event.began) == (0, f"xid {code}", True)
    assert event.case is not None
    assert (event.case.state, event.case.action, event.case.fault) == (CaseState.WAITING, event.action, event.fault)


def test_what_is_only_logged_or_watched_holds_nothing(node: Node) -> None:
    for code in (13, 92, 45):
        event = count(node, code, card())
        assert (event.hold, event.case, event.ends_jobs) == (None, None, False)
    assert not Hold.objects.exists()


def test_a_fault_of_no_known_card_is_answered_on_its_node(node: Node) -> None:
    event = count(node, 48, None)
    assert held(event) == ("node", HoldKind.FAULT, "health/0", Need.REBOOT, False)
    again = count(node, 74, None)
    assert held(again)[:2] == ("node", HoldKind.FAULT)


def test_the_messages_of_one_incident_are_no_repeats_and_a_new_one_is(node: Node) -> None:
    first = count(node, 119, card())
    for _ in range(3):
        more = count(node, 119, card())
        assert (more.action, more.began, more.hold) == (A.RESET, False, first.hold)
    assert Case.objects.count() == 1
    Case.objects.update(done_at=database_now())  # it was reset, and now this again
    second = count(node, 119, card())
    assert (second.action, second.escalated, second.began) == (A.REBOOT, True, True)
    assert held(second)[0] == "node"


def test_after_two_reboots_a_person_looks(node: Node) -> None:
    for expected in (A.REBOOT, A.HOLD_NODE):
        event = count(node, 79, card())
        assert event.action == expected
        Case.objects.update(done_at=database_now())
    other = count(node, 167, card(1))
    assert other.action == A.REBOOT
    Case.objects.update(done_at=database_now())
    third = count(node, 167, None)
    assert (third.action, third.escalated) == (A.HOLD_NODE, True)
    assert "2 reboots" in third.why


def test_what_a_person_holds_stays_theirs(node: Node) -> None:
    admin = factories.user("admin", SiteRole.ADMIN)
    mine = inventory.hold_inside(kind=HoldKind.FAULT, reason="mine", actor=admin, via="test", card=card())
    event = count(node, 48, card())
    assert event.hold == mine
    assert event.case is not None
    assert event.case.by_hand
    assert Hold.objects.get().by == admin


def test_a_worse_fault_on_a_card_with_held_links_takes_all_of_it_out(node: Node) -> None:
    count(node, 74, card())
    event = count(node, 48, card())
    kinds = Hold.objects.filter(card=card(), period__upper_inf=True).values_list("kind", flat=True)
    assert set(kinds) == {HoldKind.LINK, HoldKind.FAULT}
    assert event.case is not None


# -- versions ----------------------------------------------------------------------------------------------------------


def admin() -> Act:
    return Act(factories.user("admin", SiteRole.ADMIN), "test", "we know better")


def with_rule(code: int, action: HealthAction) -> list[Rule]:
    kept = [rule for rule in DEFAULT.rules if (rule.kind, rule.code) != (FaultKind.XID, code)]
    return [*kept, Rule(FaultKind.XID, code, action)]


def put(site: str, *rules: Rule, **more: Any) -> HealthVersion:
    how = {"inspect_after": 2, "inspect_window_s": 3600} | more
    return health_policy.put_version(site=site, rules=rules, act=admin(), **how)


@pytest.fixture
def sites() -> tuple[Node, Node]:
    return factories.node("n1", cards=2, site="north"), factories.node("n2", cards=1, site="south")


def test_a_site_has_its_own_policy_and_the_others_that_of_every_site(sites: tuple[Node, Node]) -> None:
    assert [health_policy.in_force(node.site).number for node in sites] == [0, 0]
    every = put("", *with_rule(48, A.WATCH))
    own = put("north", *with_rule(48, A.RMA))
    assert [health_policy.in_force(node.site).number for node in sites] == [own.number, every.number]
    event = count(sites[0], 48, card())
    assert (event.action, event.version) == (A.RMA, own.number)
    assert event.hold is not None
    assert event.hold.rule == f"health/{own.number}"
    back = health_policy.withdraw(site="north", act=admin())
    assert back.withdrawn
    assert health_policy.in_force("north").number == every.number
    assert health_policy.numbered(own.number) is not None
    later = count(sites[0], 48, card())
    assert (later.action, later.version) == (A.WATCH, every.number)


def test_versions_and_rules_are_never_changed(sites: tuple[Node, Node]) -> None:
    put("", *with_rule(48, A.WATCH))
    for change in (
        lambda: HealthVersion.objects.update(reason="another"),
        lambda: HealthVersion.objects.update(inspect_after=9),
        lambda: HealthRule.objects.update(action=A.LOG),
    ):
        with pytest.raises(IntegrityError), transaction.atomic():
            change()


def test_two_changes_of_what_was_shown_are_not_both_made(sites: tuple[Node, Node]) -> None:
    put("", *with_rule(48, A.WATCH), shown=0)
    with pytest.raises(health_policy.Conflict):
        put("", *with_rule(48, A.RMA), shown=0)


@pytest.mark.parametrize(
    ("rules", "field", "code"),
    [
        ([Rule(FaultKind.ECC, 5, A.LOG)], "code", "not_an_xid"),
        ([Rule(FaultKind.XID, -1, A.LOG)], "code", "out_of_range"),
        ([Rule(FaultKind.XID, 200_000, A.LOG)], "code", "out_of_range"),
        ([Rule(FaultKind.XID, 1, A.RESET, A.LOG, 2, 60)], "then", "not_more"),
        ([Rule(FaultKind.XID, 1, A.RESET, A.RESET, 2, 60)], "then", "not_more"),
        ([Rule(FaultKind.XID, 1, A.RESET, A.RMA, 1, 60)], "repeats", "out_of_range"),
        ([Rule(FaultKind.XID, 1, A.RESET, A.RMA, 2, 59)], "window_s", "out_of_range"),
        ([Rule(FaultKind.XID, 1, A.RESET, None, 2, 60)], "then", "missing"),
        ([Rule(FaultKind.XID, 79, A.LOG)], "rules", "twice"),
        ([Rule(FaultKind.XID, 1, A.LOG, note="x" * 201)], "note", "too_long"),
    ],
)
def test_what_a_version_may_not_say(node: Node, rules: list[Rule], field: str, code: str) -> None:
    with pytest.raises(health_policy.Refused) as refused:
        put("", *DEFAULT.rules, *rules)
    assert (refused.value.field, refused.value.code) == (field, code)


def test_a_fault_of_a_node_is_not_answered_on_a_card(node: Node) -> None:
    rules = [rule for rule in DEFAULT.rules if rule.kind is not FaultKind.STORAGE]
    with pytest.raises(health_policy.Refused) as refused:
        put("", *rules, Rule(FaultKind.STORAGE, None, A.RESET))
    assert refused.value.code == "of_a_card"
    with pytest.raises(health_policy.Refused) as refused:
        put("", *rules)
    assert refused.value.code == "missing"


def test_only_site_admins_change_it(node: Node) -> None:
    act = Act(factories.user("operator", SiteRole.OPERATOR), "test", "why not")
    with pytest.raises(health_policy.Forbidden):
        health_policy.put_version(site="", rules=DEFAULT.rules, inspect_after=2, inspect_window_s=60, act=act)
    with pytest.raises(health_policy.Forbidden):
        health_policy.withdraw(site="", act=act)


def test_a_site_that_is_not_there_is_refused(node: Node) -> None:
    with pytest.raises(health_policy.Refused):
        put("nowhere", *DEFAULT.rules)


def test_what_says_the_same_is_no_version(node: Node) -> None:
    put("", *DEFAULT.rules)
    with pytest.raises(health_policy.Refused) as refused:
        put("", *reversed(DEFAULT.rules))
    assert refused.value.code == "no_change"


def test_open_faults_count_on_and_a_cleared_one_begins_anew(node: Node) -> None:
    for _ in range(3):
        count(node, 92, card())
    assert Fault.objects.get().count == 3
    assert HealthEvent.objects.filter(at__gt=database_now() - dt.timedelta(minutes=1)).count() == 3
