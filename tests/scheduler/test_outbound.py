"""Calls out: what may be called and what may not, on real sockets; nothing refused is ever connected to."""

from __future__ import annotations

import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.errors import Refused
from scheduler import addresses, outbound
from scheduler.outbound import OutboundFailed
from tests.scheduler.web import Server, reply, serving


@pytest.fixture
def web() -> Iterator[Server]:
    with serving() as found:
        yield found


@pytest.fixture
def allowed(web: Server, settings: Any) -> str:
    """The address of a server on this machine that the site has allowed."""
    settings.OUTBOUND_ALLOW = [f"127.0.0.1:{web.port}"]
    return f"http://127.0.0.1:{web.port}"


def names(monkeypatch: pytest.MonkeyPatch, *found: str) -> list[str]:
    """Every name stands for these addresses; returns what was looked up."""
    asked: list[str] = []

    def getaddrinfo(host: str, port: int, *_arguments: Any, **_values: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    monkeypatch.setattr(outbound.socket, "getaddrinfo", getaddrinfo)
    return asked


# -- what is read at once ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("", "invalid"),
        ("example.com/x", "invalid"),
        ("ftp://example.com/", "invalid"),
        ("file:///etc/passwd", "invalid"),
        ("gopher://example.com/", "invalid"),
        ("javascript:alert(1)", "invalid"),
        ("http://", "invalid"),
        ("http:///path", "invalid"),
        ("http://[::1", "invalid"),
        ("http://exa mple.com/", "invalid"),
        ("http://example.com/\r\nX: y", "invalid"),
        ("http://example.com/\tx", "invalid"),
        ("http://example.com\\@127.0.0.1/", "invalid"),
        ("http://１２７.0.0.1/", "invalid"),
        ("http://127。0。0。1/", "invalid"),
        ("http://bücher.example/", "invalid"),
        ("http://exa$mple.com/", "invalid"),
        ("http://-x.example/", "invalid"),
        ("http://a..b/", "invalid"),
        ("http://" + "a" * 64 + ".example/", "invalid"),
        ("http://example.com/" + "x" * 2_000, "invalid"),
        ("http://user@example.com/", "credentials"),
        ("http://user:word@example.com/", "credentials"),
        ("http://@example.com/", "credentials"),
        ("http://example.com:0/", "port"),
        ("http://example.com:65536/", "port"),
        ("http://example.com:x/", "port"),
        ("http://example.com:22/", "port"),
        ("http://example.com:25/", "port"),
        ("https://example.com:6379/", "port"),
        ("http://example.com:5432/", "port"),
    ],
)
def test_what_is_no_plain_web_address_is_refused(url: str, code: str) -> None:
    with pytest.raises(Refused) as refused:
        addresses.read(url)
    assert (refused.value.field, refused.value.code) == ("url", code)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.8.9.1",
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0X7F.1",
        "0177.0.0.1",
        "017700000001",
        "127.0.0.1.",
        "127.0.0.0x1",
        "0",
        "0.0.0.0",  # noqa: S104  it is not bound to
        "0.1.2.3",
        "169.254.169.254",
        "169.254.1.1",
        "2852039166",
        "0xA9FEA9FE",
        "0251.0376.0251.0376",
        "168.63.129.16",
        "100.100.100.200",
        "192.0.0.192",
        "192.0.2.7",
        "198.18.0.1",
        "198.51.100.1",
        "203.0.113.9",
        "224.0.0.1",
        "239.255.255.250",
        "240.0.0.1",
        "255.255.255.255",
        "[::1]",
        "[::]",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::ffff:10.0.0.1]",
        "[::ffff:8.8.8.8]",
        "[::127.0.0.1]",
        "[::7f00:1]",
        "[::ffff:0:127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[64:ff9b::a9fe:a9fe]",
        "[64:ff9b:1::7f00:1]",
        "[2002:7f00:1::]",
        "[2002:a9fe:a9fe::1]",
        "[2001:0:1::7f00:1]",
        "[2001:db8::1]",
        "[3fff::1]",
        "[100::1]",
        "[5f00::1]",
        "[fe80::1]",
        "[fe80::1%25eth0]",
        "[fe80::1%eth0]",
        "[fec0::1]",
        "[ff02::1]",
        "[fd00:ec2::254]",
        "[fd20:ce::254]",
    ],
)
def test_no_spelling_of_a_closed_address_is_called(host: str) -> None:
    with pytest.raises(Refused) as refused:
        addresses.read(f"http://{host}:9093/x")
    assert refused.value.code in ("address", "invalid")


