"""gunicorn's settings, read by `gunicorn --config python:portal.up.webserver`: two processes of four threads.

The address comes from the command line.
"""

import os
import signal
import tempfile

from portal.up.process import die_with_parent

workers = 2
threads = 4
worker_class = "gthread"
preload_app = True  # the code is read once and shared
graceful_timeout = 5
loglevel = "warning"
control_socket_disable = True
_memory = "/dev/shm"  # noqa: S108 - gunicorn makes a file of its own there with mkstemp
# On a slow disk the heartbeat file would block a worker.
worker_tmp_dir = _memory if os.access(_memory, os.W_OK) else tempfile.gettempdir()

_end_with_master = die_with_parent(signal.SIGKILL)


def post_fork(server: object, worker: object) -> None:
    """A worker whose master is killed would keep the port; the kernel ends it at once."""
    if _end_with_master is not None:
        _end_with_master()
