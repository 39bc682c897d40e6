"""The doorbell: tells a Celery worker to look now. A lost ring costs seconds, never work; the sweep finds it."""

from __future__ import annotations

import logging

import redis
from celery import current_app
from django.conf import settings
from django.db import transaction
from kombu.exceptions import OperationalError

log = logging.getLogger(__name__)
PENDING_MS = 2_000  # a ring that nobody answered may be repeated after this time
_redis: redis.Redis | None = None


def _client() -> redis.Redis:
    global _redis
    if _redis is None:
        _redis = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=1, socket_connect_timeout=1)
    return _redis


def ring(task: str) -> None:
    """Send one message unless one is waiting already. Never raises because the broker is away."""
    try:
        if _client().set(f"gpu-commons:rung:{task}", 1, nx=True, px=PENDING_MS):
            current_app.send_task(task, retry=False, expires=30)
    except (redis.RedisError, OperationalError, OSError) as error:
        log.warning("the broker did not take %s (%s); the sweep will find the work", task, error)


def is_rung(task: str) -> bool:
    """Whether a message waits that nobody has answered. False when the broker is away."""
    try:
        return bool(_client().exists(f"gpu-commons:rung:{task}"))
    except redis.RedisError:
        return False


def answered(task: str) -> None:
    """The worker has begun: from now on new work needs a new ring."""
    try:
        _client().delete(f"gpu-commons:rung:{task}")
    except redis.RedisError:
        log.debug("the broker is away; rings expire by themselves")


def wake_after_commit(task: str) -> None:
    transaction.on_commit(lambda: ring(task))
