"""The standard generated workload: a running count and sum per key, small enough for thousands of trials."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from barrier_tck.harness.plan.job_graph import (
    SINK,
    SOURCE,
    EdgePlan,
    JobPlan,
    OperatorPlan,
    Spread,
    VertexPlan,
)
from barrier_tck.harness.plan.shapes import job_along
from barrier_tck.harness.plan.trial_plan import TrialPlan, WorkloadPlan
from barrier_tck.harness.workloads.sequential_model import Aggregate, SequentialSpec
from barrier_tck.harness.workloads.workload import SplitData, job_of_plan, problem_of_fixed

ID_STRIDE = 1_000_000
"""The ids of part p of subtask s begin at ``(2 * s + p) * ID_STRIDE``, so an id contains its split and offset."""

VALUES = range(-20, 101)
"""The range of ``value``: negative, zero and positive, so that no sum hides a record."""

SCHEMA = pa.schema([("id", pa.int64()), ("key", pa.string()), ("value", pa.int64())])
"""Schema of the input when it is written as Parquet."""


class KeyedTotals:
    """Generated rows ``id, key, value``; per record one output row ``id, key, count, sum``."""

    name = "keyed-totals"
    description = (
        "Read the splits; group the records by `key`; keep per key the number of records (`count`) and the "
        "sum of `value` (`sum`); for every record emit one row with its `id`, its `key` and both aggregates, "
        "this record included; write the rows to a sink whose committed output is visible exactly once."
    )
    spec = SequentialSpec(
        id_column="id",
        key_columns=("key",),
        aggregates=(Aggregate("count"), Aggregate("sum", "value")),
    )

    shapes = ("line", "chained")

    def job(self, shape: str, widths: Mapping[str, int]) -> JobPlan:
        """Return ``line``, or ``chained``, whose second stateful operator exposes a wrong count."""
        return running_totals(self.spec, shape, widths)

    def problem_of(self, job: JobPlan) -> str | None:
        """Accept a job that is one of the shapes."""
        return problem_of_fixed(self, job)

    @property
    def input_directory(self) -> Path | None:
        """Return None: the input is generated."""
        return None

    def schemas(self, job: JobPlan) -> Mapping[str, pa.Schema]:
        """Return the columns of the input."""
        return {SOURCE: SCHEMA}

    def splits(self, plan: TrialPlan) -> tuple[SplitData, ...]:
        """Return one or two splits per source subtask, with ``batches * batch_records`` records per subtask.

        All first splits come before all second ones, so that dealing the list out in turn gives each subtask
        its own. Every draw comes from a stream named after what it decides, so that one more source does not
        change the splits of the others. A second split begins at a batch boundary or, now and then, after
        one record: the boundary case of SO-02. Raises ValueError for negative sizes, or if there are no keys.
        """
        _refuse_impossible(plan.workload)
        subtasks = range(job_of_plan(self, plan).vertex(SOURCE).parallelism)
        batches, size = plan.workload.batches, plan.workload.batch_records
        early = plan.workload.early_ends
        lengths = [
            _lengths(plan.seed, subtask, min(batches, 1) if subtask < early else batches, size)
            for subtask in subtasks
        ]
        return tuple(
            [
                _split(plan, subtask, part, lengths[subtask][part])
                for part in range(len(lengths[0]) if lengths else 0)
                for subtask in subtasks
            ]
        )


def running_totals(spec: SequentialSpec, shape: str, widths: Mapping[str, int]) -> JobPlan:
    """Return the job of a model of running totals: source, hash by key, aggregate per record, sink.

    In the shape ``chained``, another operator follows the aggregate in the same subtask. It counts the records of each
    key in a state of its own, and fails if the two counts differ. Raises ValueError for an unknown shape.
    """
    if shape not in ("", "line", "chained"):
        raise ValueError(f"there is no shape {shape!r}; known: line, chained")
    witness = OperatorPlan("witness", "witness", {"count": spec.aggregates[spec.count_index].name})
    vertices = (
        VertexPlan(SOURCE, SOURCE, 2),
        VertexPlan("totals", "totals", 2, then=(witness,) if shape == "chained" else ()),
        VertexPlan(SINK, SINK, 1),
    )
    return job_along(
        EdgePlan(SOURCE, "totals", Spread.HASH, spec.key_columns),
        EdgePlan("totals", SINK, Spread.FORWARD),
        shape=shape or "line",
        vertices=vertices,
        widths=widths,
    )


def _refuse_impossible(workload: WorkloadPlan) -> None:
    """Raise ValueError for a plan that describes no input."""
    sizes = {
        "batches": workload.batches,
        "batch_records": workload.batch_records,
        "start_offset": workload.start_offset,
    }
    for name, value in sizes.items():
        if value < 0:
            raise ValueError(f"workload.{name} must be 0 or more, not {value}")
    if workload.keys < 1:
        raise ValueError(f"workload.keys must be 1 or more, not {workload.keys}")


@lru_cache(maxsize=16)
def _lengths(seed: int, subtask: int, batches: int, size: int) -> tuple[int, ...]:
    """Return how many input records each split of a source subtask has; every subtask has the same number of splits."""
    total = batches * size
    shape = _shape(seed)
    if shape < 4 or total == 0:
        return (total,)
    if shape == 4:
        return (1, total - 1)
    first = size * random.Random(f"{seed}/workload/cut/{subtask}").randint(0, batches)
    return (first, total - first)


@lru_cache(maxsize=16)
def _shape(seed: int) -> int:
    """Return a number from 0 to 7 that decides how the records of every source subtask are split."""
    return random.Random(f"{seed}/workload/shape").randrange(8)


def _split(plan: TrialPlan, subtask: int, part: int, records: int) -> SplitData:
    """Return one split; before its start it holds as many further records as the plan's start offset says.

    Sorted by name, as a source over files sorts them, splits have the same order as in the list.
    """
    name, start = f"split-{part}-{subtask}", plan.workload.start_offset
    stream = f"{plan.seed}/workload/split-{subtask}-{part}"
    keys, values = _draws(stream, plan.workload.keys, start + records)
    # Further source subtasks do not change the ids of the others: id ranges go by subtask, then by part.
    first_id = (2 * subtask + part) * ID_STRIDE
    rows = [
        {"id": first_id + i, "key": key, "value": value}
        for i, (key, value) in enumerate(zip(keys, values, strict=True))
    ]
    return SplitData(name, subtask, tuple(rows), start)


@lru_cache(maxsize=8)  # a trial asks twice: for the system, and again for the oracle
def _draws(stream: str, keys: int, number: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the keys and values of ``number`` records, drawn from a named stream."""
    draws = random.Random(stream)
    return (
        tuple(draws.choices([f"k{key}" for key in range(keys)], k=number)),
        tuple(draws.choices(VALUES, k=number)),
    )
