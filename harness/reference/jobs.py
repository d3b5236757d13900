"""The harness's workloads as jobs of the reference runtime, and a plan's settings in the runtime's own terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from barrier_tck.harness.plan.job_graph import SOURCE, JobPlan, Spread, VertexPlan
from barrier_tck.harness.plan.trial_plan import RestartPlan, TrialPlan
from barrier_tck.harness.reference.operators import operator_spec
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.workloads.event_time import gaps_of
from barrier_tck.harness.workloads.event_time_parameters import BOUND, DRIFT, GAPS, GROUP, IDLE_AFTER, REPORT
from barrier_tck.harness.workloads.workload import SplitData, Workload
from barrier_tck.reference_impl.config import (
    AnyRestart,
    CheckpointConfig,
    CheckpointMode,
    Compression,
    CopyMedium,
    ElasticConfig,
    ExponentialDelayRestart,
    FailureRateRestart,
    JobConfig,
    OnUnreadable,
    RestartConfig,
)
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, SubtaskId
from barrier_tck.reference_impl.operators.api import Source
from barrier_tck.reference_impl.operators.graph import Edge, JobGraph, Partitioning, Vertex
from barrier_tck.reference_impl.operators.sources import CollectionSource, Gap, ParquetSource
from barrier_tck.reference_impl.operators.watermark_strategies import BoundedOutOfOrder, WatermarkAlignment
from barrier_tck.reference_impl.storage.checkpoint_storage import CheckpointStorage

CHECKPOINTS = "checkpoints"
"""Directory of checkpoint storage, below the trial's file system root."""

SAVEPOINTS = "savepoints"
"""Directory of the savepoints that trials ask for, below the same root."""

PREPARED_BATCH_ROWS = 2_048
"""Records per batch of a prepared input: small enough that a short job has many batches to interleave."""


def job_config(plan: TrialPlan) -> JobConfig:
    """Return the plan's checkpoint and restart settings; raises UsageProblem if a word is unknown. The runtime's own
    defaults apply to settings that the plan does not make (COO-7, LOC-1).
    """
    options: dict[str, Any] = {}
    second = plan.checkpoints.local_compression
    if plan.checkpoints.enabled is not None:
        options["checkpoints"] = _checkpoint_config(plan) if plan.checkpoints.enabled else None
    if plan.local_recovery is not None:
        options["local_recovery"] = plan.local_recovery
    return JobConfig(
        restart=_restart_config(plan.restart),
        write_through=plan.deployment.write_through,
        cached_keys=plan.deployment.cached_keys,
        storage_root=CHECKPOINTS,
        compression=Compression(plan.checkpoints.compression),
        local_compression=Compression(second) if second is not None else None,
        local_copies=CopyMedium(plan.checkpoints.local_copies),
        local_memory_bytes=plan.checkpoints.local_memory_bytes,
        on_unreadable=OnUnreadable(plan.on_unreadable),
        elastic=_elastic_config(plan),
        **options,
    )


def _elastic_config(plan: TrialPlan) -> ElasticConfig | None:
    wait_ms = plan.deployment.elastic_wait_ms
    if wait_ms is None:
        return None
    # What becomes of a record that all receivers process depends on how many there are.
    broadcast_to = [edge.target for edge in plan.job.edges if edge.by is Spread.BROADCAST]
    return ElasticConfig(wait_ms, tuple(dict.fromkeys((*plan.deployment.fixed_vertices, *broadcast_to))))


def _restart_config(restart: RestartPlan) -> AnyRestart:
    match restart.strategy:
        case "none":
            return RestartConfig()
        case "fixed_delay":
            return RestartConfig(restart.attempts_max, restart.delay_ms)
        case "failure_rate":
            return FailureRateRestart(restart.attempts_max, restart.interval_ms, restart.delay_ms)
        case "exponential_delay":
            return ExponentialDelayRestart(
                initial_ms=restart.delay_ms,
                max_ms=max(restart.delay_ms, restart.delay_ms_max),
                factor=restart.factor,
                reset_after_ms=restart.reset_after_ms,
                attempts_max=restart.attempts_max,
            )


def reserve_ids(plan: TrialPlan, storage: CheckpointStorage) -> None:
    """Let durable storage say that an earlier job had the ids below the plan's first one, and its attempts (COO-4).

    Attempts go on above that first id, so that the second one has one more digit where the third id has (REC-2).
    """
    first = plan.checkpoints.first_id
    if first > 1:
        storage.reserve(CheckpointId(first - 1), AttemptNumber(first))


def _checkpoint_config(plan: TrialPlan) -> CheckpointConfig:
    try:
        recorded = plan.checkpoints.protocol == "chandy_lamport"
        mode = CheckpointMode.CHANDY_LAMPORT if recorded else CheckpointMode(plan.checkpoints.mode)
    except ValueError as error:
        known = ", ".join(mode.value for mode in CheckpointMode)
        raise UsageProblem(f"checkpoints.mode {plan.checkpoints.mode!r} is not one of: {known}") from error
    return CheckpointConfig(
        interval_ms=plan.checkpoints.interval_ms,
        mode=mode,
        timeout_ms=plan.checkpoints.timeout_ms,
        min_pause_ms=plan.checkpoints.min_pause_ms,
        max_concurrent=plan.checkpoints.max_concurrent,
        retained=plan.checkpoints.retained,
        incremental=plan.checkpoints.incremental,
        tolerated_failures=plan.checkpoints.tolerated_failures,
        alignment_timeout_ms=plan.checkpoints.alignment_timeout_ms,
        initiators=tuple(tuple(map(SubtaskId.parse, group)) for group in plan.checkpoints.initiators),
    )


