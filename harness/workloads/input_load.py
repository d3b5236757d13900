"""How long the busiest subtask of a job takes for its input, and how many records all of them take.

It is long in a loop, where batches are cut into fragments, and behind channels with little room. A record that goes
round passes a vertex many times, and where something in a loop multiplies, every turn does. So a few records may keep
narrow channels, or a slow vertex, busy for minutes. So may a batch of which each fragment takes as long as a whole one
does elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec

from barrier_tck.harness.plan.job_graph import SINK, SOURCE, JobPlan
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.workloads.dataflow_model import DataflowModel
from barrier_tck.harness.workloads.kind_catalogue import kind_named
from barrier_tck.harness.workloads.record_forms import form_of
from barrier_tck.harness.workloads.records import Record
from barrier_tck.harness.workloads.workload_names import workload_named

BEHIND_FULL_QUEUES = 3
"""How many times as long as the busiest subtask takes it may be, at most, until everything has passed: barriers need
room, too, and what a subtask waits for is not all at the subtask itself."""

_SAMPLE = 12
"""Records of each split that stand for the others: operators decide by remainders of ids, of which 12 has all."""

_PASSES = 6
"""How often a record passes a vertex of a loop at most, about, where the model of dataflows does not say it."""

_RECORD_BYTES = 60
"""About how long a record is that travels alone."""

_STEP_MS = 1
"""About how long a subtask takes for one batch, without what travels."""


def busiest_ms(plan: TrialPlan) -> float:
    """Return about how many ms the busiest subtask takes for the whole input if its queues are full.

    0 without loops, and without input. The plan's job must be filled in.
    """
    return _of_sample(plan) if plan.job.loops and plan.workload.batches else 0.0


def held_up_ms(plan: TrialPlan) -> float:
    """Return about how many ms full queues may hold something up, at most, that a loop or fragments fill.

    0 where neither does: then queues are full of whole batches, of which each passes a vertex once.
    """
    workload, size = plan.workload, plan.network.buffer_bytes
    fragments = 1.0 if size is None else max(1.0, _RECORD_BYTES / size)
    cut = size is not None and size < workload.batch_records * _RECORD_BYTES
    if not ((plan.job.loops or cut) and workload.batches):
        return 0.0
    return BEHIND_FULL_QUEUES * fragments * _of_sample(plan)


def whole_input_ms(plan: TrialPlan) -> float:
    """Return about how many ms the busiest subtask takes for the whole input, with loops or without; 0 without input.

    Without loops and fragments, what is read together travels together, as far as it goes the same way. The plan's job
    must be filled in.
    """
    workload, size = plan.workload, plan.network.buffer_bytes
    if not workload.batches:
        return 0.0
    if plan.job.loops or (size is not None and size < workload.batch_records * _RECORD_BYTES):
        return _of_sample(plan)
    ways = max(vertex.parallelism for vertex in plan.job.vertices)
    return _of_sample(plan) * min(workload.batch_records, ways) / workload.batch_records


def records_taken(plan: TrialPlan) -> float:
    """Return about how many records all vertices take together of the whole input; 0 without input, and where the model
    of dataflows does not say it. The plan's job must be filled in.
    """
    if not plan.workload.batches or not _is_modelled(plan.job):
        return 0.0
    sample, times = _sample_of(plan)
    return sum(_passing(_input_of(sample)).values()) * times


def _of_sample(plan: TrialPlan) -> float:
    sample, times = _sample_of(plan)
    return _busiest_ms(sample) * times


def _sample_of(plan: TrialPlan) -> tuple[TrialPlan, float]:
    """Return the plan with the beginning of its input, and how many times as much the whole is."""
    workload = plan.workload
    batches = min(workload.batches, -(-_SAMPLE // workload.batch_records))
    sample = msgspec.structs.replace(workload, batches=batches, early_ends=0)
    return msgspec.structs.replace(plan, workload=sample), workload.batches / batches


def _busiest_ms(plan: TrialPlan) -> float:
    job, network, deployment = plan.job, plan.network, plan.deployment
    slow_receiver = job.channels[network.slow_channel][1] if network.slow_channel is not None else ""
    longest_ms = 0.0
    for name, records in _passing(_input_of(plan)).items():
        vertex = job.vertex(name)
        by_key = any(edge.key for edge in job.inputs_of(name))
        width = min(vertex.parallelism, plan.workload.keys) if by_key else vertex.parallelism
        one_ms = (_STEP_MS + network.latency_ms_max) / network.channel_capacity
        if slow_receiver in vertex.subtasks:
            slow_ms = network.latency_ms_max * (network.slow_factor - 1) / network.channel_capacity
            one_ms += slow_ms / job.channels_into(name)
        if name == deployment.slow_vertex:
            one_ms += deployment.slow_batch_ms
        longest_ms = max(longest_ms, one_ms * records / max(1, width))
    return longest_ms


@dataclass(frozen=True, slots=True)
class _Input:
    """A plan, and all of it that decides which records come where: plans that share this are asked about once."""

    decisive: bytes
    plan: TrialPlan = field(compare=False)


def _input_of(plan: TrialPlan) -> _Input:
    return _Input(msgspec.msgpack.encode((plan.seed, plan.workload, plan.job)), plan)


@lru_cache(maxsize=64)
def _passing(asked: _Input) -> Mapping[str, int]:
    """Return for each vertex that is no source how many records reach it, those that come round again included."""
    plan = asked.plan
    job, workload = plan.job, workload_named(plan.workload.name)
    form = form_of(workload)
    read = {vertex.name: Counter[Record]() for vertex in job.sources}
    for split in workload.splits(plan):
        read[split.vertex].update(form.read(row) for row in split.input)
    if not _is_modelled(job):
        records = _PASSES * sum(bag.total() for bag in read.values())
        return {name: records for loop in job.loops for name in loop}
    flow = DataflowModel(job).flow()
    flow.change(read, {}, {})
    return {name: number for name, number in flow.reached.items() if job.vertex(name).kind != SOURCE}


def _is_modelled(job: JobPlan) -> bool:
    """Return whether the model of dataflows says of each operator what it emits."""
    kinds = [kind_named(operator.kind) for vertex in job.vertices for operator in vertex.operators]
    return all(kind.emits or kind.state or kind.name in (SOURCE, SINK) for kind in kinds)