@pytest.mark.parametrize("host", ["10.0.0.5", "172.16.9.9", "192.168.1.1", "100.64.0.1", "[fd12::5]"])
def test_private_addresses_are_a_company_s_own_unless_the_site_says_no(host: str, settings: Any) -> None:
    assert addresses.read(f"http://{host}/").path == "/"
    settings.OUTBOUND_PRIVATE = False
    with pytest.raises(Refused) as refused:
        addresses.read(f"http://{host}/")
    assert "OUTBOUND_PRIVATE" in str(refused.value)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://hooks.example", (False, "hooks.example", 80, "/")),
        ("https://HOOKS.example:8443/a?b=c#d", (True, "hooks.example", 8443, "/a?b=c")),
        ("http://8.8.8.8:9093/", (False, "8.8.8.8", 9093, "/")),
        ("https://[2606:4700::1111]/x", (True, "2606:4700::1111", 443, "/x")),
        ("http://node_1.rack-2:9400/metrics", (False, "node_1.rack-2", 9400, "/metrics")),
    ],
)
def test_plain_web_addresses_are_read(url: str, expected: tuple[Any, ...]) -> None:
    found = addresses.read(url)
    assert (found.secure, found.host, found.port, found.path) == expected


def test_the_site_allows_a_host_and_port_and_no_other(settings: Any) -> None:
    settings.OUTBOUND_ALLOW = ["127.0.0.1:9093", "[::1]:9093"]
    assert addresses.read("http://127.0.0.1:9093/api").host == "127.0.0.1"
    assert addresses.read("http://[::1]:9093/api").host == "::1"
    for other in ("127.0.0.1:9094", "127.0.0.2:9093", "2130706433:9093", "127.1:9093", "[::ffff:127.0.0.1]:9093"):
        with pytest.raises(Refused):
            addresses.read(f"http://{other}/api")


# -- what names stand for ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "found",
    [
        ["127.0.0.1"],
        ["::1"],
        ["8.8.8.8", "127.0.0.1"],
        ["169.254.169.254"],
        ["::ffff:127.0.0.1"],
        ["fe80::1%eth0"],
    ],
)
def test_a_name_that_stands_for_a_closed_address_is_not_called(
    web: Server, monkeypatch: pytest.MonkeyPatch, found: list[str]
) -> None:
    names(monkeypatch, *found)
    with pytest.raises(Refused) as refused:
        outbound.get(f"http://innocent.example:{web.port}/")
    assert refused.value.code == "address"
    assert web.got == []


def test_localhost_is_not_called(web: Server) -> None:
    with pytest.raises(Refused):
        outbound.get(f"http://localhost:{web.port}/")
    assert web.got == []


