"""A real HTTP server on loopback that answers what a test gives it, as an exporter would."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Exporter:
    body: bytes = b""
    status: int = 200
    delay_s: float = 0.0
    asked: int = 0
    port: int = 0

    def place(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self) -> str:
        return f"http://{self.place()}/metrics"


@contextmanager
def exporter(body: bytes = b"") -> Iterator[Exporter]:
    served = Exporter(body)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.asked += 1
            time.sleep(served.delay_s)
            with suppress(ConnectionError):  # who asked may have given up
                self.send_response(served.status)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(served.body)))
                self.end_headers()
                self.wfile.write(served.body)

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
