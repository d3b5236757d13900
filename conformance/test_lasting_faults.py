"""Faults that last and heal: processes that stand still, connections that are disturbed, partitions, lost hosts.

Whatever happens, output and snapshots are exact, every fault is shown to have fired and to have been healed, and the
job goes on within a bound. A process that was replaced while it stood still or was cut off comes back as a zombie:
nothing that it still does may count (REC-2).
"""

from __future__ import annotations

import msgspec
import pytest

from barrier_tck.conformance.plans import (
    CALM,
    OTHER_STATEFUL,
    SINK,
    SOURCE,
    STATEFUL,
    varied,
    with_faults,
)
from barrier_tck.conformance.trials import Trial, Trials, happened, require
from barrier_tck.faults.fault import Fault
from barrier_tck.faults.kinds.black_hole_channel import BlackHoleChannel
from barrier_tck.faults.kinds.cut_channel import CutChannel
from barrier_tck.faults.kinds.delay_channel import DelayChannel
from barrier_tck.faults.kinds.limit_channel import LimitChannel
from barrier_tck.faults.kinds.lose_host import LoseHost
from barrier_tck.faults.kinds.lose_packets import LosePackets
from barrier_tck.faults.kinds.partition_executor import PartitionExecutor
from barrier_tck.faults.kinds.partition_halves import PartitionHalves
from barrier_tck.faults.kinds.pause_executor import PauseExecutor
from barrier_tck.faults.kinds.pause_worker import PauseWorker
from barrier_tck.faults.kinds.throttle_channel import ThrottleChannel
from barrier_tck.faults.targets import COORDINATOR, Direction, Peers
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.trial_plan import LimitsPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.system.system_under_test import Capability

pytestmark = pytest.mark.needs(Capability.ATTEMPTS)

LONGER = varied(CALM, workload=WorkloadPlan(batches=60, batch_records=3, keys=5, records_per_second=600))
"""300 ms of input, more than the heartbeat timeout of 150 ms: what was replaced comes back while the job still runs."""

MOMENT_MS, ZOMBIE_MS = 60, 210
"""Well within the heartbeat timeout (150 ms in the simulator's scale), and well beyond it."""

TOO_SHORT_MS = 100
"""A trial that is over by then has no time to notice that a process is silent."""


def _at_snapshot(fault: Fault, plan: TrialPlan = CALM) -> TrialPlan:
    """Let a fault strike when the first keyed subtask has taken its part of the second checkpoint."""
    aim = After(ProtocolPoint.SNAPSHOT_TAKEN, STATEFUL, nth=2)
    return with_faults(ScheduledFault(fault, aim), plan=plan)


def _name(fault: Fault) -> str:
    return type(fault).__name__


def _require_not_replaced(trial: Trial) -> None:
    require(len(trial.record.attempts) == 1, "nothing had to be replaced", trial)


def _require_came_back(trial: Trial) -> None:
    """Require that a new attempt began before the fault was healed, so that what was hit came back too late."""
    (fault,), attempts = trial.record.faults, trial.record.attempts
    happened(len(attempts) > 1, "the attempt was replaced", trial)
    healed_ms = fault.healed_at_ms
    happened(healed_ms is not None and attempts[1].started_at_ms < healed_ms, "before it was healed", trial)


