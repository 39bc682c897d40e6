"""Celery tasks: one call each, short, safe to run twice. Their last runs are kept in TaskRun."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from celery import shared_task
from django.conf import settings
from django.db import InterfaceError, OperationalError, close_old_connections
from django.db.models import F

from ledger import audit, invariants, job_metrics, letters, odd_grants, quarters, requests, samples
from ledger.clock import database_now
from scheduler import (
    alert_sending,
    alert_trim,
    alerting,
    commands,
    draining,
    drills,
    health,
    observing,
    placing,
    reclaim,
    reconcile,
    scraping,
    service,
    snapshot,
    telling,
    watch,
    workload,
    zones,
)
from scheduler.models import TaskRun
from scheduler.placing import single_flight
from scheduler.wake import answered

log = logging.getLogger(__name__)
OBSERVE_LOCK, INVENTORY_LOCK, RECONCILE_LOCK, ZONES_LOCK = 7_130_003, 7_130_004, 7_130_005, 7_130_006
LEARN_LOCK, RECLAIM_LOCK = 7_130_007, 7_130_008
DRAIN_LOCK, HEALTH_LOCK = 7_130_011, 7_130_023
SERVICE_LOCK, DRILLS_LOCK = 7_130_021, 7_130_022
WATCH_LOCK, SCRAPE_LOCK = 7_130_040, 7_130_041
ALERTS_LOCK, SEND_ALERTS_LOCK = 7_130_031, 7_130_032


def recorded(name: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Run `work` and note start, end and result. A database that is away is not an error of the task: the next one
    looks again."""
    answered(name)
    close_old_connections()
    try:
        TaskRun.objects.update_or_create(
            name=name,
            defaults={"started_at": database_now()},
            create_defaults={"started_at": database_now(), "runs": 0},
        )
        result = work()
        TaskRun.objects.filter(name=name).update(ended_at=database_now(), ok=True, result=result, runs=F("runs") + 1)
    except (OperationalError, InterfaceError) as error:
        log.warning("%s: the database is away (%s); the next run looks again", name, str(error).splitlines()[0])
        close_old_connections()
        return {"error": "database away"}
    except Exception:
        TaskRun.objects.filter(name=name).update(
            ended_at=database_now(), ok=False, runs=F("runs") + 1, failures=F("failures") + 1
        )
        raise
    return result


