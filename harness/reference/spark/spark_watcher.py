"""Records a trial on Spark in the trial's own time, and notifies the nemesis and the network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.record.operations import CopySeen, ReadsObserved, SlotsChanged
from barrier_tck.harness.reference.observed_reads import ReadsDirectory
from barrier_tck.harness.reference.planned_savepoints import PlannedSavepoint
from barrier_tck.harness.reference.recorder import RunRecorder
from barrier_tck.harness.reference.snapshot_views import CheckpointOpener
from barrier_tck.harness.reference.spark.disks import JobDisks
from barrier_tck.harness.reference.spark.job_rpc import JobOver, JobReports
from barrier_tck.harness.reference.spark.proxied_network import ProxyNetwork
from barrier_tck.harness.system.system_under_test import NemesisHooks
from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.protocol.causes import Cause
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.protocol.messages import Savepoint
from barrier_tck.reference_impl.runtime.ports import RuntimePoint
from barrier_tck.reference_impl.spark.event_loop import MonotonicClock
from barrier_tck.reference_impl.spark.spark_observer import SubtaskProcess

FAULT_POINTS = {point: ProtocolPoint(point.value) for point in RuntimePoint}
"""The runtime's points by the names that plans use."""


class SparkWatcher(RunRecorder, JobReports):
    """Takes what the driver's process reports, on the thread that serves it."""

    def __init__(
        self, opener: CheckpointOpener, reads: ReadsDirectory, savepoints: Sequence[PlannedSavepoint]
    ) -> None:
        super().__init__(opener, savepoints)
        self._reads = reads
        self._clock = MonotonicClock()
        self.epoch_ms = self._clock.now_ms()
        self.disks: JobDisks | None = None
        """The disks for local copies; None without local recovery, or if copies are kept in memory."""
        self.nemesis: NemesisHooks | None = None
        self.network: ProxyNetwork | None = None
        self.on_job_over: Callable[[JobOver], None] | None = None
        self.on_savepoint: Callable[[Savepoint, float], None] | None = None
        self.processes: Mapping[SubtaskId, SubtaskProcess] = {}
        """Where every subtask of the current attempt runs; empty while an attempt is being placed."""
        self.finished = False
        """Whether the coordinator has reported that the job finished."""
        self.kills_ms: list[float] = []
        self.first_records_ms: dict[int, float] = {}

    def now_ms(self) -> float:
        return self._clock.now_ms() - self.epoch_ms

    def reads_of(self, subtask: str, attempt: int) -> ReadsObserved | None:
        """Return what an executor logged of a restore."""
        return self._reads.take(subtask, attempt)

    def copies_on_hosts(self) -> tuple[CopySeen, ...] | None:
        """Return the local copies on the workers' disks."""
        return self.disks.copies() if self.disks is not None else None

    def request_savepoint(self, savepoint: Savepoint, delay_ms: float) -> None:
        assert self.on_savepoint is not None
        self.on_savepoint(savepoint, delay_ms)

    def note_kill(self) -> None:
        """Note that a fault kills a process now."""
        self.kills_ms.append(self.now_ms())

    def attempt_started(self, attempt: int, restored_checkpoint: int | None) -> None:
        """A deployment begins, maybe by another driver: no subtask runs."""
        self.processes = {}
        super().attempt_started(attempt, restored_checkpoint)

    def attempt_running(self, attempt: int) -> None:
        super().attempt_running(attempt)
        if self.nemesis is not None:
            self.nemesis.first_attempt_ran()

    def subtasks_placed(self, attempt: int, processes: Mapping[SubtaskId, SubtaskProcess]) -> None:
        self.processes = processes
        if self.network is not None:
            self.network.placed(processes)

    def subtasks_gone(self, attempt: int) -> None:
        self.processes = {}

    def first_records(self, subtask: SubtaskId, attempt: int, at_ms: float) -> None:
        at_ms -= self.epoch_ms
        self.first_records_ms[attempt] = min(at_ms, self.first_records_ms.get(attempt, at_ms))

    def slots_changed(self, slots: int, at_ms: float) -> None:
        """There are so many slots; it was seen earlier than it is reported."""
        self.note(SlotsChanged(slots, max(0.0, self.now_ms() - (at_ms - self.epoch_ms))), process="executors")

    def attempt_ended(self, attempt: int, cause: Cause, reason: str) -> None:
        super().attempt_ended(attempt, cause, reason)
        if self.network is not None:
            self.network.attempt_over(attempt)

    def point_reached(
        self, point: RuntimePoint, subtask: SubtaskId | None, attempt: int, checkpoint: int | None
    ) -> None:
        """A process stands still at a point."""
        if self.nemesis is not None:
            name = str(subtask) if subtask is not None else None
            self.nemesis.point_reached(FAULT_POINTS[point], name, attempt)

    def job_ended(self, state: JobState, cause: Cause, reason: str) -> None:
        super().job_ended(state, cause, reason)
        self.finished = state is JobState.FINISHED

    def job_over(self, over: JobOver) -> None:
        """A run ended, with everything that belonged to it."""
        if self.on_job_over is not None:
            self.on_job_over(over)

    def kill_to_first_record_ms(self) -> list[float]:
        """Return, for each kill, the time until a later attempt had processed its first batch."""
        ended = {record.attempt: record.ended_at_ms for record in self.attempts()}
        found = []
        for kill_ms in self.kills_ms:
            later = [
                first
                for attempt, first in self.first_records_ms.items()
                if first > kill_ms and ended.get(attempt - 1, kill_ms - 1) >= kill_ms
            ]
            found.extend([min(later) - kill_ms] if later else [])
        return found
