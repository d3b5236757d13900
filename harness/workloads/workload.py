"""The seam of workloads: an input, what the job does with it in words, and its sequential model.

A workload says nothing about a system's barriers, checkpoints or subtasks: an adapter builds the job in its own
terms from the description. Positions, here and in a history, are absolute: position p of a split means that
the split's records 0 to p - 1 lie before it, and a fresh run begins at the split's start offset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.parquet as pq

from barrier_tck.harness.plan.job_graph import SOURCE, JobPlan
from barrier_tck.harness.plan.shapes import without_key
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.history import Row
from barrier_tck.harness.workloads.operator_kind import Between
from barrier_tck.harness.workloads.sequential_model import SequentialSpec


@dataclass(frozen=True, slots=True)
class SplitData:
    """One split of a generated input, with its records in reading order."""

    name: str
    """Unique in the whole input, whichever vertex reads it."""
    subtask: int
    """Index of the source subtask that reads it."""
    rows: tuple[Row, ...]
    """Every record of the split, those before the start offset included."""
    start_offset: int = 0
    """Where reading begins on a fresh start: earlier records are not part of the input."""
    vertex: str = SOURCE
    """The source vertex that reads it."""

    def __post_init__(self) -> None:
        """Refuse a start outside the split."""
        if not 0 <= self.start_offset <= len(self.rows):
            raise ValueError(
                f"split {self.name!r} has {len(self.rows)} records and cannot start at {self.start_offset}"
            )

    @property
    def input(self) -> tuple[Row, ...]:
        """Return the records that are part of the input."""
        return self.rows[self.start_offset :]


class Workload(Protocol):
    """Input and meaning of a job. Implementations are values without state of their own."""

    @property
    def name(self) -> str:
        """Return the name that a plan uses."""

    @property
    def description(self) -> str:
        """Return what the job does, in words that any streaming system can carry out."""

    @property
    def spec(self) -> SequentialSpec | None:
        """Return the sequential model: ``spec.fold(records)`` is the job without faults.

        It is None if all operators have a meaning as functions of bags (``dataflow_model``): then the graph is judged.
        """

    @property
    def shapes(self) -> tuple[str, ...]:
        """Return the names of the job graphs that the workload has; the first one is the usual one."""

    def job(self, shape: str, widths: Mapping[str, int]) -> JobPlan:
        """Return the job graph of a shape; ``widths`` replaces the parallelism of the vertices it names.

        Raises ValueError for a shape that the workload does not have, or a vertex that the shape does not have.
        """

    def problem_of(self, job: JobPlan) -> str | None:
        """Say why the workload cannot run on a job, or return None (see ``problem_of_fixed``)."""

    @property
    def input_directory(self) -> Path | None:
        """Return the directory with the Parquet splits of the only source, or None if the input is generated."""

    def schemas(self, job: JobPlan) -> Mapping[str, pa.Schema]:
        """Return the columns of a generated input, by source vertex; empty for Parquet input."""

    def splits(self, plan: TrialPlan) -> tuple[SplitData, ...]:
        """Return the splits of a generated input, the same for the same plan; empty for Parquet input.

        Every call makes new rows, so that a system that changes its rows does not change the oracle's.
        """


@runtime_checkable
class DrawsJobs(Protocol):
    """What a workload may add: drawn job graphs, beyond its named shapes."""

    def draw_job(self, between: Between, subtasks_max: int) -> JobPlan:
        """Return a graph for the workload, with about ``subtasks_max`` subtasks; the same draws give the same graph."""


def job_of_plan(workload: Workload, plan: TrialPlan) -> JobPlan:
    """Return the plan's job, or the workload's own if the plan's job has no vertices."""
    return plan.job if plan.job.vertices else workload.job(plan.job.shape, plan.job.widths)


def require_shape(workload: Workload, shape: str) -> None:
    """Raise ValueError unless a shape is one of the workload's, or empty."""
    if shape not in ("", *workload.shapes):
        raise ValueError(f"there is no shape {shape!r}; known: {', '.join(workload.shapes)}")


def problem_of_fixed(workload: Workload, job: JobPlan) -> str | None:
    """Say how a job differs from every shape of a workload, apart from widths; None if it is one of them."""
    widths = {vertex.name: vertex.parallelism for vertex in job.vertices}
    own_vertices = False
    for shape in workload.shapes:
        names = [vertex.name for vertex in workload.job(shape, {}).vertices]
        own = workload.job(shape, widths) if names == list(widths) else None
        if own is not None and own.vertices == job.vertices:
            own_vertices = True
            # A rescaled job may have a rebalance between vertices that happen to be equally wide.
            if own.edges == tuple(without_key(edge, job.vertices) for edge in job.edges):
                return None
    if own_vertices:
        return "its edges are not the workload's"
    vertices = ", ".join(f"{vertex.name} ({vertex.kind})" for vertex in job.vertices)
    return f"it has the vertices {vertices}; the shapes of the workload are {', '.join(workload.shapes)}"


def split_name(text: str) -> str:
    """Return a split's name without directories and without ``.parquet``: systems show names in both forms."""
    return text.rpartition("/")[2].removesuffix(".parquet")


def split_files(directory: Path) -> tuple[Path, ...]:
    """Return the Parquet splits of an input directory by name; raises FileNotFoundError if there are none."""
    files = tuple(sorted(directory.glob("*.parquet")))
    if not files:
        raise FileNotFoundError(f"no Parquet splits in {directory}; prepare the workload's input first")
    return files


def read_splits(workload: Workload, plan: TrialPlan) -> tuple[SplitData, ...]:
    """Return the splits of any workload; a Parquet input is read into rows too, which is costly if it is large."""
    if workload.input_directory is None:
        return workload.splits(plan)
    width = job_of_plan(workload, plan).vertex(SOURCE).parallelism
    tables = [(split_name(file.name), pq.read_table(file)) for file in split_files(workload.input_directory)]
    return tuple(
        SplitData(
            name=name,
            subtask=i % width,
            rows=tuple(table.to_pylist()),
            start_offset=min(plan.workload.start_offset, table.num_rows),
        )
        for i, (name, table) in enumerate(tables)
    )


def write_splits(
    splits: Sequence[SplitData], directory: Path, schemas: Mapping[str, pa.Schema]
) -> tuple[Path, ...]:
    """Write generated splits as ``<vertex>/<name>.parquet`` for a system that reads files, and return the files.

    Records before a start offset are written too: leaving them out is the source's work. The schemas, by source
    vertex, are needed because a split may be empty. A source vertex without splits gets an empty directory.
    """
    for vertex in schemas:
        (directory / vertex).mkdir(parents=True, exist_ok=True)
    files = tuple(directory / split.vertex / f"{split.name}.parquet" for split in splits)
    for split, file in zip(splits, files, strict=True):
        pq.write_table(pa.Table.from_pylist(list(split.rows), schema=schemas[split.vertex]), file)
    return files