def kinds_of(plan: TrialPlan) -> dict[str, str]:
    """Return operator -> kind; the plan's job must be filled in."""
    return {operator.name: operator.kind for vertex in plan.job.vertices for operator in vertex.operators}


def collection_source(plan: TrialPlan, vertex: VertexPlan, splits: Sequence[SplitData]) -> Source:
    """Return the generated input of one source vertex as a source of row batches."""
    event_time = BOUND in vertex.parameters
    return CollectionSource(
        splits=tuple((split.name, split.rows) for split in splits),
        batch_records=plan.workload.batch_records,
        start_offset=plan.workload.start_offset,
        rate_limit=plan.workload.records_per_second,
        in_turn=event_time,
        gaps=tuple(Gap(*gap) for split in splits for gap in gaps_of(plan, vertex, split))
        if event_time
        else (),
    )


def collection_sources(plan: TrialPlan, splits: Sequence[SplitData]) -> dict[str, Source]:
    """Return a source of row batches for each source vertex of the plan's job."""
    return {
        vertex.name: collection_source(
            plan, vertex, [split for split in splits if split.vertex == vertex.name]
        )
        for vertex in plan.job.sources
    }


def parquet_sources(plan: TrialPlan, workload: Workload, directory: Path) -> dict[str, Source]:
    """Return a source of Arrow batches for each source vertex, from the Parquet splits below a directory.

    The splits of a generated input lie in one directory for each source vertex; those of a prepared input share one. A
    generated input comes in batches of the plan's size, as in the simulator.
    """
    generated = workload.input_directory is None
    return {
        vertex.name: ParquetSource(
            str(directory / vertex.name if generated else directory),
            columns=_columns(workload, plan.job, vertex.name),
            batch_rows=plan.workload.batch_records if generated else PREPARED_BATCH_ROWS,
            rate_limit=plan.workload.records_per_second,
            start_offset=plan.workload.start_offset,
            in_turn=BOUND in vertex.parameters,
            gaps=_gaps_in_files(plan, workload, vertex),
        )
        for vertex in plan.job.sources
    }


def _gaps_in_files(plan: TrialPlan, workload: Workload, vertex: VertexPlan) -> tuple[Gap, ...]:
    """Return where the files of a source have no record for a time."""
    if GAPS not in vertex.parameters:
        return ()
    splits = [split for split in workload.splits(plan) if split.vertex == vertex.name]
    return tuple(
        Gap(f"{name}.parquet", offset, polls, wait_ms)
        for split in splits
        for name, offset, polls, wait_ms in gaps_of(plan, vertex, split)
    )


def _columns(workload: Workload, job: JobPlan, vertex: str) -> tuple[str, ...]:
    """Return the columns that the job needs from a source."""
    if workload.input_directory is None:
        return tuple(workload.schemas(job)[vertex].names)
    spec = workload.spec
    assert spec is not None, "only running totals have a prepared input"
    summed = [aggregate.column for aggregate in spec.aggregates if aggregate.column is not None]
    return tuple(dict.fromkeys([spec.id_column, *spec.key_columns, *summed]))


def watermark_strategy(vertex: VertexPlan) -> BoundedOutOfOrder | None:
    """Return how a source makes watermarks; None for a vertex that makes none."""
    if BOUND not in vertex.parameters:
        return None
    return BoundedOutOfOrder("ts", vertex.parameters[BOUND], vertex.parameters.get(IDLE_AFTER))


def watermark_alignment(vertex: VertexPlan) -> WatermarkAlignment | None:
    """Return with which sources a source keeps pace; None for a vertex that keeps none."""
    if DRIFT not in vertex.parameters:
        return None
    group = f"group {vertex.parameters.get(GROUP, 0)}"
    return WatermarkAlignment(group, vertex.parameters[DRIFT], vertex.parameters[REPORT])


def build_graph(plan: TrialPlan, workload: Workload, sources: Mapping[str, Source]) -> JobGraph:
    """Return the plan's job in the runtime's own terms; the plan's job must be filled in."""
    return JobGraph(
        workload.name,
        tuple(
            Vertex(
                vertex.name,
                vertex.parallelism,
                sources.get(vertex.name),
                tuple(
                    operator_spec(plan.job, plan.deployment, vertex, operator, workload)
                    for operator in vertex.operators
                    if operator.kind != SOURCE
                ),
                watermark_strategy(vertex),
                watermark_alignment(vertex),
            )
            for vertex in plan.job.vertices
        ),
        tuple(
            Edge(
                edge.source,
                edge.target,
                Partitioning(edge.by.value),
                edge.key,
                edge.input,
                edge.feedback,
                edge.output,
            )
            for edge in plan.job.edges
        ),
        plan.deployment.max_parallelism,
    )
