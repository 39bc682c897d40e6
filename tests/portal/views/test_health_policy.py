"""The pages of the health policy: what holds where, the change with its preview over real faults, versions put back, and
faults that people clear."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import pytest
from django.db import transaction
from django.test import Client

from ledger import faults, health_policy, inventory
from ledger.acts import Act
from ledger.clock import database_now
from ledger.health_defaults import DEFAULT
from ledger.health_rules import Rule
from ledger.models import AuditEvent, Card, Fault, HealthVersion, Node, User
from ledger.vocabulary import FaultKind, HealthAction
from portal import sudo
from tests import factories
from tests.portal.views.conftest import ClientAs

pytestmark = pytest.mark.django_db
PAGE, CHANGE, CONFIRM = "/health/policy/", "/health/policy/change/", "/health/policy/change/confirm/"
RULE = {"site": "", "kind": "xid", "code": "13", "action": "watch", "days": "30"}


@pytest.fixture
def node(people: dict[str, User]) -> Node:
    return factories.node("n1", cards=2, site="north")


def count(node: Node, code: int, times: int = 1) -> Fault:
    for _ in range(times):
        with transaction.atomic():
            inventory.lock_node(node.pk)
            card = Card.objects.get(uuid="n1-card-0")
            fault = faults.count_inside(
                node=node, card=card, kind=FaultKind.XID, code=code, now=database_now(), event_id=str(database_now())
            )
    assert fault is not None
    return fault


def text_of(response: Any) -> str:
    return re.sub(r"\s+", " ", response.content.decode())


def confirm(client: Client, shown: Any, **values: str) -> Any:
    change = str(shown.context["form"]["change"].value())
    return client.post(CONFIRM, {"change": change, "reason": "we know better"} | values)


def put(act: Act, site: str = "", *rules: Rule) -> HealthVersion:
    kept = [rule for rule in DEFAULT.rules if (rule.kind, rule.code) not in {(r.kind, r.code) for r in rules}]
    how = {"inspect_after": 2, "inspect_window_s": 3600, "act": act}
    return health_policy.put_version(site=site, rules=[*kept, *rules], **how)


def test_everybody_reads_the_table_that_holds(client_as: ClientAs, node: Node) -> None:
    page = text_of(client_as("outsider").get(PAGE))
    assert "the portal’s own table holds, version 0" in page
    assert "XID 79" in page
    assert "north" in page
    assert "New rule" not in page
    assert client_as("outsider").get(PAGE, {"site": "nowhere"}).status_code == 404


def test_preview_over_real_faults_then_a_version_and_the_way_back(client_as: ClientAs, node: Node) -> None:
    count(node, 13, 3)
    count(node, 31)
    client = client_as("admin")
    shown = client.post(CHANGE, RULE | {"action": "drain_now"})
    page = text_of(shown)
    assert "4 faults of the last 30 days were decided anew" in page
    assert "3 faults would be answered otherwise" in page
    sums = {str(label): (before, after) for label, before, after in shown.context["sums"]}
    assert sums["Cards held"] == (0, 1)
    assert not HealthVersion.objects.exists()
    made = confirm(client, shown)
    assert made["Location"] == PAGE
    version = HealthVersion.objects.get()
    assert (version.number, version.site, version.reason, version.by.username) == (1, "", "we know better", "admin")
    row = AuditEvent.objects.get(verb="health_policy.set")
    assert [one["rule"] for one in (row.after or {})["changed"]] == ["xid 13"]
    page = text_of(client.get(PAGE))
    assert "Version 1, by admin" in page
    assert "log; 3 different people within 1 d: drain softly → drain now" in page
    back = client.get("/health/policy/versions/0/put-back/")
    assert back.status_code == 200
    assert confirm(client, back).status_code == 302
    again = health_policy.in_force("")
    assert again.number == 2
    assert health_policy.same(again, DEFAULT)


def test_a_site_gets_its_own_and_gives_it_up(client_as: ClientAs, node: Node) -> None:
    client = client_as("admin")
    shown = client.post(CHANGE, RULE | {"site": "north"})
    assert "later changes for every site no longer reach it" in text_of(shown)
    assert confirm(client, shown)["Location"] == f"{PAGE}?site=north"
    assert health_policy.in_force("north").number == 1
    assert health_policy.in_force("").number == 0
    gone = client.get("/health/policy/versions/0/put-back/", {"site": "north", "withdraw": "yes"})
    assert confirm(client, gone).status_code == 302
    assert health_policy.in_force("north").number == 0
    assert "withdrawn" in text_of(client.get(PAGE))


def test_a_rule_is_taken_away_and_its_code_is_asked_about(client_as: ClientAs, node: Node) -> None:
    client = client_as("admin")
    shown = client.post(CHANGE, RULE | {"remove": "on"})
    assert "no rule: hold and ask" in text_of(shown)
    confirm(client, shown)
    assert ("xid", 13) not in health_policy.in_force("").by_code
    assert client.post(CHANGE, RULE | {"code": "7", "remove": "on"}).status_code == 422


def test_when_a_node_is_inspected_is_changed_too(client_as: ClientAs, node: Node) -> None:
    client = client_as("admin")
    assert client.get(CHANGE, {"what": "inspection"}).status_code == 200
    asked = {"what": "inspection", "site": "", "days": "90", "inspect_after": "3", "inspect_h": "24"}
    confirm(client, client.post(CHANGE, asked))
    found = health_policy.in_force("")
    assert (found.inspect_after, found.inspect_window_s) == (3, 86_400)
    assert found.rules == DEFAULT.rules


def test_the_form_starts_from_the_rule_that_holds(client_as: ClientAs, node: Node) -> None:
    form = client_as("admin").get(CHANGE, {"kind": "xid", "code": "64"}).context["form"]
    assert (form["action"].value(), form["then"].value(), form["repeats"].value()) == ("drain_now", "rma", 2)
    assert form["window_h"].value() == 720


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"kind": "ecc"}, "code"),
        ({"code": "-1"}, "code"),
        ({"code": "9999999"}, "code"),
        ({"action": "explode"}, "action"),
        ({"repeats": "2", "window_h": "1"}, "then"),
        ({"then": "log", "repeats": "2", "window_h": "1"}, "then"),
        ({"then": "rma"}, "repeats"),
        ({"then": "rma", "repeats": "2"}, "window_h"),
        ({"then": "rma", "repeats": "1", "window_h": "1"}, "repeats"),
        ({"site": "nowhere"}, "site"),
        ({"days": "31"}, "days"),
        ({"note": "x" * 201}, "note"),
    ],
)
def test_bad_input_is_refused_beside_its_field(
    client_as: ClientAs, node: Node, values: dict[str, str], field: str
) -> None:
    response = client_as("admin").post(CHANGE, RULE | values)
    assert response.status_code == 422
    assert field in response.context["form"].errors
    assert not HealthVersion.objects.exists()


def test_what_somebody_changed_meanwhile_is_not_overwritten(
    client_as: ClientAs, people: dict[str, User], node: Node
) -> None:
    client = client_as("admin")
    shown = client.post(CHANGE, RULE)
    put(Act(people["admin"], "test", "first"), "", Rule(FaultKind.XID, 48, HealthAction.WATCH))
    response = confirm(client, shown)
    assert response.status_code == 409
    assert "changed by somebody else" in text_of(response)
    assert HealthVersion.objects.count() == 1


def test_a_stale_or_foreign_preview_changes_nothing(client_as: ClientAs, node: Node) -> None:
    response = client_as("admin").post(CONFIRM, {"change": "nonsense", "reason": "x"})
    assert response.status_code == 422
    assert not HealthVersion.objects.exists()


def test_confirming_wants_a_fresh_password(client_as: ClientAs, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    client = client_as("admin")
    shown = client.post(CHANGE, RULE)
    monkeypatch.setattr(sudo, "is_fresh", lambda _request: False)
    assert confirm(client, shown).status_code == 403
    assert not HealthVersion.objects.exists()


def test_an_operator_clears_a_fault_with_a_reason(client_as: ClientAs, node: Node) -> None:
    fault = count(node, 13, 2)
    client = client_as("operator")
    assert f"/health/faults/{fault.pk}/" in text_of(client.get("/cards/n1-card-0/"))
    page = text_of(client.get(f"/health/faults/{fault.pk}/"))
    assert "XID 13" in page
    assert "version 0" in page
    assert client.post(f"/health/faults/{fault.pk}/", {"reason": " "}).status_code == 422
    assert client.post(f"/health/faults/{fault.pk}/", {"reason": "looked at"})["Location"] == "/cards/n1-card-0/"
    fault.refresh_from_db()
    assert fault.cleared_at is not None
    row = AuditEvent.objects.get(verb="fault.cleared")
    assert (row.reason, row.actor) == ("looked at", User.objects.get(username="operator"))
    again = client.post(f"/health/faults/{fault.pk}/", {"reason": "once more"})
    assert again.status_code == 422
    assert count(node, 13).pk != fault.pk


def test_a_state_ends_by_itself_and_is_not_cleared(client_as: ClientAs, node: Node) -> None:
    now = database_now()
    about = {"first_seen": now - dt.timedelta(hours=1), "last_seen": now}
    fault = Fault.objects.create(node=node, kind=FaultKind.THERMAL, **about)
    client = client_as("operator")
    assert "ends by itself" in text_of(client.get(f"/health/faults/{fault.pk}/"))
    assert client.post(f"/health/faults/{fault.pk}/", {"reason": "cool"}).status_code == 422
    fault.refresh_from_db()
    assert fault.cleared_at is None
