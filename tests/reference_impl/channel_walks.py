"""Random walks of the machines whose input are channels with barriers; `test_protocol_tables.py` judges them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from barrier_tck.reference_impl.config import CheckpointMode
from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.alignment import BarrierAligner
from barrier_tck.reference_impl.protocol.alignment_states import ChannelPolicy
from barrier_tck.reference_impl.protocol.messages import (
    CheckpointBarrier,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    Savepoint,
    TriggerCheckpoint,
)
from barrier_tck.reference_impl.protocol.recording import BarrierRecorder
from barrier_tck.reference_impl.protocol.subtask import SubtaskMachine
from barrier_tck.reference_impl.protocol.subtask_commands import (
    CancelSnapshot,
    ForwardBarrier,
    HoldInput,
    Leave,
    OvertakeOutputs,
    RecordInput,
    ReportClosed,
    SendAcknowledge,
    SendDecline,
    StartAlignmentTimer,
    StoreChannelState,
    StoreSnapshot,
    TakeSnapshot,
)
from barrier_tck.reference_impl.protocol.subtask_events import (
    AlignmentTimedOut,
    BarrierAnnounced,
    BarrierArrived,
    ChannelClosed,
    ChannelStateStored,
    CloseAnnounced,
    InputEnded,
    OutputsPassed,
    SnapshotFailed,
    SnapshotStored,
    SnapshotTaken,
)
from barrier_tck.reference_impl.protocol.subtask_states import SubtaskState
from barrier_tck.reference_impl.protocol.tracking import BarrierTracker


class Walk:
    """Drives one machine at random, as its environment could."""

    machine: Any

    def choose(self) -> Any:
        """Return an event that may come now, or None at the end of the walk."""
        raise NotImplementedError

    def tell(self, event: Any) -> None:
        """Give the machine an event, and queue the answers to what it asks for."""
        raise NotImplementedError

    @staticmethod
    def fitted(machine: Any, state: StrEnum, event: Any) -> Any:
        """Return an event like this one, changed so that the table of this state decides about it."""
        return event


class ChannelWalk(Walk):
    """FIFO channels, which may skip a barrier and may end; when all have, triggers come.

    The synchronous part of a snapshot ends before anything else comes.
    """

    ends_are_enough = True
    """Whether an end of a channel stands alone; else the end of its input is before it."""

    def __init__(self, chance: random.Random, channels: int) -> None:
        self.chance = chance
        self.late_triggers = [TriggerCheckpoint(CheckpointId(n), 0) for n in range(1, 8)]
        self.queues: list[list[Any]] = []
        for channel in range(channels):
            numbers = [n for n in range(1, 6) if chance.random() < 0.85]
            queue: list[Any] = [BarrierArrived(channel, self.barrier(n)) for n in numbers]
            if self.ends_are_enough and chance.random() < 0.6:
                queue = [*queue[: chance.randint(0, len(queue))], ChannelClosed(channel)]
            self.queues.append(queue)
        self.aborts: list[Any] = [
            NotifyCheckpointAborted(CheckpointId(n), "late") for n in range(1, 6) if chance.random() < 0.3
        ]
        self.urgent: Any = None

    def barrier(self, checkpoint: int) -> CheckpointBarrier:
        return barrier(checkpoint)

    def blocked(self, channel: int) -> bool:
        held: bool = self.machine.blocked[channel]
        return held

    def choose(self) -> Any:
        if self.urgent is not None:
            urgent, self.urgent = self.urgent, None
            return urgent
        queues = [queue for channel, queue in enumerate(self.queues) if queue and not self.blocked(channel)]
        queues += [self.aborts] if self.aborts else []
        queues += [self.late_triggers] if self.late_triggers and self.is_triggered() else []
        return self.chance.choice(queues).pop(0) if queues else None

    def is_triggered(self) -> bool:
        """Return whether no barrier begins a checkpoint any more."""
        return all(self.machine.closed)

    def tell(self, event: Any) -> None:
        for command in self.machine.handle(event):
            if isinstance(command, TakeSnapshot):
                failed = SnapshotFailed(command.barrier.checkpoint, "disk")
                self.urgent = failed if self.chance.random() < 0.3 else SnapshotTaken(command.barrier)


def barrier(checkpoint: int) -> CheckpointBarrier:
    return CheckpointBarrier(CheckpointId(checkpoint), 0)


class AlignerWalk(ChannelWalk):
    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance, chance.randint(1, 3))
        self.machine = BarrierAligner(len(self.queues))


class TrackerWalk(ChannelWalk):
    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance, chance.randint(1, 3))
        self.machine = BarrierTracker(len(self.queues))

    @staticmethod
    def fitted(machine: Any, state: StrEnum, event: Any) -> Any:
        if isinstance(event, CloseAnnounced | ChannelClosed):
            return event  # it is about no checkpoint
        probes = (NotifyCheckpointAborted(CheckpointId(n), "") for n in range(1, 99))
        n = next(probe.checkpoint for probe in probes if machine.state_for(probe) is state)
        if isinstance(event, BarrierAnnounced | BarrierArrived | SnapshotTaken):
            return msgspec.structs.replace(event, barrier=barrier(n))
        return msgspec.structs.replace(event, checkpoint=n)


class Announced:
    """Channels that announce barriers: a barrier that is taken out of its queue is not reached."""

    def __init__(self, queues: list[list[Any]], policies: Sequence[ChannelPolicy], hurried: set[int]) -> None:
        self.queues = queues
        self.unannounced = [
            [hurried_event(event, hurried) for event in queue] if policy is ChannelPolicy.OVERTAKE else []
            for queue, policy in zip(queues, policies, strict=True)
        ]
        self.timeouts: list[AlignmentTimedOut] = []

    def announcing(self) -> list[int]:
        return [channel for channel, queue in enumerate(self.unannounced) if queue]

    def announce(self, channel: int) -> BarrierAnnounced | CloseAnnounced:
        event = self.unannounced[channel].pop(0)
        if isinstance(event, ChannelClosed):
            return CloseAnnounced(channel)
        return BarrierAnnounced(channel, event.barrier)

    def readable(self, channel: int) -> bool:
        return len(self.queues[channel]) > len(self.unannounced[channel])

    def carry_out(self, command: Any) -> None:
        match command:
            case RecordInput(checkpoint=checkpoint, channel=channel):
                queue, waiting = self.queues[channel], len(self.unannounced[channel])
                kept = [
                    event
                    for place, event in enumerate(queue)
                    if place >= len(queue) - waiting
                    or not isinstance(event, BarrierArrived)
                    or event.barrier.checkpoint != checkpoint
                ]
                queue[:] = kept
            case StartAlignmentTimer(checkpoint=checkpoint):
                self.timeouts.append(AlignmentTimedOut(checkpoint))


def hurried_event(event: Any, hurried: set[int]) -> Any:
    if not isinstance(event, BarrierArrived):
        return event
    ahead = event.barrier.checkpoint in hurried
    return msgspec.structs.replace(event, barrier=msgspec.structs.replace(event.barrier, ahead=ahead))


def drawn_policies(chance: random.Random, channels: int) -> tuple[ChannelPolicy, ...]:
    if chance.random() < 0.3:
        return (ChannelPolicy.RECORD,) * channels
    return tuple(chance.choice(list(ChannelPolicy)) for _ in range(channels))


class RecorderWalk(ChannelWalk):
    """Channels with policies of their own, of which some announce their barriers."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance, chance.randint(1, 3))
        policies = drawn_policies(chance, len(self.queues))
        self.machine = BarrierRecorder(policies, patient=chance.random() < 0.5)
        hurried = {n for n in range(1, 6) if chance.random() < 0.2} if self.machine.patient else set()
        self.channels = Announced(self.queues, policies, hurried)
        self.triggers = [TriggerCheckpoint(CheckpointId(n), 0) for n in range(1, 6)]
        if not self.machine.initiates:
            self.triggers = []

    fitted = TrackerWalk.fitted

    def choose(self) -> Any:
        if self.urgent is None:
            chance = self.chance.random()
            announcing = self.channels.announcing()
            if announcing and chance < 0.5:
                return self.channels.announce(self.chance.choice(announcing))
            for late in (self.channels.timeouts, self.triggers):
                if late and self.chance.random() < 0.2:
                    return late.pop(self.chance.randrange(len(late)))
        return super().choose()

    def is_triggered(self) -> bool:
        return not self.machine.initiates and bool(self.machine.may_begin())

    def blocked(self, channel: int) -> bool:
        return super().blocked(channel) or not (
            self.machine.policies[channel] is not ChannelPolicy.OVERTAKE or self.channels.readable(channel)
        )

    def tell(self, event: Any) -> None:
        for command in self.machine.handle(event):
            self.channels.carry_out(command)
            if isinstance(command, TakeSnapshot):
                failed = SnapshotFailed(command.barrier.checkpoint, "disk")
                self.urgent = failed if self.chance.random() < 0.3 else SnapshotTaken(command.barrier)


