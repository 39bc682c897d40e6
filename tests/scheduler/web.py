"""A web server on loopback for tests of what the portal calls: it keeps what it got and answers what it is told."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


class Server:
    """Answers each connection with the bytes that `answer` makes of the request's head and body."""

    def __init__(self, family: socket.AddressFamily = socket.AF_INET, host: str = "127.0.0.1") -> None:
        self.got: list[bytes] = []
        self.answer: Callable[[bytes], bytes] = lambda _request: reply()
        self.serve: Callable[[socket.socket], None] = self._serve
        self.socket = socket.create_server((host, 0), family=family)
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connected, _address = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._handle, args=[connected], daemon=True).start()

    def _handle(self, connected: socket.socket) -> None:
        with connected:
            try:
                self.serve(connected)
            except OSError:
                return

    def _serve(self, connected: socket.socket) -> None:
        connected.sendall(self.answer(self.take(connected)))

    def take(self, connected: socket.socket) -> bytes:
        """One whole request."""
        found = b""
        while b"\r\n\r\n" not in found:
            found += connected.recv(65_536)
        head, _gap, body = found.partition(b"\r\n\r\n")
        length = next((int(v[15:]) for v in head.lower().split(b"\r\n") if v.startswith(b"content-length:")), 0)
        while len(body) < length:
            body += connected.recv(65_536)
        self.got.append(head + b"\r\n\r\n" + body)
        return self.got[-1]

    def close(self) -> None:
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # whoever waits in accept lets go
        self.socket.close()


def reply(status: int = 200, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Answer", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


@contextmanager
def serving(family: socket.AddressFamily = socket.AF_INET, host: str = "127.0.0.1") -> Iterator[Server]:
    found = Server(family, host)
    try:
        yield found
    finally:
        found.close()
