"""Whether a job fits its configuration, and the checkpoints that are stored for it.

A vertex may have another parallelism than in the checkpoint: its state is redistributed (``protocol.rescale``, RSC-2).
What cannot be redistributed is refused, before anything in storage is changed, because the job would run on with wrong
results. With another maximum parallelism, keys belong to other key groups. A stateful operator that is gone, or keeps
another form of state now, would leave its state without an owner. Records in flight need an edge on which to go on.
Those of a broadcast that some receivers have applied, and others not, belong to these receivers and no others. And an
operator that emits its results at the end of its input must not emit them again for keys of a subtask that had reached
the end, when others had not.

A vertex of a loop forwards its barrier round the loop to itself. In at-least-once mode it would wait for that barrier
before it takes its snapshot, and forward it only then. No checkpoint would ever complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from barrier_tck.reference_impl.config import CheckpointMode, JobConfig
from barrier_tck.reference_impl.operators.aggregate import emits_at_the_end
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.operators.list_process import ListProcess
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint, JobShape
from barrier_tck.reference_impl.protocol.rescale import channels_held, half_ended, widths_of
from barrier_tck.reference_impl.runtime.rescaling import new_job
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
        problems = [
            *_misfits(checkpoint.job, graph.shape, where),
            *_unread(checkpoint, graph, where),
            *_homeless(checkpoint, checkpoint.job, graph, where),
            *_half_ended(checkpoint, checkpoint.job, graph, where),
        ]
        if problems:
            raise IncompatibleState(
                f"job {graph.name!r} cannot start from its stored state, and nothing was changed: "
                f"{'; '.join(problems)}. Run the job as it was, or begin anew under another job name"
            )


def _unread(checkpoint: CompletedCheckpoint, graph: JobGraph, where: str) -> Iterator[str]:
    """Yield the operators whose state is of a form that the job's operator of the same name does not read."""
    specs = {operator.uid: operator for vertex in graph.vertices for operator in vertex.operators}
    found: dict[str, str] = {}
    for part in (one for subtask in checkpoint.snapshots for one in subtask.operators):
        spec = specs.get(part.operator)
        if isinstance(spec, ListProcess) and part.handles:
            found[part.operator] = "state by key, and the operator keeps lists without keys now"
        elif spec is not None and part.lists and not isinstance(spec, ListProcess):
            found[part.operator] = "lists without keys, and the operator keeps none now"
    yield from (f"in {where}, operator {uid!r} has {problem}" for uid, problem in found.items())


def _homeless(
    checkpoint: CompletedCheckpoint, before: JobShape, graph: JobGraph, where: str
) -> Iterator[str]:
    """Yield the channels of which the checkpoint holds records in flight that no subtask could take over."""
    edges = {(edge.source, edge.target, edge.number): edge for edge in new_job(graph).edges}
    was, is_now = widths_of(before), widths_of(graph.shape)
    for channel in channels_held(checkpoint):
        held = f"{where} has records in flight from {channel.sender} to {channel.receiver}"
        edge = edges.get((channel.sender.vertex, channel.receiver.vertex, channel.edge))
        if edge is None:
            yield f"{held}, and the job has no such channel"
        elif edge.to_all and was[edge.target] != is_now[edge.target]:
            yield (
                f"{held}, of a broadcast, and vertex {edge.target!r} has parallelism {is_now[edge.target]}, not "
                f"{was[edge.target]}: start from a savepoint in a mode that aligns broadcasts"
            )


def _half_ended(
    checkpoint: CompletedCheckpoint, before: JobShape, graph: JobGraph, where: str
) -> Iterator[str]:
    """Yield the operators of which only some subtasks had emitted what they emit at the end of their input."""
    was = widths_of(before)
    for vertex in graph.vertices:
        if was.get(vertex.name, vertex.parallelism) == vertex.parallelism:
            continue
        for operator in vertex.operators:
            if emits_at_the_end(operator) and half_ended(checkpoint, vertex.name, operator.uid):
                yield (
                    f"in {where}, operator {operator.uid!r} had emitted its results in some of its "
                    f"{was[vertex.name]} subtasks and not in the others, and it has {vertex.parallelism} now"
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
