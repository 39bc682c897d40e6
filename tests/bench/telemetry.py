"""A fleet of agents against the real HTTP path: is each sample kept exactly once, how fast, at what cost. One JSON object.

    python -m tests.bench.telemetry [--cards 10000] [--interval 10] [--minutes 2] [--dup 20] [--reorder 10] [--late 5] [--kills 5]

Starts PostgreSQL and Valkey of its own (tests/services.py, flushed to the disk as the product does), gunicorn with the
product's settings, Celery's beat and the worker of the queue `health`. One process sends what 8 cards a node report each
--interval seconds, spread evenly: --dup percent of the reports twice, --reorder percent after their successor, --late
percent a minute to one and a half late, one in 200 with an XID. Now and then a web process or the worker is killed with
SIGKILL, --kills times in all. What is not answered is sent again, as it may or may not have come in. Then everything is
counted in the database and compared with what was made. The share of CPU is of all cores of the machine, the sender's
own apart.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import psutil

from portal.up import ports
from tests.bench.agents import PATIENCE_S, SHAPE, TOKEN, WIDTH, Plan, Row, Sent, has_xid, plan, send_all, temperature
from tests.services import TestServices

CHECKOUT: Final = Path(__file__).resolve().parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = {
        "cards": 10_000,
        "interval": 10,
        "minutes": 2,
        "dup": 20,
        "reorder": 10,
        "late": 5,
        "kills": 5,
        "seed": 1,
    }
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=float if name == "minutes" else int, default=default)
    asked = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
    os.environ["RATE_FACTOR"] = "1"  # as the product counts
    services = TestServices()
    try:
        services.reserve()
        if services.cluster is not None:
            services.cluster = dataclasses.replace(services.cluster, settings={})
        services.start()
        found = measure(asked)
    finally:
        services.stop()
    print(json.dumps(found, indent=1))
    sys.exit(0 if found["exact"] else 1)


# -- the product -------------------------------------------------------------------------------------------------------


class Product:
    """gunicorn, beat and the worker of the queue `health`, on a database of its own; killed and started at will."""

    def __init__(self, database_url: str, logs: Path) -> None:
        self.port = ports.choose()
        self.env = os.environ | {"DATABASE_URL": database_url, "DATABASE_ROLE": ""}
        self.logs = logs
        self.kills: Counter[str] = Counter()
        self.spent_by_killed = 0.0
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        celery, at = ["-m", "celery", "-A", "portal"], ["--bind", f"127.0.0.1:{self.port}"]
        commands = {
            "web": ["-m", "gunicorn", "portal.wsgi:application", "--config", "python:portal.up.webserver", *at],
            "health": [*celery, "worker", "-Q", "health", "-P", "solo", "-l", "warning", "-n", "health@bench"],
            "beat": [*celery, "beat", "--schedule", str(self.logs / "beat"), "-l", "warning"],
        }
        with (self.logs / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, *commands[name]], cwd=CHECKOUT, env=self.env, stdout=log, stderr=log
            )

    def kill_one(self, draw: random.Random) -> None:
        """A web process (its master makes another) or the worker, which is started anew."""
        name = "web" if sum(self.kills.values()) % 2 == 0 else "health"
        self.kills[name] += 1
        if name == "web":
            children = psutil.Process(self.running["web"].pid).children()
            victim = draw.choice(children)
        else:
            victim = psutil.Process(self.running["health"].pid)
        self.spent_by_killed += _spent(victim)
        victim.send_signal(signal.SIGKILL)
        if name == "health":
            self.running["health"].wait()
            self.start("health")

    def spent_s(self) -> float:
        """CPU seconds of web and worker so far."""
        total = self.spent_by_killed
        for process in self.running.values():
            with contextlib.suppress(psutil.Error):
                whole = psutil.Process(process.pid)
                total += sum(_spent(one) for one in (whole, *whole.children(recursive=True)))
        return total

    def stop(self) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _spent(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def _database_spent_s() -> float:
    """CPU seconds of all processes of the database server, those that have ended with their parent's."""
    total = 0.0
    for process in psutil.process_iter(["name"]):
        if (process.info["name"] or "").startswith("postgres"):
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system
    return total


