"""Shrinking against predicates, without any system: the result fails, is smaller, and is minimal."""

from __future__ import annotations

import msgspec
import pytest

from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.cut_channel import CutChannel
from barrier_tck.faults.kinds.kill_executor import KillExecutor
from barrier_tck.faults.kinds.partition_halves import PartitionHalves
from barrier_tck.faults.vocabulary import After, At, ProtocolPoint, ScheduledFault
from barrier_tck.harness.campaign.shrinking import CALM_CHECKPOINTS, CALM_NETWORK, retarget, shrink, sort_key
from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.slow_checkpoints import in_time
from barrier_tck.harness.draw.strategies import draw_plans
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointPlan,
    DeploymentPlan,
    NetworkPlan,
    RestartPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.system.job_view import JobView, Role, SubtaskView
from barrier_tck.harness.workloads.barrier_jobs import barrier_view
from barrier_tck.harness.workloads.workload_names import filled

AIM = After(ProtocolPoint.SNAPSHOT_TAKEN, "totals[2]", nth=3)
BIG = TrialPlan(
    seed=123_456,
    workload=WorkloadPlan(batches=12, batch_records=4, keys=8, start_offset=3),
    job=JobPlan(widths={"source": 3, "totals": 3, "sink": 3}),
    deployment=DeploymentPlan(executors=3, write_through=False),
    network=NetworkPlan(latency_ms_max=9, slow_channel=17, channel_capacity=1),
    faults=(
        ScheduledFault(CrashCoordinator(lose_unsynced=True), At(44)),
        ScheduledFault(KillExecutor("totals[2]", lose_unsynced=True), AIM),
        ScheduledFault(KillExecutor("sink[2]"), At(10)),
    ),
)


def test_a_failure_that_needs_one_fault_and_three_batches_shrinks_to_just_that() -> None:
    def fails(plan: TrialPlan) -> bool:
        kills = any(isinstance(scheduled.fault, KillExecutor) for scheduled in plan.faults)
        return kills and plan.workload.batches >= 3

    shrunk = shrink(BIG, fails, barrier_view)
    plan = shrunk.plan
    assert len(plan.faults) == 1 and plan.workload.batches == 3
    assert [vertex.parallelism for vertex in plan.job.vertices] == [
        1,
        1,
        1,
    ] and plan.deployment.executors == 1
    assert (plan.workload.batch_records, plan.workload.keys, plan.workload.start_offset) == (1, 1, 0)
    assert (plan.checkpoints, plan.network, plan.seed) == (CALM_CHECKPOINTS, CALM_NETWORK, 0)
    assert "lose_unsynced=True" not in repr(plan) and "nth=3" not in repr(plan)


def test_what_matters_to_the_failure_is_kept() -> None:
    def fails(plan: TrialPlan) -> bool:
        return (
            len(plan.faults) >= 2
            and plan.job.vertex("totals").parallelism >= 2
            and plan.network.latency_ms_max >= 4
        )

    plan = shrink(BIG, fails, barrier_view).plan
    assert (len(plan.faults), plan.job.vertex("totals").parallelism, plan.network.latency_ms_max) == (2, 2, 4)


def test_a_smaller_plan_may_be_found_under_another_seed() -> None:
    def fails(plan: TrialPlan) -> bool:
        return len(plan.faults) == 3 or plan.seed == 2

    assert shrink(BIG, fails, barrier_view).plan.faults == ()


def test_a_job_whose_checkpoints_have_the_time_they_need_keeps_it() -> None:
    """With a shorter timeout it would be started again for ever, and that would not be the failure that was found."""
    network = NetworkPlan(latency_ms_max=30, slow_channel=9, slow_factor=8, channel_capacity=2)
    endless = RestartPlan(strategy="failure_rate")
    hurried = msgspec.structs.replace(
        filled(BIG),
        network=network,
        restart=endless,
        checkpoints=CheckpointPlan(tolerated_failures=0),
    )
    patient = in_time(hurried)
    assert patient.checkpoints.timeout_ms > CALM_CHECKPOINTS.timeout_ms

    def fails(plan: TrialPlan) -> bool:
        return (plan.job, plan.network, plan.restart) == (filled(BIG).job, network, endless)

    plan = shrink(patient, fails, barrier_view).plan
    assert in_time(plan) == plan
    assert plan.workload.batches == 0, "the rest is made smaller"


def test_the_budget_bounds_the_runs_and_the_result_still_fails() -> None:
    ran: list[TrialPlan] = []

    def fails(plan: TrialPlan) -> bool:
        ran.append(plan)
        return len(plan.faults) > 0

    shrunk = shrink(BIG, fails, barrier_view, runs_max=7)
    assert shrunk.runs == len(ran) == 7 and shrunk.plan.faults


