"""HTTP to addresses that people or settings name: the one way out. What may be called stands in scheduler.addresses.

A name is resolved once, and exactly what was judged is connected to; redirects and proxies are not followed; the answer
and the time for all of it are bounded.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from django.utils.translation import gettext as _

from scheduler import addresses
from scheduler.addresses import Address, Target

TIMEOUT_S: Final = 10.0
MOST_BYTES: Final = 64 * 1024
AGENT: Final = "GPU-Commons"


class OutboundFailed(Exception):
    """It was tried and did not work; `status` is what the other side answered, None when it did not."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Answer:
    """A 2xx answer."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
    *,
    most_bytes: int = MOST_BYTES,
    trusted: bool = False,
) -> Answer:
    """POST it. ledger.errors.Refused when the address may not be called, OutboundFailed for anything but a 2xx answer
    of at most `most_bytes` within `timeout_s`. `trusted`: the address stands in the settings as it is."""
    return _call("POST", url, body, headers or {}, timeout_s, most_bytes, trusted)


def get(
    url: str,
    timeout_s: float = TIMEOUT_S,
    most_bytes: int = MOST_BYTES,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """GET it; errors as for `post`."""
    return _call("GET", url, None, headers or {}, timeout_s, most_bytes, False)


def delete(url: str, headers: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S) -> Answer:
    """DELETE it; errors as for `post`."""
    return _call("DELETE", url, None, headers or {}, timeout_s, MOST_BYTES, False)


def _call(
    method: str,
    url: str,
    body: bytes | None,
    headers: Mapping[str, str],
    timeout_s: float,
    most_bytes: int,
    trusted: bool,
) -> Answer:
    target = addresses.read(url, trusted=trusted)
    deadline = time.monotonic() + timeout_s
    try:
        with _connected(target, deadline, trusted) as connection:
            connection.request(method, target.path, body, {"User-Agent": AGENT, "Connection": "close", **headers})
            answer = _answer(connection.getresponse(), most_bytes)
        if time.monotonic() >= deadline:  # a stream that was cut looks like one that ended
            raise TimeoutError
        return answer
    except (OSError, http.client.HTTPException) as error:
        if time.monotonic() >= deadline:
            raise OutboundFailed(_("no whole answer within %(s)g seconds") % {"s": timeout_s}) from error
        raise OutboundFailed(str(error) or type(error).__name__) from error


def _answer(response: http.client.HTTPResponse, most_bytes: int) -> Answer:
    if 300 <= response.status < 400:
        raise OutboundFailed(_("answered %(n)d: redirects are not followed") % {"n": response.status}, response.status)
    body = response.read(most_bytes + 1)
    if not 200 <= response.status < 300:
        said = body[:200].decode("utf-8", "replace").strip()
        text = _("answered %(n)d: %(said)s") % {"n": response.status, "said": said or response.reason}
        raise OutboundFailed(text, response.status)
    if len(body) > most_bytes:
        raise OutboundFailed(_("answered more than %(n)d bytes") % {"n": most_bytes}, response.status)
    if response.length:
        raise http.client.IncompleteRead(body, response.length)
    return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, body)


# -- connecting --------------------------------------------------------------------------------------------------------


@contextmanager
def _connected(target: Target, deadline: float, trusted: bool) -> Iterator[http.client.HTTPConnection]:
    """A connection to the very address that was judged, cut at the deadline wherever it is then."""
    plain = _connect(resolve(target, deadline, trusted=trusted), target.port, deadline)
    twin = plain.dup()  # wrapping in TLS takes the first one's handle away
    watch = threading.Timer(max(0.0, deadline - time.monotonic()), _cut, [twin])
    watch.daemon = True
    watch.start()
    try:
        connection = http.client.HTTPConnection(target.host, target.port)
        connection.default_port = 443 if target.secure else 80  # what the Host header leaves out
        connection.auto_open = 0  # never again by name
        connection.sock = _secured(plain, target.host) if target.secure else plain
        with connection.sock:
            yield connection
    finally:
        watch.cancel()
        twin.close()
        plain.close()


def resolve(target: Target, deadline: float, *, trusted: bool = False) -> list[Address]:
    """What its host stands for, each address judged. Refused when one of them may not be called."""
    known = addresses.literal(target.host)
    found = [known] if known is not None else _looked_up(target, deadline)
    if not trusted and not addresses.is_allowed(target):
        for address in found:
            addresses.check(address)
    return found


def _looked_up(target: Target, deadline: float) -> list[Address]:
    """The resolver has no time limit of its own, so it is asked in a thread."""
    answers: list[list[str] | OSError] = []

    def ask() -> None:
        try:
            found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
            answers.append(list(dict.fromkeys(str(place[4][0]) for place in found)))
        except (OSError, UnicodeError) as error:
            answers.append(error if isinstance(error, OSError) else OSError(str(error)))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(max(0.0, deadline - time.monotonic()))
    if not answers:
        raise TimeoutError
    if isinstance(answers[0], OSError):
        raise answers[0]
    found = [addresses.literal(text.partition("%")[0]) for text in answers[0]]
    return [address for address in found if address is not None]


def _connect(found: list[Address], port: int, deadline: float) -> socket.socket:
    last: OSError = OSError("the name stands for no address")
    for address in found:
        connected = socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET)
        try:
            connected.settimeout(max(0.01, deadline - time.monotonic()))
            connected.connect((str(address), port))
        except OSError as error:
            connected.close()
            last = error
        else:
            return connected
    raise last


def _secured(plain: socket.socket, host: str) -> socket.socket:
    return ssl.create_default_context().wrap_socket(plain, server_hostname=host)


def _cut(connected: socket.socket) -> None:
    """Whoever waits for the other side gets the end of the stream."""
    with suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)
