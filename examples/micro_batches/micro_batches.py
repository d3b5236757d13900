"""A system under test with attempts and checkpoints: micro-batches, with three subtasks whatever the plan's job says.

Run it beside the folder ``examples``; the first system is right, the second is broken::

    barrier-tck campaign --system examples.micro_batches.micro_batches:MicroBatches --trials 60
    barrier-tck campaign --system examples.micro_batches.micro_batches:TwoSteps --trials 60
    barrier-tck conformance --system examples.micro_batches.micro_batches:MicroBatches

A driver plans a batch, a reader reads it, a ledger counts it, a writer shows its rows. What a batch changes becomes
durable in one step: totals, rows and the batch's number. If a process dies, everything starts again behind the last
batch that is durable. There are no barriers, no executors, no connections. ``OpenMicroBatches`` also shows what its
checkpoints hold.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from barrier_tck.harness import (
    AttemptEnded,
    AttemptRecord,
    AttemptRunning,
    AttemptStarted,
    Capability,
    CheckpointCompleted,
    CheckpointRecord,
    CheckpointTriggered,
    Committed,
    End,
    History,
    JobFailed,
    JobFinished,
    JobView,
    KeyedTotals,
    NemesisHooks,
    NoTargets,
    Operation,
    ProcessTarget,
    ProtocolPoint,
    Reason,
    Recorded,
    Role,
    Row,
    Scale,
    SnapshotView,
    StateView,
    StorageView,
    SubtaskView,
    TargetGone,
    Transaction,
    TrialOutcome,
    TrialPlan,
    UsageProblem,
)

READER, LEDGER, WRITER = "tap", "ledger 0", "spout/a"
BATCH_MS = 4.0


class ProcessDied(Exception):
    """A process of the attempt is gone."""


@dataclass
class Process:
    """A process that can be killed."""

    description: str
    dead: bool = False

    def kill(self, lose_unsynced: bool = False) -> None:
        """Kill it; raises TargetGone if it was dead already."""
        if self.dead:
            raise TargetGone(self.description)
        self.dead = True

    def is_dead(self) -> bool:
        return self.dead


class Processes(NoTargets):
    """The driver and a process for each subtask; each attempt has new ones."""

    def __init__(self) -> None:
        self.start(1)

    def start(self, attempt: int) -> None:
        names = ("driver", READER, LEDGER, WRITER)
        self._running = {name: Process(f"{name} of attempt {attempt}") for name in names}

    def require_alive(self) -> None:
        """Raise ProcessDied if one of them is dead."""
        if any(process.dead for process in self._running.values()):
            raise ProcessDied

    def worker_of(self, subtask: str) -> ProcessTarget | None:
        return self._running[subtask]

    def coordinator(self) -> ProcessTarget | None:
        """Return the driver."""
        return self._running["driver"]


@dataclass
class Durable:
    """What outlives processes: which batches are in, and their rows."""

    checkpoints: list[int] = field(default_factory=list)
    """The checkpoint of each batch that is in. A batch that is tried again has a new one: no id is used twice."""
    tried: int = 0
    """The newest id that was used."""
    noted: int = 0
    """Batches of which the driver has noted that they are in."""
    output: list[Row] = field(default_factory=list)

    @property
    def batches(self) -> int:
        """Return how many batches are in."""
        return len(self.checkpoints)


class Playing:
    """One trial: a virtual clock, what was recorded, and what became durable."""

    def __init__(self, plan: TrialPlan, nemesis: NemesisHooks) -> None:
        self.plan, self.nemesis = plan, nemesis
        self.now_ms = 0.0
        self.lines: list[Recorded[Operation]] = []
        self.attempts: list[AttemptRecord] = []
        self.checkpoints: list[CheckpointRecord] = []
        self.durable, self.processes = Durable(), Processes()
        self.views: list[SnapshotView] = []
        self.ends, rows = ends_and_rows(plan)
        self.right = KeyedTotals.spec.running(rows)
        nemesis.bind(self.processes, lambda: self.now_ms)

    def record(self, operation: Operation) -> None:
        """Note an operation."""
        self.lines.append(Recorded(len(self.lines), self.now_ms, "driver", operation))

    def reach(self, point: ProtocolPoint, subtask: str | None, attempt: int) -> None:
        """Stand at a point, where a process may be killed; raises ProcessDied if so."""
        self.nemesis.point_reached(point, subtask, attempt)
        self.processes.require_alive()

    def pass_time(self, milliseconds: float) -> None:
        """Let time pass, with what comes by the clock."""
        until_ms = self.now_ms + milliseconds
        due_ms = self.nemesis.next_time_ms()
        while due_ms is not None and due_ms <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.nemesis.time_reached(self.now_ms)
            due_ms = self.nemesis.next_time_ms()
        self.now_ms = until_ms

    def rows_of(self, batch: int) -> Sequence[Row]:
        """Return the right rows of a batch; they are numbered from 0."""
        start = self.ends[batch - 1] if batch else 0
        return self.right[start : self.ends[batch]]


def ends_and_rows(plan: TrialPlan) -> tuple[list[int], list[Row]]:
    """Return all records in the order of the batches, and where each batch ends; an empty input is one empty batch."""
    splits, size = KeyedTotals().splits(plan), plan.workload.batch_records
    number = max(1, *(-(-len(split.input) // size) for split in splits))
    rows: list[Row] = []
    ends: list[int] = []
    for batch in range(number):
        for split in splits:
            rows += split.input[batch * size : (batch + 1) * size]
        ends.append(len(rows))
    return ends, rows


class MicroBatches:
    """The honest system: a batch is all in, or not at all."""

    name = "micro-batches"
    world = "played"
    scale = Scale(examples_max=60)
    """A trial takes milliseconds, so many are drawn."""
    capabilities = frozenset(
        {
            Capability.WORKER_KILL,
            Capability.COORDINATOR_CRASH,
            Capability.CHECKPOINTS,
            Capability.ATTEMPTS,
            Capability.FIFO_CHANNELS,
        }
    )
    uses = ("workload.start_offset", "restart.attempts_max", "restart.delay_ms")

    def job(self, plan: TrialPlan) -> JobView:
        """Return the three subtasks."""
        if plan.workload.name != KeyedTotals.name:
            raise UsageProblem(f"{self.name} runs the workload {KeyedTotals.name}, not {plan.workload.name}")
        batches = len(ends_and_rows(plan)[0])
        return JobView(
            (
                SubtaskView(READER, (Role.SOURCE,), {ProtocolPoint.RECORDS_PROCESSED: batches}),
                SubtaskView(LEDGER, (Role.STATEFUL,)),
                SubtaskView(WRITER, (Role.SINK,), {ProtocolPoint.TRANSACTIONS_COMMITTED: batches}),
            ),
            coordinator_passes={
                ProtocolPoint.ATTEMPT_RUNNING: 1,
                ProtocolPoint.CHECKPOINT_TRIGGERED: batches,
                ProtocolPoint.CHECKPOINT_COMPLETED: batches,
                ProtocolPoint.ATTEMPT_FAILED: 0,
            },
            repeats=(ProtocolPoint.ATTEMPT_RUNNING, ProtocolPoint.CHECKPOINT_TRIGGERED),
        )

    def run(self, plan: TrialPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        """Run attempts until one comes to the end of the input, or no further one is allowed."""
        run, attempt = Playing(plan, nemesis), 1
        while not self._attempt(run, attempt) and attempt <= plan.restart.attempts_max:
            run.pass_time(plan.restart.delay_ms)
            attempt += 1
            run.processes.start(attempt)
        end = (End.FINISHED, Reason.FINISHED) if run.attempts[-1].end == "finished" else None
        end = end or (End.FAILED, Reason.RESTARTS_USED_UP)
        run.record(JobFinished() if end[0] is End.FINISHED else JobFailed(end[1]))
        history = History(
            tuple(run.lines),
            *end,
            detail=end[1].value,
            output=tuple(run.durable.output),
            checkpoints=tuple(run.views),
            storage=self.storage(run),
        )
        return TrialOutcome(
            history,
            self.job(plan).names,
            run.now_ms,
            attempts=tuple(run.attempts),
            checkpoints=tuple(run.checkpoints),
        )

    def _attempt(self, run: Playing, attempt: int) -> bool:
        """Run batches from behind the last durable one; return whether the input came to its end."""
        started_ms, restored = run.now_ms, next(reversed(run.durable.checkpoints), None)
        running_ms, end = None, "failed"
        run.record(AttemptStarted(attempt, restored))
        try:
            run.record(AttemptRunning(attempt))
            running_ms = run.now_ms
            run.nemesis.first_attempt_ran()
            run.reach(ProtocolPoint.ATTEMPT_RUNNING, None, attempt)
            self._note(run, attempt)
            while run.durable.batches < len(run.ends):
                self._batch(run, run.durable.batches, attempt)
            end = "finished"
        except ProcessDied:
            run.nemesis.point_reached(ProtocolPoint.ATTEMPT_FAILED, None, attempt)
        reason = Reason.FINISHED if end == "finished" else Reason.PROCESS_LOST
        run.record(AttemptEnded(attempt, reason))
        run.attempts.append(
            AttemptRecord(attempt, started_ms, running_ms, run.now_ms, end, reason.value, restored)
        )
        return end == "finished"

    def _batch(self, run: Playing, batch: int, attempt: int) -> None:
        """Run one batch; raises ProcessDied, before or after it became durable."""
        run.durable.tried += 1
        run.record(CheckpointTriggered(run.durable.tried, attempt))
        run.reach(ProtocolPoint.CHECKPOINT_TRIGGERED, None, attempt)
        run.reach(ProtocolPoint.RECORDS_PROCESSED, READER, attempt)
        run.pass_time(BATCH_MS)
        run.processes.require_alive()
        self.store(run, batch, attempt)
        self._note(run, attempt)

    def _note(self, run: Playing, attempt: int) -> None:
        """Let the driver note the batches that are in, also one that came in when its process died."""
        while run.durable.noted < run.durable.batches:
            batch = run.durable.noted
            checkpoint = run.durable.checkpoints[batch]
            run.durable.noted += 1
            run.record(CheckpointCompleted(checkpoint, attempt))
            self.show(run, batch, attempt)
            triggered_ms = run.now_ms - BATCH_MS
            run.checkpoints.append(
                CheckpointRecord(checkpoint, attempt, "completed", triggered_ms, run.now_ms)
            )
            run.reach(ProtocolPoint.CHECKPOINT_COMPLETED, None, attempt)

    def store(self, run: Playing, batch: int, attempt: int) -> None:
        """Make a batch durable: rows and number in one step."""
        run.durable.output += run.rows_of(batch)
        run.durable.checkpoints.append(run.durable.tried)
        run.record(Committed(WRITER, run.durable.tried, attempt))
        run.reach(ProtocolPoint.TRANSACTIONS_COMMITTED, WRITER, attempt)

    def show(self, run: Playing, batch: int, attempt: int) -> None:
        """Show nothing of a checkpoint that is complete."""

    def storage(self, run: Playing) -> StorageView | None:
        """Show nothing of what is durable."""
        return None

    def close(self) -> None:
        """Do nothing: no trial leaves anything."""


class OpenMicroBatches(MicroBatches):
    """The honest system, which also shows what its checkpoints hold, and what is durable at the end."""

    name = "open-micro-batches"
    capabilities = MicroBatches.capabilities | {Capability.SNAPSHOT_INSPECTION}

    def show(self, run: Playing, batch: int, attempt: int) -> None:
        """Show a checkpoint: how far each split was read, the totals of each key, and the rows that are visible."""
        size, rows = run.plan.workload.batch_records, run.durable.output[: run.ends[batch]]
        # Positions count from the beginning of a split, also where its input begins later.
        positions = {
            split.name: split.start_offset + min(len(split.input), (batch + 1) * size)
            for split in KeyedTotals().splits(run.plan)
        }
        totals = {json.dumps([row["key"]]): [row["count"], row["sum"]] for row in rows}
        state = StateView(operator="totals", subtask=LEDGER, name="totals", entries=totals)
        subtasks = (READER, LEDGER, WRITER)
        checkpoint = run.durable.checkpoints[batch]
        view = SnapshotView(checkpoint, attempt, positions, (state,), subtasks, reached_sinks=tuple(rows))
        run.views.append(view)

    def storage(self, run: Playing) -> StorageView:
        """Show that only the last checkpoint is kept, and what the writer made visible: one batch in one step."""
        noted = run.durable.checkpoints[: run.durable.noted]
        visible = (Transaction(f"checkpoint {checkpoint}", checkpoint, attempt=None) for checkpoint in noted)
        return StorageView(retained=tuple(noted[-1:]), transactions=tuple(visible))


class TwoSteps(MicroBatches):
    """The broken one: rows are shown first and the number is noted after it, so a batch between the two comes twice."""

    name = "micro-batches-in-two-steps"

    def store(self, run: Playing, batch: int, attempt: int) -> None:
        """Make a batch durable, in two steps."""
        run.durable.output += run.rows_of(batch)
        run.record(Committed(WRITER, run.durable.tried, attempt))
        run.reach(ProtocolPoint.TRANSACTIONS_COMMITTED, WRITER, attempt)
        run.durable.checkpoints.append(run.durable.tried)
