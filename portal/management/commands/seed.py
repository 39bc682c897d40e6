"""Fill an empty installation; on a full one nothing changes."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from portal.seeding import seed


class Command(BaseCommand):
    help = (
        "First-run data: zones, sign-ins, projects, this machine and (unless --no-fleet) the bundled simulated fleet."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--no-fleet", action="store_true", help="leave the bundled simulated fleet out")

    def handle(self, *args: Any, **options: Any) -> None:
        for line in seed(with_fleet=not options["no_fleet"]) or ["nothing to add"]:
            self.stdout.write(f"seed: {line}")
