"""Draws the network of a plan: latencies, a slow channel, and the capacity of channels and buffers."""

from __future__ import annotations

from hypothesis import strategies as st

from barrier_tck.harness.draw.choices import between, chance
from barrier_tck.harness.draw.profile import NetworkRanges, Profile
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import CheckpointingMode, NetworkPlan, TrialPlan
from barrier_tck.harness.workloads.kind_catalogue import keeps_by_key


def draw_network(draw: st.DrawFn, profile: Profile, plan: TrialPlan) -> NetworkPlan:
    """Draw the network of a plan, whose job must be filled in."""
    job, ranges = plan.job, profile.network
    receivers = [edge.target for edge in job.edges for _ in job.channels_of(edge)]
    eligible = [
        number
        for number, receiver in enumerate(receivers)
        if not ranges.slow_channel_into_keyed or _waits(job, receiver)
    ]
    slow = chance(draw, _slow_per_mille(ranges, plan.checkpoints.mode))
    return NetworkPlan(
        latency_ms_max=between(draw, ranges.latency_ms_max),
        slow_channel=draw(st.sampled_from(eligible)) if slow and eligible else None,
        slow_factor=draw(st.sampled_from(ranges.slow_factors)),
        channel_capacity=draw(st.sampled_from(ranges.channel_capacities)),
        buffer_bytes=draw(st.sampled_from(ranges.buffer_bytes)) if plan.checkpoints.overtakes else None,
    )


def _slow_per_mille(ranges: NetworkRanges, mode: CheckpointingMode) -> int:
    own = ranges.slow_at_least_once_per_mille
    return own if own is not None and mode == "at_least_once" else ranges.slow_channel_per_mille


def _waits(job: JobPlan, vertex: str) -> bool:
    """Return whether a vertex keeps keyed state and reads several channels.

    In at-least-once mode, a slow one of these channels lets records from behind the barriers of the others into the
    snapshot.
    """
    stateful = keeps_by_key(job.vertex(vertex))
    return stateful and job.channels_into(vertex) > 1
