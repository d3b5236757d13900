"""The two cores of a machine on which benchmarks that compare two systems run both."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from barrier_tck.harness.support.errors import EnvironmentProblem

CORES = 2
"""How many there are: sources and keyed subtasks of the reference, shuffle partitions of Structured Streaming."""


@contextlib.contextmanager
def bound_to_cores() -> Iterator[tuple[int, ...]]:
    """Bind this process, and all that it starts, to two cores; undo it afterwards."""
    before = os.sched_getaffinity(0)
    chosen = choose_cores({cpu: _siblings(cpu) for cpu in sorted(before)})
    os.sched_setaffinity(0, chosen)
    try:
        yield chosen
    finally:
        os.sched_setaffinity(0, before)


def choose_cores(siblings: Mapping[int, str]) -> tuple[int, ...]:
    """Return two processors, on different physical cores if possible.

    ``siblings`` maps each processor that may be used to the name of its physical core. Raises
    EnvironmentProblem if there are fewer than two processors.
    """
    if len(siblings) < CORES:
        raise EnvironmentProblem(
            f"this benchmark compares two systems on {CORES} processors, but this process may use only "
            f"{len(siblings)}; run it with more (see taskset)"
        )
    first_of_core: dict[str, int] = {}
    for cpu in sorted(siblings):
        first_of_core.setdefault(siblings[cpu], cpu)
    leaders = sorted(first_of_core.values())
    others = [cpu for cpu in sorted(siblings) if cpu not in leaders]
    return tuple(sorted([*leaders, *others][:CORES]))


def _siblings(cpu: int) -> str:
    path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    return path.read_text().strip() if path.is_file() else str(cpu)
