"""What the faults of a plan can do to checkpoints and messages, when, and how long undisturbed ones may take at most.

The times are those of the simulated world, in milliseconds of the trial's clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf

from barrier_tck.faults.fault import CopyPlace, OnProgress
from barrier_tck.faults.targets import COORDINATOR
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.checkpoint_lives import AttemptLife, CheckpointLife
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.operations import (
    FaultFired,
    FaultHealed,
    FaultUnclear,
    LocalEvent,
    MessagesObserved,
)
from barrier_tck.harness.record.reasons import Reason

NOTICED_MS = 150.0
"""After so many milliseconds without a heartbeat the simulated world takes a process for lost."""
STEP_MS = 1.0
"""A subtask of the simulated world takes up to this many milliseconds for one step."""
STEPS_BESIDE = 5
"""Number of other steps, besides reading channels, that a subtask may take before it reads a barrier."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What one fault that fired can have done to checkpoints. Times in milliseconds of the trial's clock."""

    from_ms: float
    until_ms: float
    """When its last effect was over: it was healed, noticed, and what it had held up has passed."""
    refused: str | None = None
    """The subtask whose files it refused, or the coordinator; None if it held something up."""

    def overlaps(self, from_ms: float, until_ms: float) -> bool:
        """Return whether it can have had an effect in this time."""
        return self.from_ms <= until_ms and from_ms <= self.until_ms

    def explains(self, life: CheckpointLife) -> bool:
        """Return whether it can be why a checkpoint failed."""
        assert life.ended_ms is not None
        if not self.overlaps(life.triggered_ms, life.ended_ms):
            return False
        if self.refused is None:
            return True
        if self.refused == COORDINATOR:
            return life.failed is Reason.STORAGE_FAILED
        return life.failed is not Reason.EXPIRED and self.refused not in life.acknowledged


def obstacles(context: TrialContext) -> list[Obstacle]:
    """Return what can make checkpoints fail without ending their attempt: faults that last, and refused writes."""
    healed = {line.operation.fault: line.time_ms for line in context.history.of(FaultHealed)}
    found = []
    for line in context.history.operations:
        match line.operation:
            case FaultFired(fault=number) | FaultUnclear(fault=number):
                fault = context.plan.faults[number].fault
                hit = fault.copies_hit
                if fault.heals_after_ms is not None and fault.on_progress is not OnProgress.NOTHING:
                    held_ms = longest_ms(context.plan, False, most_batches_read(context))
                    until_ms = healed.get(number, inf) + NOTICED_MS + fault.lingers_ms
                    found.append(Obstacle(line.time_ms, until_ms + held_ms))
                elif hit is not None and hit.place is CopyPlace.DURABLE and hit.damage is None:
                    found.append(Obstacle(line.time_ms, inf, hit.subtask))
                elif fault.fails_metadata:
                    found.append(Obstacle(line.time_ms, inf, COORDINATOR))
    return found


def has_loop(plan: TrialPlan) -> bool:
    """Return whether the plan's job has a loop: then channels that close it take any number of batches."""
    return bool(plan.job.loops)


def _batches_read(context: TrialContext) -> Mapping[int, int]:
    """Return attempt -> how many batches its subtasks read, as logged at their ports (``MessagesObserved``)."""
    read: Counter[int] = Counter()
    for line in context.history.of(MessagesObserved):
        read[line.operation.attempt] += sum(event.kind == "taken" for event in line.operation.events)
    return read


class BatchesRead:
    """How many batches the subtasks of one attempt read, at the most, while one of its checkpoints was under way.

    What a process did is logged in its order, without times. So what counts lies behind its snapshot for a checkpoint
    that had completed before, and ahead of its snapshot for one that was triggered afterwards. While the job stands
    still, because it is to be stopped, nothing is read.
    """

    def __init__(self, context: TrialContext, attempt: AttemptLife) -> None:
        self._lives = {life.number: life for life in attempt.checkpoints}
        self._logs = [
            _ProcessLog.of(line.operation.events)
            for line in context.history.of(MessagesObserved)
            if line.operation.attempt == attempt.number
        ]

    def during(self, life: CheckpointLife) -> int | None:
        """Return the number for one checkpoint; None if nothing was recorded."""
        return sum(self._read(log, life) for log in self._logs) if self._logs else None

    def _read(self, log: _ProcessLog, life: CheckpointLife) -> int:
        begin = 0
        for checkpoint, read in log.recorded:
            other = self._lives.get(checkpoint)
            if other is None:
                continue
            if other.completed and other.ended_before(life):
                begin = read
            elif life.ended_before(other):
                return read - begin
        return log.read - begin


