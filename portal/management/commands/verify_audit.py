"""Recompute the audit chain and compare it with the anchor outside the database."""

import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from ledger import audit


class Command(BaseCommand):
    help = "Verify the audit chain; exit 1 and name the first bad place when it was tampered with."

    def handle(self, *args: Any, **options: Any) -> None:
        verdict = audit.verify(settings.DATA_DIR / "audit-anchor.log")
        if not verdict.ok:
            self.stderr.write(f"BROKEN after {verdict.sealed} good rows: {verdict.message}")
            sys.exit(1)
        self.stdout.write(f"intact: {verdict.message}")
