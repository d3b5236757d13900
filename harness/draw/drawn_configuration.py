"""Draws all parts of a plan except its job, its network and its faults."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from barrier_tck.harness.draw.choices import between, chance, numbers
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.profile import CheckpointRanges, RestartRanges, WorkloadRanges
from barrier_tck.harness.draw.stages import Stage, begins
from barrier_tck.harness.plan.trial_plan import (
    CheckpointPlan,
    DeploymentPlan,
    LimitsPlan,
    RestartPlan,
    TrialPlan,
    WorkloadPlan,
)

_INITIATORS_PER_MILLE = 500
"""Of 1,000 plans with Chandy-Lamport, how many name the initiators of their snapshots."""


def draw_configuration(drawing: Drawing) -> TrialPlan:
    """Draw a plan whose job, network and faults are still to be drawn."""
    draw, profile = drawing.draw, drawing.profile
    cached_keys = profile.deployment.cached_keys
    begins(draw, Stage.SEED)
    seed = draw(numbers(0, 2**31 - 1))
    begins(draw, Stage.SETTINGS)
    return TrialPlan(
        seed=seed,
        workload=_workload(draw, profile.workload),
        deployment=DeploymentPlan(
            executors=between(draw, profile.deployment.executors),
            write_through=draw(st.booleans()),
            cached_keys=draw(st.sampled_from(cached_keys)) if cached_keys else None,
        ),
        checkpoints=_checkpoints(draw, profile.checkpoints),
        restart=_restart(draw, profile.restarts),
        limits=LimitsPlan(wall_s=profile.limits.wall_s, progress_ms=profile.limits.progress_ms),
        local_recovery=chance(draw, profile.storage.local_recovery_per_mille),
        on_unreadable=draw(st.sampled_from(profile.storage.on_unreadable)),
    )


def _workload(draw: st.DrawFn, ranges: WorkloadRanges) -> WorkloadPlan:
    keys = between(draw, ranges.keys)
    name = draw(st.sampled_from(ranges.names)) if len(ranges.names) > 1 else ranges.names[0]
    batches, batch_records = between(draw, ranges.batches), between(draw, ranges.batch_records)
    offset = min(between(draw, ranges.start_offset), batches * batch_records) if draw(st.booleans()) else 0
    return WorkloadPlan(
        name,
        batches=batches,
        batch_records=batch_records,
        keys=keys,
        start_offset=offset,
        records_per_second=draw(st.sampled_from(ranges.records_per_second)),
    )


def _checkpoints(draw: st.DrawFn, ranges: CheckpointRanges) -> CheckpointPlan:
    mode = draw(st.sampled_from(ranges.modes))
    timeout = CheckpointPlan().alignment_timeout_ms
    if mode == "aligned_timeout":
        timeout = draw(st.sampled_from(ranges.alignment_timeouts_ms))
    return CheckpointPlan(
        protocol=ranges.protocol,
        mode=mode,
        alignment_timeout_ms=timeout,
        max_concurrent=between(draw, ranges.max_concurrent),
        interval_ms=between(draw, ranges.interval_ms),
        timeout_ms=draw(st.sampled_from(ranges.timeouts_ms)),
        min_pause_ms=draw(st.sampled_from(ranges.min_pause_ms)),
        retained=between(draw, ranges.retained),
        first_id=draw(st.sampled_from(ranges.first_ids)),
        tolerated_failures=draw(st.sampled_from(ranges.tolerated_failures)),
        async_ms_max=between(draw, ranges.async_ms_max),
        incremental=chance(draw, ranges.incremental_per_mille),
        storage=draw(st.sampled_from(ranges.storages)) if len(ranges.storages) > 1 else ranges.storages[0],
    )


def _restart(draw: st.DrawFn, ranges: RestartRanges) -> RestartPlan:
    delay_ms, counted_ms = between(draw, ranges.delay_ms), between(draw, ranges.counted_ms)
    match draw(st.sampled_from(ranges.strategies)):
        case "failure_rate":
            return RestartPlan("failure_rate", delay_ms=delay_ms, interval_ms=counted_ms)
        case "exponential_delay":
            longest_ms = delay_ms * draw(st.sampled_from(ranges.longest))
            factor = draw(st.sampled_from(ranges.factors))
            return RestartPlan(
                "exponential_delay",
                delay_ms=delay_ms,
                delay_ms_max=longest_ms,
                factor=factor,
                reset_after_ms=counted_ms,
            )
        case other:
            return RestartPlan(other, delay_ms=delay_ms)


def with_key_groups(drawing: Drawing, *plans: TrialPlan) -> DeploymentPlan:
    """Return the first plan's deployment with a drawn number of key groups.

    The number is at least the parallelism of every vertex of all plans (RSC-1).
    """
    widths = [vertex.parallelism for plan in plans for vertex in plan.job.vertices]
    # If the campaign prescribes rescales, they are in the plans already.
    widths += [width for plan in plans for rescale in plan.rescales for width in rescale.widths.values()]
    widest = max(widths, default=1)
    groups = max(widest, drawing.draw(st.sampled_from(drawing.profile.deployment.max_parallelism)))
    return msgspec.structs.replace(plans[0].deployment, max_parallelism=groups)


def with_initiators(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Return the plan with drawn initiators of up to three snapshots in turn; with none, all sources initiate."""
    draw = drawing.draw
    if drawing.profile.checkpoints.protocol == "barriers" or not chance(draw, _INITIATORS_PER_MILLE):
        return plan
    subtasks = st.sampled_from(plan.job.subtasks)
    groups = [tuple(draw(subtasks) for _ in range(draw(numbers(1, 2)))) for _ in range(draw(numbers(1, 3)))]
    initiators = tuple(tuple(dict.fromkeys(group)) for group in groups if not plan.job.unreached_by(group))
    checkpoints = msgspec.structs.replace(plan.checkpoints, initiators=initiators)
    return msgspec.structs.replace(plan, checkpoints=checkpoints)
