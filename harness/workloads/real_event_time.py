"""What the workloads over real data in event time share: records of flights, in the real order of their arrival.

A record is that of ``event-time``, so the same models replay these jobs. Besides, a batch query says what the output
must be. So their graphs are fixed, but for widths and the parameters of sources and operators.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pyarrow as pa

from barrier_tck.harness.plan.job_graph import EdgePlan, JobPlan, Spread, VertexPlan
from barrier_tck.harness.plan.shapes import Shapes, job_among, without_key
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.history import Row
from barrier_tck.harness.workloads.batch_query import BatchQuery
from barrier_tck.harness.workloads.event_time import SCHEMA, EventTime
from barrier_tck.harness.workloads.event_time_parameters import SKEW
from barrier_tck.harness.workloads.operator_kind import Between
from barrier_tck.harness.workloads.workload import SplitData, job_of_plan

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
_KEY = ("key",)
_EVERY = (1, 1, 4)
"""Every so many rows are taken: with fewer of them, the same number of records is about a longer time."""


class RealEventTime(ABC):
    """Real records with an event time. Subclasses say which, and what is done with them."""

    name: ClassVar[str]
    description: ClassVar[str]
    spec = None
    input_directory: Path | None = None

    @abstractmethod
    def shapes_made(self) -> Shapes:
        """Return what makes the parts of each shape."""

    @abstractmethod
    def arrivals(self, plan: TrialPlan, wanted: Mapping[str, int]) -> Mapping[str, Sequence[Row]]:
        """Return the records of each source vertex in the order in which they come, about so many as are wanted."""

    @abstractmethod
    def batch_query(self, job: JobPlan) -> BatchQuery:
        """Return the query that gives what the sinks but that of late records write."""

    @abstractmethod
    def drawn_parameters(self, between: Between, job: JobPlan) -> Mapping[str, Mapping[str, Any]]:
        """Return vertex -> other parameters than those of the shape."""

    def parameter_problem(self, job: JobPlan) -> str | None:
        """Say for which parameters the batch query would not hold; None if it does."""
        return None

    @property
    def shapes(self) -> tuple[str, ...]:
        """Return the names of the shapes."""
        return tuple(self.shapes_made())

    def job(self, shape: str, widths: Mapping[str, int]) -> JobPlan:
        """Return one of the shapes; raises ValueError for an unknown one."""
        return job_among(self.shapes_made(), shape, widths)

    def draw_job(self, between: Between, subtasks_max: int) -> JobPlan:
        """Draw widths, and other parameters than those of the shape."""
        job = self.job(self.shapes[between(0, len(self.shapes) - 1)], {})
        most = max(1, min(3, subtasks_max // len(job.vertices)))
        drawn = self.drawn_parameters(between, job)
        vertices = tuple(
            msgspec.structs.replace(
                vertex,
                parallelism=between(1, most),
                parameters={**vertex.parameters, **drawn.get(vertex.name, {})},
            )
            for vertex in job.vertices
        )
        edges = tuple(without_key(edge, vertices) for edge in job.edges)
        return msgspec.structs.replace(job, vertices=vertices, edges=edges)

    def problem_of(self, job: JobPlan) -> str | None:
        """Accept the shapes, with other widths and parameters."""
        if not any(_is_alike(self.job(shape, {}), job) for shape in self.shapes):
            return f"its vertices or edges are not those of a shape of the workload: {', '.join(self.shapes)}"
        if any(SKEW in source.parameters for source in job.sources):
            return f"its keys are those of the data, so its sources have no {SKEW}"
        return EventTime().problem_of(job) or self.parameter_problem(job)

    def schemas(self, job: JobPlan) -> Mapping[str, pa.Schema]:
        """Return the columns of the input, the same for every source vertex."""
        return dict.fromkeys([vertex.name for vertex in job.sources], SCHEMA)

    def splits(self, plan: TrialPlan) -> tuple[SplitData, ...]:
        """Return the records, dealt to one or two splits for each source subtask in turn, as they come."""
        job, workload = job_of_plan(self, plan), plan.workload
        draws = random.Random(f"{plan.seed}/{self.name}/splits")
        parts = {vertex.name: vertex.parallelism * draws.choice((1, 1, 2)) for vertex in job.sources}
        length = workload.batches * workload.batch_records + workload.start_offset
        arrivals = self.arrivals(plan, {name: number * length for name, number in parts.items()})
        early, found = workload.early_ends, list[SplitData]()
        for vertex in job.sources:
            records, number = arrivals[vertex.name], parts[vertex.name]
            for part in range(number):
                is_early = part % vertex.parallelism < early
                rows = tuple(records[part::number])[: workload.batch_records if is_early else None]
                start = min(workload.start_offset, len(rows))
                name = f"{vertex.name}-{part}"
                found.append(SplitData(name, part % vertex.parallelism, rows, start, vertex.name))
            early = max(0, early - vertex.parallelism)
        return tuple(found)


def record(key: str, ts: int, identifier: int, mark: int) -> Row:
    """Return a record of the input."""
    return {"key": key, "ts": ts, "id": identifier, "mark": mark, "n": 1, "how": ""}


def stretch(table: Any, number: int, draws: random.Random) -> Any:
    """Return about ``number`` rows of a data frame that come one after the other, from a drawn place on.

    Some of those in between may be left out, the same number each time, if there are enough of them.
    """
    every = min(draws.choice(_EVERY), max(1, len(table) // max(1, number)))
    first = draws.randrange(max(1, len(table) - number * every))
    return table.iloc[first : first + number * every : every]


def hashed(start: str, end: str, number: int = 0) -> EdgePlan:
    """Return an edge on which records go by their key, to an input."""
    return EdgePlan(start, end, Spread.HASH, _KEY, number)


def drawn_source(between: Between, bounds_ms: Sequence[int], *, may_be_idle: bool) -> dict[str, Any]:
    """Draw the parameters of a source."""
    parameters: dict[str, Any] = {"bound_ms": bounds_ms[between(0, len(bounds_ms) - 1)]}
    if between(0, 2) == 2:
        parameters["gaps"] = between(1, 3)
        if may_be_idle and between(0, 1):
            parameters["idle_after_ms"] = between(2, 20)
    return parameters


def _is_alike(own: JobPlan, job: JobPlan) -> bool:
    """Return whether a job is one of the workload's but for widths and parameters."""
    return [_described(vertex) for vertex in own.vertices] == [
        _described(vertex) for vertex in job.vertices
    ] and tuple(without_key(edge, job.vertices) for edge in own.edges) == tuple(
        without_key(edge, job.vertices) for edge in job.edges
    )


def _described(vertex: VertexPlan) -> list[tuple[str, str]]:
    return [(operator.name, operator.kind) for operator in vertex.operators]
