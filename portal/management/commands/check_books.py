"""Prove every invariant of the ledger now; exit 1 with the offending rows when one is broken."""

import sys
from typing import Any

from django.core.management.base import BaseCommand

from ledger import invariants


class Command(BaseCommand):
    help = "Check all invariants; exit 1 and print the offending rows when one is broken."

    def handle(self, *args: Any, **options: Any) -> None:
        findings = invariants.check()
        for finding in findings:
            self.stderr.write(f"BROKEN {finding.name}: {finding.meaning}")
            for row in finding.rows:
                self.stderr.write(f"    {row}")
        if findings:
            sys.exit(1)
        self.stdout.write(f"clean: {len(invariants.NAMES)} invariants hold")
