"""Agents' reports: who may send them, that old news never replaces newer, and that nonsense is refused or harmless."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from ledger.clock import database_now
from ledger.models import (
    AuditEvent,
    Card,
    CardSeat,
    CardStatus,
    Fault,
    FaultEvent,
    Hold,
    Node,
    NodeReport,
    QualityCount,
)
from ledger.vocabulary import HoldKind
from scheduler.reconcile import sync_inventory
from tests import factories
from tests.portal.api.client import Api, fields, is_problem, row_counts
from tests.portal.api.reports import agent_of, card, fault, now, report
from tests.portal.api.test_bad_input import (
    LANGUAGES,
    Tongues,
    attack,
    raw_value,
    shown,
    value_cases,
    with_value,
)

PATH = "agents/reports/"


@pytest.fixture
def n1(people: Any) -> Node:
    return factories.node("n1", cards=1, simulated=False, driver="local")


@pytest.fixture
def agent(n1: Node) -> Api:
    return agent_of(n1)


def temperature() -> int | None:
    return CardStatus.objects.get(card__uuid="n1-card-0").temperature_c


@pytest.mark.django_db
def test_a_report_becomes_the_latest_values(agent: Api, n1: Node) -> None:
    told = agent.post(
        PATH, report(cards=[card(temperature_c=41, ecc={"volatile_uncorrected": 0}, processes=[{"pid": 1}])])
    )
    assert told.status_code == 200
    assert told.json() == {"accepted": True, "faults": 0, "note": ""}
    status = CardStatus.objects.get(card__uuid="n1-card-0")
    assert (status.temperature_c, status.memory_used_mib, status.power_mw) == (41, 100, None)
    assert (status.ecc, status.processes, status.lost) == ({"volatile_uncorrected": 0}, [{"pid": 1}], False)
    assert Node.objects.get(pk=n1.pk).seen_at is not None


@pytest.mark.django_db
def test_fields_of_other_versions_are_tolerated_and_dropped(agent: Api) -> None:
    body = report(
        agent_version="9", cards=[card(mig={"enabled": True}, pci=None, serial="x", new={"a": [1]})], extra=[1]
    )
    assert agent.post(PATH, body).json()["accepted"] is True
    assert "new" not in NodeReport.objects.get().facts["cards"][0]


@pytest.mark.django_db
@pytest.mark.parametrize("scheme", ["Agent", "agent", "AGENT"])
def test_a_wrong_token_is_refused(n1: Node, scheme: str) -> None:
    before = row_counts()
    for secret in ("gpn_wrong", "", "x y", n1.agent_digest or "none", "é"):
        assert Api(secret, scheme).post(PATH, report()).status_code == 401
    assert row_counts() == before


@pytest.mark.django_db
def test_a_node_without_a_token_takes_no_reports(n1: Node) -> None:
    assert n1.agent_digest == ""
    assert Api("", "Agent").post(PATH, report()).status_code == 401


@pytest.mark.django_db
def test_a_new_token_ends_the_old_one(n1: Node) -> None:
    old = agent_of(n1)
    new = agent_of(n1)
    assert old.post(PATH, report()).status_code == 401
    assert new.post(PATH, report()).status_code == 200


@pytest.mark.django_db
@pytest.mark.parametrize("hostname", ["n2", "N1", "n1.", "unknown"])
def test_a_token_speaks_for_its_own_node_only(agent: Api, hostname: str) -> None:
    factories.node("n2", cards=1)
    before = row_counts()
    refused = agent.post(PATH, report(hostname=hostname))
    assert refused.status_code == 403
    assert is_problem(refused)
    assert row_counts() == before


@pytest.mark.django_db
def test_cards_of_another_node_are_left_out_and_named(agent: Api) -> None:
    factories.node("n2", cards=2)
    body = report(cards=[card(), card("n2-card-1", slot=1, temperature_c=99)])
    told = agent.post(PATH, body).json()
    assert (told["accepted"], told["refused_cards"]) == (True, ["n2-card-1"])
    assert not CardStatus.objects.filter(card__uuid="n2-card-1").exists()
    assert [c["uuid"] for c in NodeReport.objects.get().facts["cards"]] == ["n1-card-0"]
    sync_inventory()
    assert CardSeat.objects.get(card__uuid="n2-card-1", period__upper_inf=True).node.hostname == "n2"


@pytest.mark.django_db
def test_a_card_may_move_once_its_old_node_misses_it(agent: Api) -> None:
    factories.node("n2", cards=1)
    moved = Card.objects.get(uuid="n2-card-0")
    Hold.objects.create(card=moved, kind=HoldKind.LOST, period=(database_now(), None), reason="gone")
    told = agent.post(PATH, report(cards=[card(), card("n2-card-0", slot=1)])).json()
    assert "refused_cards" not in told


@pytest.mark.django_db
def test_a_fault_on_another_nodes_card_is_not_counted_on_that_card(agent: Api) -> None:
    factories.node("n2", cards=1)
    agent.post(PATH, report(faults=[fault(card_uuid="n2-card-0")]))
    assert not Fault.objects.filter(card__uuid="n2-card-0").exists()


@pytest.mark.django_db
def test_the_same_report_again_changes_nothing(agent: Api) -> None:
    body = report(faults=[fault()])
    assert agent.post(PATH, body).json() == {"accepted": True, "faults": 1, "note": ""}
    before = row_counts()
    again = agent.post(PATH, body).json()
    assert (again["accepted"], again["faults"]) == (False, 0)
    assert row_counts() == before
    assert Fault.objects.get().count == 1


@pytest.mark.django_db
def test_an_older_report_changes_no_value_and_its_faults_still_count(agent: Api) -> None:
    agent.post(PATH, report(sequence=5, cards=[card(temperature_c=50)]))
    late = agent.post(PATH, report(sequence=4, cards=[card(temperature_c=90)], faults=[fault()])).json()
    assert (late["accepted"], late["faults"]) == (False, 1)
    assert temperature() == 50
    assert NodeReport.objects.get().sequence == 5


@pytest.mark.django_db
def test_a_report_of_an_older_boot_changes_no_value(agent: Api) -> None:
    agent.post(PATH, report(boot_id="boot-1", sequence=100, cards=[card(temperature_c=50)]))
    older = report(boot_id="boot-1", sequence=101, cards=[card(temperature_c=90)])
    assert agent.post(PATH, report(boot_id="boot-2", sequence=1, cards=[card(temperature_c=30)])).json()["accepted"]
    assert temperature() == 30
    late = agent.post(PATH, older).json()
    assert late["accepted"] is False
    assert temperature() == 30


@pytest.mark.django_db
def test_a_clock_that_is_ahead_is_noted_and_not_believed(agent: Api) -> None:
    ahead = now(ahead_s=7200)
    told = agent.post(PATH, report(sent_at=ahead, faults=[fault(at=ahead)])).json()
    assert told["accepted"] is True
    assert "ahead" in told["note"]
    assert Fault.objects.filter(kind="clock").exists()
    assert FaultEvent.objects.get().at <= database_now()
    assert NodeReport.objects.get().received_at <= database_now()
    assert agent.post(PATH, report(sequence=2, cards=[card(temperature_c=55)])).json()["accepted"] is True
    assert temperature() == 55  # a right clock after a wrong one is not "older"


@pytest.mark.django_db
def test_a_clock_without_a_battery_does_not_silence_a_node(agent: Api) -> None:
    assert agent.post(PATH, report(sent_at="1970-01-01T00:01:00+00:00")).json()["accepted"] is True


@pytest.mark.django_db
def test_a_repeated_event_inside_one_report_counts_once(agent: Api) -> None:
    assert agent.post(PATH, report(faults=[fault(), fault(), fault(id="boot-1:2")])).json()["faults"] == 2
    assert Fault.objects.get().count == 2


@pytest.mark.django_db
def test_a_card_that_does_not_tell_stays_unknown_not_zero(agent: Api) -> None:
    blind = card(memory_mib=None, memory_used_mib=None, temperature_c=None, processes=None, ecc=None)
    assert agent.post(PATH, report(cards=[blind])).status_code == 200
    status = CardStatus.objects.get()
    assert (status.temperature_c, status.memory_used_mib, status.processes) == (None, None, None)


@pytest.mark.django_db
def test_no_bad_value_of_a_report_gets_through(n1: Node) -> None:
    secret = agent_of(n1).headers["Authorization"].split()[1]
    by_language = {language: Api(secret, "Agent", language) for language in LANGUAGES}
    good = report(faults=[fault()], links=[{"a": "x", "b": "y", "kind": "pcie", "gbps": 1}], virtual=False)
    wrong, tongues = [], Tongues()
    for group, where, value in value_cases("reports.json"):
        body = with_value(good, where, raw_value(value))
        named = None if value.get("document") else where
        found = attack(
            lambda language, body=body: by_language[language].raw(PATH, body), named, languages=tongues.of(group, where)
        )  # type: ignore[misc]
        if found:
            wrong.append(f"{group}: {where} = {shown(raw_value(value))}: {found}")
    assert wrong == []
    assert by_language["en"].post(PATH, good).status_code == 200


@pytest.mark.django_db
def test_a_hundred_thousand_cards_are_refused_quickly(agent: Api) -> None:
    body = report(cards=[])
    body["cards"] = [{}] * 100_000
    refused = agent.post(PATH, body)
    assert refused.status_code == 400
    assert fields(refused) == {"cards"}
    assert len(refused.content) < 2_000


@pytest.mark.django_db
def test_a_thousand_cards_are_taken(agent: Api) -> None:
    body = report(cards=[card(f"u{i}", slot=i) for i in range(1000)])
    assert agent.post(PATH, body).json()["accepted"] is True


@pytest.mark.django_db
def test_reports_write_no_audit_rows_and_open_no_card(agent: Api) -> None:
    events, cards = AuditEvent.objects.count(), Card.objects.count()
    agent.post(PATH, report(cards=[card(), card("GPU-new", slot=1)]))
    assert (AuditEvent.objects.count(), Card.objects.count()) == (events, cards)  # inventory sync does, on its own


@pytest.mark.django_db
def test_times_are_stored_as_instants(agent: Api) -> None:
    agent.post(PATH, report(sent_at="2026-01-31T08:00:00+08:00"))
    assert NodeReport.objects.get().sent_at == dt.datetime(2026, 1, 31, tzinfo=dt.UTC)


@pytest.mark.django_db
def test_an_impossible_reading_is_told_and_counted_and_hides_nothing_else(agent: Api) -> None:
    told = agent.post(PATH, report(cards=[card(temperature_c=300)], faults=[fault()])).json()
    assert told["set_aside"] == [{"card": "n1-card-0", "field": "temperature_c", "value": 300}]
    assert (told["accepted"], told["faults"]) == (True, 1)
    assert not CardStatus.objects.exists()
    row = QualityCount.objects.get()
    assert (row.kind, row.count, row.detail) == ("impossible", 1, "temperature_c = 300")


@pytest.mark.django_db
def test_what_is_refused_is_counted(agent: Api, n1: Node) -> None:
    agent.post(PATH, report(hostname="n2"))
    agent.post(PATH, report(cards=5))
    agent.raw(PATH, b'{"hostname": "n1", "cards": [{"uui')
    agent.raw(PATH, b'{"hostname": "' + b"x" * (10 << 20) + b'"}')
    Api("gpn_wrong", "Agent").post(PATH, report())
    counted = {(row.kind, row.node_id): row.count for row in QualityCount.objects.all()}
    assert counted == {
        ("wrong_node", n1.pk): 1, ("malformed", n1.pk): 2, ("too_large", n1.pk): 1, ("unknown_token", None): 1,
    }  # fmt: skip


@pytest.mark.django_db
def test_a_flood_is_refused_and_counted_once_a_minute(agent: Api, n1: Node, settings: Any) -> None:
    settings.RATE_FACTOR = 0.002  # two a minute
    answers = [agent.post(PATH, report(sequence=n)).status_code for n in range(8)]
    assert 429 in answers
    assert QualityCount.objects.get(kind="flood").count in (1, 2)  # two where the minute turned in between
