"""Generated inputs for any graph: how many splits each source vertex has, and how long each of them is."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

from barrier_tck.harness.plan.job_graph import JobPlan, VertexPlan
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.history import Row
from barrier_tck.harness.workloads.workload import SplitData

SPLITS_MAX = 3
"""The most splits that one source subtask reads."""

Rows = Callable[[int, int, random.Random, TrialPlan, VertexPlan], Sequence[Row]]
"""Takes the id of the first row of a split, the number of rows, a stream to draw from, the plan, and the source vertex
that reads the split; returns the rows."""


def drawn_splits(plan: TrialPlan, job: JobPlan, stream: str, rows: Rows) -> tuple[SplitData, ...]:
    """Return the splits of every source vertex; ``stream`` is the name of the stream from which they are drawn.

    A vertex may have fewer splits than subtasks (then some are idle), or up to three splits per subtask. Ids do not
    depend on the splits of the other vertices.
    """
    early, splits = plan.workload.early_ends, list[SplitData]()
    for number, vertex in enumerate(job.sources):
        splits += _splits_of(plan, number, vertex, stream, rows, early)
        early = max(0, early - vertex.parallelism)
    return tuple(splits)


def _splits_of(
    plan: TrialPlan, number: int, vertex: VertexPlan, stream: str, rows: Rows, early: int
) -> Iterable[SplitData]:
    """Yield the splits of one source vertex; every draw comes from a stream named after what it decides.

    ``early``: how many of its subtasks read at most one batch of each split.
    """
    shape = random.Random(f"{plan.seed}/{stream}/{vertex.name}")
    records, start = plan.workload.batches * plan.workload.batch_records, plan.workload.start_offset
    width = vertex.parallelism
    # One split per source subtask, or several, or so few that some subtasks are idle.
    parts = shape.choice((width, width, 0, width * shape.randint(2, SPLITS_MAX)))
    for part in range(parts or shape.randint(1, max(1, width - 1))):
        name, length = f"{vertex.name}-{part}", _length(shape, records)
        if part % width < early:
            length = min(length, plan.workload.batch_records)
        draws = random.Random(f"{plan.seed}/{stream}/{name}")
        first = (number * 1_000 + part) * 100_000
        yield SplitData(
            name, part % width, tuple(rows(first, start + length, draws, plan, vertex)), start, vertex.name
        )


def _length(shape: random.Random, records: int) -> int:
    """Return how many input records a split has: mostly as many as the plan says, now and then fewer."""
    return records if shape.random() < 0.7 else shape.randint(0, records)
