"""Drawn plans: deterministic, valid, and as varied as their profile says."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from barrier_tck.faults.channel_fault import ChannelFault
from barrier_tck.faults.schedule import validate
from barrier_tck.harness.draw.profiles import PROFILES, Profile, profile_named
from barrier_tck.harness.draw.strategies import RESTARTS_PER_FAULT, Circumstances, draw_plans
from barrier_tck.harness.oracle.recoveries import restored_checkpoints
from barrier_tck.harness.oracle.trial_input import TrialInput
from barrier_tck.harness.plan.reading import plan_from
from barrier_tck.harness.plan.trial_plan import TrialPlan, to_builtins
from barrier_tck.harness.reference.jobs import build_graph, collection_sources
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.system.job_view import Role
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.trial.trial_run import execute
from barrier_tck.harness.workloads.barrier_jobs import barrier_view
from barrier_tck.harness.workloads.workload_names import workload_named

STANDARD = draw_plans(5, 400, profile_named("standard"))


def _records(plan: TrialPlan) -> int:
    return plan.workload.batches * plan.workload.batch_records * len(barrier_view(plan).in_role(Role.SOURCE))


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_drawn_plans_are_valid_and_within_their_profile(profile: Profile) -> None:
    for plan in draw_plans(1, 40, profile):
        assert plan_from(to_builtins(plan), "drawn") == plan
        validate(plan.faults, barrier_view(plan).names)
        assert profile.faults[0] <= len(plan.faults) <= profile.faults[1]
        assert plan.restart.attempts_max >= RESTARTS_PER_FAULT * len(plan.faults)


def test_the_same_seed_draws_the_same_plans_and_another_seed_others() -> None:
    assert draw_plans(5, 400, profile_named("standard")) == STANDARD
    assert draw_plans(6, 400, profile_named("standard")) != STANDARD


def test_plans_do_not_depend_on_the_hash_seed_or_on_what_else_is_loaded() -> None:
    code = (
        "import hashlib\nfrom barrier_tck.harness.draw.strategies import draw_plans\n"
        "from barrier_tck.harness.draw.profiles import profile_named\n"
        "print(hashlib.sha256(repr(draw_plans(5, 400, profile_named('standard'))).encode()).hexdigest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == hashlib.sha256(repr(STANDARD).encode()).hexdigest()


def test_the_standard_profile_reaches_its_corners() -> None:
    corners = {
        "no record": lambda plan: _records(plan) == 0,
        "exactly one record": lambda plan: _records(plan) == 1,
        "an offset": lambda plan: plan.workload.start_offset > 0,
        "snapshots beyond the timeout": lambda plan: (
            plan.checkpoints.async_ms_max > plan.checkpoints.timeout_ms
        ),
        "a slow channel": lambda plan: plan.network.slow_channel is not None,
        "no write-through": lambda plan: not plan.deployment.write_through,
        "no fault": lambda plan: not plan.faults,
        "four faults": lambda plan: len(plan.faults) == 4,
        "a timed fault": lambda plan: "At(" in repr(plan.faults),
        "a fault during a restore": lambda plan: "'restore_started'" in repr(plan.faults),
        "lost writes": lambda plan: "lose_unsynced=True" in repr(plan.faults),
        "a pause": lambda plan: "PauseWorker" in repr(plan.faults),
        "a partition of halves": lambda plan: "PartitionHalves" in repr(plan.faults),
        "a fault on the way to the coordinator": lambda plan: "receiver='coordinator'" in repr(plan.faults),
        "a zombie": lambda plan: any((s.fault.heals_after_ms or 0) > 150 for s in plan.faults),
        "two stateful operators in a chain": lambda plan: plan.job.shape == "chained",
        "three by three": lambda plan: [v.parallelism for v in plan.job.vertices][:2] == [3, 3],
    }
    missed = [name for name, reached in corners.items() if not any(map(reached, STANDARD))]
    assert missed == []


def test_a_target_that_the_system_lacks_is_not_aimed_at() -> None:
    plans = draw_plans(
        1, 60, profile_named("heavy"), Circumstances(capabilities=frozenset({Capability.WORKER_KILL}))
    )
    assert {type(s.fault).__name__ for plan in plans for s in plan.faults} == {"KillWorker"}


def test_an_unknown_profile_names_the_nearest() -> None:
    with pytest.raises(UsageProblem, match="did you mean 'standard'"):
        profile_named("standrad")


def test_a_channel_that_a_drawn_fault_disturbs_exists() -> None:
    disturbed = 0
    for plan in STANDARD:
        graph = build_graph(plan, workload_named(plan.workload.name), collection_sources(plan, ()))
        channels = tuple((str(channel.sender), str(channel.receiver)) for channel in graph.channels)
        assert barrier_view(plan).links == channels
        validate(plan.faults, barrier_view(plan).names, barrier_view(plan).connections)
        disturbed += sum(isinstance(scheduled.fault, ChannelFault) for scheduled in plan.faults)
    assert disturbed > 20


def test_a_lasting_fault_leaves_enough_restarts_for_its_whole_duration() -> None:
    for plan in STANDARD:
        lasting_ms = sum(scheduled.fault.heals_after_ms or 0 for scheduled in plan.faults)
        assert plan.restart.attempts_max * max(1, plan.restart.delay_ms) >= lasting_ms


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_checkpoints_that_may_expire_do_not_all_expire_before_progress_is_demanded(profile: Profile) -> None:
    for plan in draw_plans(5, 200, profile):
        timeout_ms, async_ms_max = plan.checkpoints.timeout_ms, plan.checkpoints.async_ms_max
        in_time = min(1.0, timeout_ms / max(1, async_ms_max)) ** len(barrier_view(plan).names)
        assert (1 - in_time) ** (plan.limits.progress_ms / max(timeout_ms, async_ms_max)) < 1e-9


@pytest.mark.parametrize("profile", ["standard", "heavy", "at-least-once"])
def test_drawn_trials_restore_checkpoints_taken_in_the_middle_of_the_input(
    profile: str, tmp_path: Path
) -> None:
    """A checkpoint before or after all records tests nothing interesting: no record is replayed over restored state."""
    system = ReferenceSimulated()
    restoring = inside = 0
    for plan in draw_plans(5, 60, profile_named(profile)):
        history = execute(plan, system, tmp_path).history
        assert history is not None
        extents = TrialInput(workload_named(plan.workload.name), plan).extents.values()
        begin, end = sum(extent.start for extent in extents), sum(extent.end for extent in extents)
        restored = {number for number in restored_checkpoints(history).values() if number is not None}
        reached = [sum(v.positions.values()) for v in history.checkpoints if v.checkpoint in restored]
        restoring += bool(reached)
        inside += any(begin < position < end for position in reached)
    assert restoring > 0
    assert inside >= restoring / 4
