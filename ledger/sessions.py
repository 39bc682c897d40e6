"""The session engine: Django's database sessions in ledger.models.UserSession, with whose they are beside the data.

Only the digest of a session's key is stored. A session ends when its person is away for long (idle), some hours after
the sign-in (absolute), or when its row is deleted. Synchronous only, as the whole portal.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from typing import Any, Final

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore as DatabaseStore
from django.utils import timezone

from ledger.models import UserSession

STARTED, BROWSER, ADDRESS = "started", "browser", "address"  # in the session's data, copied into its row
NOTED_EVERY: Final = dt.timedelta(minutes=1)  # so often is `seen_at` written, at most
NOT_SIGNED_IN: Final = dt.timedelta(minutes=30)


def digest_of_key(session_key: str) -> str:
    return hashlib.sha256(session_key.encode()).hexdigest()


class SessionStore(DatabaseStore):
    seen_at: dt.datetime | None = None

    @classmethod
    def get_model_class(cls) -> type[UserSession]:
        return UserSession

    @property
    def digest(self) -> str:
        """The name of this session in lists and rows; "" when it is not stored."""
        return digest_of_key(self.session_key) if self.session_key else ""

    def _get_session_from_db(self) -> UserSession | None:
        row = UserSession.objects.filter(pk=self.digest, expire_date__gt=timezone.now()).first()
        if row is None:
            self._session_key = None  # a key that is not ours is never taken over
        else:
            self.seen_at = row.seen_at
        return row

    def exists(self, session_key: str | None = None) -> bool:
        return UserSession.objects.filter(pk=digest_of_key(session_key or "")).exists()

    def create_model_instance(self, data: dict[str, Any]) -> UserSession:
        key = self._get_or_create_session_key()  # type: ignore[attr-defined]
        now = timezone.now()
        if SESSION_KEY in data:
            data.setdefault(STARTED, int(now.timestamp()))
        self.seen_at = now
        return UserSession(
            session_key=digest_of_key(key),
            session_data=self.encode(data),
            expire_date=_end(data, now),
            user_id=int(data[SESSION_KEY]) if SESSION_KEY in data else None,
            started_at=_started(data, now),
            seen_at=now,
            browser=str(data.get(BROWSER, ""))[:200],
            address=data.get(ADDRESS),
        )

    def delete(self, session_key: str | None = None) -> None:
        key = session_key or self.session_key
        if key:
            UserSession.objects.filter(pk=digest_of_key(key)).delete()

    def note_use(self) -> None:
        """Its person is there. Two columns alone, at most once a minute: it can't undo what another request keeps."""
        now = timezone.now()
        if self.seen_at is not None and now - self.seen_at < NOTED_EVERY:
            return
        end = _end(dict(self.items()), now)
        UserSession.objects.filter(pk=self.digest).update(seen_at=now, expire_date=end)
        self.seen_at = now


def _started(data: dict[str, Any], now: dt.datetime) -> dt.datetime:
    return dt.datetime.fromtimestamp(data[STARTED], tz=dt.UTC) if STARTED in data else now


def _end(data: dict[str, Any], now: dt.datetime) -> dt.datetime:
    """The earlier one of the idle and the absolute limit."""
    if SESSION_KEY not in data:
        return now + NOT_SIGNED_IN
    idle = now + dt.timedelta(minutes=settings.SESSION_IDLE_MINUTES)
    return min(idle, _started(data, now) + dt.timedelta(seconds=settings.SESSION_COOKIE_AGE))