@dataclass(frozen=True, slots=True)
class _ProcessLog:
    """What one process read and recorded."""

    recorded: tuple[tuple[int, int], ...]
    """Checkpoint, and how many batches had been read ahead of the snapshot for it; in the order of the process."""
    read: int
    """How many batches it read in all."""

    @classmethod
    def of(cls, events: Iterable[LocalEvent]) -> _ProcessLog:
        recorded, read = [], 0
        for event in events:
            if event.kind == "taken":
                read += 1
            elif event.kind == "recorded" and event.checkpoint is not None:
                recorded.append((event.checkpoint, read))
        return cls(tuple(recorded), read)


def most_batches_read(context: TrialContext) -> int | None:
    """Return how many batches the busiest attempt of a job with a loop read; None if that was not recorded."""
    return max(_batches_read(context).values(), default=None) if has_loop(context.plan) else None


class Backlog:
    """How long subtasks of one attempt may still be busy with what its checkpoints have sent them.

    Each checkpoint sends a subtask a barrier on each of its channels, a trigger and its end, and each of these takes a
    step. If checkpoints come faster than that, as they do if each expires at once, what comes later waits for its turn.
    """

    def __init__(self, plan: TrialPlan, attempt: AttemptLife) -> None:
        channels = max((plan.job.channels_into(vertex.name) for vertex in plan.job.vertices), default=0)
        steps_ms = (channels + 2) * STEP_MS
        self._begun_ms: list[float] = []
        self._left_ms: list[float] = []
        for life in attempt.checkpoints:
            waiting_ms = self.at(life.triggered_ms)
            self._begun_ms.append(life.triggered_ms)
            self._left_ms.append(waiting_ms + steps_ms)

    def at(self, time_ms: float) -> float:
        """Return how many milliseconds of work there may be at a time."""
        newest = bisect_right(self._begun_ms, time_ms) - 1
        if newest < 0:
            return 0.0
        return max(0.0, self._left_ms[newest] - (time_ms - self._begun_ms[newest]))


def longest_ms(plan: TrialPlan, final: bool, read: int | None = None) -> float:
    """Return how long the parts of a checkpoint may take, from its trigger to its last acknowledgement.

    ``final`` means that no record is in transit any more. ``read`` matters in a job with a loop only: how many batches
    were read while it was under way (``BatchesRead``). A channel that closes a loop takes any number of them,
    and while many wait in it nothing is read from outside. So a barrier may come behind all of them. But as long as it
    waits, some batch is on its way or about to be read, and that happens to each batch once. Without that number there
    is no bound.
    """
    job, network = plan.job, plan.network
    slow = network.slow_factor if network.slow_channel is not None else 1
    channels = max((job.channels_into(vertex.name) for vertex in job.vertices), default=0)
    before = channels + STEPS_BESIDE
    batch_ms = STEP_MS + (plan.deployment.slow_batch_ms if plan.deployment.slow_vertex is not None else 0)
    if not final:
        before += len(job.channels) * network.channel_capacity
    ways = len(job.vertices) * (network.latency_ms_max * slow + before * batch_ms)
    if not final:
        # A full channel accepts its next batch only after one was read, and that batch has its own latency.
        ways += len(job.channels) * network.channel_capacity * network.latency_ms_max * slow
        ways *= plan.checkpoints.max_concurrent + len(plan.savepoints)
        if has_loop(plan):
            ways += inf if read is None else read * (network.latency_ms_max * slow + batch_ms)
    # Where barriers end with a subtask that finishes, the next one reports that, and is triggered instead (BAR-6).
    notifications_ms = 2 * (1 + len(job.vertices)) * network.latency_ms_max
    return ways + notifications_ms + plan.checkpoints.async_ms_max
