"""Lasting faults in the simulated world: what stands still, what arrives late, what breaks, and who notices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barrier_tck.faults.fault import Fault
from barrier_tck.faults.kinds.black_hole_channel import BlackHoleChannel
from barrier_tck.faults.kinds.cut_channel import CutChannel
from barrier_tck.faults.kinds.delay_channel import DelayChannel
from barrier_tck.faults.kinds.fail_primary_writes import FailPrimaryWrites
from barrier_tck.faults.kinds.kill_executor import KillExecutor
from barrier_tck.faults.kinds.limit_channel import LimitChannel
from barrier_tck.faults.kinds.lose_host import LoseHost
from barrier_tck.faults.kinds.partition_executor import PartitionExecutor
from barrier_tck.faults.kinds.pause_executor import PauseExecutor
from barrier_tck.faults.kinds.pause_worker import PauseWorker
from barrier_tck.faults.kinds.repeat_messages import RepeatMessages
from barrier_tck.faults.targets import COORDINATOR, Direction, Peers, Targets
from barrier_tck.faults.vocabulary import After, At, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, LimitsPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.history import End
from barrier_tck.harness.record.operations import Acknowledged
from barrier_tck.harness.record.records import TrialRecord
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.repeated_messages import RepeatedMessages
from barrier_tck.harness.reference.simulated import simulated_system as reference_simulated
from barrier_tck.harness.reference.simulated.failure_detector import HEARTBEAT_TIMEOUT_MS
from barrier_tck.harness.reference.simulated.hosts import LocalDisk, SimulatedHost
from barrier_tck.harness.reference.simulated.network import (
    MESSAGE_BYTES,
)
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.reference.simulated.world import SimulatedWorld
from barrier_tck.harness.system.system_under_test import TrialOutcome
from barrier_tck.harness.trial.nemesis import Nemesis
from barrier_tck.harness.trial.trial_run import run_trial
from barrier_tck.harness.workloads.workload_names import filled
from barrier_tck.reference_impl.protocol.heartbeats import FailureDetector

TAKEN = After(ProtocolPoint.SNAPSHOT_TAKEN, "totals[0]", 2)
PLAN = TrialPlan(workload=WorkloadPlan(batches=60, records_per_second=600))


def planned(fault: Fault, trigger: After | At = TAKEN, **changes: Any) -> TrialPlan:
    return msgspec.structs.replace(PLAN, faults=(ScheduledFault(fault, trigger),), **changes)


def run(plan: TrialPlan, directory: Path) -> TrialOutcome:
    return ReferenceSimulated().run(filled(plan), Nemesis(plan.faults), directory)


def judged(plan: TrialPlan, directory: Path) -> TrialRecord:
    record = run_trial(plan, ReferenceSimulated(), directory)
    assert record.verdict is Verdict.VALID, record.findings
    assert record.faults_fired == len(plan.faults)
    return record


def steps(outcome: TrialOutcome, actor: str) -> list[tuple[float, str]]:
    """Return the time and kind of every step of an actor."""
    lines = [line.split(maxsplit=3) for line in outcome.trace]
    return [(float(time), step) for time, name, step, *_ in lines if name == actor]


# --- pauses -------------------------------------------------------------------------------------------------


def test_a_paused_process_takes_no_step_and_then_goes_on_in_the_middle_of_its_step(
    tmp_path: Path,
) -> None:
    outcome = run(planned(PauseWorker("totals[0]", 60)), tmp_path)
    mine = steps(outcome, "totals[0]#1")
    (paused,) = [index for index, (_, step) in enumerate(mine) if step == "paused"]
    assert mine[paused + 1][1] == "resumed"
    assert mine[paused + 1][0] == pytest.approx(mine[paused][0] + 60)
    acks = [line for line in outcome.history.of(Acknowledged) if line.operation.checkpoint == 2]
    late = [line for line in acks if line.operation.subtask in ("totals[0]", "sink[0]")]
    assert late and all(line.time_ms > mine[paused + 1][0] for line in late), (
        "the barrier had not been forwarded"
    )
    assert outcome.history.end is End.FINISHED


def test_a_process_whose_background_was_at_work_does_not_finish_it_while_it_is_paused(tmp_path: Path) -> None:
    plan = planned(PauseWorker("totals[0]", 60), After(ProtocolPoint.BARRIER_FORWARDED, "totals[0]"))
    mine = steps(run(plan, tmp_path), "totals[0]#1")
    since = next(time for time, step in mine if step == "paused")
    assert not [step for time, step in mine if since < time < since + 60]


def test_a_silent_process_is_replaced_after_the_heartbeat_timeout_and_comes_back_as_a_zombie(
    tmp_path: Path,
) -> None:
    did_more = False
    for seed in range(4):
        plan = msgspec.structs.replace(planned(PauseWorker("totals[0]", 250)), seed=seed)
        outcome = run(plan, tmp_path)
        zombie = steps(outcome, "totals[0]#1")
        since = next(time for time, step in zombie if step == "paused")
        (lost,) = [time for time, step in steps(outcome, "coordinator#1") if step == "lost"]
        assert HEARTBEAT_TIMEOUT_MS - 15 <= lost - since <= HEARTBEAT_TIMEOUT_MS + 15
        assert steps(outcome, "totals[0]#2")[0][0] < since + 250, "its successor runs before it goes on"
        after = [step for time, step in zombie if time > since + 249]
        assert after[0] == "resumed" and after[-1] == "cancelled"
        did_more |= len(after) > 2
        judged(plan, tmp_path)
    assert did_more, "at no seed did it do anything before it heard of its end"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (PauseWorker("totals[0]", 90), PauseWorker("totals[0]", 20)),
        (PauseWorker("totals[0]", 90), PauseExecutor("totals[0]", 20)),
        (PauseExecutor("totals[0]", 90), PauseWorker("totals[0]", 20)),
        (PauseExecutor("totals[0]", 90), PauseExecutor("totals[0]", 20)),
        (PauseExecutor("totals[0]", 20), PauseWorker("totals[0]", 80)),
    ],
)
@pytest.mark.parametrize("trigger", [At(40), TAKEN])
def test_a_process_that_is_paused_twice_goes_on_when_both_pauses_are_over(
    first: Fault, second: Fault, trigger: After | At, tmp_path: Path
) -> None:
    """Whether it stands between two steps or in one, and whichever of the two comes first."""
    once = steps(run(planned(first, trigger), tmp_path), "totals[0]#1")
    since = next(time for time, step in once if step == "paused")
    faults = (ScheduledFault(first, trigger), ScheduledFault(second, At(int(since) + 10)))
    plan = msgspec.structs.replace(PLAN, faults=faults)
    healed = [fault.healed_at_ms for fault in judged(plan, tmp_path).faults]
    mine = steps(run(plan, tmp_path), "totals[0]#1")
    (resumed,) = [time for time, step in mine if step == "resumed"]
    assert resumed == pytest.approx(max(at or 0.0 for at in healed), abs=0.01)
    assert {step for time, step in mine if since < time < resumed} == {"paused"}


def test_two_processes_that_stand_in_their_steps_at_once_both_go_on(tmp_path: Path) -> None:
    faults = (
        ScheduledFault(PauseWorker("totals[0]", 80), After(ProtocolPoint.SNAPSHOT_TAKEN, "totals[0]")),
        ScheduledFault(PauseWorker("totals[1]", 100), After(ProtocolPoint.SNAPSHOT_TAKEN, "totals[1]")),
    )
    for seed in range(5):
        record = judged(msgspec.structs.replace(PLAN, faults=faults, seed=seed), tmp_path)
        assert all(fault.healed_at_ms is not None for fault in record.faults)


def test_a_process_that_is_killed_while_it_stands_in_a_step_is_gone(tmp_path: Path) -> None:
    faults = (
        ScheduledFault(PauseWorker("totals[0]", 100), TAKEN),
        ScheduledFault(KillExecutor("totals[0]"), After(ProtocolPoint.CHECKPOINT_TRIGGERED, nth=3)),
    )
    plan = msgspec.structs.replace(
        PLAN, faults=faults, checkpoints=msgspec.structs.replace(PLAN.checkpoints, max_concurrent=3)
    )
    judged(plan, tmp_path)
    zombie = steps(run(plan, tmp_path), "totals[0]#1")
    killed = next(index for index, (_, step) in enumerate(zombie) if step == "killed")
    assert [step for _, step in zombie[killed + 1 :]] in ([], ["resumed"])


def test_a_deployment_on_a_paused_executor_waits_there(tmp_path: Path) -> None:
    plan = planned(
        PauseExecutor("totals[0]", 400), deployment=msgspec.structs.replace(PLAN.deployment, executors=1)
    )
    record = judged(plan, tmp_path)
    fault = record.faults[0]
    assert fault.healed_at_ms is not None
    running = [a.running_at_ms for a in record.attempts[1:] if a.running_at_ms is not None]
    assert running and min(running) > fault.healed_at_ms


def test_a_plan_with_faults_that_last_replays_step_by_step(tmp_path: Path) -> None:
    faults = (
        ScheduledFault(PauseWorker("totals[0]", 200), TAKEN),
        ScheduledFault(DelayChannel("source[0]", "totals[1]", 20, 100, 10), At(10)),
        ScheduledFault(PartitionExecutor("sink[0]", Peers.COORDINATOR, 180), At(40)),
    )
    plan = msgspec.structs.replace(PLAN, faults=faults)
    assert run(plan, tmp_path).trace == run(plan, tmp_path).trace


# --- failure detection --------------------------------------------------------------------------------------


def test_without_failure_detection_a_job_is_stuck_behind_a_process_that_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(PauseWorker("totals[0]", 60_000), limits=LimitsPlan(virtual_ms=5_000))
    judged(plan, tmp_path)
    monkeypatch.setattr(FailureDetector, "is_lost", lambda detector, silent_ms: False)
    record = run_trial(plan, ReferenceSimulated(), tmp_path)
    assert record.verdict is Verdict.INVALID and record.end == "stuck"


def test_an_error_of_the_world_is_not_taken_for_one_of_the_process_that_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_idea(_detector: FailureDetector, _silent_ms: float) -> bool:
        raise ZeroDivisionError("no idea")

    plan = planned(PauseWorker("totals[0]", 250))
    monkeypatch.setattr(FailureDetector, "is_lost", no_idea)
    with pytest.raises(ZeroDivisionError, match="no idea"):
        run(plan, tmp_path)


# --- connections --------------------------------------------------------------------------------------------


def test_a_limited_channel_fails_attempt_after_attempt_until_it_heals(tmp_path: Path) -> None:
    record = judged(planned(LimitChannel("source[0]", "totals[0]", 2 * MESSAGE_BYTES, 100)), tmp_path)
    (fault,) = record.faults
    assert fault.label == "limit source[0] → totals[0] to 128 bytes for 100 ms"
    assert fault.fired_at_ms is not None and fault.healed_at_ms == pytest.approx(fault.fired_at_ms + 100)
    assert len(record.attempts) > 2
    assert all("the connection is broken" in attempt.reason for attempt in record.attempts[:-1])


def test_a_limited_connection_ends_once_its_last_bytes_have_arrived_however_late(tmp_path: Path) -> None:
    faults = (
        ScheduledFault(DelayChannel("totals[0]", COORDINATOR, 40, 100), TAKEN),
        ScheduledFault(LimitChannel("totals[0]", COORDINATOR, 2 * MESSAGE_BYTES, 60), TAKEN),
    )
    plan = msgspec.structs.replace(PLAN, faults=faults)
    record = judged(plan, tmp_path)
    assert "lost its control connection" in record.attempts[0].reason
    outcome = run(plan, tmp_path)
    lost_ms = next(time for time, step in steps(outcome, "coordinator#1") if step == "lost")
    came = [
        line.time_ms for line in outcome.history.of(Acknowledged) if line.operation.subtask == "totals[0]"
    ]
    fired_ms = record.faults[1].fired_at_ms
    assert fired_ms is not None
    assert [time for time in came if fired_ms + 40 <= time <= lost_ms], "there was room for two messages"


def test_a_limit_that_is_not_reached_breaks_nothing(tmp_path: Path) -> None:
    assert (
        len(judged(planned(LimitChannel("source[0]", "totals[0]", 10_000_000, 50)), tmp_path).attempts) == 1
    )


def test_a_cut_channel_fails_the_attempt_and_cannot_be_opened_before_it_heals(tmp_path: Path) -> None:
    record = judged(planned(CutChannel("source[0]", "totals[0]", 100)), tmp_path)
    cut = record.faults[0]
    assert cut.fired_at_ms is not None and cut.healed_at_ms == pytest.approx(cut.fired_at_ms + 100)
    assert "the connection is broken" in record.attempts[0].reason
    assert all("no answer" in attempt.reason for attempt in record.attempts[1:-1])
    assert len(record.attempts) > 2, "attempt after attempt fails as long as it is cut"


def test_a_cut_control_connection_is_the_end_of_its_subtask_and_of_the_attempt(tmp_path: Path) -> None:
    plan = planned(CutChannel("totals[0]", COORDINATOR, 10))
    record = judged(plan, tmp_path)
    assert "lost its control connection" in record.attempts[0].reason
    assert "orphaned" in [step for _, step in steps(run(plan, tmp_path), "totals[0]#1")]


def test_a_black_hole_breaks_the_channel_when_it_heals_and_not_before(tmp_path: Path) -> None:
    record = judged(planned(BlackHoleChannel("source[0]", "totals[0]", 80)), tmp_path)
    healed_ms = record.faults[0].healed_at_ms
    assert healed_ms is not None and record.attempts[0].ended_at_ms >= healed_ms
    assert "the connection is broken" in record.attempts[0].reason


def test_a_black_hole_that_swallowed_nothing_breaks_nothing(tmp_path: Path) -> None:
    no_credit_is_sent_meanwhile = BlackHoleChannel("source[0]", "totals[0]", 1, Direction.BACKWARD)
    assert len(judged(planned(no_credit_is_sent_meanwhile), tmp_path).attempts) == 1


@pytest.mark.parametrize("buffer_bytes", [None, 64])
def test_a_black_hole_of_credits_stops_the_sender_and_then_breaks_the_channel(
    buffer_bytes: int | None, tmp_path: Path
) -> None:
    backwards = BlackHoleChannel("source[0]", "totals[0]", 200, Direction.BACKWARD)
    plan = planned(backwards)
    if buffer_bytes is not None:
        checkpoints = msgspec.structs.replace(plan.checkpoints, mode="unaligned")
        network = msgspec.structs.replace(plan.network, buffer_bytes=buffer_bytes)
        plan = msgspec.structs.replace(plan, checkpoints=checkpoints, network=network)
    record = judged(plan, tmp_path)
    fired_ms, healed_ms = record.faults[0].fired_at_ms, record.faults[0].healed_at_ms
    assert fired_ms is not None and healed_ms is not None
    assert "the connection is broken" in record.attempts[0].reason
    assert record.attempts[0].ended_at_ms >= healed_ms and len(record.attempts) == 2
    polled = [at for at, step in steps(run(plan, tmp_path), "source[0]#1") if step == "poll"]
    assert [at for at in polled if at > fired_ms], "the credits that it had"
    assert not [at for at in polled if at > healed_ms - 20], "no credit came back"


def test_a_partition_from_the_coordinator_leaves_the_data_channels_alone(tmp_path: Path) -> None:
    plan = planned(PartitionExecutor("totals[0]", Peers.COORDINATOR, 200))
    zombie = steps(run(plan, tmp_path), "totals[0]#1")
    record = judged(plan, tmp_path)
    fired = record.faults[0].fired_at_ms or 0.0
    assert [step for time, step in zombie if fired < time < fired + 100 and step == "data"]
    assert "silent" in record.attempts[0].reason and record.attempts[-1].end == "finished"


def test_two_disturbances_of_one_connection_heal_one_by_one(tmp_path: Path) -> None:
    faults = (
        ScheduledFault(DelayChannel("source[0]", "totals[0]", 30, 20), TAKEN),
        ScheduledFault(DelayChannel("source[0]", "totals[0]", 30, 60), TAKEN),
    )
    record = judged(msgspec.structs.replace(PLAN, faults=faults), tmp_path)
    first, second = record.faults
    assert first.healed_at_ms is not None and second.healed_at_ms is not None
    assert second.healed_at_ms - first.healed_at_ms == pytest.approx(40)


# --- hosts --------------------------------------------------------------------------------------------------


def test_a_lost_host_takes_its_disk_along_and_a_killed_executor_does_not(tmp_path: Path) -> None:
    for fault, kept in ((KillExecutor("totals[0]"), True), (LoseHost("totals[0]"), False)):
        before, after = _local_disks(planned(fault), tmp_path)
        same = [old is new for old, new in zip(before, after, strict=True)]
        assert all(same) is kept and any(same)


def test_a_host_may_come_back_under_its_own_name_with_an_empty_disk(tmp_path: Path) -> None:
    """Whichever name it has, the disk is another one."""
    for returns in (False, True):
        plan = planned(LoseHost("totals[0]", returns=returns))
        before, after = _hosts(plan, tmp_path)
        lost = [old for old, new in zip(before, after, strict=True) if old is not new]
        assert len(lost) == 1
        assert (lost[0].name in [host.name for host in after]) is returns
        assert lost[0].local not in [host.local for host in after]


def _local_disks(plan: TrialPlan, directory: Path) -> list[list[LocalDisk]]:
    """Run a plan and return the executors' local disks before and after."""
    return [[host.local for host in hosts] for hosts in _hosts(plan, directory)]


