"""Register the nodes of a fleet file (our CSV or YAML, or the openb node list); see docs in README.md."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ledger import fleet
from ledger.errors import Refused


class Command(BaseCommand):
    help = "Import a fleet from FILE (.csv, .yaml); the same file again changes nothing."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file")
        parser.add_argument("--dry-run", action="store_true", help="show what would change, write nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        path = Path(options["file"])
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{path}: can't be read as UTF-8 text: {error}") from None
        parsed = fleet.parse(text, path.name)
        try:
            if options["dry_run"]:
                diff = fleet.compare(parsed)
                if diff.errors:
                    raise Refused("\n".join(diff.errors))
            else:
                diff = fleet.apply(parsed, actor=None, via="command")
        except Refused as error:
            raise CommandError(f"nothing was imported:\n{error}") from None
        self._report(diff, options["dry_run"])

    def _report(self, diff: fleet.Diff, dry: bool) -> None:
        for row in diff.create[:20]:
            assumed = f" ({row.memory_mib} MiB a card, assumed)" if row.memory_assumed else ""
            self.stdout.write(f"+ {row.hostname}: {row.cards} x {row.model or 'no cards'}{assumed}, zone {row.zone}")
        if len(diff.create) > 20:
            self.stdout.write(f"+ … and {len(diff.create) - 20} more")
        for row, changes in diff.update[:20]:
            text = ", ".join(f"{name}: {old} → {new}" for name, (old, new) in changes.items())
            self.stdout.write(f"~ {row.hostname}: {text}")
        cards = sum(row.cards for row in diff.create)
        verb = "would be" if dry else "were"
        self.stdout.write(
            f"{len(diff.create)} nodes with {cards} cards {verb} added, {len(diff.update)} {verb} changed, "
            f"{diff.same} are the same"
        )
