"""Equal scores are broken by a hash of the plan's seed and the node's id: even over the fleet, the same on every
machine and for every order of nodes, and different for another seed."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from scheduler.engine.arrays import Ints

Ties = npt.NDArray[np.uint64]
MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def node_ties(seed: int, ids: Ints) -> Ties:
    """splitmix64 of seed and id (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014)."""
    start = np.uint64((int.from_bytes(_digest(f"{seed}"), "big") + GOLDEN) & MASK)
    z = ids.astype(np.uint64) * np.uint64(GOLDEN) + start
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def node_ranks(seed: int, ids: Ints) -> Ints:
    """0 … n-1 by tie, then by id: what stands in for the hash where a small number is handier."""
    ranks = np.empty(len(ids), dtype=np.int64)
    ranks[np.lexsort((ids, node_ties(seed, ids)))] = np.arange(len(ids))
    return ranks


def name_tie(seed: int, name: tuple[str, ...]) -> int:
    return int.from_bytes(_digest("\0".join((str(seed), *name))), "big")


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
