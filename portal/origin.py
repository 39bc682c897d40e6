"""Where a request comes from: its address behind the trusted proxies, and which browser it calls itself.

Headers are believed only as far as settings.PROXIES says that a proxy of ours wrote them. Decides nothing.
"""

from __future__ import annotations

import ipaddress
from typing import Final

from django.conf import settings
from django.http import HttpRequest
from django.utils.translation import gettext as _

LONGEST_BROWSER: Final = 200
FORWARDED: Final = ("X-Forwarded-For", "Forwarded", "X-Real-IP", "Via")
# The first sign that is found names it: many browsers also call themselves by the names further down.
BROWSERS: Final = (
    ("Edg/", "Edge"),
    ("OPR/", "Opera"),
    ("MicroMessenger/", "WeChat"),
    ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"),
    ("HeadlessChrome/", "Chrome"),
    ("Chrome/", "Chrome"),
    ("CriOS/", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
    ("python", "Python"),
)
SYSTEMS: Final = (
    ("Windows", "Windows"),
    ("Android", "Android"),
    ("HarmonyOS", "HarmonyOS"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)


def client_address(request: HttpRequest) -> str | None:
    """The address that the outermost trusted proxy saw; without proxies the other end of the connection."""
    if not settings.PROXIES:
        return _address(request.META.get("REMOTE_ADDR", ""))
    hops = [hop.strip() for hop in request.headers.get("X-Forwarded-For", "").split(",")]
    return _address(hops[-settings.PROXIES]) if len(hops) >= settings.PROXIES else None


def counted_address(request: HttpRequest) -> str | None:
    """What attempts are counted under: an IPv6 caller owns a whole /64, so its addresses count as one."""
    address = client_address(request)
    if address is None or ":" not in address:
        return address
    return str(ipaddress.IPv6Network((address, 64), strict=False).network_address)


def is_local(request: HttpRequest) -> bool:
    """A program on this machine that no proxy speaks for."""
    if any(name in request.headers for name in FORWARDED):
        return False
    address = _address(request.META.get("REMOTE_ADDR", ""))
    return not settings.PROXIES and address is not None and ipaddress.ip_address(address).is_loopback


def browser(request: HttpRequest) -> str:
    """The User-Agent header as it may be stored."""
    text = request.headers.get("User-Agent", "")[:LONGEST_BROWSER]
    return "".join(c for c in text if c.isprintable())


def browser_name(text: str) -> str:
    """“Firefox, Linux” for people; what is not known is shown as it calls itself."""
    name = next((name for sign, name in BROWSERS if sign in text), "")
    system = next((name for sign, name in SYSTEMS if sign in text), "")
    return ", ".join(part for part in (name, system) if part) or text[:40] or _("unknown")


def _address(text: str) -> str | None:
    """A well-formed IP address without its zone, or None (a Unix socket has none). IPv4 in IPv6 is told as IPv4."""
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(found, "ipv4_mapped", None)
    return str(mapped or found)
