"""A plan's job as a barrier-based system shows it: which points each subtask is sure to pass, and how often."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from barrier_tck.faults.vocabulary import COORDINATOR_POINTS, ProtocolPoint
from barrier_tck.harness.plan.job_graph import SOURCE, JobPlan, Spread, VertexPlan
from barrier_tck.harness.plan.storage_targets import OF_THE_TRIAL
from barrier_tck.harness.plan.trial_plan import DeploymentPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.system.job_view import JobView, Role, SubtaskView
from barrier_tck.harness.workloads.kind_catalogue import keeps_by_key
from barrier_tck.harness.workloads.workload_names import filled, workload_named

_EVERY_CHECKPOINT = (
    ProtocolPoint.BARRIER_RECEIVED,
    ProtocolPoint.SNAPSHOT_TAKEN,
    ProtocolPoint.BARRIER_FORWARDED,
    ProtocolPoint.SNAPSHOT_STORED,
    ProtocolPoint.ACKNOWLEDGED,
)
_OF_SINKS = (
    ProtocolPoint.COMPLETION_NOTIFIED,
    ProtocolPoint.COMMIT_STEP,
    ProtocolPoint.TRANSACTIONS_COMMITTED,
)
_OF_A_RESTORE = (ProtocolPoint.RESTORE_STARTED, ProtocolPoint.RESTORED)
_REPEATED = (
    *_EVERY_CHECKPOINT[:-1],
    *(ProtocolPoint.ALIGNMENT_STARTED, ProtocolPoint.ALIGNMENT_COMPLETED),
    *_OF_A_RESTORE,
    *(ProtocolPoint.CHECKPOINT_TRIGGERED, ProtocolPoint.ATTEMPT_RUNNING),
)
"""Points at which a kill fails the checkpoint, the restore or the attempt, so that another one follows."""
_READ = ProtocolPoint.RECORDS_PROCESSED
_LONG = 20
"""The least number of batches that a source subtask of a prepared input has."""
_PUBLICATION_STEPS = 2
"""A storage puts the metadata, makes its name durable, and then that of its directory; the last step is no point."""
STEPS_OF_A_START = 2
"""A coordinator that starts stands at a point before it reads durable storage, and again afterwards."""
_STEPS_OF_A_CLOSE = 2
"""A subtask that ends in good order stands at a point before it cancels what is under way, and again afterwards."""
_SOMETIMES = (
    ProtocolPoint.CHECKPOINT_ABORTED,
    ProtocolPoint.ATTEMPT_FAILED,
    ProtocolPoint.WAITING_FOR_SLOTS,
)
"""Points that a run without faults does not pass."""


def barrier_view(plan: TrialPlan, silence_noticed_ms: float | None = None) -> JobView:
    """Return the view of a system that runs the plan's job with barriers: every job ends with a checkpoint.

    ``silence_noticed_ms``: within how many milliseconds it promises to notice that a subtask is silent, if it does.
    """
    plan = filled(plan)
    groups = plan.deployment.max_parallelism
    return _view(
        plan.seed,
        plan.workload,
        plan.job,
        groups,
        plan.checkpoints.overtakes or plan.checkpoints.records_all,
        plan.checkpoints.storage in OF_THE_TRIAL,
        silence_noticed_ms,
    )


# This is asked several times for one plan: when faults are drawn, checked and judged.
@lru_cache(maxsize=64)
def _view(
    seed: int,
    workload: WorkloadPlan,
    job: JobPlan,
    groups: int,
    overtakes: bool,
    in_steps: bool,
    silence_noticed_ms: float | None,
) -> JobView:
    """Return the view; ``groups`` is the job's maximum parallelism; ``overtakes``: barriers may overtake records;
    ``in_steps``: checkpoints are published in steps."""
    input_plan = TrialPlan(
        seed=seed, workload=workload, job=job, deployment=DeploymentPlan(max_parallelism=groups)
    )
    batches = batches_by_source(input_plan)
    return JobView(
        silence_noticed_ms=silence_noticed_ms,
        subtasks=tuple(
            SubtaskView(
                name,
                _roles(vertex),
                _passes(job, vertex, batches.get(name, 0), overtakes),
                vertex.name,
                _key_groups(groups, vertex, index),
            )
            for vertex in job.vertices
            for index, name in enumerate(vertex.subtasks)
        ),
        links=tuple(dict.fromkeys(job.channels)),
        control_links=job.subtasks,
        coordinator_passes={
            point: int(point not in _SOMETIMES) for point in ProtocolPoint if point in COORDINATOR_POINTS
        }
        | {
            ProtocolPoint.PUBLICATION_STEP: _PUBLICATION_STEPS if in_steps else 0,
            ProtocolPoint.COORDINATOR_STARTING: STEPS_OF_A_START,
        },
        repeats=_REPEATED,
    )


def _key_groups(groups: int, vertex: VertexPlan, index: int) -> tuple[int, int] | None:
    """Return the key groups that a subtask owns, the second one exclusive (RSC-1); None if it keeps no state."""
    if not keeps_by_key(vertex):
        return None
    width = vertex.parallelism
    return -(-index * groups // width), -(-(index + 1) * groups // width)


def batches_by_source(plan: TrialPlan) -> dict[str, int]:
    """Return how many batches each source subtask reads; the plan's job must be filled in."""
    workload = workload_named(plan.workload.name)
    if workload.input_directory is not None:
        return {name: _LONG for vertex in plan.job.sources for name in vertex.subtasks}
    found: dict[str, int] = {}
    for split in workload.splits(plan):
        name = f"{split.vertex}[{split.subtask}]"
        found[name] = found.get(name, 0) + -(-len(split.input) // plan.workload.batch_records)
    return found


def reading_at_every_width(view: JobView, plan: TrialPlan, widths: Mapping[str, Sequence[int]]) -> JobView:
    """Return the view with only those batches that a subtask reads at whatever width its source vertex runs.

    ``widths``: for each source vertex that runs with several widths, these widths. Splits are assigned in turn, so a
    subtask is sure to read to the end only the splits that it has at each width. With a prepared input, none are sure.
    """
    if not widths:
        return view
    prepared = workload_named(plan.workload.name).input_directory is not None
    sure: dict[str, int] = {}
    places: dict[str, int] = {}
    for split in () if prepared else workload_named(plan.workload.name).splits(plan):
        place = places[split.vertex] = places.get(split.vertex, -1) + 1
        owners = [place % width for width in widths.get(split.vertex, ())]
        if owners and owners.count(owners[0]) == len(owners):
            name = f"{split.vertex}[{owners[0]}]"
            sure[name] = sure.get(name, 0) - (-len(split.input) // plan.workload.batch_records)
    return msgspec.structs.replace(
        view,
        subtasks=tuple(
            msgspec.structs.replace(entry, passes={**entry.passes, _READ: sure.get(entry.name, 0)})
            if entry.vertex in widths and _READ in entry.passes
            else entry
            for entry in view.subtasks
        ),
    )


def _roles(vertex: VertexPlan) -> tuple[Role, ...]:
    roles = [Role.SOURCE] if vertex.kind == SOURCE else []
    roles += [Role.STATEFUL] if keeps_by_key(vertex) else []
    roles += [Role.SINK] if vertex.ends_in_sink else []
    return tuple(roles) or (Role.STATELESS,)


def _passes(job: JobPlan, vertex: VertexPlan, batches: int, overtakes: bool) -> Mapping[ProtocolPoint, int]:
    passes = dict.fromkeys((*_EVERY_CHECKPOINT, *_OF_A_RESTORE), 1)
    passes[ProtocolPoint.RECORDS_PROCESSED] = batches
    passes[ProtocolPoint.CLOSING] = _STEPS_OF_A_CLOSE
    passes[ProtocolPoint.COMPLETION_NOTIFIED] = 0  # most subtasks may be gone when it comes
    if vertex.kind != SOURCE:
        passes[ProtocolPoint.ALIGNMENT_STARTED] = int(not overtakes and _surely_waits(job, vertex))
        passes[ProtocolPoint.ALIGNMENT_COMPLETED] = int(job.channels_into(vertex.name) > 1)
    if vertex.ends_in_sink:
        passes.update(dict.fromkeys(_OF_SINKS, 1))
    return passes


def _surely_waits(job: JobPlan, vertex: VertexPlan) -> bool:
    """Return whether a vertex is sure to wait for a barrier: further downstream all may arrive at once."""
    return job.channels_into(vertex.name) > 1 and all(
        edge.by is not Spread.FORWARD and job.vertex(edge.source).kind == SOURCE
        for edge in job.inputs_of(vertex.name)
    )
