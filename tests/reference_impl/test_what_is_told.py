"""What the runtime says of itself means something: what it waits for, why it gave something up, when, and what it still
keeps. No result depends on these words and numbers, so nothing else would miss them.

Grain: the coordinator machine, its driver, and one simulated trial.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from barrier_tck.harness.plan.trial_plan import (
    CheckpointPlan,
    DeploymentPlan,
    LimitsPlan,
    NetworkPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.record.operations import AbortLearned, Acknowledged, CheckpointTriggered
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import execute
from barrier_tck.reference_impl.config import CheckpointConfig, ElasticConfig, JobConfig, RestartConfig
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, SubtaskId
from barrier_tck.reference_impl.operators.job import Stream, StreamJob
from barrier_tck.reference_impl.operators.sinks import FileSink
from barrier_tck.reference_impl.operators.sources import CollectionSource
from barrier_tck.reference_impl.protocol import coordinator_commands as do
from barrier_tck.reference_impl.protocol import coordinator_events as ev
from barrier_tck.reference_impl.protocol.messages import (
    DeclineCheckpoint,
    InputConsumed,
    LoopCounted,
    LoopInputEnded,
    Savepoint,
    SubtaskFailed,
    SubtaskFinished,
    SubtaskRunning,
    SubtaskSnapshot,
)
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.coordinator_driver import CoordinatorDriver
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from tests.reference_impl.storage_fakes import MemoryFileSystem
from tests.reference_impl.test_coordinator_machine import COUNT, RESTART, SOURCE, Job, running

FIRST, ONE = AttemptNumber(1), CheckpointId(1)
UNREAD = "input not consumed by: count[0]"


# --- what it waits for ----------------------------------------------------------------------------------------


def deploying() -> Job:
    job = Job()
    job.start()
    return job


def half_deployed() -> Job:
    job = deploying()
    job.tell(SubtaskRunning(FIRST, SOURCE))
    return job


def with_checkpoint(*acknowledged: Any) -> Job:
    job = running()
    job.tick(10)
    for subtask in acknowledged:
        job.ack(1, subtask)
    return job


def half_finished() -> Job:
    job = running()
    job.tell(SubtaskFinished(FIRST, SOURCE, SubtaskSnapshot(SOURCE, FIRST, (), finished=True)))
    return job


def finishing() -> Job:
    job = running(interval_ms=1_000_000)
    job.tell(InputConsumed(FIRST, COUNT))
    job.complete(1)
    return job


def never_triggered() -> Job:
    """Return a job whose input is consumed, and which has forgotten to trigger the last checkpoint."""
    job = running()
    job.machine._consuming.clear()
    return job


def failed() -> Job:
    job = running()
    job.tell(SubtaskFailed(FIRST, COUNT, "no room"))
    return job


def backing_off() -> Job:
    job = failed()
    job.tell(ev.AttemptStopped(FIRST))
    return job


@pytest.mark.parametrize(
    ("job", "lines"),
    [
        (deploying(), ("job is deploying, attempt 1", "not yet running: source[0], count[0]")),
        (half_deployed(), ("job is deploying, attempt 1", "not yet running: count[0]")),
        (running(), ("job is running, attempt 1", UNREAD)),
        (
            with_checkpoint(),
            ("job is running, attempt 1", "checkpoint 1 waits for source[0], count[0]", UNREAD),
        ),
        (with_checkpoint(SOURCE), ("job is running, attempt 1", "checkpoint 1 waits for count[0]", UNREAD)),
        (
            with_checkpoint(SOURCE, COUNT),
            ("job is running, attempt 1", "checkpoint 1 waits for metadata write", UNREAD),
        ),
        (half_finished(), ("job is running, attempt 1", UNREAD, "finished: source[0]")),
        (Job(), ("job is created, attempt 0", "what durable storage holds is still to be read")),
        (
            never_triggered(),
            (
                "job is running, attempt 1",
                "all input is consumed, and the last checkpoint is still to be triggered",
            ),
        ),
        (failed(), ("job is stopping, attempt 1", "the failed attempt is still to end")),
        (backing_off(), ("job is backing off, attempt 1", "the next attempt is still to begin")),
        (finishing(), ("job is finishing, attempt 1", "commit missing from: count[0]")),
    ],
    ids=[
        "deploying",
        "half deployed",
        "running",
        "checkpoint",
        "half acknowledged",
        "metadata",
        "half finished",
        "created",
        "never triggered",
        "stopping",
        "backing off",
        "commits",
    ],
)
def test_a_job_names_everything_that_it_waits_for_and_nothing_else(job: Job, lines: tuple[str, ...]) -> None:
    assert job.machine.waiting_for() == lines


def test_an_elastic_job_that_waits_for_slots_says_for_how_many_subtasks(tmp_path: Path) -> None:
    few = DeploymentPlan(executors=1, slots_per_executor=2, elastic_wait_ms=60_000)
    plan = TrialPlan(deployment=few, limits=LimitsPlan(virtual_ms=300))
    history = execute(plan, ReferenceSimulated(), tmp_path).history
    assert history is not None
    assert history.pending[-1] == "slots for 5 subtasks"


def round_again(name: str) -> Callable[[Stream], tuple[Stream, Stream]]:
    def body(records: Stream) -> tuple[Stream, Stream]:
        lowered = records.map(dict, name=name)
        return lowered.filter(bool, name=f"{name}-left"), lowered

    return body


class Driven:
    """The coordinator of an elastic job with two loops, driven by hand, with as many slots as ``slots`` says."""

    def __init__(self, slots: int) -> None:
        job = StreamJob("loops", 16).source(CollectionSource((), 1), 1, "read")
        looped = job.iterate(round_again("one")).iterate(round_again("two"))
        self.graph = looped.sink(FileSink("out"), 1).build()
        self.slots = slots
        ports = Mock(
            storage=FileCheckpointStorage(MemoryFileSystem(), "loops"),
            clock=Mock(now_ms=lambda: 0.0),
            deployer=Mock(slots=lambda: self.slots),
        )
        restart = RestartConfig(attempts_max=3, delay_ms=7)
        config = JobConfig(CheckpointConfig(100), restart, elastic=ElasticConfig(wait_ms=1_000))
        self.driver = CoordinatorDriver(self.graph, config, ports, Components())

    def lines(self) -> tuple[str, ...]:
        """Return what the driver says besides what its machine does, which comes first."""
        own = self.driver.machine.waiting_for()
        lines = self.driver.waiting_for()
        assert own and lines[: len(own)] == own
        return lines[len(own) :]

    def runs(self, attempt: int) -> None:
        for subtask in self.graph.subtasks:
            self.driver.on_message(SubtaskRunning(AttemptNumber(attempt), subtask))

    def input_ends(self, loop: str, attempt: int = 1) -> None:
        self.driver.on_message(LoopInputEnded(AttemptNumber(attempt), SubtaskId(loop, 0), loop))

    def counts(self, loop: str, wave: int, member: str, sent: int, taken: int) -> None:
        counted = LoopCounted(FIRST, SubtaskId(member, 0), loop, wave, sent, taken)
        self.driver.on_message(counted)


SLOTS = "slots for 6 subtasks"
FED_ONE = "the loop one waits for the end of the input of one[0]"
FED_TWO = "the loop two waits for the end of the input of two[0]"


def test_a_coordinator_says_for_which_loops_its_job_waits_and_at_what() -> None:
    job = Driven(slots=6)
    assert job.lines() == (), "nothing runs yet"
    job.driver.start()
    assert job.lines() == (FED_ONE, FED_TWO)
    job.runs(1)
    assert job.lines() == (FED_ONE, FED_TWO)
    job.input_ends("one")
    assert job.lines() == ("the loop one waits for the counts of one[0], one-left[0]", FED_TWO)
    job.counts("one", 1, "one", 5, 3)
    assert job.lines() == ("the loop one waits for the counts of one-left[0]", FED_TWO)
    job.counts("one", 1, "one-left", 2, 3)
    assert job.lines() == ("the loop one: 7 elements were sent round it and 6 taken", FED_TWO)
    (due,) = (name for name in job.driver._timers if "one" in name)
    job.driver.on_timer(due)
    for wave in (2, 3):  # two in a row that agree
        assert job.lines() == ("the loop one waits for the counts of one[0], one-left[0]", FED_TWO)
        job.counts("one", wave, "one", 5, 4)
        job.counts("one", wave, "one-left", 2, 3)
    assert job.lines() == (FED_TWO,), "a loop that has ended holds nothing up"
    job.driver.on_attempt_failed(1, "lost")
    assert job.lines() == (), "the loops have ended with their attempt"


def test_a_coordinator_says_that_its_job_waits_for_slots_before_each_attempt_and_only_then() -> None:
    job = Driven(slots=5)
    assert job.lines() == ()
    job.driver.start()
    assert job.lines() == (SLOTS,)
    job.driver.on_timer("slots")
    assert job.lines() == (SLOTS,), "there are no more of them"
    job.slots = 6
    job.driver.on_timer("slots")
    assert job.lines() == (FED_ONE, FED_TWO)
    job.runs(1)
    job.slots = 5
    assert job.lines() == (FED_ONE, FED_TWO), "the attempt has its slots"
    job.driver.on_attempt_failed(1, "lost")
    job.driver.on_attempt_stopped(1)
    assert job.lines() == ()
    (due,) = (name for name, event in job.driver._timers.items() if event == RESTART)
    job.driver.on_timer(due)
    assert job.lines() == (SLOTS,)
    job.slots = 6
    job.driver.on_timer("slots")
    assert job.lines() == (FED_ONE, FED_TWO)


# --- why it gave something up ---------------------------------------------------------------------------------


def reasons(commands: Any) -> list[str]:
    return [
        command.reason
        for command in commands
        if isinstance(command, do.NotifyAborted | do.StopAttempt | do.FailJob | do.RefuseSavepoint)
    ]


def metadata_fails() -> Any:
    return with_checkpoint(SOURCE, COUNT).tell(ev.MetadataFailed(ONE, "disk full"))


def too_many_fail() -> Any:
    job = running(tolerated_failures=0)
    job.tick(10)
    return job.tell(DeclineCheckpoint(FIRST, ONE, COUNT, "disk full"))


def subsumed() -> Any:
    job = running(max_concurrent=2)
    job.tick(10)
    job.tick(10)
    return job.complete(2)


def restarts_used_up() -> Any:
    job = Job(restarts=0)
    job.start()
    job.run()
    job.fail()
    return job.tell(ev.AttemptStopped(FIRST))


DECLINED = "count[0] declined: disk full"
WHY: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "a decline": (
        lambda: with_checkpoint().tell(DeclineCheckpoint(FIRST, ONE, COUNT, "disk full")),
        [DECLINED],
    ),
    "an expiry": (
        lambda: with_checkpoint().tick(50, ev.CheckpointExpired(ONE)),
        ["expired before completing"],
    ),
    "metadata": (metadata_fails, ["metadata could not be written: disk full"]),
    "a newer one": (subsumed, ["subsumed by checkpoint 2"]),
    "too many failures": (
        too_many_fail,
        [DECLINED, f"checkpoint 1 failed ({DECLINED}) and 0 failures in a row are tolerated"],
    ),
    "a lost attempt": (
        lambda: with_checkpoint().fail(),
        ["attempt 1 failed: executor lost", "executor lost"],
    ),
    "a failed subtask": (
        lambda: running().tell(SubtaskFailed(FIRST, COUNT, "no memory")),
        ["count[0]: no memory"],
    ),
    "an early savepoint": (
        lambda: deploying().tell(ev.SavepointRequested(Savepoint("mine"))),
        ["the job is deploying; ask again when it is running"],
    ),
}


@pytest.mark.parametrize("what", WHY)
def test_what_is_given_up_says_why(what: str) -> None:
    happens, said = WHY[what]
    assert reasons(happens()) == said


def test_a_job_that_gives_up_says_what_failed_last_and_what_its_strategy_allows() -> None:
    (said,) = reasons(restarts_used_up())
    assert said.startswith("executor lost; ") and len(said) > len("executor lost; ")


# --- when -----------------------------------------------------------------------------------------------------


def test_a_checkpoint_says_when_it_was_triggered_and_when_it_had_all_acknowledgements() -> None:
    job = running()
    job.tick(10)
    job.now += 7
    job.ack(1, SOURCE)
    job.now += 4
    (write,) = job.ack(1, COUNT)
    assert (write.completed.triggered_at_ms, write.completed.completed_at_ms) == (10, 21)
    job.now += 5
    job.tell(ev.MetadataWritten(write.completed))
    job.fail()
    job.tell(ev.AttemptStopped(FIRST))
    (deploy,) = job.tick(7, RESTART)
    assert deploy.restore.triggered_at_ms == 10 and deploy.restore.completed_at_ms == 21


# --- what it still keeps --------------------------------------------------------------------------------------


def test_with_an_abort_a_subtask_names_the_checkpoints_that_it_still_records_and_no_others(
    tmp_path: Path,
) -> None:
    plan = TrialPlan(
        workload=WorkloadPlan(batches=20, batch_records=3, records_per_second=900),
        checkpoints=CheckpointPlan(
            mode="unaligned", interval_ms=5, timeout_ms=40, max_concurrent=3, async_ms_max=30
        ),
        network=msgspec.structs.replace(NetworkPlan(), slow_channel=0, slow_factor=10, channel_capacity=4),
    )
    history = execute(plan, ReferenceSimulated(), tmp_path).history
    assert history is not None
    triggered: list[int] = []
    over: set[tuple[str, int]] = set()
    named = 0
    for line in history.operations:
        match line.operation:
            case CheckpointTriggered(checkpoint=checkpoint):
                triggered.append(checkpoint)
            case Acknowledged(subtask=subtask, checkpoint=checkpoint):
                over.add((subtask, checkpoint))
            case AbortLearned(subtask=subtask, checkpoint=checkpoint, recorded=recorded):
                over.add((subtask, checkpoint))
                assert list(recorded) == sorted(recorded) and set(recorded) <= set(triggered)
                assert not {(subtask, number) for number in recorded} & over
                named += len(recorded)
    assert named > 10
