"""One embedded Valkey server on 127.0.0.1 with a password and an append-only file.

It carries messages that say "look now"; losing them costs seconds, never facts. The caller runs the process.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

import redis

from portal.up.folder import write_private
from portal.up.ports import HOST

CONFIGURATION = """\
bind {host}
port {port}
requirepass {password}
dir {data}
protected-mode yes
daemonize no
appendonly yes
appendfsync {fsync}
aof-load-truncated yes
save ""
maxmemory-policy noeviction
loglevel notice
logfile ""
"""


@dataclass(frozen=True)
class Valkey:
    """A server with its files in `home/valkey`."""

    program: Path
    home: Path
    port: int
    password: str = field(repr=False)
    fsync: str = "everysec"

    @property
    def data(self) -> Path:
        """Where the append-only file stands."""
        return self.home / "valkey"

    @property
    def url(self) -> str:
        """Database 0 carries Celery's messages."""
        return f"redis://:{self.password}@{HOST}:{self.port}/0"

    def argv(self) -> tuple[str, ...]:
        """The server in the foreground; the password stands in the file, not in the process list."""
        return (str(self.program), literal(self.data / "valkey.conf"))

    def initialise(self) -> None:
        """Write the configuration, at every start."""
        self.data.mkdir(mode=0o700, exist_ok=True)
        text = CONFIGURATION.format(
            host=HOST, port=self.port, password=self.password, data=quoted(self.data), fsync=self.fsync
        )
        write_private(self.data / "valkey.conf", text)

    def is_ready(self) -> bool:
        """Whether the server answers and has read its file."""
        try:
            with redis.Redis(host=HOST, port=self.port, password=self.password, socket_timeout=3) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False


def literal(path: Path) -> str:
    """A path as an argument: Valkey takes one with `*`, `?` or `[` for a pattern, in which a backslash escapes."""
    text = str(path)
    return re.sub(r"([*?\[\\])", r"\\\1", text) if re.search(r"[*?\[]", text) else text


def quoted(path: Path) -> str:
    """A path as the configuration file wants it, with spaces and quotes kept."""
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
