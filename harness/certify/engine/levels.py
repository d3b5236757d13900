"""The levels of a certificate, and the seeds of what is drawn for it."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Sequence

from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import nearest

LEVELS = ("contract", "crash", "chaos")
"""Each level requires the levels before it. Not every kind of candidate has the last one."""
TOTAL_S = {"contract": 600.0, "crash": 1_200.0, "chaos": 2_400.0}
"""Level -> total time in seconds; properties that are left after it are unknown."""
DEFAULT_SEED = 20_260_101


def require_level(level: str, levels: Sequence[str] = LEVELS) -> None:
    """Raise UsageProblem for a level that does not exist, or not for this kind of candidate."""
    if level not in levels:
        raise UsageProblem(f"--level is {level!r}{nearest(level, levels)}")


def seed_of(seed: int, name: str) -> int:
    """Return a property's own seed, so that an additional property does not change the examples of others."""
    return zlib.crc32(f"{seed} {name}".encode())


def seeds_of_rounds(seed: int) -> Iterator[int]:
    """Yield the seed of each round of examples, without end: the given one first."""
    yield seed
    for number in itertools.count(2):
        yield zlib.crc32(f"{seed} round {number}".encode())
