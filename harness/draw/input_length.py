"""Inputs that are long enough for checkpoints that a plan counts on, and not too long for what goes round loops, or for
those who judge every checkpoint.
"""

from __future__ import annotations

from sys import maxsize

import msgspec

from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.workloads.drawn_splits import SPLITS_MAX
from barrier_tck.harness.workloads.input_load import (
    BEHIND_FULL_QUEUES,
    busiest_ms,
    records_taken,
    whole_input_ms,
)
from barrier_tck.harness.workloads.kind_catalogue import kind_named

BATCHES_MAX = 1_200
"""Batches of all sources together up to which an input is made longer. Operators that keep lists take time by the
square of their number, so that a wide job would have no verdict within its limit."""

JOINED_BATCHES_MAX = 120
"""The same for a job with a join in event time. It emits by the square of what lies close together: such a job of
1,200 batches may take half a minute."""

CHECKPOINTS_MAX = 250
"""Checkpoints that a slow or busy vertex may give time for. Each is opened and judged, so that more have no verdict
within a trial's limit of wall time."""

CHECKPOINTS_MAX_AT_LEAST_ONCE = 60
"""The same in at-least-once mode, where each is compared with all that its attempt can have added: a job of 900 records
on forked paths takes 0.4 s of judging for each."""

PARTS_MAX = 6_000
"""The same for the parts of checkpoints, of which each subtask takes one."""

RECORDS_MAX = 3_000_000
"""The same for the records of all checkpoints together: each holds what its operators and sinks have taken by then."""

RECORDS_MAX_AT_LEAST_ONCE = 200_000
"""The same in at-least-once mode."""

_IN_TIME = 0.6
"""Which part of a trial's virtual time the whole input may take: some of it is read again after each failure."""

_STEP_MS = 1
"""About how long a subtask takes for one batch, if its channels have room."""


