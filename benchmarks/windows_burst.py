"""A burst in event time: a million windows that one watermark ends at once, and what it does to checkpoints.

Each of so many keys has one record in the same window; these come over some seconds, between records of a few keys
that come often. Then the stream goes on behind the window: its first watermark ends all these windows, and the rest
keeps the job busy for some seconds more. The job takes a checkpoint a second. What it commits is compared with the
ground truth. The operator is also measured alone, with the windows of one subtask.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barrier_tck.reference_impl.operators.windows import Tumbling, window_aggregate
from barrier_tck.reference_impl.protocol.messages import (
    AcknowledgeCheckpoint,
    CompletedCheckpoint,
    SnapshotMetrics,
)
from benchmarks.both_on_spark import (
    CHECKPOINT_INTERVAL_MS,
    Stopwatch,
    committed_table,
    new_directory,
    run_job,
)
from benchmarks.cores import CORES
from benchmarks.opened_operator import opened_operator
from benchmarks.windows_cases import AGGREGATES, BATCH_ROWS, window_job
from benchmarks.windows_data import LANES, SCHEMA, START_MS, EventShape, write_lane
from benchmarks.windows_truth import WINDOW_COLUMNS, require_same_rows, sliding_windows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOWS = 1_000_000
SIZE_MS = 60_000
PHASE_SECONDS = 4.0
"""For how long the windows should fill, and for how long the stream should go on behind the burst."""
CHECKPOINTS_MIN = 5
"""Fewer say little; then the run is repeated with a longer input."""
_AFTER = EventShape(start_ms=START_MS + 2 * SIZE_MS)
_TRIAL_SHARE = 20
"""The run that says how fast the job is has so many times fewer windows."""
_SLICES_MIN, _SLICES_MAX = 10, 6_000
_TRIES = 5


@dataclass(frozen=True, slots=True)
class BurstShape:
    """What the input is made of: slices in one window, in which also records of other keys come, and slices behind it.

    Each of these other keys comes once.
    """

    windows: int
    """How many other keys there are."""
    slices: int
    """Before the burst, and again behind it."""
    after: EventShape = _AFTER

    def lane(self, lane: int) -> list[pa.Table]:
        """Return the parts of a lane: before the burst and after it."""
        keys = np.random.default_rng(self.after.seed).permutation(self.windows)[lane::LANES]
        before = []
        for number, part in enumerate(np.array_split(self.after.keys + keys, self.slices)):
            at_ms = START_MS + number * (SIZE_MS // 2) // self.slices
            often = self.after.lane(number, lane)
            before.append(often.set_column(1, SCHEMA.field(1), pa.array(np.full(often.num_rows, at_ms))))
            columns = (part, np.full(len(part), at_ms), np.arange(len(part)))
            before.append(pa.Table.from_arrays([pa.array(column) for column in columns], schema=SCHEMA))
        return [pa.concat_tables(before), self.after.lanes(lane, range(self.slices))]

    @property
    def rows(self) -> int:
        """The number of records, without those at the end of the lanes."""
        return self.windows + 2 * self.slices * self.after.slice_rows


class _Snapshots(Stopwatch):
    """Keeps what each completed checkpoint took, and each subtask's part of it."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: dict[int, list[SnapshotMetrics]] = {}
        self.completed: list[CompletedCheckpoint] = []

    def acknowledged(self, message: AcknowledgeCheckpoint) -> None:
        self.parts.setdefault(message.checkpoint, []).append(message.metrics)

    def checkpoint_completed(self, completed: CompletedCheckpoint) -> None:
        super().checkpoint_completed(completed)
        self.completed.append(completed)


