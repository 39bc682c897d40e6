"""dcgm-exporter: its text becomes the same report as an agent's, read over real HTTP."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db.models import F
from prometheus_client.samples import Sample

from ledger import telemetry
from ledger.clock import database_now
from ledger.models import CardSeat, CardStatus, Fault, FaultEvent, Node, NodeBoot, NodeReport, QualityCount
from ledger.vocabulary import FaultKind, QualityKind
from scheduler import dcgm, scraping
from scheduler.scrape_rows import NodeScrape
from tests import factories
from tests.scheduler.exporter import Exporter, exporter

DATA = Path(__file__).parents[1] / "data" / "dcgm"
A, B = (f"GPU-{letter}000000-0000-0000-0000-000000000000" for letter in ("aa", "bb"))
AT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def text(name: str) -> str:
    return (DATA / f"{name}.prom").read_text(encoding="utf-8")


def cards(name: str) -> list[dict[str, Any]]:
    return dcgm.cards_of(scraping.samples_of(text(name)))


# -- its text ----------------------------------------------------------------------------------------------------------


def test_whole_cards() -> None:
    busy, idle = cards("whole")
    assert busy == {
        "uuid": A, "slot": 0, "model": "NVIDIA A100-SXM4-80GB", "memory_mib": 81_001, "memory_used_mib": 61_001,
        "temperature_c": 61, "utilisation_pct": 97, "tensor_pct": 43, "memory_busy_pct": 55, "power_mw": 312_745,
        "ecc": {"remapped_pending": False, "remapped_failure": False, "volatile_uncorrected": 0, "volatile_corrected": 5},
        "nvlink_errors": 7, "processes": None, "lost": False, "xid": 0,
    }  # fmt: skip
    assert (idle["uuid"], idle["slot"], idle["utilisation_pct"], idle["memory_busy_pct"]) == (B, 1, 0, 2)
    assert (idle["tensor_pct"], idle["nvlink_errors"], idle["ecc"]) == (None, None, {})


def test_of_a_card_that_is_cut_into_instances_no_activity_is_known() -> None:
    (card,) = cards("mig")
    assert (card["temperature_c"], card["memory_used_mib"], card["memory_mib"]) == (44, 30_019, 80_384)
    assert (card["utilisation_pct"], card["tensor_pct"], card["memory_busy_pct"]) == (None, None, None)


def test_blank_values_are_unknown() -> None:
    (card,) = cards("blank")
    known = {name: value for name, value in card.items() if value not in (None, {}, False)}
    assert known == {"uuid": A, "model": "NVIDIA A100-SXM4-80GB"} | ({"slot": 0} if card["slot"] else {})


@pytest.mark.parametrize(
    ("number", "value"),
    [
        (0.0, 0.0), (2_147_483_631.0, 2_147_483_631.0), (2_147_483_632.0, None), (9.223372036854776e18, None),
        (140_737_488_355_328.0, None), (-1.0, None), (float("nan"), None), (float("inf"), None),
    ],
)  # fmt: skip
def test_what_is_a_value(number: float, value: float | None) -> None:
    assert dcgm.value_of(number) == value


def test_labels_may_be_missing_or_nonsense() -> None:
    samples = [
        Sample("DCGM_FI_DEV_GPU_TEMP", {"UUID": "x", "gpu": "①"}, 40.0),
        Sample("DCGM_FI_DEV_GPU_TEMP", {}, 41.0),
        Sample("DCGM_FI_DEV_GPU_TEMP", {"UUID": "y" * 200}, 42.0),
    ]
    (card,) = dcgm.cards_of(samples)
    assert (card["uuid"], card["slot"], card["model"], card["temperature_c"]) == ("x", 0, "unknown", 40)


# -- what changed ------------------------------------------------------------------------------------------------------


def card(**values: Any) -> dict[str, Any]:
    ecc = {"volatile_uncorrected": values.get("dbe"), "volatile_corrected": values.get("sbe")}
    return {"uuid": A, "xid": values.get("xid"), "nvlink_errors": values.get("nvlink"), "ecc": ecc}


@pytest.mark.parametrize(
    ("looks", "events"),
    [
        ([{"xid": 0}, {"xid": 79}, {"xid": 79}], [("xid", 79)]),
        ([{"xid": 79}], [("xid", 79)]),  # before the portal looked for the first time
        ([{"xid": 79}, {"xid": 13}, {"xid": 79}], [("xid", 79), ("xid", 13), ("xid", 79)]),
        ([{"xid": 79}, {"xid": 0}, {"xid": 79}], [("xid", 79), ("xid", 79)]),
        ([{"xid": 79}, {"xid": None}, {"xid": 79}], [("xid", 79)]),
        ([{"dbe": 0}, {"dbe": 2}, {"dbe": 2}, {"dbe": 3}], [("ecc", None), ("ecc", None)]),
        ([{"dbe": 1}], [("ecc", None)]),
        ([{"dbe": 2}, {"dbe": 0}, {"dbe": 1}], [("ecc", None), ("ecc", None)]),  # reset, and one more
        ([{"sbe": 9}, {"sbe": 9}, {"sbe": 10}], [("correctable", None)]),
        ([{"nvlink": 9}, {"nvlink": 12}], [("nvlink", None)]),
        ([{"nvlink": 9}, {"nvlink": 0}], []),
    ],
)
def test_a_change_is_one_event(looks: list[dict[str, Any]], events: list[tuple[str, int | None]]) -> None:
    found: list[dict[str, Any]] = []
    seen: dcgm.Seen = {}
    for look in looks:
        told, after = dcgm.events_of([card(**look)], seen, AT)
        again, _ = dcgm.events_of([card(**look)], seen, AT)
        assert [event["id"] for event in again] == [event["id"] for event in told]
        found, seen = found + told, after
    assert [(event["kind"], event["code"]) for event in found] == events
    assert len({event["id"] for event in found}) == len(found)


# -- passes over real HTTP ---------------------------------------------------------------------------------------------


@pytest.fixture
def served(settings: Any) -> Iterator[Exporter]:
    with exporter(text("whole").encode()) as found:
        settings.OUTBOUND_ALLOW = [found.place()]
        yield found


@pytest.fixture
def node(db: None, served: Exporter) -> Node:
    made = factories.node("n1", cards=2, simulated=False, driver="local", memory_mib=81_001, dcgm_url=served.url())
    for uuid, seat in zip((A, B), CardSeat.objects.order_by("slot"), strict=True):
        seat.card.uuid = uuid
        seat.card.save()
    return made


def test_a_pass_stores_what_an_agent_would_have_told(node: Node, served: Exporter) -> None:
    assert dcgm.scrape_nodes() == {"read": 1, "failed": 0}
    status = CardStatus.objects.get(card__uuid=A)
    assert (status.temperature_c, status.utilisation_pct, status.tensor_pct, status.memory_used_mib) == (
        61,
        97,
        43,
        61_001,
    )
    assert (status.power_mw, status.memory_busy_pct, status.nvlink_errors, status.processes) == (312_745, 55, 7, None)
    assert not Fault.objects.exists()
    served.body = text("whole").replace('err_msg="No Error"} 0', 'err_msg="x"} 79', 1).encode()
    served.body = served.body.replace(b"ROW_REMAP_PENDING{", b"ROW_REMAP_PENDING{", 1)
    assert dcgm.scrape_nodes() == {"read": 1, "failed": 0}
    assert dcgm.scrape_nodes() == {"read": 1, "failed": 0}
    fault = Fault.objects.get()
    assert (fault.kind, fault.code, fault.count, fault.card is not None and fault.card.uuid) == ("xid", 79, 1, A)
    assert (NodeReport.objects.get().sequence, NodeBoot.objects.get().boot_id) == (3, "dcgm")
    assert not QualityCount.objects.exists()


def test_killed_between_report_and_memory_it_counts_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = text("whole").replace('err_msg="No Error"} 0', 'err_msg="x"} 79', 1)
    with monkeypatch.context() as patch:
        patch.setattr(NodeScrape.objects, "update_or_create", lambda **_values: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            dcgm.take(node, changed)
    assert FaultEvent.objects.count() == 1
    dcgm.take(node, changed)
    assert (FaultEvent.objects.count(), Fault.objects.get().count) == (1, 1)


def test_a_remap_that_is_pending_is_a_state(node: Node) -> None:
    mark = "DCGM_FI_DEV_ROW_REMAP_PENDING{"
    before, after = text("whole").split(mark)
    dcgm.take(node, before + mark + after.replace("} 0", "} 1", 1))
    assert Fault.objects.get().kind == FaultKind.REMAP_PENDING
    dcgm.take(node, text("whole"))
    assert Fault.objects.get().cleared_at is not None


def test_a_node_with_an_agent_is_not_asked(node: Node, served: Exporter) -> None:
    Node.objects.update(agent_digest="x" * 64)
    assert dcgm.scrape_nodes() == {"read": 0, "failed": 0}
    assert served.asked == 0


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"<html>no", 200, "no text of Prometheus"),
        (b"\xff\xfe\x00", 200, "no text of Prometheus"),
        (b"", 200, "it tells of no card"),
        (b"go_goroutines 12\n", 200, "it tells of no card"),
        (b"busy", 503, "answered 503: busy"),
        (b"", 302, "redirects are not followed"),
        (b"# x\n" * 1_100_000, 200, "answered more than"),
    ],
)
def test_what_can_not_be_read_is_counted_and_changes_nothing(
    node: Node, served: Exporter, body: bytes, status: int, said: str
) -> None:
    served.body, served.status = body, status
    for _ in range(2):
        assert dcgm.scrape_nodes() == {"read": 0, "failed": 1}
        assert dcgm.scrape_nodes() == {"read": 0, "failed": 0}  # it waits before it is tried again
        NodeScrape.objects.update(tried_at=F("tried_at") - dt.timedelta(minutes=6))
    row = NodeScrape.objects.get()
    assert said in row.error
    assert (row.failures, row.failed, row.ok_at) == (2, 2, None)
    assert QualityCount.objects.get(kind=QualityKind.SCRAPE_FAILED).count == 2
    assert not CardStatus.objects.exists()
    served.body, served.status = text("whole").encode(), 200
    dcgm.scrape_nodes()
    row.refresh_from_db()
    assert (row.failures, row.failed, row.error, row.ok_at is not None) == (0, 2, "", True)


def test_loopback_is_refused_unless_it_is_allowed(node: Node, served: Exporter, settings: Any) -> None:
    settings.OUTBOUND_ALLOW = []
    assert dcgm.scrape_nodes() == {"read": 0, "failed": 1}
    assert served.asked == 0


def test_one_that_does_not_answer_holds_up_no_other(node: Node, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scraping, "TIMEOUT_S", 0.5)
    with exporter() as slow:
        slow.delay_s = 3
        settings.OUTBOUND_ALLOW = [*settings.OUTBOUND_ALLOW, slow.place()]
        factories.node("n0", cards=1, simulated=False, driver="local", dcgm_url=slow.url())
        began = time.monotonic()
        assert dcgm.scrape_nodes() == {"read": 1, "failed": 1}
        assert time.monotonic() - began < 2.5


@pytest.mark.parametrize(
    ("failures", "after_s", "due"),
    [(0, 0, True), (1, 9, False), (1, 10, True), (3, 39, False), (3, 40, True), (99, 299, False), (99, 300, True)],
)
def test_what_has_failed_waits_longer_each_time(failures: int, after_s: int, due: bool) -> None:
    row = NodeScrape(tried_at=AT, failures=failures)
    assert scraping.is_due(row, AT + dt.timedelta(seconds=after_s)) is due
    assert scraping.is_due(None, AT)


def test_what_was_not_reached_in_a_pass_is_left_for_the_next(served: Exporter) -> None:
    served.delay_s = 5
    assert list(scraping.fetch_all({1: served.url()}, within_s=0.3)) == []


def test_values_that_no_card_can_have_are_set_aside(node: Node) -> None:
    dcgm.take(node, text("whole").replace("} 61\n", "} 300\n", 1))
    assert QualityCount.objects.get().kind == QualityKind.IMPOSSIBLE
    assert list(CardStatus.objects.values_list("card__uuid", flat=True)) == [B]


def test_a_report_of_an_agent_later_wins(node: Node) -> None:
    dcgm.take(node, text("whole"))
    report = {
        "hostname": "n1", "boot_id": "real", "sequence": 1, "sent_at": database_now(), "virtual": False, "node": {},
        "links": [], "faults": [], "cards": [{"uuid": A, "slot": 0, "memory_mib": 81_001, "temperature_c": 50}],
    }  # fmt: skip
    assert telemetry.ingest(node, report).accepted
    assert CardStatus.objects.get(card__uuid=A).temperature_c == 50
