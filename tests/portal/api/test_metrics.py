"""/metrics and the rules over it, with Prometheus' own tools where they are; and the numbers themselves."""

from __future__ import annotations

import datetime as dt
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from django.test import Client

from ledger.clock import database_now
from ledger.inventory import place_hold
from ledger.models import Card, Node
from ledger.vocabulary import HoldKind, QualityKind
from portal.views.alert_rules import FILE
from scheduler import alerting
from scheduler.alert_rows import AlertMessage
from tests import factories
from tests.scheduler.alert_world import faulty, machine, says

RULE_TESTS = Path(__file__).parents[2] / "data" / "prometheus" / "rules_test.yml"


def promtool(*arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    if shutil.which("promtool") is None:
        pytest.skip("there is no promtool here; Debian's package prometheus has it")
    return subprocess.run(["promtool", *arguments], input=given, capture_output=True, check=False, timeout=60)


def scraped() -> str:
    answer = Client(REMOTE_ADDR="127.0.0.1").get("/metrics")
    assert answer.status_code == 200
    return answer.content.decode()


def world() -> None:
    node = machine("n1", cards=3, in_zone=factories.zone("train"))
    for slot, value in enumerate((40, 50, 93)):
        says(node, slot, temperature_c=value)
    faulty(node, code=13, slot=1)
    place_hold(kind=HoldKind.DRILL, reason="x", actor=None, via="test", card=Card.objects.get(uuid="n1-card-0"))
    machine("s1", cards=2, simulated=True, in_zone=factories.zone("train"))
    alerting.evaluate()


@pytest.mark.django_db
def test_cards_by_health_real_and_simulated_apart() -> None:
    world()
    text = scraped()
    for line in (
        'gpu_commons_cards_by_health{health="held",simulated="false",zone="train"} 1.0',
        'gpu_commons_cards_by_health{health="ok",simulated="true",zone="train"} 2.0',
        'gpu_commons_cards_by_health{health="held",simulated="true",zone="train"} 0.0',
        'gpu_commons_alerts_firing{rule="taken-out",severity="warn",simulated="false"} 1.0',
        "gpu_commons_ingest_backlog 1.0",
    ):
        assert line in text.splitlines(), line


@pytest.mark.django_db
def test_a_card_that_is_only_kept_from_gangs_is_not_held() -> None:
    machine("n1", cards=2, in_zone=factories.zone("train"))
    place_hold(kind=HoldKind.LINK, reason="x", actor=None, via="test", card=Card.objects.get(uuid="n1-card-0"))
    assert 'gpu_commons_cards_by_health{health="held",simulated="false",zone="train"} 0.0' in scraped().splitlines()


@pytest.mark.django_db
@pytest.mark.parametrize("way", [{"agent_digest": "x"}, {"dcgm_url": "http://n1.lab.example:9400/metrics"}])
def test_the_age_of_telemetry_is_of_nodes_with_an_agent_or_an_exporter(way: dict[str, str]) -> None:
    node = machine("n1", cards=1)
    faulty(node, code=13)
    assert not [line for line in scraped().splitlines() if line.startswith("gpu_commons_telemetry_age_seconds{")]
    Node.objects.update(**way)
    assert 'gpu_commons_telemetry_age_seconds{stat="max"}' in scraped()


@pytest.mark.django_db
def test_messages_that_wait_for_the_end_of_a_window_are_not_stuck() -> None:
    now = database_now()
    values = {"channel": "mail", "event": "test", "severity": "event", "state": "pending", "created_at": now}
    message = AlertMessage.objects.create(due_at=now + dt.timedelta(minutes=4), **values)
    assert 'gpu_commons_alert_messages_pending{channel="mail"} 0.0' in scraped().splitlines()
    AlertMessage.objects.filter(pk=message.pk).update(tries=1)
    assert 'gpu_commons_alert_messages_pending{channel="mail"} 1.0' in scraped().splitlines()


@pytest.mark.django_db
def test_no_label_names_a_card_a_node_or_a_job() -> None:
    world()
    for name in ("n1", "s1", "n1-card-0"):
        assert f'"{name}"' not in scraped()


@pytest.mark.django_db
def test_each_kind_of_bad_telemetry_is_counted_from_zero() -> None:
    lines = scraped().splitlines()
    assert {f'gpu_commons_telemetry_quality{{kind="{kind}"}} 0.0' for kind in QualityKind} <= set(lines)


@pytest.mark.django_db
def test_promtool_finds_nothing_wrong_with_the_metrics() -> None:
    world()
    done = promtool("check", "metrics", given=scraped().encode())
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def test_promtool_accepts_the_rules() -> None:
    done = promtool("check", "rules", str(FILE))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_fire_when_they_should_and_not_else() -> None:
    done = promtool("test", "rules", str(RULE_TESTS))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.django_db
def test_every_metric_of_the_rules_is_on_the_page() -> None:
    world()
    named = set(re.findall(r"gpu_commons_[a-z_0-9]+", FILE.read_text()))
    told = set(re.findall(r"^# TYPE (gpu_commons_[a-z_0-9]+)", scraped(), re.MULTILINE))
    assert named <= told
