"""What lets people and nodes in: tokens (stored as digests), sessions and passwords. Each writer leaves an audit row.

Who may do it is decided by the caller: people do these things to what is their own.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import secrets
from enum import StrEnum
from typing import Any, Final

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from ledger import audit
from ledger.clock import database_now
from ledger.errors import Refused
from ledger.models import ApiToken, Node, User, UserSession

NOTED_EVERY: Final = dt.timedelta(minutes=1)  # so often is the use of a token written, at most
MOST_TOKENS: Final = 50  # live ones of one person
MOST_CLEANED: Final = 500  # ended sessions that one sign-in takes away
SHOWN_OF_A_DIGEST: Final = 12


class TokenState(StrEnum):
    LIVE = "live"
    EXPIRED = "expired"
    REVOKED = "revoked"


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def create_token(*, user: User, label: str, days: int | None, actor: User | None, via: str, reason: str = "") -> str:
    """A new API token of `user`; the secret is returned once and never stored."""
    with transaction.atomic(durable=True):
        return _insert_token(user, label, days, {"actor": actor, "via": via, "reason": reason})


def create_own_token(*, user: User, label: str, days: int, via: str, request_id: str = "") -> str:
    """As create_token, by the person. Live labels differ, so that a form sent twice makes one token."""
    with transaction.atomic(durable=True):
        User.objects.select_for_update().get(pk=user.pk)
        live = live_tokens(user, database_now())
        if live.filter(label=label).exists():
            message = _("You have a live token with this label. Choose another label, or revoke that token first.")
            raise Refused(message, field="label", code="taken")
        if live.count() >= MOST_TOKENS:
            message = _("You have %(n)d live tokens, the most there may be. Revoke one that you no longer need.")
            raise Refused(message % {"n": MOST_TOKENS}, field="label", code="too_many")
        return _insert_token(user, label, days, {"actor": user, "via": via, "request_id": request_id})


def _insert_token(user: User, label: str, days: int | None, by: dict[str, Any]) -> str:
    secret, now = "gpc_" + secrets.token_urlsafe(32), database_now()
    token = ApiToken.objects.create(
        user=user,
        digest=digest_of(secret),
        label=label,
        created_at=now,
        expires_at=now + dt.timedelta(days=days) if days else None,
    )
    until = token.expires_at.isoformat() if token.expires_at else None
    after = {"user": user.username, "label": label, "expires_at": until}
    audit.record(verb="token.created", target=token, after=after, **by)
    return secret


def live_tokens(user: User, now: dt.datetime) -> QuerySet[ApiToken]:
    return ApiToken.objects.filter(Q(expires_at=None) | Q(expires_at__gt=now), user=user, revoked_at=None)


def token_state(token: ApiToken, now: dt.datetime) -> TokenState:
    if token.revoked_at is not None:
        return TokenState.REVOKED
    return TokenState.EXPIRED if token.expires_at is not None and token.expires_at <= now else TokenState.LIVE


def revoke_token(*, token: ApiToken, actor: User, via: str, request_id: str = "") -> bool:
    """It is refused from now on. False when it was revoked before."""
    with transaction.atomic(durable=True):
        changed = ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=database_now())
        if changed:
            after = {"user": token.user.username, "label": token.label}
            audit.record(actor=actor, via=via, verb="token.revoked", target=token, after=after, request_id=request_id)
    return bool(changed)


def user_of_token(secret: str) -> ApiToken | None:
    """The live token with this secret, of an active person. Notes the use at most once a minute."""
    now = database_now()
    token = (
        ApiToken.objects.select_related("user")
        .filter(digest=digest_of(secret), revoked_at=None, user__is_active=True)
        .filter(Q(expires_at=None) | Q(expires_at__gt=now))
        .first()
    )
    if token and (token.last_used_at is None or now - token.last_used_at > NOTED_EVERY):
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


def record_sign_in(*, user: User, digest: str, address: str | None, browser: str, request_id: str) -> None:
    """The audit row of a new session; some sessions that have ended go at the same time."""
    with transaction.atomic(durable=True):
        ended = UserSession.objects.filter(expire_date__lte=timezone.now()).select_for_update(skip_locked=True)
        UserSession.objects.filter(pk__in=[row.pk for row in ended.only("pk")[:MOST_CLEANED]]).delete()
        after = {"session": digest[:SHOWN_OF_A_DIGEST], "address": address, "browser": browser[:200]}
        audit.record(actor=user, via="page", verb="session.started", target=user, after=after, request_id=request_id)


def end_session(*, session: UserSession, actor: User, via: str, request_id: str = "") -> bool:
    """Whoever holds it is signed out at the next request. False when it had ended before."""
    with transaction.atomic(durable=True):
        count, _rows = UserSession.objects.filter(pk=session.pk).delete()
        if count:
            _record_end(actor, via, request_id, before=_told(session))
    return bool(count)


def end_other_sessions(*, user: User, kept: str, via: str, request_id: str = "") -> int:
    """All sessions of `user` but the one with the digest `kept`. Returns how many."""
    with transaction.atomic(durable=True):
        count, _rows = UserSession.objects.filter(user=user).exclude(pk=kept).delete()
        if count:
            _record_end(user, via, request_id, before={"others": count})
    return count


def change_password(*, user: User, password: str, via: str, request_id: str = "") -> None:
    """Store the new password and end every session of `user`; the caller opens a new one for who is there."""
    with transaction.atomic(durable=True):
        locked = User.objects.select_for_update().get(pk=user.pk)
        locked.set_password(password)
        locked.save(update_fields=["password"])
        count, _rows = UserSession.objects.filter(user=user).delete()
        audit.record(
            actor=user,
            via=via,
            verb="password.changed",
            target=user,
            after={"sessions_ended": count},
            request_id=request_id,
        )
    user.password = locked.password


def record_lock(*, username: str, address: str | None, failures: int, request_id: str) -> None:
    """Sign-in is closed for a while. A name that nobody has is not stored: it may be a password in the wrong field."""
    user = User.objects.filter(username=username).first()
    with transaction.atomic(durable=True):
        audit.record(
            actor=None,
            via="page",
            verb="signin.locked",
            target=user or User(pk=0),
            after={"user": user.username if user else None, "address": address, "failures": failures},
            request_id=request_id,
        )


def _record_end(actor: User, via: str, request_id: str, before: dict[str, Any]) -> None:
    audit.record(actor=actor, via=via, verb="session.ended", target=actor, before=before, request_id=request_id)


def _told(session: UserSession) -> dict[str, Any]:
    return {
        "session": session.pk[:SHOWN_OF_A_DIGEST],
        "started_at": session.started_at.isoformat(),
        "address": session.address,
        "browser": session.browser,
    }
