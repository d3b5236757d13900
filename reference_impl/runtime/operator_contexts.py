"""What the operators and the reader of one subtask are given when they open."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from barrier_tck.reference_impl.config import OnUnreadable
from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.operators.api import DataPlane, Operator, OperatorContext, SourceReader
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.ports import RuntimePoint
from barrier_tck.reference_impl.runtime.routing import Router
from barrier_tck.reference_impl.runtime.sink_files import SinkFiles
from barrier_tck.reference_impl.runtime.state_copies import StateCopies
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment, SubtaskPorts
from barrier_tck.reference_impl.state.backend import StateBackend
from barrier_tck.reference_impl.state.working_directory import WorkingDirectory
from barrier_tck.reference_impl.storage.local_copies import FILES_WANTED


def context_of(
    deployment: SubtaskDeployment,
    graph: JobGraph,
    ports: SubtaskPorts,
    state_backend: StateBackend,
    working: WorkingDirectory,
    copies: StateCopies,
    router: Router,
) -> OperatorContext:
    """Return the context of every operator of a subtask."""
    restore = deployment.restore
    event_time = restore.event_time if restore is not None else msgspec.UNSET
    return OperatorContext(
        job=deployment.job,
        subtask=deployment.subtask,
        parallelism=graph.vertex(deployment.subtask.vertex).parallelism,
        attempt=deployment.attempt,
        key_groups=graph.key_groups_of(deployment.subtask),
        max_parallelism=graph.max_parallelism,
        state_backend=state_backend,
        reader=copies.reader,
        writers=copies,
        output_files=SinkFiles(ports.files, lambda: ports.probe.reach(RuntimePoint.COMMIT_STEP)),
        write_through=deployment.config.write_through,
        cached_keys=deployment.config.cached_keys,
        working_directory=working.of_operator,
        defer_restored_commits=deployment.config.on_unreadable is OnUnreadable.OLDER,
        files_wanted=FILES_WANTED if deployment.config.local_recovery else 1,
        compression=deployment.config.compression,
        incremental=deployment.config.checkpoints is not None and deployment.config.checkpoints.incremental,
        now_ms=ports.clock.now_ms,
        restored=built_on(deployment),
        own_threads=ports.own_threads,
        event_time=None if isinstance(event_time, msgspec.UnsetType) else event_time,
        emit_aside=router.emit_aside,
    )


def built_on(deployment: SubtaskDeployment) -> CheckpointId | None:
    """Return the checkpoint to whose files snapshots may refer; None: state was redistributed, or there is none."""
    restore = deployment.restore
    redistributed = restore is not None and restore.redistributed is True
    return None if redistributed else deployment.restored_checkpoint


def reader_of(
    deployment: SubtaskDeployment,
    graph: JobGraph,
    ports: SubtaskPorts,
    plane: DataPlane,
    components: Components,
) -> SourceReader | None:
    """Return what reads the subtask's share of its source; None if it is no source."""
    vertex, index = graph.vertex(deployment.subtask.vertex), deployment.subtask.index
    if vertex.source is None:
        return None
    return components.instruments.reader(vertex.source.open(index, vertex.parallelism, ports.files, plane))


def commit_without_checkpoints(operators: Sequence[Operator]) -> None:
    """Commit all output at the end of a job that takes no checkpoints (COO-7)."""
    for operator in operators:
        commit = getattr(operator, "commit_without_checkpoints", None)
        if commit is not None:
            commit()
