"""Orders of the portal: the test and the reset of a card. Which program that is, says this agent's own command line;
the portal only names the card and how long it may take.

Each order runs once, in a process of its own with a time limit, one at a time on a card. Its end is durable in the
spool until the portal has it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import selectors
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from scheduler.agent.model import MAX_MESSAGE, plain
from scheduler.agent.order_book import Result
from scheduler.agent.spool import Spool

logger = logging.getLogger(__name__)

BURN_IN: Final = "burn_in"
RESET: Final = "reset"
KINDS: Final = (BURN_IN, RESET)
MOST_AT_ONCE: Final = 8
MOST_SECONDS: Final = 86_400
TAIL_BYTES: Final = 2000
KILLED_WITHIN_S: Final = 5.0
OWN_TEST_S: Final = 20
OWN_TEST_MIB: Final = 128
WHOLE_NODE: Final = "all"  # what {uuid} and {slot} are in an order about the whole node
ROOT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Order:
    """`card` None: the whole node."""

    id: int
    kind: str
    card: str | None
    timeout_s: int


@dataclass(frozen=True, slots=True)
class Target:
    """The card of an order as this machine reports it."""

    uuid: str
    slot: str
    virtual: bool


@dataclass(frozen=True, slots=True)
class Commands:
    """Programs with their arguments, in which {uuid} and {slot} stand for the card. Empty: the default."""

    burn_in: tuple[str, ...] = ()
    reset: tuple[str, ...] = ()


class Impossible(Exception):
    """An order that can't be carried out here; the text is for people."""


def command_words(text: str) -> tuple[str, ...]:
    """A command line in words, as a shell would part it, without any other power of a shell. Raises ValueError."""
    words = tuple(shlex.split(text))
    if not words:
        raise ValueError("the command is empty")
    return words


def read_orders(answer: Any) -> list[Order]:
    """The orders in the portal's answer. What is not an order is left out: it comes from another version."""
    listed = answer.get("orders") if isinstance(answer, dict) else None
    return [order for item in listed if (order := _read(item))] if isinstance(listed, list) else []


def _read(item: Any) -> Order | None:
    if not isinstance(item, dict):
        return None
    number, kind, card, limit = (item.get(name) for name in ("id", "kind", "card", "timeout_s"))
    whole = all(isinstance(value, int) and not isinstance(value, bool) for value in (number, limit))
    if not whole or kind not in KINDS or not (card is None or isinstance(card, str)):
        logger.warning("an order of the portal is not understood: %s", plain(repr(item)))
        return None
    assert isinstance(number, int) and isinstance(limit, int)  # noqa: S101, PT018  `whole` said so
    return Order(number, kind, card, min(max(limit, 1), MOST_SECONDS))


def plan(order: Order, target: Target, commands: Commands) -> tuple[str, ...] | str:
    """The words to run, or what to say where there is nothing to do. Raises Impossible."""
    chosen = commands.burn_in if order.kind == BURN_IN else commands.reset
    if chosen:
        return tuple(word.replace("{uuid}", target.uuid).replace("{slot}", target.slot) for word in chosen)
    if order.kind == BURN_IN:
        return _own_test(order, target)
    if target.virtual:
        return "a virtual card has nothing to reset"
    which = () if order.card is None else ("-i", target.uuid)
    return ("nvidia-smi", "--gpu-reset", *which)


