"""`python -m scheduler.agent.burn_in`: a real test of this host's CPUs and memory, which are what virtual cards are.

Several processes each write patterns over their part of the memory and read them back, and compute what has a known
answer, until the time is over. The last line says how it went; exit status 0 only if every answer was right.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

MIB: Final = 1 << 20
PATTERNS: Final = (0x00, 0xFF, 0xAA, 0x55)
MOST_PROCESSES: Final = 64
LATE_S: Final = 30.0  # a process that has not ended so long after its time hangs
# PBKDF2-HMAC-SHA256, from RFC 7914 section 11
KNOWN_HASH: Final = (
    b"Password",
    b"NaCl",
    80_000,
    "4ddcd8f60b98be21830cee5ef22701f9641a4418d04c0414aeff08876b34ab56"
    "a1d425a1225833549adb841b51c9b3176a272bdebba1d078478f62b397f33c8d",
)


class Wrong(Exception):
    """The machine gave a wrong answer."""


@dataclass(frozen=True, slots=True)
class Done:
    rounds: int
    mib: int  # written and read back


def check_memory(memory: memoryview) -> int:
    """Write each pattern over all of it and read it back, then another one in each MiB. Returns MiB; raises Wrong."""
    blocks = len(memory) // MIB
    for pattern in PATTERNS:
        _check_blocks(memory, [bytes((pattern,)) * MIB] * blocks, f"pattern {pattern:02x}")
    own = [hashlib.sha256(number.to_bytes(8, "big")).digest() for number in range(blocks)]
    for number, digest in enumerate(own):
        memory[number * MIB : (number + 1) * MIB] = digest * (MIB // len(digest))
    for number, digest in enumerate(own):  # only now: one address that stands for another shows
        _compare(memory, number, digest * (MIB // len(digest)), "its own number")
    return blocks * (len(PATTERNS) + 1)


def _check_blocks(memory: memoryview, wanted: Sequence[bytes], what: str) -> None:
    for number, block in enumerate(wanted):
        memory[number * MIB : (number + 1) * MIB] = block
    for number, block in enumerate(wanted):
        _compare(memory, number, block, what)


def _compare(memory: memoryview, number: int, wanted: bytes, what: str) -> None:
    if memory[number * MIB : (number + 1) * MIB] != wanted:
        raise Wrong(f"memory: MiB {number} does not hold {what}")


def check_cpu() -> None:
    """What has a known answer, in whole numbers and in floating point. Raises Wrong."""
    password, salt, count, wanted = KNOWN_HASH
    if hashlib.pbkdf2_hmac("sha256", password, salt, count, 64).hex() != wanted:
        raise Wrong("CPU: PBKDF2 gave another hash than RFC 7914")
    if pow(3, 2**127 - 2, 2**127 - 1) != 1:  # Fermat, for a Mersenne prime
        raise Wrong("CPU: a power modulo a prime is wrong")
    if abs(math.fsum(1 / (n * n) for n in range(1, 20_001)) - (math.pi**2 / 6 - 4.99987500208e-05)) > 1e-12:
        raise Wrong("CPU: the sum of 1/n² is wrong")


def _work(seconds: float, mib: int, parent: int, report: Connection) -> None:
    deadline = time.monotonic() + seconds
    rounds = written = 0
    try:
        memory = memoryview(bytearray(mib * MIB))
        while rounds == 0 or time.monotonic() < deadline:
            written += check_memory(memory)
            check_cpu()
            rounds += 1
            if os.getppid() != parent:
                return  # whoever wanted to know is gone
        report.send(Done(rounds, written))
    except Wrong as error:
        report.send(str(error))
    except MemoryError:
        report.send(f"there are no {mib} MiB of memory to test")


def run(seconds: float, memory_mib: int, processes: int) -> Done:
    """Raises Wrong with what the first failing process found."""
    fork = multiprocessing.get_context("fork")
    each = max(1, memory_mib // processes)
    started = []
    for _ in range(processes):
        ours, theirs = fork.Pipe(duplex=False)
        process = fork.Process(target=_work, args=(seconds, each, os.getpid(), theirs), daemon=True)
        process.start()
        theirs.close()
        started.append((process, ours))
    found = []
    deadline = time.monotonic() + seconds + LATE_S
    for number, (process, pipe) in enumerate(started):
        found.append(_answer(number, pipe, deadline))
        process.join(1.0)
    return Done(sum(done.rounds for done in found), sum(done.mib for done in found))


def _answer(number: int, pipe: Connection, deadline: float) -> Done:
    if not pipe.poll(max(0.0, deadline - time.monotonic())):
        raise Wrong(f"process {number}: hangs")
    try:
        answer = pipe.recv()
    except EOFError:
        raise Wrong(f"process {number}: ended without an answer, as when it is killed for memory") from None
    if isinstance(answer, Done):
        return answer
    raise Wrong(f"process {number}: {answer}")


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scheduler.agent.burn_in", description="Tests CPUs and memory.")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long (default 20)")
    parser.add_argument("--memory-mib", type=int, default=128, help="memory of all processes together (default 128)")
    parser.add_argument("--processes", type=int, default=0, help="how many (default: one for each CPU)")
    parser.add_argument(
        "--fail-if", type=Path, help="for drills of a failing test: fail if this file is there at the end"
    )
    options = parser.parse_args(argv)
    options.processes = options.processes or min(MOST_PROCESSES, len(os.sched_getaffinity(0)))
    if not 0 <= options.seconds <= 86_400:  # NaN fails too
        parser.error("--seconds must be between 0 and 86400")
    if not 1 <= options.processes <= MOST_PROCESSES:
        parser.error(f"--processes must be between 1 and {MOST_PROCESSES}")
    if not 1 <= options.memory_mib <= 1 << 20:
        parser.error("--memory-mib must be between 1 and 1048576")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(argv)
    begun = time.monotonic()
    try:
        done = run(options.seconds, options.memory_mib, options.processes)
        if options.fail_if is not None and options.fail_if.exists():
            raise Wrong(f"{options.fail_if} exists: this test was told to fail")
    except Wrong as error:
        print(f"FAILED after {time.monotonic() - begun:.1f} s: {error}")
        return 1
    took = f"{time.monotonic() - begun:.1f} s, {options.processes} processes"
    print(f"passed: {took}, {done.rounds} rounds, {done.mib} MiB of memory written and read back, no wrong answer")
    return 0


if __name__ == "__main__":
    sys.exit(main())