def test_a_plan_is_never_run_twice_and_never_replaced_by_one_that_is_not_simpler() -> None:
    for plan in draw_plans(3, 12, profile_named("heavy")):
        ran: list[TrialPlan] = []

        def fails(candidate: TrialPlan, ran: list[TrialPlan] = ran) -> bool:
            ran.append(candidate)
            return len(candidate.faults) >= 2

        shrunk = shrink(plan, fails, barrier_view)
        assert len(set(ran)) == len(ran)
        assert sort_key(shrunk.plan) <= sort_key(plan) and len(shrunk.plan.faults) == 2


def test_faults_of_a_vanished_subtask_are_aimed_at_one_that_is_left() -> None:
    narrow = filled(msgspec.structs.replace(BIG, job=JobPlan(widths={"source": 1, "totals": 1, "sink": 1})))
    aimed = retarget(narrow, barrier_view(BIG), barrier_view(narrow))
    assert aimed is not None
    assert "totals[0]" in repr(aimed) and "[2]" not in repr(aimed) and aimed.network.slow_channel == 1
    elsewhere = JobView((SubtaskView("elsewhere"),))
    assert retarget(narrow, barrier_view(BIG), elsewhere) is None


def test_faults_of_a_system_with_names_of_its_own_are_aimed_by_role() -> None:
    def foreign(plan: TrialPlan) -> JobView:
        """Return one reader, and as many writers as there are sinks; the writers' names show no order."""
        writers = ["zoe", "anna", "bob"][: plan.job.vertex("sink").parallelism]
        return JobView(
            (SubtaskView("reader", (Role.SOURCE,)), *(SubtaskView(name, (Role.SINK,)) for name in writers))
        )

    faults = (
        ScheduledFault(KillExecutor("bob"), At(10)),
        ScheduledFault(KillExecutor("reader"), After(ProtocolPoint.SNAPSHOT_TAKEN, "anna")),
    )

    def fails(plan: TrialPlan) -> bool:
        return len(plan.faults) == 2

    plan = shrink(msgspec.structs.replace(BIG, faults=faults), fails, foreign).plan
    assert [scheduled.fault.subtasks for scheduled in plan.faults] == [("zoe",), ("reader",)]
    assert plan.faults[1].trigger == After(ProtocolPoint.SNAPSHOT_TAKEN, "zoe")


def test_a_time_between_two_milliseconds_shrinks_to_the_smallest_whole_one() -> None:
    timed = (ScheduledFault(CrashCoordinator(), At(44.5)),)

    def fails(plan: TrialPlan) -> bool:
        return any(isinstance(each.trigger, At) and each.trigger.time_ms >= 7 for each in plan.faults)

    plan = shrink(msgspec.structs.replace(BIG, faults=timed), fails, barrier_view).plan
    assert [scheduled.trigger for scheduled in plan.faults] == [At(7)]


def test_a_fault_that_lasts_shrinks_to_the_shortest_on_the_first_subtasks() -> None:
    lasting = (
        ScheduledFault(CutChannel("source[2]", "totals[1]", 90), AIM),
        ScheduledFault(PartitionHalves(("totals[2]", "sink[1]"), 300), At(5)),
    )

    def fails(plan: TrialPlan) -> bool:
        durations = [scheduled.fault.heals_after_ms for scheduled in plan.faults]
        return len(durations) == 2 and None not in durations and sorted(ms or 0 for ms in durations)[1] >= 40

    plan = shrink(msgspec.structs.replace(BIG, faults=lasting), fails, barrier_view).plan
    assert sorted(scheduled.fault.heals_after_ms or 0 for scheduled in plan.faults) == [1, 40]
    assert [scheduled.fault.subtasks for scheduled in plan.faults] == [
        ("source[0]", "totals[0]"),
        ("totals[0]", "sink[0]"),
    ]


@pytest.mark.parametrize(
    ("simpler", "than"),
    [
        (TrialPlan(), BIG),
        (TrialPlan(faults=BIG.faults[:1]), TrialPlan(faults=BIG.faults[:2])),
        (TrialPlan(workload=WorkloadPlan(batches=1)), TrialPlan()),
        (TrialPlan(seed=1), TrialPlan(seed=2)),
    ],
)
def test_simpler_is_defined_once(simpler: TrialPlan, than: TrialPlan) -> None:
    assert sort_key(simpler) < sort_key(than)