def _hosts(plan: TrialPlan, directory: Path) -> list[list[SimulatedHost]]:
    """Run a plan and return the executors' hosts before and after."""
    seen: list[list[SimulatedHost]] = []

    class Seen(SimulatedWorld):
        def run(self, targets: Targets) -> bool:
            seen.append([executor.host for executor in self.executors.present])
            ended = super().run(targets)
            seen.append([executor.host for executor in self.executors.present])
            return ended

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference_simulated, "SimulatedWorld", Seen)
        assert run(plan, directory).history.end is End.FINISHED
    return seen


def test_every_message_about_a_checkpoint_comes_twice_while_messages_are_repeated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Checkpoints fail in these trials, and others complete, so there are messages of every kind."""
    twice: dict[str, None] = {}
    copies = RepeatedMessages.copies

    def noted(self: RepeatedMessages, subtask: str, direction: Direction, message: Any) -> Iterator[float]:
        for late_ms in copies(self, subtask, direction, message):
            twice[type(message).__name__] = None
            yield late_ms

    monkeypatch.setattr(RepeatedMessages, "copies", noted)
    begun = After(ProtocolPoint.CHECKPOINT_TRIGGERED)
    slow = CheckpointPlan(timeout_ms=25, async_ms_max=40)
    for subtask in ("source[0]", "sink[0]"):
        plan = planned(RepeatMessages(subtask, 1, 5_000), begun, checkpoints=slow)
        assert run_trial(plan, ReferenceSimulated(), tmp_path).verdict is Verdict.VALID
    declined = ScheduledFault(
        FailPrimaryWrites("totals[0]"), After(ProtocolPoint.CHECKPOINT_TRIGGERED, nth=2)
    )
    repeated = ScheduledFault(RepeatMessages("totals[0]", 1, 5_000), begun)
    plan = msgspec.structs.replace(PLAN, faults=(repeated, declined))
    assert run_trial(plan, ReferenceSimulated(), tmp_path).verdict is Verdict.VALID
    assert sorted(twice) == [
        "AbortNoted",
        "AcknowledgeCheckpoint",
        "DeclineCheckpoint",
        "NotifyCheckpointAborted",
        "NotifyCheckpointComplete",
        "TransactionsCommitted",
        "TriggerCheckpoint",
    ]
