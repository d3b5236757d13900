"""The harness's workloads as jobs of the reference runtime, and a plan's settings in the runtime's own terms."""

from __future__ import annotations

from functools import partial
from itertools import pairwise, product
from pathlib import Path

from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.workloads.workload import SplitData, Workload
from barrier_tck.harness.workloads.workload_names import workload_named
from barrier_tck.reference_impl.config import (
    CheckpointConfig,
    CheckpointMode,
    JobConfig,
    OnUnreadable,
    RestartConfig,
)
from barrier_tck.reference_impl.operators.api import Source
from barrier_tck.reference_impl.operators.functions import Aggregate, Count, Emission, Row, Sum
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.operators.job import StreamJob
from barrier_tck.reference_impl.operators.keyed_process import KeyedProcess
from barrier_tck.reference_impl.operators.sinks import FileSink
from barrier_tck.reference_impl.operators.sources import CollectionSource, ParquetSource
from barrier_tck.reference_impl.state.keyed import KeyedStates, NamedState, ValueCell

OUTPUT = "output"
"""Directory of the committed output, below the trial's file system root."""
CHECKPOINTS = "checkpoints"
"""Directory of checkpoint storage, likewise."""

PARQUET_BATCH_ROWS = 2_048
"""Records per batch of a Parquet workload: small enough that a short job has many batches to interleave."""


def subtask_names(plan: TrialPlan) -> tuple[str, ...]:
    """Return the subtasks of the plan's job, upstream first, without building it."""
    topology = plan.topology
    widths: tuple[tuple[str, int], ...]
    if workload_named(plan.workload.name).spec.stateful:
        widths = (("source", topology.sources), ("totals", topology.keyed), ("sink", topology.sinks))
    else:
        widths = tuple((vertex, topology.sources) for vertex in ("source", "steps", "sink"))
    return tuple(f"{vertex}[{index}]" for vertex, width in widths for index in range(width))


def channel_names(plan: TrialPlan) -> tuple[tuple[str, str], ...]:
    """Return (sender, receiver) of every channel of the plan's job, without building it.

    Into ``totals`` records are spread by key; between other vertices each subtask has one receiver, if as many.
    """
    vertices: dict[str, list[str]] = {}
    for name in subtask_names(plan):
        vertices.setdefault(name.partition("[")[0], []).append(name)
    found: list[tuple[str, str]] = []
    for (_, senders), (vertex, receivers) in pairwise(vertices.items()):
        spread = vertex == "totals" or len(senders) != len(receivers)
        found += product(senders, receivers) if spread else zip(senders, receivers, strict=True)
    return tuple(found)


def job_config(plan: TrialPlan) -> JobConfig:
    """Return the plan's checkpoint and restart settings; raises UsageProblem if a word is unknown."""
    checkpoints = None
    if plan.checkpoints.enabled:
        try:
            mode = CheckpointMode(plan.checkpoints.mode)
        except ValueError as error:
            known = ", ".join(mode.value for mode in CheckpointMode)
            raise UsageProblem(
                f"checkpoints.mode {plan.checkpoints.mode!r} is not one of: {known}"
            ) from error
        checkpoints = CheckpointConfig(
            interval_ms=plan.checkpoints.interval_ms,
            mode=mode,
            timeout_ms=plan.checkpoints.timeout_ms,
            min_pause_ms=plan.checkpoints.min_pause_ms,
            max_concurrent=plan.checkpoints.max_concurrent,
            retained=plan.checkpoints.retained,
            tolerated_failures=plan.checkpoints.tolerated_failures,
        )
    restarts = plan.restart.attempts_max if plan.restart.strategy == "fixed_delay" else 0
    return JobConfig(
        checkpoints=checkpoints,
        restart=RestartConfig(restarts, plan.restart.delay_ms if restarts else 0),
        write_through=plan.topology.write_through,
        storage_root=CHECKPOINTS,
        local_recovery=plan.local_recovery,
        on_unreadable=OnUnreadable(plan.on_unreadable),
    )