def _alone(lock: int, work: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    def run() -> dict[str, Any]:
        with single_flight(lock) as mine:
            return work() if mine else {"skipped": "another worker is at it"}

    return run


@shared_task(name="scheduler.tick")
def tick() -> dict[str, Any]:
    return recorded("scheduler.tick", placing.place_queued)


@shared_task(name="scheduler.run_commands")
def run_commands() -> dict[str, Any]:
    return recorded("scheduler.run_commands", lambda: dict(commands.run_due()))


@shared_task(name="scheduler.observe")
def observe() -> dict[str, Any]:
    return recorded("scheduler.observe", _alone(OBSERVE_LOCK, lambda: dict(observing.observe_all())))


@shared_task(name="scheduler.sync_inventory")
def sync_inventory() -> dict[str, Any]:
    return recorded("scheduler.sync_inventory", _alone(INVENTORY_LOCK, reconcile.sync_inventory))


@shared_task(name="scheduler.reconcile")
def reconcile_all() -> dict[str, Any]:
    return recorded("scheduler.reconcile", _alone(RECONCILE_LOCK, reconcile.reconcile))


@shared_task(name="scheduler.drain_quota")
def drain_quota() -> dict[str, Any]:
    return recorded("scheduler.drain_quota", _alone(DRAIN_LOCK, draining.drain_all))


@shared_task(name="scheduler.service")
def bring_back() -> dict[str, Any]:
    return recorded("scheduler.service", _alone(SERVICE_LOCK, service.advance_all))


@shared_task(name="scheduler.drills")
def run_drills() -> dict[str, Any]:
    return recorded("scheduler.drills", _alone(DRILLS_LOCK, drills.advance_all))


@shared_task(name="scheduler.health")
def follow_health() -> dict[str, Any]:
    return recorded("scheduler.health", _alone(HEALTH_LOCK, health.follow_all))


@shared_task(name="scheduler.zones")
def move_zones() -> dict[str, Any]:
    return recorded("scheduler.zones", _alone(ZONES_LOCK, zones.advance_all))


@shared_task(name="scheduler.reclaim")
def reclaim_all() -> dict[str, Any]:
    return recorded("scheduler.reclaim", _alone(RECLAIM_LOCK, reclaim.reclaim_all))


@shared_task(name="scheduler.tell")
def tell() -> dict[str, Any]:
    return recorded("scheduler.tell", _tell)


def _tell() -> dict[str, Any]:
    """What is to be told, then the outbox."""
    return {**odd_grants.tidy(), **letters.write_due(), **telling.tell_due()}


@shared_task(name="scheduler.alerts")
def find_alerts() -> dict[str, Any]:
    return recorded("scheduler.alerts", _alone(ALERTS_LOCK, alerting.evaluate))


@shared_task(name="scheduler.send_alerts")
def send_alerts() -> dict[str, Any]:
    return recorded("scheduler.send_alerts", _alone(SEND_ALERTS_LOCK, alert_sending.send_due))


@shared_task(name="scheduler.learn")
def learn() -> dict[str, Any]:
    return recorded("scheduler.learn", _alone(LEARN_LOCK, _learn))


def _learn() -> dict[str, Any]:
    return workload.learn(snapshot.fleet_of(snapshot.node_views()))


@shared_task(name="ledger.expire_requests")
def expire_requests() -> dict[str, Any]:
    return recorded("ledger.expire_requests", lambda: {"expired": requests.expire_requests()})


@shared_task(name="scheduler.watch_processes")
def watch_processes() -> dict[str, Any]:
    return recorded("scheduler.watch_processes", _alone(WATCH_LOCK, lambda: dict(watch.look())))


@shared_task(name="scheduler.scrape")
def scrape() -> dict[str, Any]:
    return recorded("scheduler.scrape", _alone(SCRAPE_LOCK, scraping.scrape_all))


@shared_task(name="ledger.trim_metrics")
def trim_metrics() -> dict[str, Any]:
    return recorded("ledger.trim_metrics", lambda: dict(job_metrics.trim()))


@shared_task(name="scheduler.trim_alerts")
def trim_alerts() -> dict[str, Any]:
    return recorded("scheduler.trim_alerts", lambda: dict(alert_trim.trim()))


@shared_task(name="ledger.copy_samples")
def copy_samples() -> dict[str, Any]:
    return recorded("ledger.copy_samples", lambda: dict(samples.copy_batches()))


@shared_task(name="ledger.sum_up_hours")
def sum_up_hours() -> dict[str, Any]:
    return recorded("ledger.sum_up_hours", lambda: dict(samples.sum_up_hours()))


@shared_task(name="ledger.drop_old_samples")
def drop_old_samples() -> dict[str, Any]:
    return recorded("ledger.drop_old_samples", lambda: dict(samples.drop_old()))


@shared_task(name="ledger.seal_audit")
def seal_audit() -> dict[str, Any]:
    return recorded("ledger.seal_audit", _seal)


def _seal() -> dict[str, Any]:
    sealed = audit.seal()
    if sealed:
        audit.write_anchor(settings.DATA_DIR / "audit-anchor.log")
    return {"sealed": sealed}


@shared_task(name="ledger.roll_up")
def roll_up() -> dict[str, Any]:
    return recorded("ledger.roll_up", lambda: {"quarters": quarters.roll_up()})


@shared_task(name="ledger.check_books")
def check_books() -> dict[str, Any]:
    return recorded("ledger.check_books", _check)


def _check() -> dict[str, Any]:
    findings = invariants.check()
    for finding in findings:
        log.error("broken invariant %s (%s): %s", finding.name, finding.meaning, finding.rows)
    return {"broken": {f.name: [[str(v) for v in row] for row in f.rows] for f in findings}}
