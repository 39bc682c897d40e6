"""/healthz (the process answers), /readyz (it can do its work) and /metrics (Prometheus text, bounded label sets).

The first two are open. Metrics are for programs of this machine, METRICS_TOKEN, and operators, auditors and admins.
"""

from __future__ import annotations

import hmac
from typing import Final

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from redis.backoff import NoBackoff
from redis.retry import Retry

from ledger.models import Card, Fault, Hold, Job, Node, User
from ledger.people import user_of_token
from ledger.vocabulary import JobState, NodeState, SiteRole
from portal.api import health_gauges
from portal.api.throttles import take
from portal.origin import counted_address, is_local
from scheduler.models import Command, Drift, TaskRun

MAY_READ_METRICS: Final = (SiteRole.OPERATOR, SiteRole.AUDITOR, SiteRole.ADMIN)
_migrated = False


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ok\n", content_type="text/plain")


@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """200 when the database is there and migrated; a broker that is away is told, but it is only the doorbell."""
    checks = {"database": _database(), "broker": _broker()}
    ready = checks["database"] == "ok"
    return JsonResponse({"ready": ready, "checks": checks}, status=200 if ready else 503)


def _database() -> str:
    global _migrated
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        if not _migrated:
            executor = MigrationExecutor(connection)
            if executor.migration_plan(executor.loader.graph.leaf_nodes()):
                return "migrations are missing"
            _migrated = True
    except DatabaseError:
        return "not reachable"
    return "ok"


def _broker() -> str:
    try:
        once = Retry(NoBackoff(), 0)
        redis.Redis.from_url(settings.REDIS_URL, socket_timeout=1, socket_connect_timeout=1, retry=once).ping()
    except redis.RedisError:
        return "not reachable; work goes on by the sweep"
    return "ok"


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    refusal = _refusal(request)
    if refusal is not None:
        return refusal
    return HttpResponse(generate_latest(_measured()), content_type=CONTENT_TYPE_LATEST)


def _refusal(request: HttpRequest) -> HttpResponse | None:
    """None for those who may read. A scraper sends `Authorization: Bearer …`."""
    scheme, _space, secret = request.headers.get("Authorization", "").partition(" ")
    if not secret and is_local(request):
        return None
    user: User | None = request.user if isinstance(request.user, User) else None
    if scheme.lower() == "bearer":
        if settings.METRICS_TOKEN and hmac.compare_digest(secret.encode(), settings.METRICS_TOKEN.encode()):
            return None
        token = user_of_token(secret)
        user = token.user if token else None
    if user is None:
        seconds = take("stranger", f"address:{counted_address(request)}")
        return _closed("Send METRICS_TOKEN or the token of an operator.", 429 if seconds else 401, seconds)
    return None if user.site_role in MAY_READ_METRICS else _closed("Operators, auditors and admins alone.", 403, 0)


def _closed(why: str, status: int, seconds: int) -> HttpResponse:
    response = HttpResponse(f"{why}\n", status=status, content_type="text/plain")
    if status == 401:
        response["WWW-Authenticate"] = "Bearer"
    if seconds:
        response["Retry-After"] = str(seconds)
    return response


def _measured() -> CollectorRegistry:
    registry = CollectorRegistry()
    jobs = Gauge("gpu_commons_jobs", "Live jobs by state", ["state", "simulated"], registry=registry)
    for state in (JobState.QUEUED, JobState.STARTING, JobState.RUNNING, JobState.STOPPING):
        for simulated in (True, False):
            jobs.labels(state, str(simulated).lower()).set(Job.objects.filter(state=state, simulated=simulated).count())
    nodes = Gauge("gpu_commons_nodes", "Nodes by state", ["state", "simulated"], registry=registry)
    for node_state in NodeState:
        for simulated in (True, False):
            nodes.labels(node_state, str(simulated).lower()).set(
                Node.objects.filter(state=node_state, simulated=simulated).count()
            )
    single = {
        "gpu_commons_cards": ("Registered cards", Card.objects.count()),
        "gpu_commons_holds": ("Cards and nodes held now", Hold.objects.filter(period__upper_inf=True).count()),
        "gpu_commons_faults_open": ("Open faults", Fault.objects.filter(cleared_at=None).count()),
        "gpu_commons_drift_open": ("Open mismatches", Drift.objects.filter(resolved_at=None).count()),
        "gpu_commons_commands_pending": ("Commands waiting", Command.objects.filter(state="pending").count()),
    }
    for name, (text, value) in single.items():
        Gauge(name, text, registry=registry).set(value)
    tasks = Gauge("gpu_commons_task_last_run_seconds", "Unix time of a task's last end", ["task"], registry=registry)
    for run in TaskRun.objects.exclude(ended_at=None):
        if run.ended_at is not None:
            tasks.labels(run.name).set(run.ended_at.timestamp())
    broken = Gauge("gpu_commons_invariants_broken", "Invariants broken at the last proof", registry=registry)
    proof = TaskRun.objects.filter(name="ledger.check_books").first()
    broken.set(len(proof.result.get("broken", {})) if proof else 0)
    health_gauges.add(registry)
    return registry