# -- the run -----------------------------------------------------------------------------------------------------------


def measure(asked: argparse.Namespace) -> Row:
    import django

    django.setup()
    from django.conf import settings
    from django.db import connection

    connection.creation.create_test_db(verbosity=0, autoclobber=True)
    nodes = asked.cards // WIDTH
    cards = fill(nodes)
    SHAPE.update(interval=asked.interval, nodes=nodes)
    parts = urlsplit(os.environ["DATABASE_URL"])
    url = urlunsplit(parts._replace(path=f"/{connection.settings_dict['NAME']}"))
    product = Product(url, Path(settings.DATA_DIR))
    draw = random.Random(asked.seed)
    made = plan(nodes, asked, draw)
    seen, backlog = Sent(), []
    try:
        with _ready(product):
            before, began = product.spent_s() + _database_spent_s(), time.monotonic() + 1
            sender = threading.Thread(
                target=send_all, args=(made, cards, ("127.0.0.1", product.port), began, seen), daemon=True
            )
            own = _spent(psutil.Process())
            sender.start()
            _watch(sender, product, asked, began, draw, backlog)
            took, own = time.monotonic() - began, _spent(psutil.Process()) - own
            spent = product.spent_s() + _database_spent_s() - before
            drained = _drain()
    finally:
        product.stop()
    return _verdict(asked, made, seen, cards) | {
        "kills": dict(product.kills),
        "samples_per_s": round(made.reports * WIDTH / took, 1),
        "reports_per_s": round((made.reports + made.copies) / took, 1),
        "took_s": round(took, 1),
        "cpu_share_of_ingest": round(spent / took / (os.cpu_count() or 1), 3),
        "cpu_ms_a_report": round(1000 * spent / (made.reports + made.copies), 2),
        "cpu_share_of_sender": round(own / took / (os.cpu_count() or 1), 3),
        "freshness_ms": {name: round(1000 * _at(seen.delays, share)) for name, share in SHARES.items()},
        "history_backlog_reports": {"largest": max(backlog, default=0), "drained_after_s": round(drained, 1)},
    }


SHARES: Final = {"p50": 0.5, "p99": 0.99, "longest": 1.0}