def _own_test(order: Order, target: Target) -> tuple[str, ...]:
    if not target.virtual:
        raise Impossible("no test for NVIDIA cards is set here: start the agent with --burn-in COMMAND")
    seconds = max(1, min(OWN_TEST_S, order.timeout_s // 2))
    program = (sys.executable, "-m", "scheduler.agent.burn_in")
    return (*program, "--seconds", str(seconds), "--memory-mib", str(OWN_TEST_MIB))


class Runner:
    """Only the thread of the agent's loop calls it; the threads that wait for programs hand results over by a queue."""

    def __init__(self, commands: Commands, spool: Spool) -> None:
        self._commands = commands
        self._spool = spool
        self._ended: queue.SimpleQueue[tuple[str, Result]] = queue.SimpleQueue()
        self._busy: dict[str, Order] = {}
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._stopping = False

    def take(self, orders: Iterable[Order], body: Mapping[str, Any]) -> None:
        """Begin what is new. `body`: the report of this look, which says which cards there are."""
        for order in orders:
            place = order.card or WHOLE_NODE
            if self._spool.orders.knows(order.id):
                self._spool.orders.tell_again(order.id)
            elif place not in self._busy and len(self._busy) < MOST_AT_ONCE:
                self._begin(order, place, body)

    def collect(self) -> None:
        """Make durable what has ended. Raises OSError if it can't, and then tries the rest again at the next look."""
        while not self._ended.empty():
            place, result = self._ended.get()
            try:
                self._spool.end_order(result)
            except OSError:
                self._ended.put((place, result))
                raise
            del self._busy[place]
            logger.info("order %d ended %s: %s", result.order, "well" if result.ok else "badly", result.detail)

    def stop(self) -> None:
        """End what runs. The spool knows that it had begun; the next agent says what became of it."""
        with self._lock:
            self._stopping = True
            for process in self._processes:
                _kill(process)

    def _begin(self, order: Order, place: str, body: Mapping[str, Any]) -> None:
        self._spool.begin_order(order.id)
        self._busy[place] = order
        try:
            words = plan(order, _target(order, body), self._commands)
        except Impossible as error:
            self._ended.put((place, Result(order.id, False, 0.0, str(error))))
            return
        if isinstance(words, str):
            self._ended.put((place, Result(order.id, True, 0.0, words)))
            return
        logger.info("order %d begins: %s", order.id, shlex.join(words))
        threading.Thread(target=self._run, args=(order, place, words), daemon=True, name=f"order {order.id}").start()

    def _run(self, order: Order, place: str, words: Sequence[str]) -> None:
        begun = time.monotonic()
        try:
            ok, detail = self._outcome(words, order.timeout_s)
        except OSError as error:
            ok, detail = False, f"{words[0]} can't be run: {error.strerror or error}"
        except Exception as error:
            logger.exception("order %d", order.id)
            ok, detail = False, f"{type(error).__name__}: {error}"
        if not self._stopping:
            seconds = round(time.monotonic() - begun, 3)
            self._ended.put((place, Result(order.id, ok, seconds, plain(detail)[:MAX_MESSAGE])))

    def _outcome(self, words: Sequence[str], timeout_s: float) -> tuple[bool, str]:
        process = self._start(words)
        try:
            tail, in_time = _watch(process, time.monotonic() + timeout_s)
        finally:
            with self._lock:
                self._processes.discard(process)
        last = next((line for line in reversed(tail.splitlines()) if line.strip()), "")
        if not in_time:
            return False, f"no end within {timeout_s:g} s, so it was killed; it said last: {last or 'nothing'}"
        code = process.returncode
        if code == 0:
            return True, last or "done"
        how = f"ended by signal {-code}" if code < 0 else f"exit status {code}"
        return False, f"{how}: {last or 'it said nothing'}"

    def _start(self, words: Sequence[str]) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._stopping:
                raise OSError("the agent ends")
            process = subprocess.Popen(
                words,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._processes.add(process)
        return process


def _target(order: Order, body: Mapping[str, Any]) -> Target:
    virtual = bool(body["virtual"])
    if order.card is None:
        return Target(WHOLE_NODE, WHOLE_NODE, virtual)
    for card in body["cards"]:
        if card["uuid"] == order.card:
            return Target(card["uuid"], str(card["slot"]), virtual)
    raise Impossible(f"there is no card {plain(order.card)[:100]} here")


def _watch(process: subprocess.Popen[bytes], deadline: float) -> tuple[str, bool]:
    """The end of what it printed, and whether it ended in time. Output is read on, so that it never waits for us."""
    tail = b""
    assert process.stdout is not None  # noqa: S101  it was opened with a pipe
    with process.stdout as output, selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while time.monotonic() < deadline:
            chunk = os.read(output.fileno(), 65_536) if selector.select(0.2) else None
            tail = (tail + (chunk or b""))[-TAIL_BYTES:]
            if chunk == b"" or (chunk is None and process.poll() is not None):
                break  # closed, or left open by something that it started
    in_time = _ends(process, max(0.0, deadline - time.monotonic()))
    if not in_time:
        _kill(process)
        _ends(process, KILLED_WITHIN_S)  # one that hangs in the kernel stays; nobody waits for it
    return tail.decode("utf-8", "replace"), in_time


def _ends(process: subprocess.Popen[bytes], within_s: float) -> bool:
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def _kill(process: subprocess.Popen[bytes]) -> None:
    """The whole session that it leads; only while its number can't belong to another."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
