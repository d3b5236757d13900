"""Profiles of plans whose checkpoints come one by one, so that their numbers are certain."""

from __future__ import annotations

from dataclasses import replace

from barrier_tck.harness.draw.profile import Profile


def one_by_one(profile: Profile) -> Profile:
    """Return the profile of such plans: every checkpoint completes, and stops are asked for before the next begins."""
    async_least, async_most = profile.checkpoints.async_ms_max
    latency_least, latency_most = profile.network.latency_ms_max
    return replace(
        profile,
        workload=replace(profile.workload, start_offset=(0, 0), records_per_second=profile.workload.slowest),
        deployment=replace(profile.deployment, slow_batch_ms=(min(profile.deployment.slow_batch_ms),)),
        checkpoints=replace(
            profile.checkpoints,
            max_concurrent=(1, 1),
            min_pause_ms=(5, 10),
            timeouts_ms=(max(profile.checkpoints.timeouts_ms),),
            tolerated_failures=(max(profile.checkpoints.tolerated_failures),),
            async_ms_max=(async_least, async_most // 2),
        ),
        network=replace(
            profile.network,
            latency_ms_max=(latency_least, latency_most // 2),
            slow_channel_per_mille=0,
            channel_capacities=(1, 2),
        ),
        savepoints=replace(profile.savepoints, rescale_per_mille=1_000),
    )
