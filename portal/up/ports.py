"""Free ports of 127.0.0.1. Chosen below the kernel's range for outgoing connections, so none is taken in between."""

import random
import socket

LOWEST, HIGHEST = 15_000, 29_999
HOST = "127.0.0.1"


def is_free(port: int) -> bool:
    """Whether a server could listen there now; ports of closed connections count as free."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def choose(preferred: int | None = None) -> int:
    """The preferred port while it is free, else another one at random."""
    if preferred is not None and is_free(preferred):
        return preferred
    generator = random.SystemRandom()
    for _ in range(200):
        port = generator.randint(LOWEST, HIGHEST)
        if is_free(port):
            return port
    raise OSError(f"no free port of {HOST} between {LOWEST} and {HIGHEST}")