def measure_burst(spark: SparkSession, scratch: Path, backend: str, windows: int = WINDOWS) -> dict[str, Any]:
    """Run the job, a short one first that says how long it must be; return the numbers, units in their names.

    Raises RuntimeError if no run had checkpoints enough, or one went wrong.
    """
    shape = BurstShape(windows // _TRIAL_SHARE, _SLICES_MIN)
    watch = _run(spark, scratch, backend, shape)
    for _ in range(_TRIES):
        slices = math.ceil(2 * PHASE_SECONDS * shape.slices / watch.seconds)
        shape = replace(shape, windows=windows, slices=min(max(slices, shape.slices), _SLICES_MAX))
        watch = _run(spark, scratch, backend, shape)
        if watch.checkpoints >= CHECKPOINTS_MIN and watch.seconds >= PHASE_SECONDS:
            break
    else:
        raise RuntimeError(f"{watch.checkpoints} checkpoints in {watch.seconds:.1f} s say little of a burst")
    return {
        "windows": windows,
        "run_seconds": round(watch.seconds, 2),
        **checkpoint_numbers(watch.completed, watch.parts),
        "one_subtask_alone_ms": round(1_000 * _fired_alone(scratch, backend, windows // CORES)),
    }


def checkpoint_numbers(
    completed: Sequence[CompletedCheckpoint], parts: dict[int, list[SnapshotMetrics]]
) -> dict[str, Any]:
    """Return how long checkpoints took, in ms: the whole of each, and of its parts the 99th percentile and the largest.

    The *delay* of a checkpoint is the time from its trigger until its last subtask takes its snapshot. Raises
    RuntimeError if none was completed.
    """
    # At the end one may be completed of which no subtask took a part, since all had finished.
    counted = [one for one in completed if one.checkpoint in parts]
    if not counted:
        raise RuntimeError("no checkpoint was completed during the burst")
    durations = [one.completed_at_ms - one.triggered_at_ms for one in counted]
    delays = [
        max(part.started_at_ms + part.alignment_ms for part in parts[one.checkpoint]) - one.triggered_at_ms
        for one in counted
    ]
    of_all = [part for one in counted for part in parts[one.checkpoint]]
    return {
        "checkpoints": len(counted),
        "checkpoint_interval_ms": CHECKPOINT_INTERVAL_MS,
        "checkpoint_ms_median": round(statistics.median(durations)),
        "checkpoint_ms_max": round(max(durations)),
        "checkpoints_above_interval": sum(duration > CHECKPOINT_INTERVAL_MS for duration in durations),
        "delay_ms_max": round(max(delays)),
        **_spread("sync_ms", [part.sync_ms for part in of_all]),
        **_spread("alignment_ms", [part.alignment_ms for part in of_all]),
    }


def _spread(name: str, values: Sequence[float]) -> dict[str, float]:
    return {
        f"{name}_p99": round(float(np.percentile(values, 99)), 2),
        f"{name}_max": round(max(values), 2),
    }


def _run(spark: SparkSession, scratch: Path, backend: str, shape: BurstShape) -> _Snapshots:
    root, watch = new_directory(scratch, f"burst_{backend}"), _Snapshots()
    lanes = [shape.lane(lane) for lane in range(LANES)]
    (root / "input").mkdir()
    for lane, tables in enumerate(lanes):
        write_lane(root / "input", lane, [*tables, shape.after.last(shape.slices)])
    graph = window_job(root / "input", shape.after, Tumbling(SIZE_MS))
    run_job(spark, graph, root, watch, backend=backend)
    truth = sliding_windows(
        pa.concat_tables([table for tables in lanes for table in tables]), SIZE_MS, SIZE_MS
    )
    require_same_rows(committed_table(root / "output", WINDOW_COLUMNS), truth, f"the burst with {backend}")
    return watch


def _fired_alone(scratch: Path, backend: str, windows: int) -> float:
    """Return the seconds in which an operator fires so many windows because of one watermark."""
    shape = BurstShape(windows, 1)
    spec = window_aggregate("window", ("key",), Tumbling(SIZE_MS), "at_ms", AGGREGATES)
    place = new_directory(scratch, f"alone_{backend}")
    with opened_operator(spec, place, "alone", backend) as operator:
        before = pa.concat_tables([shape.lane(lane)[0] for lane in range(LANES)])
        for batch in _batches(before.filter(pc.greater_equal(before["key"], shape.after.keys))):
            operator.process(batch)
        started = time.perf_counter()
        fired = sum(batch.num_rows for batch in operator.advance_watermark(START_MS + SIZE_MS))
        seconds = time.perf_counter() - started
    if fired != windows:
        raise RuntimeError(f"the operator fired {fired} windows of {windows}")
    return seconds


def _batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from table.combine_chunks().to_batches(max_chunksize=BATCH_ROWS)
