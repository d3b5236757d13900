"""Drawn plans: deterministic, valid, and as varied as their profile says."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barrier_tck.faults.catalogue import FAULTS
from barrier_tck.faults.channel_fault import ChannelFault
from barrier_tck.faults.kinds.partition_executor import PartitionExecutor
from barrier_tck.faults.schedule import validate
from barrier_tck.faults.targets import Peers, TargetKind
from barrier_tck.faults.vocabulary import After, At, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.catalogue import known_scenarios
from barrier_tck.harness.draw.constraints import ANYWHERE, Constraints, Drawing
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.profile import DrawnSetting, Profile
from barrier_tck.harness.draw.profiles import PROFILES, profile_named
from barrier_tck.harness.draw.rescaled_jobs import widths_of_sources
from barrier_tck.harness.draw.slow_checkpoints import batches_before_barriers, in_time
from barrier_tck.harness.draw.strategies import RESTARTS_PER_FAULT, draw_plans
from barrier_tck.harness.oracle.evidence.recoveries import restored_checkpoints
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.plan.job_graph import EdgePlan, JobPlan, Spread, VertexPlan
from barrier_tck.harness.plan.reading import plan_from, read_plan
from barrier_tck.harness.plan.trial_plan import (
    DeploymentPlan,
    RescalePlan,
    TrialPlan,
    WorkloadPlan,
    to_builtins,
    to_json,
)
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.jobs import build_graph, collection_sources
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.reference.spark.planned_options import HEARTBEAT_TIMEOUT_MS
from barrier_tck.harness.reference.spark.spark_system import ReferenceSpark
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.system.exposed_targets import targets_of
from barrier_tck.harness.system.job_view import Role
from barrier_tck.harness.system.plan_fields import unused_by, without
from barrier_tck.harness.system.system_under_test import Capability, SystemUnderTest
from barrier_tck.harness.system.taken_settings import takes_settings
from barrier_tck.harness.trial.plan_check import check_plan
from barrier_tck.harness.trial.trial_run import execute, run_trial
from barrier_tck.harness.workloads.barrier_jobs import barrier_view
from barrier_tck.harness.workloads.kind_catalogue import keeps_by_key, kind_named
from barrier_tck.harness.workloads.workload_names import filled, job_of, workload_named


@cache
def standard() -> tuple[TrialPlan, ...]:
    """Enough plans to reach what is drawn seldom. Drawing them takes seconds, so no import does."""
    return draw_plans(6, 900, profile_named("standard"))


def _records(plan: TrialPlan) -> int:
    return plan.workload.batches * plan.workload.batch_records * len(barrier_view(plan).in_role(Role.SOURCE))


@cache
def drawn(profile: str) -> tuple[TrialPlan, ...]:
    """Some plans of a profile, drawn once for all tests that look at each of them."""
    return draw_plans(1, 30, profile_named(profile))


@pytest.mark.long
@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_drawn_plans_are_valid_and_within_their_profile(profile: Profile) -> None:
    for plan in drawn(profile.name):
        assert plan_from(to_builtins(plan), "drawn") == plan
        validate(plan.faults, barrier_view(plan).names)
        assert profile.faults.number[0] <= len(plan.faults) <= profile.faults.number[1]
    # One scenario counts the restarts that a job needs, and gives it no more.
    for plan in draw_plans(1, 30, profile.with_shares(scarce_restarts=0)):
        assert plan.restart.attempts_max >= RESTARTS_PER_FAULT * len(plan.faults)


def test_the_same_seed_draws_the_same_plans_and_another_seed_others() -> None:
    assert draw_plans(1, 30, profile_named("standard")) == drawn("standard")
    assert draw_plans(1, 30, profile_named("standard"), first=7) == drawn("standard")[:7]
    assert draw_plans(2, 30, profile_named("standard"), first=7) != drawn("standard")[:7]


@pytest.mark.long
def test_plans_do_not_depend_on_the_hash_seed_or_on_what_else_is_loaded() -> None:
    code = (
        "import hashlib\nfrom barrier_tck.harness.draw.strategies import draw_plans\n"
        "from barrier_tck.harness.draw.profiles import profile_named\n"
        "print(hashlib.sha256(repr(draw_plans(1, 30, profile_named('standard'))).encode()).hexdigest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == hashlib.sha256(repr(drawn("standard")).encode()).hexdigest()


@pytest.mark.nightly
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
        "copies of state on the hosts": lambda plan: plan.local_recovery,
        "ids that begin elsewhere": lambda plan: plan.checkpoints.first_id > 1,
        "a damaged local copy": lambda plan: "DamageLocalCopy" in repr(plan.faults),
        "a damaged durable copy": lambda plan: "DamagePrimary" in repr(plan.faults),
        "a full local disk": lambda plan: "FailLocalWrites" in repr(plan.faults),
        "copies in memory": lambda plan: plan.checkpoints.local_copies == "memory",
        "too little memory for copies": lambda plan: plan.checkpoints.local_memory_bytes < 1_000,
        "metadata that cannot be written": lambda plan: any(s.fault.fails_metadata for s in plan.faults),
        "durable storage that refuses": lambda plan: "FailPrimaryWrites" in repr(plan.faults),
        "an older checkpoint": lambda plan: (
            plan.on_unreadable == "older" and "DamagePrimary" in repr(plan.faults)
        ),
        "no failed checkpoint tolerated": lambda plan: plan.checkpoints.tolerated_failures == 0,
        "one key group for each subtask": lambda plan: (
            plan.deployment.max_parallelism == max(v.parallelism for v in plan.job.vertices)
        ),
        "many key groups": lambda plan: plan.deployment.max_parallelism == 300,
        "three by three": lambda plan: [v.parallelism for v in plan.job.vertices][:2] == [3, 3],
    }
    missed = [name for name, reached in corners.items() if not any(map(reached, standard()))]
    assert missed == []


def test_a_target_that_the_system_lacks_is_not_aimed_at() -> None:
    plans = draw_plans(
        1, 60, profile_named("heavy"), Constraints(capabilities=frozenset({Capability.WORKER_KILL}))
    )
    assert {type(s.fault).__name__ for plan in plans for s in plan.faults} == {"KillWorker"}


def test_an_unknown_profile_names_the_nearest() -> None:
    with pytest.raises(UsageProblem, match="did you mean 'standard'"):
        profile_named("standrad")


@pytest.mark.nightly
def test_a_channel_that_a_drawn_fault_disturbs_exists() -> None:
    disturbed = 0
    for plan in standard():
        graph = build_graph(plan, workload_named(plan.workload.name), collection_sources(plan, ()))
        channels = tuple((str(channel.sender), str(channel.receiver)) for channel in graph.channels)
        assert barrier_view(plan).links == channels
        validate(plan.faults, barrier_view(plan).names, barrier_view(plan).connections)
        disturbed += sum(isinstance(scheduled.fault, ChannelFault) for scheduled in plan.faults)
    assert disturbed > 20


@pytest.mark.nightly
def test_a_job_that_may_be_started_again_for_ever_has_time_for_its_checkpoints() -> None:
    endless = [plan for plan in standard() if plan.restart.strategy in ("failure_rate", "exponential_delay")]
    assert len(endless) > 100
    slow = [plan for plan in endless if plan.network.slow_channel is not None]
    assert slow
    for plan in endless:
        assert 2 * plan.checkpoints.async_ms_max <= plan.checkpoints.timeout_ms
    for plan in slow:
        assert plan.network.latency_ms_max * plan.network.slow_factor < plan.checkpoints.timeout_ms
        assert plan.checkpoints.timeout_ms <= plan.limits.progress_ms // 2
    bounded = [plan for plan in standard() if plan not in endless]
    assert any(plan.checkpoints.async_ms_max > plan.checkpoints.timeout_ms for plan in bounded)


DRAWN = sorted((Path(__file__).parents[2] / "plans" / "drawn").glob("*.json"))
"""Plans as they could be drawn. In some job every checkpoint of every attempt expired, so each was INVALID: stuck."""


@pytest.mark.nightly
@pytest.mark.parametrize("budget", [None, 5_000])
@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.stem)
def test_a_drawn_job_does_not_start_for_ever_without_any_checkpoint(
    path: Path, budget: int | None, tmp_path: Path
) -> None:
    plan = read_plan(path)
    if budget is not None:
        restart = msgspec.structs.replace(plan.restart, strategy="fixed_delay", attempts_max=budget)
        plan = msgspec.structs.replace(plan, restart=restart)
    assert in_time(plan) != plan
    assert run_trial(in_time(plan), ReferenceSimulated(), tmp_path).verdict is not Verdict.INVALID


def test_a_checkpoint_may_take_as_long_as_its_barriers_are_handled_whatever_the_strategy(
    tmp_path: Path,
) -> None:
    path = next(path for path in DRAWN if path.stem == "more-barriers-than-can-be-handled-in-time")
    plan = read_plan(path)
    assert plan.restart.strategy == "fixed_delay" and plan.checkpoints.timeout_ms < 22
    assert in_time(plan).checkpoints.timeout_ms >= 22 + 3
    assert run_trial(in_time(plan), ReferenceSimulated(), tmp_path).verdict is Verdict.VALID


def test_a_budget_that_lasts_longer_than_the_trial_ends_no_job_in_which_every_checkpoint_expires(
    tmp_path: Path,
) -> None:
    path = next(path for path in DRAWN if path.stem == "budget-that-outlasts-the-trial")
    plan = read_plan(path)
    assert plan.restart.strategy == "fixed_delay" and plan.restart.attempts_max == 20
    assert run_trial(plan, ReferenceSimulated(), tmp_path / "drawn").verdict is Verdict.INVALID
    assert run_trial(in_time(plan), ReferenceSimulated(), tmp_path / "in time").verdict is Verdict.VALID
    few = msgspec.structs.replace(plan, restart=msgspec.structs.replace(plan.restart, attempts_max=5))
    assert in_time(few) == few, "it gives up after 24 s"
    never = msgspec.structs.replace(plan, restart=msgspec.structs.replace(plan.restart, strategy="none"))
    assert in_time(never) == never, "it gives up at its first failure"


@pytest.mark.parametrize("attempts_max", [4, 5, 6, 7, 8])
@pytest.mark.parametrize("tolerated", [0, 1, 2])
def test_a_job_gives_up_within_its_trial_where_it_is_left_to_that(
    tmp_path: Path, attempts_max: int, tolerated: int
) -> None:
    """Every checkpoint of this job expires. It gets time unless it has given up when half of the trial is over."""
    path = next(path for path in DRAWN if path.stem == "budget-that-outlasts-the-trial")
    drawn = read_plan(path)
    plan = msgspec.structs.replace(
        drawn,
        restart=msgspec.structs.replace(drawn.restart, attempts_max=attempts_max),
        checkpoints=msgspec.structs.replace(drawn.checkpoints, tolerated_failures=tolerated),
    )
    record = run_trial(plan, ReferenceSimulated(), tmp_path)
    left_to_itself = in_time(plan) == plan
    if record.end == "failed":
        assert left_to_itself is (record.duration_ms <= plan.limits.virtual_ms / 2)
    else:
        assert not left_to_itself or record.verdict is Verdict.VALID


@pytest.mark.parametrize(("aligned", "most"), [(True, 1 + 2 * (1 + 2 * 9)), (False, 1 + 4 * (1 + 9))])
def test_what_comes_on_parallel_edges_is_handled_before_the_last_barrier(aligned: bool, most: int) -> None:
    """A receiver with two edges from a source of two subtasks: four channels, which hold eight batches each."""
    job = JobPlan(
        "generated",
        vertices=(
            VertexPlan("read", "source", 2),
            VertexPlan("met", "keep", 1),
            VertexPlan("out", "sink", 1),
        ),
        edges=(
            EdgePlan("read", "met", Spread.HASH, key=("key",)),
            EdgePlan("read", "met", Spread.HASH, key=("key",), input=1),
            EdgePlan("met", "out", Spread.FORWARD),
        ),
    )
    assert batches_before_barriers(job, 8, aligned)["met"] == most


@pytest.mark.parametrize("name", ["modes", "rescale", "graphs", "object-store"])
def test_slow_vertices_and_later_jobs_of_drawn_plans_have_time_for_their_checkpoints(name: str) -> None:
    assert [plan for plan in drawn(name) if in_time(plan) != plan] == []


@pytest.mark.nightly
def test_a_lasting_fault_leaves_enough_restarts_for_its_whole_duration() -> None:
    for plan in standard():
        lasting_ms = sum(scheduled.fault.heals_after_ms or 0 for scheduled in plan.faults)
        assert plan.restart.attempts_max * max(1, plan.restart.delay_ms) >= lasting_ms


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_checkpoints_that_may_expire_do_not_all_expire_before_progress_is_demanded(profile: Profile) -> None:
    for plan in drawn(profile.name):
        timeout_ms, async_ms_max = plan.checkpoints.timeout_ms, plan.checkpoints.async_ms_max
        in_time = min(1.0, timeout_ms / max(1, async_ms_max)) ** len(barrier_view(plan).names)
        assert (1 - in_time) ** (plan.limits.progress_ms / max(timeout_ms, async_ms_max)) < 1e-9


@pytest.fixture(scope="module", name="explored")
def _explored() -> tuple[TrialPlan, ...]:
    """What is drawn for Spark; no cluster is started."""
    constraints = Constraints(ReferenceSpark().job, ReferenceSpark().capabilities)
    return draw_plans(4, 160, profile_named("spark-explore"), constraints)


@pytest.mark.parametrize(
    ("system", "taken"),
    [(ReferenceSpark(), {"heartbeat_interval_ms", "warm_executors"}), (ReferenceSimulated(), set[str]())],
    ids=["spark", "takes none"],
)
def test_settings_are_drawn_only_for_a_system_that_takes_them(
    system: SystemUnderTest, taken: set[str]
) -> None:
    wanted = (
        DrawnSetting("heartbeat_interval_ms", 1_000, (250,)),
        DrawnSetting("warm_executors", 1_000, (False,)),
        DrawnSetting("of_another_system", 1_000, (1,)),
    )
    profile = replace(profile_named("spark-explore"), settings=wanted)
    constraints = Constraints(
        system.job,
        system.capabilities,
        fit=lambda plan: without(plan, unused_by(system)),
        takes=partial(takes_settings, system),
    )
    for plan in draw_plans(4, 3, profile, constraints):
        assert set(plan.system) == taken
        check_plan(plan, system)


@pytest.mark.long
def test_exploration_on_spark_draws_every_kind_of_fault_that_spark_can_suffer(
    explored: tuple[TrialPlan, ...],
) -> None:
    drawn = {type(scheduled.fault) for plan in explored for scheduled in plan.faults}
    # Only a trial with its checkpoints in an object store or in HDFS has a service to hit: object_store_spark.toml.
    # Only an elastic job owes anything when an executor is gone for good: the profile spark-elastic.
    exposed = targets_of(ReferenceSpark()) - {TargetKind.OBJECT_STORE, TargetKind.CAPACITY}
    assert drawn == {fault for fault in FAULTS if fault.needs in exposed}
    lasting = [s.fault.heals_after_ms or 0 for plan in explored for s in plan.faults]
    assert max(lasting) > HEARTBEAT_TIMEOUT_MS, "some outlast the heartbeat timeout and make zombies"
    rare = {
        "an older checkpoint": lambda plan: (
            plan.on_unreadable == "older" and "DamagePrimary" in repr(plan.faults)
        ),
        "two stateful operators in a chain": lambda plan: any(
            sum(kind_named(operator.kind).keeps_by_key for operator in vertex.operators) > 1
            for vertex in plan.job.vertices
        ),
        "no failed checkpoint tolerated": lambda plan: plan.checkpoints.tolerated_failures == 0,
        "one key group for each subtask": lambda plan: (
            plan.deployment.max_parallelism == max(v.parallelism for v in plan.job.vertices)
        ),
        "a generated graph": lambda plan: plan.job.shape == "generated",
        "copies of state on the hosts": lambda plan: plan.local_recovery,
    }
    missed = [name for name, reached in rare.items() if not any(map(reached, explored))]
    assert missed == []


@pytest.mark.long
def test_exploration_on_spark_slows_a_channel_down_wherever_records_can_come_early(
    explored: tuple[TrialPlan, ...],
) -> None:
    slow = 0
    for plan in explored:
        waiting = {
            vertex.name
            for vertex in plan.job.vertices
            if plan.job.channels_into(vertex.name) > 1 and keeps_by_key(vertex)
        }
        number = plan.network.slow_channel
        if plan.checkpoints.mode == "at_least_once" and waiting:
            assert number is not None
            assert plan.job.channels[number][1].partition("[")[0] in waiting
            slow += 1
    assert slow > 20


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_no_fault_waits_for_more_passings_of_a_point_than_its_plan_is_sure_of(profile: Profile) -> None:
    for plan in drawn(profile.name):
        view = barrier_view(plan)
        for scheduled in plan.faults:
            trigger = scheduled.trigger
            if isinstance(trigger, After) and trigger.point is ProtocolPoint.RECORDS_PROCESSED:
                assert trigger.nth <= view.times(trigger.point, trigger.subtask)


def test_a_source_that_is_rescaled_is_sure_to_read_only_what_is_its_own_at_every_width() -> None:
    """Subtask 0 of two reads two of four splits; of four subtasks each reads one."""
    workload = WorkloadPlan("lineage", batches=20, batch_records=2)
    job = JobPlan(shape="joined", widths={"left": 2, "right": 2})
    plan = next(
        plan
        for plan in (filled(TrialPlan(seed=seed, workload=workload, job=job)) for seed in range(100))
        if sum(split.vertex == "left" for split in workload_named("lineage").splits(plan)) == 4
    )
    splits = [split for split in workload_named("lineage").splits(plan) if split.vertex == "left"]
    batches = [-(-len(split.input) // 2) for split in splits]
    rescaled = msgspec.structs.replace(plan, rescales=(RescalePlan({"left": 4}),))
    elastic = msgspec.structs.replace(
        plan, deployment=DeploymentPlan(slots_per_executor=4, elastic_wait_ms=5)
    )
    nothing_to_draw: Any = None
    drawing = partial(Drawing, nothing_to_draw, profile_named("rescale"))
    sure = [
        [
            drawing(ANYWHERE).lasting(entry).times(ProtocolPoint.RECORDS_PROCESSED, f"left[{index}]")
            for index in there
        ]
        for entry, there in ((plan, (0, 1)), (rescaled, (0, 1)), (elastic, (0,)))
    ]
    assert sure == [
        [batches[0] + batches[2], batches[1] + batches[3]],
        batches[:2],
        [batches[0] + batches[2]],
    ]


def test_a_rescaled_job_keeps_the_subtasks_that_initiate_snapshots() -> None:
    chandy_lamport = profile_named("chandy-lamport").with_shares(savepoints=1_000)
    ranges = replace(chandy_lamport.savepoints, stop_per_mille=1_000, rescale_per_mille=1_000)
    plans = draw_plans(37, 30, replace(chandy_lamport, savepoints=ranges))
    rescaled = [plan for plan in plans if plan.checkpoints.initiators and plan.rescales]
    assert any(
        width < plan.job.vertex(name).parallelism
        for plan in rescaled
        for stop in plan.rescales
        for name, width in stop.widths.items()
    )


@pytest.mark.nightly
def test_every_fault_of_drawn_plans_that_rescale_their_sources_fires(tmp_path: Path) -> None:
    rescale, waits = profile_named("rescale"), 0
    aimed = replace(rescale, faults=replace(rescale.faults, points=(ProtocolPoint.RECORDS_PROCESSED,)))
    for number, plan in enumerate(draw_plans(31, 90, aimed)):
        aims = [s.trigger.point for s in plan.faults if isinstance(s.trigger, After)]
        if ProtocolPoint.RECORDS_PROCESSED in aims and widths_of_sources(plan):
            directory = tmp_path / str(number)
            directory.mkdir()
            record = execute(plan, ReferenceSimulated(), directory).record
            assert {fault.outcome for fault in record.faults} == {"fired"}, to_json(plan)
            waits += 1
    assert waits > 5


def test_no_timed_fault_comes_after_a_job_that_may_be_over_by_then() -> None:
    graphs = profile_named("spark-graphs").with_shares(tiny_inputs=500)
    tiny = replace(graphs, faults=replace(graphs.faults, timed_per_mille=1_000))
    timed = Counter[bool]()
    for plan in draw_plans(8, 40, tiny):
        job = DrawnJob(plan, barrier_view(plan))
        times = [s.trigger.time_ms for s in plan.faults if isinstance(s.trigger, At)]
        reads_ms = (job.batches or 0) if job.reads_ms is None else job.reads_ms
        assert max(times, default=0) <= reads_ms
        timed[bool(times)] += 1
    assert timed[False] and timed[True], "both kinds of jobs were drawn"


@pytest.mark.long
def test_drawn_faults_of_copies_fire_and_are_met(tmp_path: Path) -> None:
    often = profile_named("standard").with_shares(copies=1_000)
    ends: Counter[str] = Counter()
    for number, plan in enumerate(draw_plans(9, 15, often)):
        directory = tmp_path / str(number)
        directory.mkdir()
        record = execute(plan, ReferenceSimulated(), directory).record
        assert record.verdict is Verdict.VALID, (plan, record.findings)
        ends[record.end] += 1
    assert ends["failed"] > 0, "no copy of some jobs can be read, and they say so"
    assert ends["finished"] > ends["failed"]


def test_some_plans_of_modes_take_checkpoints_while_a_broadcast_meets_what_was_restored() -> None:
    others = dict.fromkeys(known_scenarios(), 0)
    often = profile_named("modes").with_shares(**others | {"recovery": 1_000, "slow_vertex": 255})
    drawn = draw_plans(3, 30, often)
    assert all(plan.checkpoints.overtakes and len(plan.faults) >= 2 for plan in drawn)
    met = 0
    for plan in drawn:
        slow = plan.deployment.slow_vertex
        assert slow is not None
        met += any(edge.by is Spread.BROADCAST for edge in plan.job.inputs_of(slow))
    assert met > 20, "only jobs of a named shape have no broadcast"
    kills = [plan for plan in drawn if plan.faults[0].fault.ends is not None]
    assert len(kills) > 20, "a failure comes first"


_MODES = profile_named("modes")


@pytest.mark.parametrize(
    "changes",
    [
        {"faults": replace(_MODES.faults, number=(0, 1))},
        {"checkpoints": replace(_MODES.checkpoints, modes=("exactly_once", "at_least_once"))},
    ],
    ids=["at most one fault", "no barriers that overtake"],
)
def test_a_profile_without_failures_or_without_barriers_that_overtake_draws_no_such_plan(
    changes: dict[str, Any],
) -> None:
    without = replace(_MODES, **changes)
    often = without.with_shares(recovery=1_000)
    assert draw_plans(3, 20, often) == draw_plans(3, 20, without.with_shares(recovery=0))


def test_a_job_that_a_campaign_prescribes_gets_no_broadcast_for_recovery() -> None:
    job = job_of("lineage", JobPlan(shape="joined"))
    constraints = Constraints(adjust=lambda plan: msgspec.structs.replace(plan, job=job))
    # A plan that is at its end in some subtasks has another workload.
    modes = profile_named("modes").with_shares(recovery=1_000, ends_apart=0)
    often = replace(modes, workload=replace(modes.workload, names=("lineage",)))
    plans = draw_plans(3, 20, often, constraints)
    assert {plan.job for plan in plans} == {job}
    assert any(plan.deployment.slow_vertex for plan in plans)


@pytest.mark.parametrize("local_recovery", [False, True])
def test_an_executor_is_cut_off_from_others_only_if_data_is_sure_to_pass_between_them(
    local_recovery: bool, tmp_path: Path
) -> None:
    """Two pipelines side by side: the forward one fits on one executor, which then has nobody to be cut off from."""
    plan = TrialPlan(
        workload=WorkloadPlan(name="lineage", batches=5, records_per_second=300),
        job=job_of("lineage", JobPlan(shape="apart", widths={"long": 2, "short": 2, "out0": 2, "out1": 1})),
        deployment=DeploymentPlan(executors=4),
        local_recovery=local_recovery,
    )
    job = DrawnJob(plan, barrier_view(plan))
    sure = {name: Peers.EXECUTORS in job.peers_of(name) for name in job.view.names}
    assert [name for name, apart in sure.items() if apart] == ["short[0]", "short[1]", "out1[0]"]
    for name, apart in sure.items():
        cut = ScheduledFault(PartitionExecutor(name, Peers.EXECUTORS, 20), At(12))
        record = execute(msgspec.structs.replace(plan, faults=(cut,)), ReferenceSimulated(), tmp_path).record
        if apart:
            assert record.faults_fired == 1, name
        if not local_recovery and name in ("long[0]", "out0[0]"):
            assert record.faults[0].reason == "there is no connection between the two sides"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "profile",
    [
        "standard",
        pytest.param("at-least-once", marks=pytest.mark.long),
        pytest.param("heavy", marks=pytest.mark.nightly),
    ],
)
def test_drawn_trials_restore_checkpoints_taken_in_the_middle_of_the_input(
    profile: str, tmp_path: Path
) -> None:
    """A checkpoint before or after all records tests nothing interesting: no record is replayed over restored state."""
    system = ReferenceSimulated()
    restoring = inside = 0
    for plan in draw_plans(5, 30, profile_named(profile)):
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


def test_a_job_fits_if_a_campaign_prescribes_fewer_executors_than_a_scenario_counts_on() -> None:
    profile = profile_named("standard").with_shares(fallbacks=1_000, merged_increments=0, ends_apart=0)

    def four(plan: TrialPlan) -> TrialPlan:
        return msgspec.structs.replace(plan, deployment=msgspec.structs.replace(plan.deployment, executors=4))

    plans = draw_plans(2, 20, profile, Constraints(adjust=four))
    assert any(len(plan.job.subtasks) > 4 for plan in plans)
    for plan in plans:
        assert plan.deployment.executors == 4
        slots = plan.deployment.slots_per_executor
        assert slots is None or 4 * slots >= len(plan.job.subtasks)
        assert plan.deployment.elastic_wait_ms is None or slots is not None
