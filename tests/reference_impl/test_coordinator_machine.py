"""The coordinator machine in tables: events in, commands out (COO-1..4, REC-1, REC-2)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from barrier_tck.reference_impl.config import CheckpointConfig, JobConfig, OnUnreadable, RestartConfig
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.protocol import coordinator_commands as do
from barrier_tck.reference_impl.protocol import coordinator_events as ev
from barrier_tck.reference_impl.protocol.coordinator import CoordinatorMachine
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.protocol.messages import (
    AcknowledgeCheckpoint,
    CompletedCheckpoint,
    DeclineCheckpoint,
    InputConsumed,
    OperatorSnapshot,
    SnapshotMetrics,
    StateHandle,
    SubtaskFailed,
    SubtaskFinished,
    SubtaskRunning,
    SubtaskSnapshot,
    TransactionsCommitted,
)
from barrier_tck.reference_impl.runtime_errors import JobUsageError, ProtocolError

SOURCE, COUNT = SubtaskId("source", 0), SubtaskId("count", 0)
TRIGGER, RESTART = ev.TriggerDue(), ev.RestartDue()


class Job:
    """A coordinator machine with two subtasks, and short methods for its events."""

    def __init__(self, restarts: int = 3, **checkpoints: Any) -> None:
        settings: dict[str, Any] = {
            "interval_ms": 10,
            "timeout_ms": 50,
            "tolerated_failures": 5,
        } | checkpoints
        config = JobConfig(CheckpointConfig(**settings), RestartConfig(attempts_max=restarts, delay_ms=7))
        self.machine = CoordinatorMachine(config, (SOURCE, COUNT), (COUNT,))
        self.now = 0.0

    def tell(self, event: Any) -> Any:
        return self.machine.handle(event, self.now)

    def start(self, completed: tuple[CompletedCheckpoint, ...] = (), last: int = 0, attempt: int = 0) -> Any:
        return self.tell(ev.JobStarted(completed, last, attempt))

    def run(self) -> Any:
        self.tell(SubtaskRunning(self.machine.attempt, SOURCE))
        return self.tell(SubtaskRunning(self.machine.attempt, COUNT))

    def tick(self, ms: float, timer: ev.TimerEvent = TRIGGER) -> Any:
        self.now += ms
        return self.tell(timer)

    def ack(self, checkpoint: int, subtask: SubtaskId, attempt: int | None = None, file: str = "") -> Any:
        number = AttemptNumber(attempt if attempt is not None else self.machine.attempt)
        handle = StateHandle(f"{checkpoint}/{subtask}/a{number}{file}", 3, "crc32:0", KeyGroupRange(0, 1))
        part = SubtaskSnapshot(subtask, number, (OperatorSnapshot("op", handles=(handle,)),))
        return self.tell(
            AcknowledgeCheckpoint(number, CheckpointId(checkpoint), subtask, part, SnapshotMetrics())
        )

    def fail(self, subtask: SubtaskId | None = None, attempt: int | None = None) -> Any:
        number = AttemptNumber(attempt if attempt is not None else self.machine.attempt)
        return self.tell(ev.AttemptFailed(number, "executor lost", subtask))

    def complete(self, checkpoint: int) -> Any:
        self.ack(checkpoint, SOURCE)
        (write,) = self.ack(checkpoint, COUNT)
        return self.tell(ev.MetadataWritten(write.completed))


def running(**settings: Any) -> Job:
    job = Job(**settings)
    job.start()
    job.run()
    return job


def kinds(commands: Any) -> list[str]:
    return [type(command).__name__ for command in commands]


def test_a_checkpoint_is_written_only_when_every_subtask_acknowledged_and_told_only_when_durable() -> None:
    job = running()
    assert kinds(job.tick(10)) == ["SendTrigger", "SetTimer"]
    assert job.ack(1, SOURCE) == ()
    (write,) = job.ack(1, COUNT)
    assert isinstance(write, do.WriteMetadata)
    assert [part.subtask for part in write.completed.snapshots] == [SOURCE, COUNT]
    told = job.tell(ev.MetadataWritten(write.completed))
    assert do.NotifyComplete(AttemptNumber(1), CheckpointId(1)) in told


def test_a_decline_aborts_discards_and_the_next_checkpoint_succeeds() -> None:
    job = running()
    job.tick(10)
    declined = job.tell(DeclineCheckpoint(AttemptNumber(1), CheckpointId(1), COUNT, "disk"))
    assert kinds(declined) == ["NotifyAborted", "DiscardCheckpoint", "SetTimer"]
    job.tick(10)
    assert "NotifyComplete" in kinds(job.complete(2))


def test_an_expired_checkpoint_is_aborted_and_its_late_acknowledgement_discarded() -> None:
    job = running()
    job.tick(10)
    job.ack(1, SOURCE)
    assert "NotifyAborted" in kinds(job.tick(50, ev.CheckpointExpired(CheckpointId(1))))
    (discard,) = job.ack(1, COUNT)
    assert isinstance(discard, do.DiscardSnapshot)


def test_a_repeated_acknowledgement_never_discards_files_in_use() -> None:
    job = running()
    job.tick(10)
    job.ack(1, SOURCE)
    assert job.ack(1, SOURCE) == ()
    job.complete(1)
    assert job.ack(1, SOURCE) == ()


def test_an_acknowledgement_that_contradicts_an_accepted_one_is_removed_with_its_files() -> None:
    job = running()
    job.tick(10)
    job.ack(1, SOURCE)
    assert kinds(job.ack(1, SOURCE, file="other")) == ["DiscardSnapshot"]
    job.complete(1)
    assert kinds(job.ack(1, SOURCE, file="other")) == ["DiscardSnapshot"]
    assert kinds(job.ack(1, SubtaskId("source", 7))) == ["DiscardSnapshot"]


def test_an_acknowledgement_of_an_older_attempt_is_fenced_and_its_files_removed() -> None:
    job = running()
    job.tick(10)
    job.fail()
    job.tell(ev.AttemptStopped(AttemptNumber(1)))
    job.tick(7, RESTART)
    job.run()
    job.tick(10)
    assert kinds(job.ack(2, SOURCE, attempt=1)) == ["DiscardSnapshot"]
    assert not job.machine.pending[CheckpointId(2)].parts


def test_what_is_repeated_about_a_checkpoint_from_before_the_savepoint_leaves_its_files_until_a_newer_one() -> (
    None
):
    """The job before it had completed checkpoint 2, and was stopped with savepoint 3; its process is not yet gone."""
    first = running()
    for checkpoint in (1, 2, 3):
        first.tick(10)
        first.complete(checkpoint)
    job = Job()
    job.tell(ev.JobStarted(tuple(first.machine.completed[2:]), 3, 1, superseded=(CheckpointId(2),)))
    job.run()
    assert job.ack(2, SOURCE, attempt=1) == ()
    assert kinds(job.ack(1, SOURCE, attempt=1)) == ["DiscardSnapshot"], "of which nothing is kept"
    job.tick(10)
    assert do.DiscardCheckpoint(CheckpointId(2)) in job.complete(4)
    assert kinds(job.ack(2, SOURCE, attempt=1)) == ["DiscardSnapshot"]


def test_a_failure_aborts_every_pending_checkpoint_and_redeploys_from_the_latest_completed() -> None:
    job = running()
    job.tick(10)
    job.complete(1)
    job.tick(10)
    job.ack(2, SOURCE)
    assert kinds(job.fail(COUNT)) == ["NotifyAborted", "DiscardCheckpoint", "StopAttempt"]
    (timer,) = job.tell(ev.AttemptStopped(AttemptNumber(1)))
    assert timer == do.SetTimer(RESTART, job.now + 7)
    (deploy,) = job.tick(7, RESTART)
    assert deploy.attempt == 2 and deploy.restore.checkpoint == 1 and deploy.last_checkpoint == 2


def unreadable(job: Job, checkpoint: int) -> Any:
    """Fail the attempt because a checkpoint cannot be restored from any copy, and let the attempt stop."""
    attempt = job.machine.attempt
    job.tell(SubtaskFailed(attempt, COUNT, f"flipped bits in {checkpoint}", CheckpointId(checkpoint)))
    return job.tell(ev.AttemptStopped(attempt))


def with_two_retained(on_unreadable: OnUnreadable) -> Job:
    job = Job(retained=3)
    job.machine.config = replace(job.machine.config, on_unreadable=on_unreadable)
    job.start()
    job.run()
    for checkpoint in (1, 2):
        job.tick(10)
        job.complete(checkpoint)
    job.fail(COUNT)
    job.tell(ev.AttemptStopped(AttemptNumber(1)))
    (deploy,) = job.tick(7, RESTART)
    assert deploy.restore.checkpoint == 2
    return job


def test_an_unreadable_checkpoint_fails_the_job_names_what_was_tried_and_deletes_nothing() -> None:
    job = with_two_retained(OnUnreadable.FAIL)
    (failed,) = unreadable(job, 2)
    assert isinstance(failed, do.FailJob) and job.machine.state is JobState.FAILED
    assert "checkpoint 2: count[0]: flipped bits in 2" in failed.reason
    assert "checkpoint 1 is retained" in failed.reason


def test_an_older_checkpoint_is_restored_if_configured_and_the_unreadable_goes_with_the_next_complete() -> (
    None
):
    job = with_two_retained(OnUnreadable.OLDER)
    assert kinds(unreadable(job, 2)) == ["SetTimer"]
    (deploy,) = job.tick(7, RESTART)
    assert deploy.restore.checkpoint == 1
    job.run()
    job.tick(10)
    commands = job.complete(3)
    assert do.DiscardCheckpoint(CheckpointId(2)) in commands
    assert [c.checkpoint for c in job.machine.completed] == [1, 3]


def test_a_job_whose_checkpoints_are_all_unreadable_does_not_start_from_the_beginning() -> None:
    job = with_two_retained(OnUnreadable.OLDER)
    unreadable(job, 2)
    job.tick(7, RESTART)
    (failed,) = unreadable(job, 1)
    assert isinstance(failed, do.FailJob)
    assert "checkpoint 2" in failed.reason and "checkpoint 1" in failed.reason


def test_a_failure_while_metadata_is_written_waits_for_the_outcome_and_uses_it() -> None:
    job = running()
    job.tick(10)
    job.ack(1, SOURCE)
    (write,) = job.ack(1, COUNT)
    assert kinds(job.fail()) == ["StopAttempt"]
    assert job.tell(ev.AttemptStopped(AttemptNumber(1))) == ()
    commands = job.tell(ev.MetadataWritten(write.completed))
    assert kinds(commands) == ["SetTimer"], "nobody in an attempt that is over is notified"
    (deploy,) = job.tick(7, RESTART)
    assert deploy.restore.checkpoint == 1


def test_the_last_checkpoint_follows_the_end_of_input_and_the_job_ends_with_the_last_commit() -> None:
    job = running(interval_ms=1_000_000)
    consumed = job.tell(InputConsumed(AttemptNumber(1), COUNT))
    assert kinds(consumed) == ["SendTrigger", "SetTimer"]
    job.complete(1)
    assert job.machine.state is JobState.FINISHING
    done = job.tell(TransactionsCommitted(AttemptNumber(1), COUNT, CheckpointId(1)))
    assert done == (do.FinishJob(AttemptNumber(1)),)


def test_input_that_ends_before_every_subtask_reported_running_still_gets_its_last_checkpoint() -> None:
    job = Job()
    job.start()
    job.tell(SubtaskRunning(AttemptNumber(1), COUNT))
    assert job.tell(InputConsumed(AttemptNumber(1), COUNT)) == ()
    assert "SendTrigger" in kinds(job.tell(SubtaskRunning(AttemptNumber(1), SOURCE)))


def test_a_checkpoint_in_flight_at_the_end_of_input_is_not_taken_for_the_last() -> None:
    job = running()
    job.tick(10)
    assert job.tell(InputConsumed(AttemptNumber(1), COUNT)) == ()
    assert "SendTrigger" in kinds(job.complete(1))
    assert job.machine.state is JobState.RUNNING


def test_retention_discards_the_oldest_and_ids_go_on_after_a_coordinator_restart() -> None:
    job = running(retained=1)
    job.tick(10)
    job.complete(1)
    job.tick(10)
    assert do.DiscardCheckpoint(CheckpointId(1)) in job.complete(2)
    again = Job()
    (deploy,) = again.start(tuple(job.machine.completed), last=9, attempt=4)
    assert deploy.attempt == 5 and deploy.restore.checkpoint == 2
    again.run()
    assert again.tick(10)[0].checkpoint == 10


def test_without_restarts_the_job_fails_and_says_why() -> None:
    job = running(restarts=0)
    job.fail()
    (failed,) = job.tell(ev.AttemptStopped(AttemptNumber(1)))
    assert isinstance(failed, do.FailJob)
    assert "executor lost" in failed.reason and "restart strategy is none" in failed.reason


def test_too_many_failed_checkpoints_in_a_row_fail_the_attempt() -> None:
    job = running(tolerated_failures=1)
    job.tick(10)
    assert "StopAttempt" not in kinds(job.tick(50, ev.CheckpointExpired(CheckpointId(1))))
    job.tick(10)
    assert "StopAttempt" in kinds(job.tick(50, ev.CheckpointExpired(CheckpointId(2))))


def test_checkpointing_is_off_unless_configured() -> None:
    machine = CoordinatorMachine(JobConfig(), (SOURCE, COUNT), (COUNT,))
    machine.handle(ev.JobStarted((), 0, 0), 0)
    machine.handle(SubtaskRunning(AttemptNumber(1), SOURCE), 0)
    assert machine.handle(SubtaskRunning(AttemptNumber(1), COUNT), 0) == ()
    assert machine.handle(TRIGGER, 10_000) == ()


def test_metadata_of_a_checkpoint_that_is_not_pending_is_illegal() -> None:
    job = running()
    with pytest.raises(ProtocolError, match="not being written"):
        job.tell(ev.MetadataWritten(CompletedCheckpoint(CheckpointId(9), AttemptNumber(1), 0, 0, ())))


def test_a_configuration_that_cannot_work_cannot_be_constructed() -> None:
    with pytest.raises(JobUsageError, match="interval"):
        CheckpointConfig(interval_ms=0)


def test_no_more_checkpoints_are_in_flight_than_configured_and_the_next_follows_an_end() -> None:
    job = running(max_concurrent=2)
    assert kinds(job.tick(10)) == ["SendTrigger", "SetTimer", "SetTimer"]
    assert kinds(job.tick(10)) == ["SendTrigger", "SetTimer"], "the third waits for a slot, not for a time"
    assert job.tick(10) == ()
    assert list(job.machine.pending) == [1, 2]
    assert "SendTrigger" in kinds(job.complete(1))
    assert list(job.machine.pending) == [2, 3]


def test_a_newer_checkpoint_that_completes_first_subsumes_the_older_one_in_flight() -> None:
    job = running(max_concurrent=2)
    job.tick(10)
    job.tick(10)
    commands = job.complete(2)
    [aborted] = [command for command in commands if isinstance(command, do.NotifyAborted)]
    assert (aborted.checkpoint, aborted.reason) == (1, "subsumed by checkpoint 2")
    assert kinds(job.ack(1, SOURCE)) == ["DiscardSnapshot"], "what arrives late for it is removed"
    assert [completed.checkpoint for completed in job.machine.completed] == [2]


def finished(subtask: SubtaskId) -> SubtaskFinished:
    return SubtaskFinished(
        AttemptNumber(1), subtask, SubtaskSnapshot(subtask, AttemptNumber(1), (), finished=True)
    )


def test_who_finishes_without_a_part_of_a_checkpoint_counts_as_finished_there() -> None:
    job = running(max_concurrent=2)
    job.tick(10)
    job.ack(1, COUNT)
    [write] = job.tell(finished(SOURCE))
    assert isinstance(write, do.WriteMetadata) and write.completed.checkpoint == 1


def test_who_passed_a_checkpoint_over_for_a_newer_one_does_not_count_as_finished_in_it() -> None:
    """Its end lies behind what others may have put into the older one, which the newer one subsumes (BAR-6, CHL-2)."""
    job = running(max_concurrent=2)
    job.tick(10)
    job.tick(10)
    job.ack(1, SOURCE)
    job.ack(2, COUNT)
    assert job.tell(finished(COUNT)) == ()
    assert list(job.machine.pending[CheckpointId(1)].awaiting) == [COUNT]
    commands = job.ack(2, SOURCE)
    [write] = [command for command in commands if isinstance(command, do.WriteMetadata)]
    commands = job.tell(ev.MetadataWritten(write.completed))
    [aborted] = [command for command in commands if isinstance(command, do.NotifyAborted)]
    assert (aborted.checkpoint, aborted.reason) == (1, "subsumed by checkpoint 2")


def test_an_acknowledgement_of_a_checkpoint_that_was_never_triggered_passes_nothing_over() -> None:
    job = running(max_concurrent=2)
    job.tick(10)
    job.ack(1, SOURCE)
    job.ack(99, COUNT)
    [write] = job.tell(finished(COUNT))
    assert isinstance(write, do.WriteMetadata) and write.completed.checkpoint == 1


def test_metadata_that_becomes_durable_out_of_order_leaves_the_newest_to_be_restored() -> None:
    job = running(max_concurrent=2)
    job.tick(10)
    job.tick(10)
    writes = []
    for checkpoint in (1, 2):
        job.ack(checkpoint, SOURCE)
        writes.extend(job.ack(checkpoint, COUNT))
    job.tell(ev.MetadataWritten(writes[1].completed))
    commands = job.tell(ev.MetadataWritten(writes[0].completed))
    assert do.DiscardCheckpoint(CheckpointId(1)) in commands, (
        "one checkpoint is retained, and it is the newest"
    )
    assert [completed.checkpoint for completed in job.machine.completed] == [2]


def test_recovery_with_several_in_flight_starts_from_the_latest_completed() -> None:
    job = running(max_concurrent=3)
    job.tick(10)
    job.complete(1)
    for _ in range(2):
        job.tick(10)
    job.ack(2, SOURCE)
    job.ack(3, SOURCE)
    aborted = [c.checkpoint for c in job.fail() if isinstance(c, do.NotifyAborted)]
    assert aborted == [2, 3]
    job.tell(ev.AttemptStopped(job.machine.attempt))
    [deploy] = job.tick(7, RESTART)
    assert deploy.restore is not None and deploy.restore.checkpoint == 1


def test_what_a_failed_attempt_had_aborted_is_discarded_once_more_after_it() -> None:
    """A subtask may store its part after the first discard, and die before it learns of the abort."""
    job = running(max_concurrent=2)
    job.tick(10)
    job.tick(10)
    assert do.DiscardCheckpoint(CheckpointId(1)) in job.complete(2)
    job.fail()
    job.tell(ev.AttemptStopped(job.machine.attempt))
    job.tick(7, RESTART)
    job.run()
    job.tick(10)
    number = max(job.machine.pending)
    assert do.DiscardCheckpoint(CheckpointId(1)) in job.complete(number)
    job.tick(10)
    assert do.DiscardCheckpoint(CheckpointId(1)) not in job.complete(max(job.machine.pending)), (
        "once is enough"
    )


def test_a_resized_job_awaits_its_present_subtasks_and_no_others() -> None:
    job, other = running(), SubtaskId("count", 1)
    job.fail()
    job.tell(ev.AttemptStopped(job.machine.attempt))
    assert job.tell(ev.JobResized((SOURCE, COUNT, other), (COUNT, other))) == ()
    job.tick(7, RESTART)
    assert job.run() == () and "count[1]" in job.machine.waiting_for()[1]
    job.tell(SubtaskRunning(job.machine.attempt, other))
    assert job.machine.state is JobState.RUNNING
    with pytest.raises(ProtocolError, match="JobResized"):
        job.tell(ev.JobResized((SOURCE, COUNT), (COUNT,)))
    job.fail()
    job.tell(ev.AttemptStopped(job.machine.attempt))
    job.tell(ev.JobResized((SOURCE, COUNT), (COUNT,)))
    job.tick(7, RESTART)
    job.run()
    job.tick(10)
    assert kinds(job.ack(1, SOURCE) + job.ack(1, COUNT)) == ["WriteMetadata"]