class SubtaskWalk(ChannelWalk):
    """A source or another subtask; its inputs end somewhere between the barriers, and its channels behind the last.

    Some had finished in the checkpoint that was restored, and get no barriers.
    """

    ends_are_enough = False

    def __init__(self, chance: random.Random) -> None:
        channels = chance.randint(0, 2)
        finished_before = chance.random() < 0.1
        self.terminal = chance.choice((0, 0, 2, 3, 4, 5)) if channels else chance.choice((0, 5))
        """The checkpoint whose barrier is terminal, or 0. Who sends a newer barrier knows that it is aborted."""
        super().__init__(chance, channels)
        mode = chance.choice(list(CheckpointMode))
        possible = [ChannelPolicy.OVERTAKE if mode.overtakes else ChannelPolicy.ALIGN, ChannelPolicy.ALIGN]
        if mode is not CheckpointMode.AT_LEAST_ONCE and chance.random() < 0.5:
            possible.append(ChannelPolicy.RECORD)  # a member of a loop, or under Chandy-Lamport
        policies = tuple(chance.choice(possible) for _ in range(channels))
        if finished_before:
            self.queues = [[] for _ in self.queues]
        self.machine = SubtaskMachine("totals[0]", channels, mode, policies, finished_before=finished_before)
        self.channels = Announced(self.queues, policies, {2} if mode.overtakes else set())
        if not channels:
            self.queues = [[TriggerCheckpoint(CheckpointId(n), 0, self.stop(n)) for n in (1, 3, 2, 5, 4)]]
        for channel, queue in enumerate(self.queues):
            place = chance.randint(0, len(queue))
            queue.insert(place, InputEnded(channel))
            closed = [ChannelClosed(channel)] if channels and chance.random() < 0.8 else []
            queue += closed
            if channels and policies[channel] is ChannelPolicy.OVERTAKE:
                self.channels.unannounced[channel].insert(place, InputEnded(channel))
                self.channels.unannounced[channel] += closed
        self.outcomes: list[Any] = [NotifyCheckpointComplete(CheckpointId(1))]
        self.closed_reported = False
        self.reached: dict[int, list[int]] = {}
        """Checkpoint -> channels on which its barrier was read."""
        self.delivered: dict[int, list[int]] = {}
        """The same, with those on which it was announced."""
        self.over: set[int] = set()
        """Checkpoints of which the snapshot is taken, or given up."""
        self.early: list[tuple[StrEnum, type]] = []
        """Outcomes that were told in the middle of an event, and the state at that moment."""

    def stop(self, checkpoint: int) -> Savepoint | None:
        return Savepoint("savepoints/one", stop=True) if checkpoint == self.terminal else None

    def barrier(self, checkpoint: int) -> CheckpointBarrier:
        return msgspec.structs.replace(barrier(checkpoint), savepoint=self.stop(checkpoint))

    def blocked(self, channel: int) -> bool:
        if not self.machine.blocked:
            # Behind a terminal barrier a source reads nothing; a trigger may come again.
            return self.machine.state is SubtaskState.HELD and isinstance(self.queues[channel][0], InputEnded)
        overtaken = self.machine.policies[channel] is ChannelPolicy.OVERTAKE
        readable = not overtaken or self.channels.readable(channel)
        return super().blocked(channel) or not readable

    def choose(self) -> Any:
        if self.urgent is None:
            announcing = self.channels.announcing()
            if announcing and self.chance.random() < 0.5:
                return self.announced_next(self.chance.choice(announcing))
            for late in (self.channels.timeouts, self.outcomes):
                if late and self.chance.random() < 0.3:
                    return late.pop(self.chance.randrange(len(late)))
        return super().choose()

    def is_triggered(self) -> bool:
        return self.closed_reported and self.machine.state is not SubtaskState.HELD

    def note(self, event: Any, commands: Sequence[Any]) -> None:
        """Demand that a channel is held back from a barrier on, until the snapshot is taken, or given up (ALN-1)."""
        match event:
            case (
                BarrierAnnounced(channel=channel, barrier=come)
                | BarrierArrived(channel=channel, barrier=come)
            ):
                number = come.checkpoint
                self.delivered.setdefault(number, []).append(channel)
                # Whoever delivers a barrier without an older one has skipped that (BAR-2).
                self.over |= {n for n in range(number) if channel not in self.delivered.get(n, ())}
                if isinstance(event, BarrierArrived):
                    self.reached.setdefault(number, []).append(channel)
            case NotifyCheckpointAborted(checkpoint=checkpoint):
                self.over.add(checkpoint)
        for command in commands:
            match command:
                case TakeSnapshot(barrier=taken):
                    self.over |= set(range(taken.checkpoint + 1))
                case SendDecline(checkpoint=checkpoint):
                    self.over.add(checkpoint)
        if self.machine.mode is not CheckpointMode.AT_LEAST_ONCE:
            held = {
                channel
                for number in self.reached
                if number not in self.over
                for channel in self.reached[number]
            }
            assert all(self.machine.blocked[channel] for channel in held), (
                f"{event}: {held} wait for other channels"
            )

    def announced_next(self, channel: int) -> Any:
        """Return the next barrier; the end of the input is not announced."""
        queue = self.channels.unannounced[channel]
        if isinstance(queue[0], InputEnded):
            queue.pop(0)
            return NotifyCheckpointComplete(CheckpointId(1))
        return self.channels.announce(channel)

    def tell(self, event: Any) -> None:
        commands = self.machine.handle(event)
        if self.machine.state is SubtaskState.HELD:
            stopped = self.reached.get(self.terminal, [])
            if isinstance(event, BarrierArrived) and event.barrier.checkpoint == self.terminal:
                stopped = [*stopped, event.channel]
            assert all(
                blocked or (policy is ChannelPolicy.RECORD and channel not in stopped)
                for channel, (blocked, policy) in enumerate(
                    zip(self.machine.blocked, self.machine.policies, strict=True)
                )
            ), f"after {event}, something is read that no savepoint records"
        self.note(event, commands)
        for command in commands:
            self.channels.carry_out(command)
            match command:
                case ReportClosed():
                    self.closed_reported = True
                case SendAcknowledge(checkpoint=checkpoint) if self.chance.random() < 0.7:
                    self.outcomes.append(NotifyCheckpointComplete(checkpoint))
                case HoldInput():
                    self.outcomes += [
                        NotifyCheckpointComplete(CheckpointId(self.terminal - 1)),
                        *(NotifyCheckpointAborted(CheckpointId(self.terminal), "late") for _ in range(2)),
                    ]
                    if self.closed_reported:  # who is triggered may be triggered again
                        again = TriggerCheckpoint(CheckpointId(self.terminal), 0, self.stop(self.terminal))
                        self.outcomes.append(again)
                case Leave():
                    still = (TriggerCheckpoint(CheckpointId(9), 0), AlignmentTimedOut(CheckpointId(9)))
                    self.outcomes += [*still, OutputsPassed(CheckpointId(9))]
                case ForwardBarrier(barrier=forwarded):
                    if self.machine.mode is CheckpointMode.ALIGNED_TIMEOUT and not forwarded.ahead:
                        self.outcomes.append(OutputsPassed(forwarded.checkpoint))
                case OvertakeOutputs(checkpoint=checkpoint):
                    self.outcomes.remove(OutputsPassed(checkpoint))
                    self.at_once(OutputsPassed(checkpoint))
                case StoreChannelState(checkpoint=checkpoint) if self.chance.random() < 0.5:
                    self.at_once(ChannelStateStored(checkpoint))
                case StoreChannelState(checkpoint=checkpoint):
                    failed = SnapshotFailed(checkpoint, "disk")
                    stored = ChannelStateStored(checkpoint)
                    self.outcomes.append(failed if self.chance.random() < 0.3 else stored)
                case StoreSnapshot(checkpoint=checkpoint) if self.chance.random() < 0.3:
                    self.at_once(SnapshotStored(checkpoint))
                case TakeSnapshot(barrier=taken):
                    failed = SnapshotFailed(taken.checkpoint, "disk")
                    self.urgent = failed if self.chance.random() < 0.3 else SnapshotTaken(taken)
                case StoreSnapshot(checkpoint=checkpoint):
                    failed = SnapshotFailed(checkpoint, "disk")
                    self.outcomes.append(failed if self.chance.random() < 0.3 else SnapshotStored(checkpoint))
                case CancelSnapshot(checkpoint=checkpoint) | SendDecline(checkpoint=checkpoint):
                    self.outcomes = [one for one in self.outcomes if not self.ends(one, checkpoint)]

    def at_once(self, event: Any) -> None:
        """Answer a command ahead of those that came with it."""
        self.early.append((self.machine.state, type(event)))
        self.tell(event)

    @staticmethod
    def ends(outcome: Any, checkpoint: CheckpointId) -> bool:
        kinds = SnapshotStored | SnapshotFailed | ChannelStateStored | OutputsPassed
        return isinstance(outcome, kinds) and outcome.checkpoint == checkpoint