def long_enough(
    plan: TrialPlan, settle_ms: int, checkpoints: int, batches_max: int = BATCHES_MAX
) -> TrialPlan:
    """Return the plan with enough batches for its longest source to keep reading for so many checkpoints.

    ``settle_ms`` is the time that a checkpoint takes for reasons outside the plan. If those were more batches than
    ``batches_max`` of all sources together, sources read more slowly. A trial that would be over before they have read
    all is given more time.
    """
    plan = short_enough(plan)
    workload = plan.workload
    if workload.records_per_second is None:
        return plan
    time_ms = needed_ms(plan, settle_ms, checkpoints)
    records = -(-time_ms * workload.records_per_second // 1_000)
    batches = max(workload.batches, -(-records // workload.batch_records))
    sources = sum(vertex.parallelism for vertex in plan.job.sources)
    if any(kind_named(one.kind).joins for vertex in plan.job.vertices for one in vertex.operators):
        batches_max = min(batches_max, JOINED_BATCHES_MAX)
    most = max(workload.batches, min(batches_max // max(1, sources), batches_in_time(plan)))
    rate = workload.records_per_second
    if batches > most:
        batches, rate = most, max(1, most * workload.batch_records * 1_000 // time_ms)
    changed = msgspec.structs.replace(workload, batches=batches, records_per_second=rate)
    return with_few_checkpoints(_with_time_to_read(msgspec.structs.replace(plan, workload=changed)))


def _with_time_to_read(plan: TrialPlan) -> TrialPlan:
    """Return the plan with enough virtual time for its sources to read all splits that they can have."""
    workload, deployment = plan.workload, plan.deployment
    if workload.records_per_second is None:
        return plan
    split_ms = workload.batches * workload.batch_records * 1_000 // workload.records_per_second
    in_turn = 1
    for vertex in plan.job.sources:
        widths = [rescale.widths.get(vertex.name, vertex.parallelism) for rescale in plan.rescales]
        if deployment.elastic_wait_ms is not None and vertex.name not in deployment.fixed_vertices:
            widths.append(1)
        narrowest = min([vertex.parallelism, *widths])
        in_turn = max(in_turn, -(-SPLITS_MAX * vertex.parallelism // narrowest))
    needed_ms = int(in_turn * split_ms / _IN_TIME)
    limits = msgspec.structs.replace(plan.limits, virtual_ms=max(plan.limits.virtual_ms, needed_ms))
    return msgspec.structs.replace(plan, limits=limits)


def batches_in_time(plan: TrialPlan) -> int:
    """Return how many batches of each split the job deals with in time; at least 1, and as many as can be if not known.

    That is within the virtual time of the trial and, if the job has loops, within ``limits.progress_ms``.
    """
    in_loops_ms, all_ms = BEHIND_FULL_QUEUES * busiest_ms(plan), whole_input_ms(plan)
    fitting = [
        int(limit_ms * plan.workload.batches / busy_ms)
        for limit_ms, busy_ms in (
            (plan.limits.progress_ms, in_loops_ms),
            (_IN_TIME * plan.limits.virtual_ms, all_ms),
        )
        if busy_ms
    ]
    return max(1, min(fitting, default=maxsize))


def short_enough(plan: TrialPlan) -> TrialPlan:
    """Return the plan with no more batches than the job deals with before the trial is over and, if it has loops, while
    it must show that it goes on.

    Behind full queues a checkpoint may take until the whole input is dealt with. If that is too long, nothing completes
    in time after a fault, and nothing is wrong with the system.
    """
    workload = plan.workload
    batches = min(workload.batches, batches_in_time(plan))
    return msgspec.structs.replace(plan, workload=msgspec.structs.replace(workload, batches=batches))


def with_few_checkpoints(plan: TrialPlan) -> TrialPlan:
    """Return the plan with no more checkpoints than can be judged while its vertices are busy with the input.

    A slow vertex, which is assumed to get a part of each batch of each source, is made less slow. If the busiest vertex
    takes too long all the same, checkpoints are taken less often.
    """
    if not plan.checkpoints.enabled:
        return plan
    return _with_rare_checkpoints(_with_less_slowness(plan))


def _with_less_slowness(plan: TrialPlan) -> TrialPlan:
    deployment, times = plan.deployment, plan.checkpoints
    if deployment.slow_vertex is None:
        return plan
    most_ms = max(1, CHECKPOINTS_MAX * (times.interval_ms + times.min_pause_ms) // _batches(plan))
    changed = msgspec.structs.replace(deployment, slow_batch_ms=min(deployment.slow_batch_ms, most_ms))
    return msgspec.structs.replace(plan, deployment=changed)


def _with_rare_checkpoints(plan: TrialPlan) -> TrialPlan:
    job, times = plan.job, plan.checkpoints
    # A buffer holds one record at least, and is read in one step.
    steps = _batches(plan) * (plan.workload.batch_records if plan.network.buffer_bytes is not None else 1)
    widths = [
        min(vertex.parallelism, plan.workload.keys)
        if any(e.key for e in job.inputs_of(vertex.name))
        else vertex.parallelism
        for vertex in job.vertices
    ]
    busy_ms = max(steps * _step_ms(plan) // min(widths), int(whole_input_ms(plan)))
    at_the_most, records_max = CHECKPOINTS_MAX, RECORDS_MAX
    if _is_at_least_once(plan):
        at_the_most, records_max = CHECKPOINTS_MAX_AT_LEAST_ONCE, RECORDS_MAX_AT_LEAST_ONCE
    held = int(records_max / max(1.0, records_taken(plan)))
    most = max(1, min(at_the_most, PARTS_MAX // len(job.subtasks), held))
    interval_ms = max(times.interval_ms, busy_ms // most - times.min_pause_ms)
    return msgspec.structs.replace(plan, checkpoints=msgspec.structs.replace(times, interval_ms=interval_ms))


def _is_at_least_once(plan: TrialPlan) -> bool:
    return plan.checkpoints.mode == "at_least_once"


def _step_ms(plan: TrialPlan) -> int:
    """Return about how long a subtask takes for one batch; in at-least-once mode with the time in which it waits for
    room in a channel, which comes with an answer of the receiver."""
    if not _is_at_least_once(plan):
        return _STEP_MS
    return _STEP_MS + 2 * plan.network.latency_ms_max // plan.network.channel_capacity


def _batches(plan: TrialPlan) -> int:
    """Return the number of batches of all sources together; at least 1."""
    return max(1, plan.workload.batches * sum(vertex.parallelism for vertex in plan.job.sources))


def is_long_enough(job: DrawnJob, settle_ms: int, checkpoints: int) -> bool:
    """Return whether a job is certain to complete so many checkpoints while it reads its input."""
    return job.reads_ms is not None and job.reads_ms >= needed_ms(job.plan, settle_ms, checkpoints)


def needed_ms(plan: TrialPlan, settle_ms: int, checkpoints: int) -> int:
    """Return how long so many checkpoints take at most, one after the other."""
    times, network = plan.checkpoints, plan.network
    hops = len(plan.job.vertices) + 1 + (network.slow_factor if network.slow_channel is not None else 0)
    one_ms = (
        *(times.interval_ms, times.min_pause_ms, times.async_ms_max, settle_ms),
        hops * network.latency_ms_max,
    )
    return checkpoints * sum(one_ms)