def _at(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def fill(nodes: int) -> dict[int, list[str]]:
    """Nodes with cards and tokens; by node the names of its cards."""
    from django.db import connection

    from tests import factories
    from tests.bench.commit import LAID_OUT_BY
    from tests.bench.pages import FILL

    factories.cast()
    factories.zone("pool")
    with connection.cursor() as cursor:
        for statement in FILL.split(";\n")[:LAID_OUT_BY]:
            cursor.execute(statement, {"nodes": nodes, "width": WIDTH})
        digests = [hashlib.sha256(f"{TOKEN}{n}".encode()).hexdigest() for n in range(1, nodes + 1)]
        cursor.execute(
            "UPDATE ledger_node SET agent_digest = x.digest FROM unnest(%s::int[], %s::text[]) AS x(n, digest) "
            "WHERE hostname = 'bench-' || x.n",
            [list(range(1, nodes + 1)), digests],
        )
        cursor.execute(
            "SELECT split_part(n.hostname, '-', 2)::int, array_agg(c.uuid ORDER BY s.slot) FROM ledger_node n "
            "JOIN ledger_cardseat s ON s.node_id = n.id JOIN ledger_card c ON c.id = s.card_id "
            "WHERE n.hostname LIKE 'bench-%%' GROUP BY 1",
            [],
        )
        found = dict(cursor.fetchall())
        cursor.execute("ANALYZE")
    return found


@contextlib.contextmanager
def _ready(product: Product) -> Iterator[None]:
    for name in ("web", "health", "beat"):
        product.start(name)
    end = time.monotonic() + 60
    while True:
        try:
            link = http.client.HTTPConnection("127.0.0.1", product.port, timeout=2)
            link.request("GET", "/readyz")
            if link.getresponse().status == 200:
                break
        except OSError:
            pass
        if time.monotonic() > end:
            raise SystemExit("the portal did not get ready")
        time.sleep(0.1)
    yield


def _watch(
    sender: threading.Thread,
    product: Product,
    asked: argparse.Namespace,
    began: float,
    draw: random.Random,
    backlog: list[int],
) -> None:
    """Kill at even distances while the reports run; note how much waits to be copied."""
    due = [began + asked.minutes * 60 * (n + 0.5) / asked.kills for n in range(asked.kills)]
    while sender.is_alive():
        time.sleep(0.5)
        backlog.append(_waiting())
        if due and time.monotonic() >= due[0]:
            due.pop(0)
            product.kill_one(draw)
            print(f"killed: {dict(product.kills)}", file=sys.stderr)


def _waiting() -> int:
    from ledger.models import SampleBatch

    return SampleBatch.objects.count()


def _drain() -> float:
    start = time.monotonic()
    while _waiting() and time.monotonic() - start < PATIENCE_S:
        time.sleep(0.2)
    return time.monotonic() - start


# -- the comparison ----------------------------------------------------------------------------------------------------

HISTORY: Final = """
SELECT count(*), count(DISTINCT (card_id, sequence)), coalesce(sum(temperature_c), 0), coalesce(sum(memory_used_mib), 0)
FROM ledger_cardsample
"""


def _verdict(asked: argparse.Namespace, made: Plan, seen: Sent, cards: dict[int, list[str]]) -> Row:
    from django.db import connection

    from ledger.models import CardStatus, Fault, FaultEvent, QualityCount

    rounds = made.reports // len(cards)
    pairs = [(node, sequence) for node in cards for sequence in range(1, rounds + 1)]
    wanted = made.reports * WIDTH
    heat = sum(temperature(node, sequence, slot) for node, sequence in pairs for slot in range(WIDTH))
    memory = sum(1_000 + sequence for _, sequence in pairs) * WIDTH
    xids = sum(has_xid(node, sequence) for node, sequence in pairs)
    with connection.cursor() as cursor:
        cursor.execute(HISTORY)
        rows, different, found_heat, found_memory = cursor.fetchone()
    newest = CardStatus.objects.filter(sequence=rounds, memory_used_mib=1_000 + rounds).count()
    quality = Counter[str]()
    for row in QualityCount.objects.all():
        quality[row.kind] += row.count
    counted = sum(Fault.objects.filter(kind="xid").values_list("count", flat=True))
    repeated = quality["duplicate"]
    exact = {
        "samples": rows == different == wanted,
        "sums": (found_heat, found_memory) == (heat, memory),
        "latest": newest == len(cards) * WIDTH,
        "faults": counted == FaultEvent.objects.count() == xids,
        # an answer that was lost may have been counted: never fewer than told, never more than sent
        "duplicates": seen.answers["repeated"] <= repeated <= seen.answers["repeated"] + seen.unanswered
        and sum(seen.answers.values()) == made.reports + made.copies
        and repeated >= made.copies,
        "nothing_refused": not seen.refused,
    }
    return {
        "cards": asked.cards,
        "reports_made": made.reports,
        "sent_twice": made.copies,
        "made": dict(made.kinds),
        "samples_made": wanted,
        "samples_kept": rows,
        "lost": wanted - different,
        "double": rows - different,
        "xids_made": xids,
        "xids_counted": counted,
        "answers": dict(seen.answers),
        "unanswered": seen.unanswered,
        "refused": seen.refused[:3],
        "quality": dict(quality),
        "checks": exact,
        "exact": all(exact.values()),
    }


if __name__ == "__main__":
    main()
