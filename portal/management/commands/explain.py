"""Replay the engine on a snapshot file and tell, for one job, where it would go or why it waits."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from scheduler.engine.plan import explain, explain_nodes
from scheduler.engine.score import RULES
from scheduler.engine.serialise import from_json
from scheduler.engine.types import Placement


class Command(BaseCommand):
    help = "Explain job JOB on the snapshot in FILE."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file")
        parser.add_argument("job", type=int)
        parser.add_argument("--nodes", action="store_true", help="one line a node")
        parser.add_argument(
            "--rule", choices=sorted(RULES), help="what another rule would do; by default the snapshot's"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            taken = from_json(json.loads(Path(options["file"]).read_text(encoding="utf-8")))
        except (OSError, ValueError, RecursionError) as error:
            raise CommandError(f"{options['file']}: {error}") from None
        if options["rule"]:
            taken = replace(taken, rule=options["rule"])
        if options["job"] not in {job.id for job in taken.jobs}:
            raise CommandError(f"job {options['job']} is not queued in this snapshot ({len(taken.jobs)} jobs are)")
        verdict = explain(taken, options["job"])
        names = {node.id: node.hostname for node in taken.nodes}
        if isinstance(verdict, Placement):
            self.stdout.write(f"job {verdict.job_id} would be placed by ask {verdict.ask_index}:")
            for member in verdict.members:
                cards = ", ".join(f"card {s.card_id} {list(s.memory)}" for s in member.shares)
                self.stdout.write(f"  {names[member.node_id]} as {member.form}: {cards or 'no cards'}")
        else:
            self.stdout.write(
                f"job {verdict.job_id} waits{' and can never run on this fleet' if verdict.never else ''}:"
            )
            for index, reasons in enumerate(verdict.by_ask):
                text = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items(), key=lambda r: -r[1]))
                self.stdout.write(f"  ask {index}: {text}")
        if options["nodes"]:
            for hostname, ask, reason, score in explain_nodes(taken, options["job"]):
                self.stdout.write(f"  {hostname} ask {ask}: {reason or f'feasible, score {score:.4f}'}")
