"""Roll the balance of some quarters of an hour up once more, after the book itself was corrected."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.dateparse import parse_datetime

from ledger import quarters


class Command(BaseCommand):
    help = "Roll up [FROM, TO) again. Times are ISO 8601 with a time zone, such as 2026-11-29T21:30:00Z."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("since", metavar="FROM")
        parser.add_argument("until", metavar="TO")

    def handle(self, *args: Any, **options: Any) -> None:
        since, until = (_moment(name, options[name]) for name in ("since", "until"))
        if since >= until:
            raise CommandError("TO must lie after FROM")
        self.stdout.write(f"{quarters.redo(since, until)} quarters rolled up again")


def _moment(name: str, text: str) -> dt.datetime:
    try:
        moment = parse_datetime(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise CommandError(f"{name}: {text!r} is no time with a time zone, such as 2026-11-29T21:30:00Z")
    return moment