@pytest.mark.clause("REC-6")
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(PauseWorker(STATEFUL, MOMENT_MS), marks=pytest.mark.nightly_on_clusters),
        PauseExecutor(SINK, MOMENT_MS),
    ],
    ids=_name,
)
def test_a_process_that_stands_still_for_a_moment_is_not_replaced(trials: Trials, fault: Fault) -> None:
    for trial in trials.all_valid(_at_snapshot(fault)):
        _require_not_replaced(trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.nightly
@pytest.mark.clause("REC-1", "REC-2", "REC-6")
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(PauseWorker(SOURCE, ZOMBIE_MS), marks=pytest.mark.nightly_on_clusters),
        pytest.param(PauseWorker(STATEFUL, ZOMBIE_MS), marks=pytest.mark.nightly_on_clusters),
        pytest.param(PauseWorker(SINK, ZOMBIE_MS), marks=pytest.mark.nightly_on_clusters),
        PauseExecutor(STATEFUL, ZOMBIE_MS),
    ],
    ids=lambda fault: f"{_name(fault)}-{fault.subtask}",
)
def test_a_process_that_was_replaced_while_it_stood_still_changes_nothing_when_it_goes_on(
    trials: Trials, fault: Fault
) -> None:
    for trial in trials.all_valid(_at_snapshot(fault, LONGER)):
        _require_came_back(trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.long
@pytest.mark.clause("REC-2", "SNK-1")
@pytest.mark.parametrize("nth", [1, pytest.param(2, marks=pytest.mark.nightly_on_clusters)])
def test_a_sink_that_commits_late_changes_nothing(trials: Trials, nth: int) -> None:
    aim = After(ProtocolPoint.COMPLETION_NOTIFIED, SINK, nth)
    plan = with_faults(ScheduledFault(PauseWorker(SINK, ZOMBIE_MS), aim), plan=LONGER)
    for trial in trials.all_valid(plan):
        _require_came_back(trial)


@pytest.mark.long_on_clusters
@pytest.mark.clause("BAR-2", "BAR-5")
@pytest.mark.parametrize(
    "fault",
    [
        DelayChannel(SOURCE, STATEFUL, latency_ms=10, jitter_ms=8, duration_ms=40),
        pytest.param(
            DelayChannel(SINK, COORDINATOR, latency_ms=10, duration_ms=40, direction=Direction.BOTH),
            marks=pytest.mark.nightly_on_clusters,
        ),
        pytest.param(
            ThrottleChannel(SOURCE, OTHER_STATEFUL, bytes_per_second=20_000, duration_ms=40),
            marks=pytest.mark.nightly_on_clusters,
        ),
        pytest.param(
            LosePackets(STATEFUL, per_mille=300, duration_ms=40), marks=pytest.mark.nightly_on_clusters
        ),
    ],
    ids=_name,
)
def test_a_slow_connection_costs_time_and_nothing_else(trials: Trials, fault: Fault) -> None:
    for trial in trials.all_valid(_at_snapshot(fault)):
        _require_not_replaced(trial)


@pytest.mark.long
@pytest.mark.clause("REC-1", "REC-6")
@pytest.mark.parametrize(
    "fault",
    [
        CutChannel(SOURCE, STATEFUL, MOMENT_MS),
        pytest.param(CutChannel(STATEFUL, COORDINATOR, MOMENT_MS), marks=pytest.mark.nightly_on_clusters),
        pytest.param(BlackHoleChannel(STATEFUL, SINK, MOMENT_MS), marks=pytest.mark.nightly_on_clusters),
        pytest.param(
            BlackHoleChannel(STATEFUL, COORDINATOR, ZOMBIE_MS), marks=pytest.mark.nightly_on_clusters
        ),
        pytest.param(
            LimitChannel(SOURCE, STATEFUL, bytes_max=500, duration_ms=MOMENT_MS),
            marks=pytest.mark.nightly_on_clusters,
        ),
        pytest.param(
            LimitChannel(STATEFUL, COORDINATOR, bytes_max=100, duration_ms=MOMENT_MS),
            marks=pytest.mark.nightly_on_clusters,
        ),
    ],
    ids=lambda fault: f"{_name(fault)}-{fault.receiver}",
)
def test_a_broken_connection_is_a_failure_from_which_the_job_recovers(
    trials: Trials, fault: CutChannel | BlackHoleChannel | LimitChannel
) -> None:
    plan = LONGER if fault.duration_ms == ZOMBIE_MS else CALM  # what is closed at once is noticed at once
    for trial in trials.all_valid(_at_snapshot(fault, plan)):
        happened(len(trial.record.attempts) > 1, "the attempt was replaced", trial)


@pytest.mark.long_on_clusters
@pytest.mark.long
@pytest.mark.clause("REC-1", "REC-2", "REC-6")
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(
            PartitionExecutor(STATEFUL, Peers.EXECUTORS, ZOMBIE_MS), marks=pytest.mark.nightly_on_clusters
        ),
        PartitionExecutor(STATEFUL, Peers.COORDINATOR, ZOMBIE_MS),
        pytest.param(
            PartitionExecutor(SINK, Peers.EVERYONE, ZOMBIE_MS), marks=pytest.mark.nightly_on_clusters
        ),
        pytest.param(PartitionHalves((STATEFUL,), ZOMBIE_MS), marks=pytest.mark.nightly_on_clusters),
    ],
    ids=lambda fault: f"{_name(fault)}-{getattr(fault, 'peers', 'others')}",
)
def test_a_partition_is_survived_and_its_zombies_change_nothing(trials: Trials, fault: Fault) -> None:
    for trial in trials.all_valid(_at_snapshot(fault, LONGER)):
        happened(len(trial.record.attempts) > 1, "the attempt was replaced", trial)


@pytest.mark.needs(Capability.DETERMINISTIC_REPLAY)
@pytest.mark.clause("REC-6")
def test_a_job_that_cannot_go_on_names_what_it_waits_for(trials: Trials) -> None:
    """The trial is over while a subtask is cut off, before its silence is noticed."""
    plan = _at_snapshot(PartitionExecutor(STATEFUL, Peers.COORDINATOR, ZOMBIE_MS), LONGER)
    trial = trials.run(msgspec.structs.replace(plan, limits=LimitsPlan(virtual_ms=TOO_SHORT_MS)))
    happened(trial.record.end == "stuck", "the trial was over before the job", trial)
    waits = trial.history.pending
    name = trial.subtask(STATEFUL)
    require(any(name in line for line in waits), f"it waits for {name}, and says so: {waits}", trial)


@pytest.mark.clause("REC-1", "REC-6")
def test_a_lost_host_is_survived(trials: Trials) -> None:
    for trial in trials.all_valid(_at_snapshot(LoseHost(STATEFUL))):
        happened(len(trial.record.attempts) > 1, "the attempt was replaced", trial)
