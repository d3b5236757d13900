"""The sides of the windows benchmark: the reference runtime on a state backend, and Structured Streaming.

Each run reads so many slices of the input, and its output is compared with the ground truth afterwards.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from benchmarks.both_on_spark import (
    CHECKPOINT_INTERVAL_MS,
    DEFAULT_BACKEND,
    STREAMING_SETTINGS,
    Stopwatch,
    committed_table,
    new_directory,
    run_job,
    run_query,
    seconds_of,
)
from benchmarks.cores import CORES
from benchmarks.measured_runs import Run
from benchmarks.windows_cases import Case
from benchmarks.windows_data import LANES, EventShape, write_lanes, write_steps
from benchmarks.windows_truth import require_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAMING = "structured_streaming"
_TRUTHS_MAX = 3
"""So many are kept, of inputs of different lengths: the shortest goes first."""
_CHECKPOINTS_MIN = 3
"""Fewer of them do not tell how far apart they are."""
TUNED_SETTINGS: Mapping[str, str] = {
    **STREAMING_SETTINGS,
    # Counting the keys of a store costs a look-up for each write.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    # The files of a micro-batch are small; without these, one task would read them all.
    "spark.sql.files.minPartitionNum": str(CORES),
    "spark.sql.files.openCostInBytes": "65536",
}


@dataclass(eq=False, slots=True)
class Inputs:
    """What the sides of a case read, and what must come out: made when a run first needs it."""

    case: Case
    shape: EventShape
    directory: Path
    _truths: dict[int, pa.Table] = field(default_factory=dict)
    _written: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Side -> the slices of its input, and those of a step, as it lies on disk."""

    def lanes(self, side: str, slices: int) -> Path:
        """Return the directory of a side's input, as one file for each lane."""
        place, there = self._place(side, slices, slices)
        if not there:
            write_lanes(place, self.shape, slices)
        return place

    def steps(self, side: str, slices: int, slices_per_step: int) -> Path:
        """Return the directory of a side's input, as one file for each lane and step."""
        place, there = self._place(side, slices, slices_per_step)
        if not there:
            write_steps(place, self.shape, slices, slices_per_step)
        return place

    def take_output(self, output: Path, slices: int, side: str) -> None:
        """Raise RuntimeError unless the committed files of a side are the ground truth, row by row; remove them."""
        if slices not in self._truths:
            if len(self._truths) == _TRUTHS_MAX:
                del self._truths[min(self._truths)]
            lanes = (self.shape.lanes(lane, range(slices)) for lane in range(LANES))
            self._truths[slices] = self.case.truth(*lanes)
        require_same_rows(committed_table(output, self.case.columns), self._truths[slices], side)
        shutil.rmtree(output)

    def rows(self, slices: int) -> int:
        """Return the number of records, without those at the end of the lanes."""
        return slices * self.shape.slice_rows

    def _place(self, side: str, slices: int, slices_per_step: int) -> tuple[Path, bool]:
        """Return the directory of a side's input, and whether it has what is wanted; if not, it is to be made."""
        wanted, place = (slices, slices_per_step), self.directory / side
        there = self._written.get(side) == wanted
        if not there:
            shutil.rmtree(place, ignore_errors=True)
            self._written[side] = wanted
        return place, there


@dataclass(slots=True)
class Pace:
    """How far apart the reference's checkpoints really are: what micro-batches are made to last."""

    interval_ms: float = CHECKPOINT_INTERVAL_MS

    def note(self, done: Run) -> None:
        """Take a run of the reference; its checkpoints are further apart than the interval where each takes long."""
        if done.checkpoints >= _CHECKPOINTS_MIN:
            self.interval_ms = max(CHECKPOINT_INTERVAL_MS, 1_000.0 * done.seconds / done.checkpoints)


@dataclass(frozen=True, slots=True)
class ReferenceSide:
    """The reference runtime: two subtasks that read a lane each, two keyed subtasks with sinks."""

    spark: SparkSession
    inputs: Inputs
    scratch: Path
    backend: str = DEFAULT_BACKEND
    pace: Pace = field(default_factory=Pace)
    """Told how far apart the checkpoints are."""

    @property
    def name(self) -> str:
        """Return the side's name."""
        return f"reference_{self.backend}"

    def run(self, passes: int) -> Run:
        """Run the job once over so many slices; the time does not include deployment."""
        root, watch = new_directory(self.scratch, self.name), Stopwatch()
        graph = self.inputs.case.graph(self.inputs.lanes(self.name, passes), self.inputs.shape)
        run_job(self.spark, graph, root, watch, backend=self.backend)
        self.inputs.take_output(root / "output", passes, self.name)
        done = Run(self.name, self.inputs.rows(passes), watch.seconds, passes, watch.checkpoints)
        self.pace.note(done)
        return done


@dataclass(slots=True)
class StreamingSide:
    """Structured Streaming: each micro-batch is a step of the input, and appends what has ended to Parquet files."""

    spark: SparkSession
    inputs: Inputs
    scratch: Path
    slices_per_step: int
    """Set anew after each run, so that micro-batches keep the pace."""
    pace: Pace = field(default_factory=Pace)
    settings: Mapping[str, str] = field(default_factory=lambda: TUNED_SETTINGS)

    @property
    def name(self) -> str:
        """Return the side's name."""
        return STREAMING

    def run(self, passes: int) -> Run:
        """Run the query once over so many slices, from the start of its first micro-batch to the end of the last."""
        root = new_directory(self.scratch, self.name)
        batches = self._query(root, self.inputs.steps(self.name, passes, self.slices_per_step))
        self.inputs.take_output(root / "output", passes, self.name)
        rows = sum(int(batch["numInputRows"]) for batch in batches)
        if rows != self.inputs.rows(passes) + LANES:
            raise RuntimeError(f"{self.name} says that it read {rows} rows of {self.inputs.rows(passes)}")
        with_data = [batch for batch in batches if batch["numInputRows"]]
        # The first one compiles the query, so it says little of the others.
        batch_ms = statistics.median(float(batch["durationMs"]["triggerExecution"]) for batch in with_data)
        self.slices_per_step = max(1, round(self.slices_per_step * self.pace.interval_ms / batch_ms))
        return Run(self.name, self.inputs.rows(passes), seconds_of(batches), passes, len(with_data))

    def _query(self, root: Path, directory: Path) -> list[Mapping[str, Any]]:
        """Return the progress of each micro-batch. The last one has no data: it ends the last windows."""
        for name, value in self.settings.items():
            self.spark.conf.set(name, value)
        query = self.inputs.case.query(self.spark, directory, self.inputs.shape)
        writer = query.writeStream.format("parquet").option("path", str(root / "output"))
        return [batch for batch in run_query(writer, root, self.name) if "addBatch" in batch["durationMs"]]
