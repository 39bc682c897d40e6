"""`python -m scheduler.agent`: the command line and the loop look → keep → send → obey → wait.

Faults are durable before anything is sent and forgotten only after the portal confirmed them. The loop survives a
portal that is away, a full disk and a broken card; it ends on SIGTERM or SIGINT.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from scheduler.agent.machine import MAX_CARDS, boot_id
from scheduler.agent.model import now_iso
from scheduler.agent.observe import Observation, Observer, Settings, collect, complete
from scheduler.agent.orders import Commands, Runner, command_words, read_orders
from scheduler.agent.outbox import Outbox
from scheduler.agent.sender import REFUSED_CONTENT, Backoff, Portal, Reply, Unusable
from scheduler.agent.spool import Spool, SpoolBusy
from scheduler.agent.storage import MAX_PATHS

logger = logging.getLogger("scheduler.agent")


class Stopped(BaseException):
    """Raised out of a wait for a driver or the portal when the signal to end comes."""


class StopSignal:
    """Set by SIGTERM and SIGINT. Writing to disk is never interrupted; waiting for a driver or the portal is."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self._waiting = False

    @contextmanager
    def interrupts(self) -> Iterator[None]:
        """A part of the work that keeps nothing and may be left at any point."""
        self._waiting = True
        try:
            if self.event.is_set():
                raise Stopped
            yield
        finally:
            self._waiting = False

    def install(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.event.set()
        if self._waiting:
            self._waiting = False
            raise Stopped


class Agent:
    def __init__(
        self,
        observer: Observer,
        spool: Spool,
        portal: Portal,
        runner: Runner,
        interval_s: float,
        stop: StopSignal,
    ) -> None:
        self._observer = observer
        self._spool = spool
        self._portal = portal
        self._runner = runner
        self._interval_s = interval_s
        self._stop = stop
        self._backoff = Backoff(min(1.0, interval_s), random.Random())  # noqa: S311 - jitter
        self._outbox = Outbox(spool)
        self._retry_at = 0.0
        self._connected: bool | None = None

    def run(self) -> None:
        while not self._stop.event.is_set():
            started = time.monotonic()
            try:
                again = self._step(started)
            except OSError as error:  # a full disk: nothing is sent that could not be kept
                logger.error("this look failed: %s; the next one comes in %g s", error, self._interval_s)
                again = started + self._interval_s
            except Exception:
                logger.exception("this look failed; the next one comes in %g s", self._interval_s)
                again = started + self._interval_s
            self._stop.event.wait(max(0.0, again - time.monotonic()))

    def once(self) -> bool:
        """Look and send one report. True if the portal took it."""
        return self._send(self._look()).accepted

    def _step(self, started: float) -> float:
        """One round. Returns when the next one is due."""
        observation = self._look()
        next_look = started + self._interval_s
        if started < self._retry_at:
            self._outbox.keep(self._spool.take_sequence(), now_iso(), observation.body)
            return min(next_look, self._retry_at)
        reply = self._send(observation)
        if reply.accepted:
            self._backoff.reset()
            return started if self._outbox.more else next_look
        self._retry_at = time.monotonic() + self._backoff.after(reply)
        return min(next_look, self._retry_at)

    def _look(self) -> Observation:
        with self._stop.interrupts():
            observation = self._observer.observe(self._spool.memory)
        try:
            self._spool.record(observation.faults, observation.memory)
        except OSError:
            self._observer.forget()
            raise
        self._runner.collect()
        return observation

    def _send(self, observation: Observation) -> Reply:
        parcel = self._outbox.pack()
        sequence, sent_at = self._spool.take_sequence(), now_iso()
        report = complete(observation.body, sequence=sequence, sent_at=sent_at, parcel=parcel)
        with self._stop.interrupts():
            reply = self._portal.send(report)
        self._say(reply)
        if reply.accepted:
            self._outbox.accepted(parcel)
            self._runner.take(read_orders(reply.answer), observation.body)
        elif reply.status in REFUSED_CONTENT:
            self._outbox.refused(parcel)
        else:
            self._outbox.keep(sequence, sent_at, observation.body)
        return reply

    def _say(self, reply: Reply) -> None:
        if reply.accepted:
            if self._connected is not True:
                logger.info("the portal takes reports")
        elif reply.final:
            logger.error("the portal refused the report: %s %s", reply.status, reply.detail)
        elif self._connected is not False:
            logger.warning("the portal can't be reached: %s %s; faults are kept", reply.status or "", reply.detail)
        self._connected = reply.accepted


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scheduler.agent", description="Reports this node to GPU Commons.")
    parser.add_argument("--url", help="address of the portal, for example http://127.0.0.1:8000")
    parser.add_argument("--token-file", type=Path, help="file that holds this node's token")
    parser.add_argument("--spool", type=Path, help="folder for events the portal has not confirmed")
    parser.add_argument("--hostname", default=socket.gethostname(), help="name of this node (default: the host name)")
    parser.add_argument("--interval", type=_positive, default=5.0, help="seconds between reports (default 5)")
    parser.add_argument("--virtual-cards", type=int, help="virtual cards where NVML has none (default 4)")
    parser.add_argument("--virtual-memory-mib", type=int, help="memory of one (default: half the host's, shared out)")
    parser.add_argument(
        "--jobs", type=Path, help="folder of the local driver's members that are ours (default: all of them)"
    )
    parser.add_argument(
        "--storage-probe",
        metavar="PATH",
        action="append",
        default=[],
        help="folder in which a small file is written, read and deleted at every look; may be given several times",
    )
    parser.add_argument(
        "--burn-in",
        type=_command,
        default=(),
        help="command that tests a card, with {uuid} and {slot} (default: scheduler.agent.burn_in, virtual cards only)",
    )
    parser.add_argument(
        "--reset",
        type=_command,
        default=(),
        help="command that resets a card, with {uuid} and {slot} (default: nvidia-smi --gpu-reset -i {uuid})",
    )
    parser.add_argument("--kmsg", default="/dev/kmsg", help="kernel log to read XIDs from")
    parser.add_argument("--nvml-timeout", type=_positive, default=20.0, help="seconds a driver may take (default 20)")
    parser.add_argument("--once", action="store_true", help="send one report; exit status 0 if the portal took it")
    parser.add_argument("--print", action="store_true", help="print one report as JSON, send and keep nothing")
    options = parser.parse_args(argv)
    if options.virtual_cards is not None and not 0 <= options.virtual_cards <= MAX_CARDS:
        parser.error(f"--virtual-cards must be between 0 and {MAX_CARDS}")
    if options.virtual_memory_mib is not None and options.virtual_memory_mib < 1:
        parser.error("--virtual-memory-mib must be at least 1")
    if len(options.storage_probe) > MAX_PATHS:
        parser.error(f"--storage-probe may be given at most {MAX_PATHS} times")
    if not options.print and not (options.url and options.token_file and options.spool):
        parser.error("--url, --token-file and --spool are needed, unless --print is given")
    return options


def _positive(text: str) -> float:
    value = float(text)
    if not 0.05 <= value <= 3600:  # NaN fails too
        raise argparse.ArgumentTypeError("must be between 0.05 and 3600 seconds")
    return value


def _command(text: str) -> tuple[str, ...]:
    try:
        return command_words(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"can't be parted into words: {error}") from None


def main(argv: Sequence[str] | None = None) -> int:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    options = arguments(argv)
    settings = Settings(
        hostname=options.hostname,
        virtual_cards=options.virtual_cards,
        virtual_memory_mib=options.virtual_memory_mib,
        kernel_log=options.kmsg,
        nvml_timeout_s=options.nvml_timeout,
        jobs=options.jobs,
        storage=tuple(options.storage_probe),
    )
    if options.print:
        print(json.dumps(collect(settings), indent=2))
        return 0
    stop = StopSignal()
    stop.install()
    try:
        return _report(options, settings, stop)
    except Stopped:
        logger.info("stopped while waiting; faults are kept")
        return 1 if options.once else 0
    except (Unusable, SpoolBusy, OSError) as error:
        logger.error("%s", error)
        return 1 if isinstance(error, OSError) else 2


def _report(options: argparse.Namespace, settings: Settings, stop: StopSignal) -> int:
    portal = Portal(options.url, options.token_file)
    spool = Spool(options.spool, boot_id())
    runner = Runner(Commands(options.burn_in, options.reset), spool)
    agent = Agent(Observer(settings), spool, portal, runner, options.interval, stop)
    try:
        if options.once:
            return 0 if agent.once() else 1
        agent.run()
    finally:
        runner.stop()
    logger.info("the agent ends")
    return 0


if __name__ == "__main__":
    sys.exit(main())
