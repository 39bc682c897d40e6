"""The log of one member as its shim writes it: the command's output, in order, up to a cap.

At the cap it says so and goes on reading: a talkative command is cut off in the log but never blocked or killed.
"""

from __future__ import annotations

import os

_CHUNK = 65_536
_TAIL = 512


class Log:
    def __init__(self, path: str, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.written = os.fstat(self.descriptor).st_size
        self.full = False
        self.tail = b""

    def copy(self, source: int) -> bool:
        """Move what is waiting in the non-blocking pipe into the file; False once the pipe has ended."""
        for _ in range(16):  # bounded, so that a stop is noticed under a flood of output
            try:
                chunk = os.read(source, _CHUNK)
            except BlockingIOError:
                return True
            if not chunk:
                return False
            self._append(chunk)
        return True

    def _append(self, chunk: bytes) -> None:
        self.tail = (self.tail + chunk)[-_TAIL:]
        if self.full:
            return
        room = self.max_bytes - self.written
        try:
            self._write(chunk[:room])
            if len(chunk) > room:
                self.full = True
                self._write(f"\nlog truncated at {self.max_bytes} bytes\n".encode())
        except OSError:  # the disk is full: the job matters more than its log
            self.full = True

    def _write(self, data: bytes) -> None:
        while data:
            count = os.write(self.descriptor, data)
            self.written += count
            data = data[count:]

    def last_line(self) -> str:
        lines = self.tail.decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""

    def close(self) -> None:
        """Durable: the end of the member is recorded only after its last words."""
        try:
            os.fsync(self.descriptor)
        except OSError:
            self.full = True
        os.close(self.descriptor)
