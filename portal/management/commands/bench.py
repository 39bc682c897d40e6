"""Run a benchmark of tests/bench by name; each prints JSON and cleans up after itself."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

FOLDER = Path(settings.BASE_DIR) / "tests" / "bench"


class Command(BaseCommand):
    help = "Run the benchmark NAME of tests/bench and print its JSON."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        parser.add_argument("arguments", nargs="*", help="NAME=NUMBER, such as jobs=100000")

    def handle(self, *args: Any, **options: Any) -> None:
        known = sorted(module.name for module in pkgutil.iter_modules([str(FOLDER)]))
        if options["name"] not in known:
            raise CommandError(f"there is no benchmark {options['name']!r}; there are: {', '.join(known)}")
        numbers = {}
        for text in options["arguments"]:
            name, equals, value = text.partition("=")
            if not equals or not value.isdigit():
                raise CommandError(f"{text!r} is not NAME=NUMBER")
            numbers[name] = int(value)
        run = import_module(f"tests.bench.{options['name']}").run
        try:
            self.stdout.write(run(**numbers))
        except TypeError as error:
            raise CommandError(str(error)) from None
