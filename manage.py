#!/usr/bin/env python3
"""The one entry: `up`, `test` and Django's own commands.

Uses the standard library alone until `.venv` exists; portal.up.bootstrap fills it and starts this file again inside.
Kept readable for old Pythons up to the version check, so that they get a sentence instead of a syntax error.
"""

import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
MINIMUM = (3, 11)


def main(argv):
    """Check the interpreter, enter the virtual environment and hand over to the command."""
    if sys.version_info < MINIMUM:
        found = ".".join(str(part) for part in sys.version_info[:3])
        sys.exit("GPU Commons needs Python 3.11 or newer; this is Python %s (%s)." % (found, sys.executable))
    sys.path.insert(0, HERE)
    command = argv[0] if argv else "help"
    bootstrap = load_bootstrap()
    bootstrap.enter(bootstrap.kind_of(command), argv)
    if command == "up":
        from portal.up.run import main as up

        return up(argv[1:])
    if command == "test":
        from portal.up.testing import main as test

        return test(argv[1:])
    from portal.up import connection

    arguments = connection.prepare(argv)
    from django.core.management import execute_from_command_line

    execute_from_command_line(["manage.py", *arguments])
    return 0


def load_bootstrap():
    """portal/up/bootstrap.py as a file: importing the package `portal` loads Celery, which is not there yet."""
    path = os.path.join(HERE, "portal", "up", "bootstrap.py")
    spec = importlib.util.spec_from_file_location("bootstrap", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
