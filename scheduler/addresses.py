"""Which web addresses the portal may call on somebody's word. Names are judged by what they resolve to, each time anew.

Refused always: this machine, link-local, unspecified, multicast and reserved addresses, IPv6 forms that carry another
address inside, and where clouds keep their metadata; private ones where OUTBOUND_PRIVATE is off. OUTBOUND_ALLOW excepts
single hosts and ports, spelt as in the address. Lists: IANA special-purpose registries for IPv4 and IPv6, 2025.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

from django.conf import settings
from django.utils.translation import gettext as _

from ledger.errors import Refused

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
LONGEST_URL: Final = 2_000
PORTS: Final = {"http": 80, "https": 443}
LOWEST_FREE_PORT: Final = 1_024  # below it only 80 and 443: the others speak something else
# Databases, brokers and container engines: what answers there may obey lines of an HTTP request.
OTHER_PORTS: Final = frozenset({1433, 1521, 2375, 2376, 2379, 2380, 3306, 5432, 5672, 6379, 11211, 27017})
PRIVATE: Final = tuple(
    map(ipaddress.ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"))
)
METADATA: Final = tuple(
    map(
        ipaddress.ip_address,
        ("100.100.100.200", "168.63.129.16", "fd00:ec2::254", "fd20:ce::254"),
    )
)
CLOSED: Final = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",
            "240.0.0.0/4",
            "2001::/23",  # Teredo and other protocols' own
            "2001:db8::/32",
            "2002::/16",  # 6to4
            "3fff::/20",
        ),
    )
)
OPEN_V6: Final = (ipaddress.ip_network("2000::/3"), ipaddress.ip_network("fc00::/7"))  # all else is not for hosts


@dataclass(frozen=True, slots=True)
class Target:
    """A web address, taken apart. `host` is lower case and without brackets, `path` includes the query."""

    secure: bool
    host: str
    port: int
    path: str

    @property
    def place(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read(url: str, *, trusted: bool = False) -> Target:
    """Refused (field `url`) unless it is a plain web address that may be called. Resolves no name; an address that is
    written out is judged at once. `trusted`: it stands in the settings as it is."""
    parts = _split(url)
    port = _port(parts)
    host = (parts.hostname or "").rstrip(".")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    target = Target(parts.scheme == "https", host, port, path)
    if trusted or is_allowed(target):
        return target
    _check_port(port)
    _check_host(host)
    return target


def is_allowed(target: Target) -> bool:
    """Whether OUTBOUND_ALLOW names this very host and port."""
    return target.place in settings.OUTBOUND_ALLOW


def check(address: Address) -> None:
    """Refused (field `url`) for an address that is not to be called."""
    why = closed(address)
    if why:
        text = _("%(address)s may not be called: %(why)s. The site can allow a host and port in OUTBOUND_ALLOW.")
        raise _refused(text % {"address": address, "why": why}, "address")


def closed(address: Address) -> str:
    """Why it may not be called; "" when it may."""
    if address.is_loopback or address.is_unspecified:
        return _("it is this machine itself")
    if address in METADATA or address == ipaddress.ip_address("169.254.169.254"):
        return _("clouds keep the secrets of their machines there")
    if address.is_link_local:
        return _("it is link-local")
    if address.is_multicast:
        return _("it is multicast")
    if isinstance(address, ipaddress.IPv6Address) and not any(address in network for network in OPEN_V6):
        return _("it is reserved, or another address in disguise")
    if any(address in network for network in CLOSED if network.version == address.version):
        return _("it is reserved, or another address in disguise")
    private = any(address in network for network in PRIVATE if network.version == address.version)
    return _("it is private, and OUTBOUND_PRIVATE is off") if private and not settings.OUTBOUND_PRIVATE else ""


def _split(url: str) -> SplitResult:
    bad = _refused(_("Give a web address that begins with http:// or https://, such as https://host/path."), "invalid")
    if len(url) > LONGEST_URL or re.search(r"[^\x21-\x7e]|[\\<>\"`{}|^]", url):
        raise bad
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        raise bad from None
    if parts.scheme not in PORTS or not host:
        raise bad
    if "@" in parts.netloc:
        raise _refused(_("A web address here carries no user name and no password."), "credentials")
    return parts


def _port(parts: SplitResult) -> int:
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise _refused(_("A port is a whole number from 1 to 65535."), "port")
    return PORTS[parts.scheme] if port is None else port


def _check_port(port: int) -> None:
    if (port < LOWEST_FREE_PORT and port not in PORTS.values()) or port in OTHER_PORTS:
        text = _("Port %(port)d is not a web server’s: use 80, 443 or one from 1024 on that is no database’s.")
        raise _refused(text % {"port": port}, "port")


def _check_host(host: str) -> None:
    if "%" in host:
        raise _refused(_("An address with a zone (after “%%”) is link-local and may not be called.") % {}, "address")
    address = literal(host)
    if address is not None:
        check(address)
    elif ":" in host or re.fullmatch(r"[0-9]+|0x[0-9a-f]*", host.rpartition(".")[2]):
        raise _refused(_("Write an IP address in its usual form, such as 10.0.0.5."), "address")
    elif not re.fullmatch(r"(?!-)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*", host):
        raise _refused(_("“%(host)s” is not a host name.") % {"host": host[:80]}, "invalid")


def literal(host: str) -> Address | None:
    """The address that is written out; None for names and for odd spellings of numbers."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _refused(text: str, code: str) -> Refused:
    return Refused(text, field="url", code=code)