def test_a_name_is_resolved_once_and_that_very_address_is_connected_to(
    web: Server, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second answer (DNS rebinding) is never asked for."""
    asked = names(monkeypatch, "127.0.0.1")
    settings.OUTBOUND_ALLOW = [f"hooks.example:{web.port}"]
    assert outbound.get(f"http://hooks.example:{web.port}/x").status == 200
    assert asked == ["hooks.example"]
    assert f"Host: hooks.example:{web.port}".encode() in web.got[0]


def test_the_next_address_of_a_name_is_tried(web: Server, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, "127.9.9.9", "127.0.0.1")  # nothing listens at the first
    settings.OUTBOUND_ALLOW = [f"hooks.example:{web.port}"]
    assert outbound.get(f"http://hooks.example:{web.port}/").status == 200


def test_a_name_that_is_not_there_is_told() -> None:
    with pytest.raises(OutboundFailed):
        outbound.get("http://nothing.invalid/")


def test_a_resolver_that_hangs_costs_the_time_limit_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbound.socket, "getaddrinfo", lambda *_a, **_v: time.sleep(5))
    began = time.monotonic()
    with pytest.raises(OutboundFailed, match=r"0\.2 seconds"):
        outbound.get("http://slow.example/", timeout_s=0.2)
    assert time.monotonic() - began < 2


# -- answers -----------------------------------------------------------------------------------------------------------


def test_what_is_sent_and_what_comes_back(web: Server, allowed: str) -> None:
    web.answer = lambda _request: reply(201, b"made", "X-Kind: odd")
    answer = outbound.post(f"{allowed}/in?a=b", b"{}", {"Content-Type": "application/json"})
    assert (answer.status, answer.body, answer.headers["x-kind"]) == (201, b"made", "odd")
    head, _gap, body = web.got[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /in?a=b HTTP/1.1\r\n")
    assert (b"User-Agent: GPU-Commons" in head, body) == (True, b"{}")
    assert outbound.delete(f"{allowed}/in").status == 201
    assert web.got[1].startswith(b"DELETE /in ")


def test_ipv6_that_is_allowed_is_called(settings: Any) -> None:
    try:
        with serving(socket.AF_INET6, "::1") as web:
            settings.OUTBOUND_ALLOW = [f"[::1]:{web.port}"]
            assert outbound.get(f"http://[::1]:{web.port}/").status == 200
            assert f"Host: [::1]:{web.port}".encode() in web.got[0]
    except OSError as error:
        pytest.skip(f"this machine has no IPv6 loopback: {error}")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(web: Server, allowed: str, status: int) -> None:
    web.answer = lambda _request: reply(status, b"", f"Location: http://127.0.0.1:{web.port}/secret")
    with pytest.raises(OutboundFailed) as failed:
        outbound.get(f"{allowed}/")
    assert failed.value.status == status
    assert len(web.got) == 1


@pytest.mark.parametrize("status", [400, 404, 500, 503])
def test_any_other_answer_is_told_with_what_it_says(web: Server, allowed: str, status: int) -> None:
    web.answer = lambda _request: reply(status, b"no \xff such thing")
    with pytest.raises(OutboundFailed, match="such thing") as failed:
        outbound.post(allowed, b"")
    assert failed.value.status == status


def test_a_big_answer_is_cut(web: Server, allowed: str) -> None:
    web.answer = lambda _request: reply(200, b"x" * 1_001)
    with pytest.raises(OutboundFailed, match="more than 1000 bytes"):
        outbound.get(allowed, most_bytes=1_000)
    web.answer = lambda _request: reply(200, b"x" * 1_000)
    assert len(outbound.get(allowed, most_bytes=1_000).body) == 1_000


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 " + b"x" * 70_000,
    ],
)
def test_broken_answers_are_failures(web: Server, allowed: str, answer: bytes) -> None:
    web.answer = lambda _request: answer
    with pytest.raises(OutboundFailed):
        outbound.get(allowed)


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"])
def test_a_server_that_drips_is_left_at_the_time_limit(web: Server, allowed: str, start: bytes) -> None:
    def drip(connected: socket.socket) -> None:
        web.take(connected)
        connected.sendall(start)
        for _ in range(100):
            connected.sendall(b"H")
            time.sleep(0.05)

    web.serve = drip
    began = time.monotonic()
    with pytest.raises(OutboundFailed, match=r"0\.4 seconds"):
        outbound.get(allowed, timeout_s=0.4)
    assert time.monotonic() - began < 2


def test_nothing_listens(allowed: str, web: Server) -> None:
    web.close()
    with pytest.raises(OutboundFailed):
        outbound.get(allowed)


def test_a_proxy_of_the_environment_is_not_asked(web: Server, allowed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "https_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert outbound.get(f"{allowed}/x").status == 200
        assert (len(web.got), proxy.got) == (1, [])


def test_headers_cannot_smuggle_lines(allowed: str, web: Server) -> None:
    with pytest.raises((OutboundFailed, ValueError)):
        outbound.get(allowed, headers={"X": "a\r\nY: b"})
    assert web.got == []


# -- encrypted ---------------------------------------------------------------------------------------------------------


def test_a_certificate_must_be_of_this_host(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    key, chain = tmp_path / "key.pem", tmp_path / "chain.pem"
    made = subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(chain)),
        ],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"openssl makes no certificate here: {made.stderr.decode()[-200:]}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    with serving() as web:

        def serve(connected: socket.socket) -> None:
            with context.wrap_socket(connected, server_side=True) as safe:
                safe.sendall(web.answer(web.take(safe)))

        web.serve = serve
        settings.OUTBOUND_ALLOW = [f"localhost:{web.port}", f"127.0.0.1:{web.port}"]
        with pytest.raises(OutboundFailed, match="certificate"):  # nobody vouches for it
            outbound.get(f"https://localhost:{web.port}/")
        monkeypatch.setenv("SSL_CERT_FILE", str(chain))
        assert outbound.get(f"https://localhost:{web.port}/").status == 200
        with pytest.raises(OutboundFailed, match="certificate"):
            outbound.get(f"https://127.0.0.1:{web.port}/")
