"""Tokens of people and nodes: made here, stored as digests."""

from __future__ import annotations

import datetime as dt
import hashlib
import secrets

from django.db import transaction
from django.db.models import Q

from ledger import audit
from ledger.clock import database_now
from ledger.models import ApiToken, Node, User


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def create_token(*, user: User, label: str, days: int | None, actor: User | None, via: str, reason: str = "") -> str:
    """A new API token of `user`; the secret is returned once and never stored."""
    secret = "gpc_" + secrets.token_urlsafe(32)
    with transaction.atomic(durable=True):
        now = database_now()
        token = ApiToken.objects.create(
            user=user,
            digest=digest_of(secret),
            label=label,
            created_at=now,
            expires_at=now + dt.timedelta(days=days) if days else None,
        )
        audit.record(
            actor=actor, via=via, verb="token.created", target=token, reason=reason, after={"user": user.username}
        )
    return secret


def user_of_token(secret: str) -> ApiToken | None:
    """The live token with this secret, of an active person. Notes the use at most once a minute."""
    now = database_now()
    token = (
        ApiToken.objects.select_related("user")
        .filter(digest=digest_of(secret), revoked_at=None, user__is_active=True)
        .filter(Q(expires_at=None) | Q(expires_at__gt=now))
        .first()
    )
    if token and (token.last_used_at is None or now - token.last_used_at > dt.timedelta(minutes=1)):
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
    return token


def create_node_token(*, node: Node, actor: User | None, via: str) -> str:
    secret = "gpn_" + secrets.token_urlsafe(32)
    with transaction.atomic(durable=True):
        Node.objects.filter(pk=node.pk).update(agent_digest=digest_of(secret))
        audit.record(actor=actor, via=via, verb="node.token.created", target=node)
    return secret


def node_of_token(secret: str) -> Node | None:
    return Node.objects.filter(agent_digest=digest_of(secret)).exclude(agent_digest="").first()
