"""How many batches of input the loops of a job deal with in a given time.

A record that goes round passes a vertex many times, and where something in a loop multiplies, every turn does. So a few
records may keep narrow channels, or a slow vertex, busy for minutes.
"""

from __future__ import annotations

from collections import Counter
from sys import maxsize

import msgspec

from barrier_tck.harness.plan.job_graph import SINK, SOURCE, JobPlan
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.workloads.dataflow_model import DataflowModel
from barrier_tck.harness.workloads.kind_catalogue import kind_named
from barrier_tck.harness.workloads.record_forms import form_of
from barrier_tck.harness.workloads.records import Record
from barrier_tck.harness.workloads.workload_names import workload_named

SAMPLE = 12
"""Records of each split that stand for the others: operators decide by remainders of ids, of which 12 has all."""

PASSES = 6
"""How often a record passes a vertex of a loop at most, about, where the model of dataflows does not say it."""

PART_OF_PROGRESS = 3
"""The input is dealt with in this part of the time within which the job must go on. Barriers need room, too, and what
a vertex waits for is not all at the vertex itself."""

STEP_MS = 1
"""About how long a subtask takes for one batch, without what travels."""


def batches_in_time(plan: TrialPlan) -> int:
    """Return how many batches of each split a job with loops deals with in its share of ``limits.progress_ms``.

    At least 1; without loops as many as can be. The plan's job must be filled in.
    """
    if not plan.job.loops:
        return maxsize
    batches = -(-SAMPLE // plan.workload.batch_records)
    sampled = msgspec.structs.replace(
        plan, workload=msgspec.structs.replace(plan.workload, batches=batches, early_ends=0)
    )
    busy_ms = _busy_ms(sampled)
    in_time_ms = plan.limits.progress_ms // PART_OF_PROGRESS
    return maxsize if not busy_ms else max(1, int(in_time_ms * batches / busy_ms))


def _busy_ms(plan: TrialPlan) -> float:
    """Return about how long the busiest subtask of a plan takes for the whole input if its queues are full."""
    job, network, deployment = plan.job, plan.network, plan.deployment
    slow_receiver = job.channels[network.slow_channel][1] if network.slow_channel is not None else ""
    busiest_ms = 0.0
    for name, records in _passing(plan).items():
        vertex = job.vertex(name)
        by_key = any(edge.key for edge in job.inputs_of(name))
        width = min(vertex.parallelism, plan.workload.keys) if by_key else vertex.parallelism
        one_ms = (STEP_MS + network.latency_ms_max) / network.channel_capacity
        if slow_receiver in vertex.subtasks:
            slow_ms = network.latency_ms_max * (network.slow_factor - 1) / network.channel_capacity
            one_ms += slow_ms / job.channels_into(name)
        if name == deployment.slow_vertex:
            one_ms += deployment.slow_batch_ms
        busiest_ms = max(busiest_ms, one_ms * records / max(1, width))
    return busiest_ms


def _passing(plan: TrialPlan) -> dict[str, int]:
    """Return for each vertex that is no source how many records reach it, those that come round again included."""
    job, workload = plan.job, workload_named(plan.workload.name)
    form = form_of(workload)
    read = {vertex.name: Counter[Record]() for vertex in job.sources}
    for split in workload.splits(plan):
        read[split.vertex].update(form.read(row) for row in split.input)
    if not _is_modelled(job):
        records = PASSES * sum(bag.total() for bag in read.values())
        return {name: records for loop in job.loops for name in loop}
    flow = DataflowModel(job).flow()
    flow.change(read, {}, {})
    return {name: number for name, number in flow.reached.items() if job.vertex(name).kind != SOURCE}


def _is_modelled(job: JobPlan) -> bool:
    """Return whether the model of dataflows says of each operator what it emits."""
    kinds = [kind_named(operator.kind) for vertex in job.vertices for operator in vertex.operators]
    return all(kind.emits or kind.state or kind.name in (SOURCE, SINK) for kind in kinds)
