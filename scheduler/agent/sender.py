"""Sending reports: one POST, the pause after a failure, and how many faults go into one report.

The token travels only to the address that was given (no redirect, no proxy) and never into a log. Keeps no fault:
what was not confirmed stays in the spool.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import random
import re
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from scheduler.agent.model import plain

logger = logging.getLogger(__name__)

REPORTS_PATH: Final = "/api/v1/agents/reports/"
MAX_FAULTS: Final = 500
MAX_ANSWER: Final = 1 << 20
CAP_S: Final = 30.0
TOKEN: Final = re.compile(r"[\x21-\x7e]{1,512}")
REFUSED_CONTENT: Final = frozenset((400, 413, 422))  # the body is at fault: fewer faults may pass
NO_ENTRY: Final = frozenset((401, 403))
TRY_AGAIN: Final = frozenset((408, 429))


class Unusable(Exception):
    """An address or a token that can't be used; the message names no secret."""


@dataclass(frozen=True, slots=True)
class Reply:
    """`status` None: no answer, so whether the portal has the report is unknown."""

    status: int | None
    detail: str = ""
    answer: Any = None  # the JSON of an accepted report; None where it is none

    @property
    def accepted(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def final(self) -> bool:
        """The portal understood and said no: its reason belongs in the log."""
        return self.status is not None and 400 <= self.status < 500 and self.status not in TRY_AGAIN


def report_url(url: str) -> str:
    """The address of the reports. Raises Unusable for anything but a plain http or https address."""
    try:
        parts = urllib.parse.urlsplit(url)
        _ = parts.port  # raises ValueError when it is no number
    except ValueError as error:
        raise Unusable("the address is not a URL") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Unusable("the address must start with http:// or https:// and name a host")
    if parts.username is not None or parts.query or parts.fragment:
        raise Unusable("the address must hold no user name, query or fragment")
    if not re.fullmatch(r"[\x21-\x7e]+", url):
        raise Unusable("the address holds a space or a character that is not ASCII")
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") + REPORTS_PATH, "", ""))


def read_token(path: Path) -> str:
    """Read anew for every report, so that a new token works without a restart. Raises Unusable."""
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not ASCII"
        raise Unusable(f"the token file {path} can't be read: {reason}") from None
    if not TOKEN.fullmatch(token):
        raise Unusable(f"the token file {path} holds no usable token")
    return token


class Portal:
    def __init__(self, url: str, token_file: Path, timeout_s: float = 10.0) -> None:
        self._url = report_url(url)
        self._token_file = token_file
        self._timeout_s = timeout_s
        # Only these two handlers: no redirects, no proxies, no other schemes, and every status comes back as a reply.
        self._opener = urllib.request.OpenerDirector()
        self._opener.add_handler(urllib.request.HTTPHandler())
        self._opener.add_handler(urllib.request.HTTPSHandler())
        self._warn_if_readable_by_others()

    def send(self, report: Mapping[str, Any]) -> Reply:
        """Never raises for anything the network or the portal does."""
        try:
            token = read_token(self._token_file)
        except Unusable as error:
            return Reply(None, str(error))
        request = urllib.request.Request(  # noqa: S310 - report_url lets only http and https pass
            self._url,
            data=json.dumps(report, allow_nan=False, separators=(",", ":")).encode(),
            method="POST",
            headers={"Authorization": f"Agent {token}", "Content-Type": "application/json"},
        )
        try:
            return self._exchange(request, token)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            return Reply(None, _without(token, f"{type(error).__name__}: {reason}"))

    def _exchange(self, request: urllib.request.Request, token: str) -> Reply:
        with self._opener.open(request, timeout=self._timeout_s) as response:
            reply = Reply(response.status)
            if reply.accepted:
                return Reply(response.status, answer=_json(response.read(MAX_ANSWER + 1)))
            body = response.read(2000).decode("utf-8", "replace")
            return Reply(response.status, _without(token, body))

    def _warn_if_readable_by_others(self) -> None:
        try:
            mode = os.stat(self._token_file).st_mode
        except OSError:
            return  # sending says what is wrong with it
        if mode & 0o077:
            logger.warning("token file %s can be read by other users: chmod 600 it", self._token_file)


def _json(body: bytes) -> Any:
    """A portal that says more than an answer can hold, or no JSON, took the report all the same."""
    try:
        return json.loads(body) if len(body) <= MAX_ANSWER else None
    except (ValueError, RecursionError):
        return None


def _without(token: str, text: str) -> str:
    return plain(text.replace(token, "***"))


class Backoff:
    """Seconds to wait after each failure: doubling from `base_s`, at most 30, and never the same for all agents."""

    def __init__(self, base_s: float, rng: random.Random) -> None:
        self._base_s = base_s
        self._rng = rng
        self._failures = 0

    def reset(self) -> None:
        self._failures = 0

    def after(self, reply: Reply) -> float:
        """A refused token will not get better by asking often."""
        whole = CAP_S if reply.status in NO_ENTRY else min(CAP_S, self._base_s * 2.0 ** min(self._failures, 16))
        self._failures += 1
        return whole * self._rng.uniform(0.5, 1.0)


class Batch:
    """How many of one thing go along, at most `most`. One that the portal can't take must block nothing else: refused
    content halves the batch down to that one, then to none, and each success grows it again."""

    def __init__(self, most: int = MAX_FAULTS) -> None:
        self._most = most
        self.size = most

    def accepted(self) -> None:
        self.size = min(self._most, max(1, self.size * 2))

    def refused(self, sent: int) -> bool:
        """Smaller from now on. True if the one that was sent alone is to blame."""
        self.size = min(self.size, sent) // 2
        return sent == 1
