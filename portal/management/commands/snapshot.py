"""Write what the engine sees now as JSON: a bug report and a golden test in one file."""

import json
from dataclasses import replace
from typing import Any

from django.core.management.base import BaseCommand

from scheduler import snapshot
from scheduler.engine.serialise import to_json


class Command(BaseCommand):
    help = "Print the engine's snapshot (nodes, what is on them, and queued jobs) as JSON."

    def handle(self, *args: Any, **options: Any) -> None:
        taken = snapshot.read(snapshot.queued_jobs())
        taken = replace(taken, stays=tuple(snapshot.stays_at(taken.at)))
        self.stdout.write(json.dumps(to_json(taken), ensure_ascii=False))
