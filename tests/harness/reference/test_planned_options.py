"""The runtime's options on Spark follow the plan: the room in channels, the size of buffers, and timeouts."""

from __future__ import annotations

import pytest

from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.kinds.pause_worker import PauseWorker
from barrier_tck.faults.vocabulary import At, ScheduledFault
from barrier_tck.harness.plan.trial_plan import CheckpointingMode, CheckpointPlan, NetworkPlan, TrialPlan
from barrier_tck.harness.reference.spark.planned_options import (
    HEARTBEAT_TIMEOUT_MS,
    check_settings,
    options_of,
)
from barrier_tck.reference_impl.spark.spark_options import SparkOptions


def test_a_plan_that_says_nothing_has_the_defaults() -> None:
    assert options_of(TrialPlan()) == SparkOptions()


@pytest.mark.parametrize(
    ("mode", "fragment_bytes"),
    [("unaligned", 400), ("aligned_timeout", 400), ("exactly_once", (32 << 20) // 3)],
)
def test_buffers_are_as_large_as_planned_in_modes_that_overtake(
    mode: CheckpointingMode, fragment_bytes: int
) -> None:
    plan = TrialPlan(
        checkpoints=CheckpointPlan(mode=mode), network=NetworkPlan(channel_capacity=3, buffer_bytes=400)
    )
    assert options_of(plan).channel_batches == 3
    assert options_of(plan).fragment_bytes == fragment_bytes


def test_faults_that_silence_processes_shorten_the_timeouts_and_keep_the_channels() -> None:
    faults = (ScheduledFault(PauseWorker("sink[0]", 1_000), At(1)),)
    paused = options_of(TrialPlan(faults=faults, network=NetworkPlan(channel_capacity=3)))
    assert paused.heartbeat_timeout_ms == HEARTBEAT_TIMEOUT_MS < SparkOptions().heartbeat_timeout_ms
    assert paused.channel_batches == 3
    killed = options_of(TrialPlan(faults=(ScheduledFault(KillWorker("sink[0]"), At(1)),)))
    assert killed == SparkOptions()


def test_a_plan_gives_options_of_its_own() -> None:
    given = options_of(TrialPlan(system={"connect_timeout_ms": 5_000, "warm_executors": False}))
    assert (given.connect_timeout_ms, given.warm_executors) == (5_000, False)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"connect_timeout": 1}, "connect_timeout is no setting"),
        ({"warm_executors": 1}, "must be of type bool"),
    ],
)
def test_a_setting_that_is_no_option_is_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_settings(settings)
