"""What a restore costs when the job has become wider or narrower, beside one with the same parallelism (RSC-2).

One checkpoint of a keyed vertex with ``BEFORE`` subtasks is restored again and again: with each of ``WIDTHS``, in turns
with the same parallelism, ``ROUNDS`` pairs each. Every restore gets its files from ``protocol.rescale``, as in a job,
opens the state of every subtask, one after the other, and reads all of its key groups. So ``seconds`` is the work of
all subtasks together. In a job they work at the same time, so the restore takes as long as its slowest subtask:
``slowest_seconds``. ``times_same`` is the median over the pairs of that time, divided by that of its partner.

Files are read from the local disk, mostly from its cache: what differs is how much is read, and what is left out.
``bytes_read`` counts a file for each subtask that reads it. Values are as good as random, so that no backend makes them
smaller than another.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from barrier_tck.harness.plan.backend_targets import SHIPPED_BACKENDS
from barrier_tck.harness.reference.state_backends import require_state_backend
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, SubtaskId
from barrier_tck.reference_impl.protocol.key_groups import key_group_range
from barrier_tck.reference_impl.protocol.messages import (
    CompletedCheckpoint,
    JobShape,
    OperatorSnapshot,
    StateHandle,
    SubtaskSnapshot,
    VertexShape,
)
from barrier_tck.reference_impl.protocol.rescale import NewJob, redistributed
from barrier_tck.reference_impl.state.backend import KeyedStateStore, StateBackend, StateScope
from barrier_tck.reference_impl.state.working_directory import WorkingDirectory
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from barrier_tck.reference_impl.storage.filesystem import LocalFileSystem
from barrier_tck.reports.figure_page import LEGEND, Panel, figure_page
from benchmarks.benchmark_trials import text_table

GROUPS = 128
"""The maximum parallelism."""
BEFORE = 4
WIDTHS = (1, 2, 3, 5, 8)
"""To which parallelism the vertex is changed."""
ROUNDS = 5
STATE_MB = 128
VALUE_BYTES = 1_000
BATCH = 1_000
VERTEX, OPERATOR, STATE = "v", "o", "state"
NOISE = random.Random(1).randbytes(1 << 20)
"""What values are cut out of. Neighbours are cut out far from each other, so they share nothing."""
STRIDE = 617 * 1_009
COLOURS = ("#0f766e", "#c2410c", "#7c6f00")

Progress = Callable[[str, float], None]


def run(progress: Progress, state_mb: int = STATE_MB, rounds: int = ROUNDS) -> dict[str, Any]:
    """Run the benchmark with so much state; ``progress(what, share)`` is called as it advances (share 0 to 1).

    Raises RuntimeError if a restore does not find every entry.
    """
    points: list[dict[str, Any]] = []
    for position, name in enumerate(SHIPPED_BACKENDS):
        progress(f"{name}, {state_mb} MB of state", position / len(SHIPPED_BACKENDS))
        with tempfile.TemporaryDirectory(prefix="barrier-tck-bench-") as directory:
            bench = _Bench(require_state_backend(name)(), Path(directory), state_mb)
            points += [{"backend": name, **point} for point in bench.points(rounds)]
    return {
        "state_mb": state_mb,
        "key_groups": GROUPS,
        "mb_per_key_group": round(state_mb / GROUPS, 3),
        "parallelism_before": BEFORE,
        "pairs": rounds,
        "points": points,
    }


def table(numbers: dict[str, Any]) -> str:
    """Return the numbers of each backend and parallelism side by side."""
    columns = ("backend", "parallelism", "slowest_seconds", "times_same", "seconds", "bytes_read")
    return text_table(numbers["points"], columns)


def page(numbers: dict[str, Any]) -> str:
    """Return the curves as a page that a browser shows without a network."""
    before, points = numbers["parallelism_before"], numbers["points"]
    curves = (
        ("slowest_seconds", "Restore of the slowest subtask", "seconds, median"),
        ("times_same", f"The same, compared with a restore by {before} subtasks", "times, median of pairs"),
        ("bytes_read", "What all subtasks read together", "MB"),
    )
    return figure_page(
        "Restores with another parallelism",
        f"{numbers['state_mb']} MB of state in {numbers['key_groups']} key groups, written by {before} subtasks.",
        [Panel(title, _figure(points, name, unit)) for name, title, unit in curves],
    )


def _figure(points: Sequence[dict[str, Any]], name: str, unit: str) -> dict[str, Any]:
    backends = list(dict.fromkeys(point["backend"] for point in points))
    traces = []
    for backend, colour in zip(backends, COLOURS, strict=False):
        mine = sorted(
            (point for point in points if point["backend"] == backend), key=lambda one: one["parallelism"]
        )
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": backend,
                "x": [point["parallelism"] for point in mine],
                "y": [point[name] / 1_000_000 if name == "bytes_read" else point[name] for point in mine],
                "line": {"color": colour},
            }
        )
    return {
        "data": traces,
        "layout": {
            "height": 320,
            "margin": {"l": 70, "r": 12, "t": 32, "b": 48},
            "legend": LEGEND,
            "xaxis": {
                "tickvals": [point["parallelism"] for point in points if point["backend"] == backends[0]],
                "title": {"text": "parallelism after the restore"},
            },
            "yaxis": {"title": {"text": unit}, "rangemode": "tozero"},
        },
    }


class _Bench:
    """A checkpoint of one vertex, and its restores."""

    def __init__(self, backend: StateBackend, directory: Path, state_mb: int) -> None:
        self._backend, self._directory = backend, directory
        self._storage = FileCheckpointStorage(LocalFileSystem(directory / "storage"), "bench")
        self._opened = 0
        self._entries = state_mb * 1_000_000 // VALUE_BYTES
        parts = [self._written(index) for index in range(BEFORE)]
        self._checkpoint = CompletedCheckpoint(
            CheckpointId(1), AttemptNumber(1), 0, 0, tuple(parts), _shape(BEFORE)
        )

    def points(self, rounds: int) -> list[dict[str, Any]]:
        """Restore in pairs, and return the numbers of each parallelism, the same one first."""
        times: dict[int, list[_Times]] = {width: [] for width in (BEFORE, *WIDTHS)}
        ratios: dict[int, list[float]] = {width: [] for width in WIDTHS}
        for number in range(rounds):
            for width in WIDTHS:
                pair = (BEFORE, width) if number % 2 == 0 else (width, BEFORE)
                took = {one: self._restored(one) for one in pair}
                for one in pair:
                    times[one].append(took[one])
                ratios[width].append(took[width].slowest / took[BEFORE].slowest)
        return [
            {
                "parallelism": width,
                "slowest_seconds": round(statistics.median(one.slowest for one in found), 4),
                "times_same": round(statistics.median(ratios[width]), 2) if width != BEFORE else 1.0,
                "seconds": round(statistics.median(one.all for one in found), 4),
                "bytes_read": found[0].bytes_read,
            }
            for width, found in times.items()
        ]

    def _written(self, index: int) -> SubtaskSnapshot:
        store, working = self._open(index, BEFORE, ())
        groups = list(key_group_range(index, BEFORE, GROUPS))
        for start in range(0, self._entries, BATCH):
            mine = [
                number
                for number in range(start, min(start + BATCH, self._entries))
                if number % GROUPS in groups
            ]
            store.put_many(
                STATE,
                [number % GROUPS for number in mine],
                [b"%012d" % number for number in mine],
                [_value(number) for number in mine],
            )
        subtask = SubtaskId(VERTEX, index)
        writer = self._storage.writer(CheckpointId(1), AttemptNumber(1), subtask, OPERATOR)
        handles = store.snapshot(CheckpointId(1), writer).run()
        store.close()
        working.close()
        return SubtaskSnapshot(subtask, AttemptNumber(1), (OperatorSnapshot(OPERATOR, (), handles),))

    def _restored(self, width: int) -> _Times:
        """Restore every subtask of a job that is so wide, and read what it has."""
        seconds: list[float] = []
        entries = read = 0
        for part in redistributed(self._checkpoint, NewJob(_shape(width), ())).snapshots:
            handles = part.operators[0].handles
            started = time.perf_counter()
            store, working = self._open(part.subtask.index, width, handles)
            for group in key_group_range(part.subtask.index, width, GROUPS):
                entries += sum(1 for _ in store.scan(STATE, group))
            seconds.append(time.perf_counter() - started)
            read += sum(handle.size for handle in handles)
            store.close()
            working.close()
        if entries != self._entries:
            raise RuntimeError(f"{width} subtasks restored {entries:,} of {self._entries:,} entries")
        return _Times(max(seconds), sum(seconds), read)

    def _open(
        self, index: int, width: int, handles: tuple[StateHandle, ...]
    ) -> tuple[KeyedStateStore, WorkingDirectory]:
        self._opened += 1
        working = WorkingDirectory(self._backend, str(self._directory / f"working-{self._opened}"))
        groups = key_group_range(index, width, GROUPS)
        place = working.of_operator(OPERATOR)
        scope = StateScope("bench", VERTEX, OPERATOR, index, self._opened, groups, place)
        return self._backend.open(scope, handles, self._storage), working


class _Times:
    """What one restore took, in seconds."""

    def __init__(self, slowest: float, of_all: float, bytes_read: int) -> None:
        self.slowest, self.all, self.bytes_read = slowest, of_all, bytes_read


def _value(number: int) -> bytes:
    """Return the value of an entry: bytes that cannot be compressed, with its number at the end."""
    last = b"%012d" % number
    start = number * STRIDE % (len(NOISE) - VALUE_BYTES)
    return NOISE[start : start + VALUE_BYTES - len(last)] + last


def _shape(width: int) -> JobShape:
    return JobShape(GROUPS, (VertexShape(VERTEX, width, (OPERATOR,)),))