def collection_source(plan: TrialPlan, splits: tuple[SplitData, ...]) -> Source:
    """Return a generated input as a source of row batches."""
    return CollectionSource(
        splits=tuple((split.name, split.rows) for split in splits),
        batch_records=max(1, plan.workload.batch_records),
        start_offset=plan.workload.start_offset,
        rate_limit=plan.workload.records_per_second,
    )


def parquet_source(plan: TrialPlan, workload: Workload, directory: Path) -> Source:
    """Return the Parquet splits of a directory as a source of Arrow batches."""
    spec = workload.spec
    columns = [spec.id_column, *spec.key_columns]
    columns += [aggregate.column for aggregate in spec.aggregates if aggregate.column is not None]
    return ParquetSource(
        str(directory),
        columns=tuple(dict.fromkeys(columns)),
        batch_rows=PARQUET_BATCH_ROWS,
        rate_limit=plan.workload.records_per_second,
        start_offset=plan.workload.start_offset,
    )


def build_graph(plan: TrialPlan, workload: Workload, source: Source) -> JobGraph:
    """Return the workload's job: source, hash by key, running aggregates per record, transactional sink.

    A workload without state becomes source, flat map, filter and map, and sink, each subtask with one sender.
    """
    spec, topology = workload.spec, plan.topology
    if not spec.stateful:
        return _graph_without_shuffle(plan, workload, source)
    aggregates: dict[str, Aggregate] = {
        aggregate.name: Count() if aggregate.column is None else Sum(aggregate.column)
        for aggregate in spec.aggregates
    }
    totals = (
        StreamJob(workload.name, max_parallelism=topology.max_parallelism)
        .source(source, parallelism=topology.sources, name="source")
        .key_by(*spec.key_columns)
        .aggregate(
            aggregates,
            emit=Emission.EACH_RECORD,
            carry=(spec.id_column,),
            parallelism=topology.keyed,
            name="totals",
        )
    )
    if topology.stateful_operators > 1:
        witness = KeyedProcess("witness", spec.key_columns, partial(Witness, spec.aggregates[0].name))
        totals = totals.then(witness)
    return totals.sink(FileSink(OUTPUT), parallelism=topology.sinks, name="sink", chain=False).build()


def _graph_without_shuffle(plan: TrialPlan, workload: Workload, source: Source) -> JobGraph:
    """Return the job of ``passthrough``: flat map, filter and map, forwarded to the sink (ALO-3)."""
    width = plan.topology.sources
    return (
        StreamJob(workload.name, max_parallelism=max(width, plan.topology.max_parallelism))
        .source(source, parallelism=width, name="source")
        .flat_map(_twice, name="steps", uid="twice")
        .filter(_is_unmarked, uid="unmarked")
        .map(_as_output_row, uid="output_row")
        .sink(FileSink(OUTPUT), parallelism=width, name="sink", chain=False)
        .build()
    )


class Witness:
    """A second stateful operator in the chain: counts the records of each key too, and contradicts a wrong count."""

    def __init__(self, column: str) -> None:
        """Take the column that has the count of the operator before."""
        self._column = column
        self._count: NamedState[ValueCell[int]] | None = None

    def open(self, states: KeyedStates) -> None:
        """Name the state."""
        self._count = states.value("seen", int)

    def process(self, group: int, key: bytes, row: Row) -> tuple[Row]:
        """Pass the record on; raises ValueError if the two operators do not agree."""
        assert self._count is not None, "open comes first"
        cell = self._count.of(group, key)
        seen = (cell.get() or 0) + 1
        if row[self._column] != seen:
            raise ValueError(f"{row} is the {seen}. record of its key, by the state of the next operator")
        cell.set(seen)
        return (row,)


def _twice(row: Row) -> tuple[Row, Row]:
    return {**row, "marked": False}, {**row, "marked": True}


def _is_unmarked(row: Row) -> bool:
    return not row["marked"]


def _as_output_row(row: Row) -> Row:
    return {"id": row["id"], "count": 1, "sum": row["value"] or 0}
