"""Run a benchmark of tests/bench by name: a program of its own with servers of its own, so nothing here is touched."""

from __future__ import annotations

import argparse
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

FOLDER = Path(settings.BASE_DIR) / "tests" / "bench"
# What `up` and this command chose for themselves: the benchmark chooses anew.
OURS = ("DATABASE_URL", "DATABASE_ROLE", "REDIS_URL", "SECRET_KEY", "GPU_COMMONS_DATA")


class Command(BaseCommand):
    help = "Run the benchmark NAME of tests/bench with its own options; it prints JSON."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        parser.add_argument("options", nargs=argparse.REMAINDER, help="such as: --jobs 1000")

    def handle(self, *args: Any, **options: Any) -> None:
        known = sorted(m.name for m in pkgutil.iter_modules([str(FOLDER)]) if _runs(FOLDER / f"{m.name}.py"))
        if options["name"] not in known:
            raise CommandError(f"there is no benchmark {options['name']!r}; there are: {', '.join(known)}")
        environment = {name: value for name, value in os.environ.items() if name not in OURS}
        command = [
            sys.executable,
            "-m",
            f"tests.bench.{options['name']}",
            *[word for n, word in enumerate(options["options"]) if n or word != "--"],
        ]
        code = subprocess.run(command, cwd=settings.BASE_DIR, env=environment, check=False).returncode
        if code:
            raise CommandError(f"the benchmark ended with code {code}", returncode=code)


def _runs(file: Path) -> bool:
    """Whether it is a program; the others are parts of programs."""
    return "__main__" in file.read_text(encoding="utf-8")
