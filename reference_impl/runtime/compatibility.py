"""Whether a job fits its configuration, and the checkpoints that are stored for it.

Every subtask is given the part of a checkpoint that the subtask of its name wrote. If a vertex is wider now, some of
its subtasks would begin empty. If it is narrower, some parts would be given to nobody. With another maximum
parallelism, keys belong to other key groups. The job would run on with wrong results. Until state can be
redistributed (RSC-2), such a job is refused, before anything in storage is changed.

A vertex of a loop forwards its barrier round the loop to itself. In at-least-once mode it would wait for that barrier
before it takes its snapshot, and forward it only then. No checkpoint would ever complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from barrier_tck.reference_impl.config import CheckpointMode, JobConfig
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint, JobShape
from barrier_tck.reference_impl.runtime_errors import IncompatibleState, JobUsageError


def require_possible(graph: JobGraph, config: JobConfig) -> None:
    """Raise JobUsageError if no checkpoint of the job could complete in the configured mode (CHL-5)."""
    mode = config.checkpoints.mode if config.checkpoints is not None else None
    if mode is CheckpointMode.AT_LEAST_ONCE and graph.loops:
        vertices = ", ".join(graph.loops[0].vertices)
        raise JobUsageError(
            f"job {graph.name!r} has a loop ({vertices}), and its checkpoints have the mode {mode.value!r}, in which a "
            "vertex of a loop would wait for ever for its own barrier; use another mode"
        )


def require_fitting(graph: JobGraph, completed: Iterable[CompletedCheckpoint]) -> None:
    """Raise IncompatibleState, saying all that is wrong, unless the job can start from every one of the checkpoints."""
    for checkpoint in sorted(completed, key=lambda one: -one.checkpoint):
        where = f"checkpoint {checkpoint.checkpoint}"
        if checkpoint.job is None:
            raise IncompatibleState(
                f"job {graph.name!r} cannot start from its stored state, and nothing was changed: {where} was "
                "written by an older release and does not say how parallel the job was, so some of its state "
                "might be left behind. Resume with the release that wrote it, or begin anew under another job name"
            )
        problems = [*_misfits(checkpoint.job, graph.shape, where), *_homeless(checkpoint, graph, where)]
        if problems:
            raise IncompatibleState(
                f"job {graph.name!r} cannot start from its stored state, and nothing was changed: "
                f"{'; '.join(problems)}. State cannot be redistributed yet: run the job as it was, or begin anew "
                "under another job name"
            )


def _homeless(checkpoint: CompletedCheckpoint, graph: JobGraph, where: str) -> Iterator[str]:
    """Yield the channels of which the checkpoint holds records in flight, and which the job does not have."""
    for part in checkpoint.snapshots:
        held = (*part.channels.inputs, *part.channels.outputs) if part.channels is not None else ()
        yield from (
            f"{where} has records in flight from {one.channel.sender} to {one.channel.receiver}, and the job has no "
            "such channel"
            for one in held
            if one.channel not in graph.channels
        )


def _misfits(stored: JobShape, present: JobShape, where: str) -> Iterator[str]:
    if present.max_parallelism != stored.max_parallelism:
        yield (
            f"its maximum parallelism is {present.max_parallelism}, and {where} has keyed state in "
            f"{stored.max_parallelism} key groups"
        )
    vertex_of = {uid: vertex for vertex in present.vertices for uid in vertex.stateful}
    for before in stored.vertices:
        for uid in before.stateful:
            what = f"{where} has state of operator {uid!r} in vertex {before.name!r}"
            now = vertex_of.get(uid)
            if now is None:
                yield f"{what}, and the job has no such operator that keeps state"
            elif now.name != before.name:
                yield f"{what}, and the operator is in vertex {now.name!r} now"
        if not before.stateful:
            continue
        now = next((vertex for vertex in present.vertices if vertex.name == before.name), None)
        if now is not None and now.parallelism != before.parallelism:
            yield (
                f"vertex {before.name!r} has parallelism {now.parallelism}, and {where} has its state "
                f"({', '.join(before.stateful)}) in {before.parallelism} subtasks"
            )
