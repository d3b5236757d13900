"""Watches the barriers that come to each subtask, and notes where it takes its snapshot too early or not at all
(BAR-3).

With barriers, a subtask takes its snapshot of a checkpoint when the barrier has come from all its inputs, where a
channel that has ended counts as if it had delivered the barrier (BAR-6). Output shows a snapshot that was taken too
early only if a record came between it and the last barrier, and a restore shows it. One that is never taken looks like
a checkpoint that was only slow, until it expires.

Where barriers overtake, the first one that comes may be the time to snapshot, so there only a snapshot that is not
taken is noted. Subtasks that read a feedback edge, and Chandy-Lamport, have their own rules: ``consistent-cut`` judges
them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from barrier_tck.harness.plan.trial_plan import CheckpointPlan
from barrier_tck.harness.record.operations import SnapshotLeftOut, SnapshotTooEarly
from barrier_tck.harness.reference.instrumented import DriverParts, MakeDriver, with_driver_instrument
from barrier_tck.reference_impl.protocol.messages import (
    ChannelControl,
    CheckpointBarrier,
    DeclineCheckpoint,
    EndOfChannel,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
)
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.ports import CoordinatorLink, Probe, RuntimePoint
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver

KeepSnapshot = Callable[[SnapshotTooEarly | SnapshotLeftOut], None]
"""Keeps a note."""


@dataclass
class Barriers:
    """Which barriers one subtask has read from which of its channels, and which snapshots it has taken."""

    deployment: SubtaskDeployment
    names: tuple[str, ...]
    """Its input channels."""
    in_line: bool
    """Whether every barrier is waited for, so that no snapshot may be taken before the last one has come."""
    keep: KeepSnapshot
    came: dict[int, dict[int, None]] = field(default_factory=dict)
    """Checkpoint -> the channels that have delivered its barrier."""
    closed: dict[int, None] = field(default_factory=dict)
    taken: int = 0
    """The newest checkpoint for which it has taken its snapshot, or tried to."""
    over: dict[int, None] = field(default_factory=dict)
    """The checkpoints that it knows to have been aborted, or has declined itself."""
    completed: int = 0
    """The newest checkpoint that it knows to be complete."""
    noted: dict[int, None] = field(default_factory=dict)

    def missing(self, checkpoint: int) -> tuple[str, ...]:
        """Return the channels from which the barrier has not come."""
        came = self.came.get(checkpoint, {})
        return tuple(
            name
            for channel, name in enumerate(self.names)
            if channel not in came and channel not in self.closed
        )

    def takes(self, checkpoint: int) -> None:
        """Take that the snapshot is taken now."""
        missing = self.missing(checkpoint)
        if self.in_line and missing and checkpoint not in self.noted:
            self.noted[checkpoint] = None
            self.keep(
                SnapshotTooEarly(
                    str(self.deployment.subtask),
                    self.deployment.attempt,
                    checkpoint,
                    ", ".join(missing),
                    # An end that counts twice stands for one barrier that has not come.
                    self._ended() if len(missing) <= len(self.closed) else "",
                )
            )
        self.taken = max(self.taken, checkpoint)

    def handled(self, checkpoint: int) -> None:
        """Take that the subtask has done all that it does about a barrier, or the end of a channel, that came."""
        # A channel that skipped a checkpoint delivers a newer barrier without that one, and may end then.
        skipped = any(
            channel not in self.came.get(checkpoint, {})
            for newer, channels in self.came.items()
            if newer > checkpoint
            for channel in channels
        )
        left_out = (
            not skipped
            and not self.missing(checkpoint)
            and checkpoint > max(self.taken, self.completed)
            and checkpoint not in self.over
            and checkpoint not in self.noted
        )
        if left_out:
            self.noted[checkpoint] = None
            ended = self._ended(but=self.came.get(checkpoint, {}))
            self.keep(
                SnapshotLeftOut(str(self.deployment.subtask), self.deployment.attempt, checkpoint, ended)
            )

    def _ended(self, but: Container[int] = ()) -> str:
        """Return the channels that have ended, but some."""
        return ", ".join(self.names[channel] for channel in sorted(self.closed) if channel not in but)

    def watch(self, driver: SubtaskDriver) -> None:
        """Look at what comes to a driver; it does not come to hold itself by that."""
        on_control, on_message = _method(driver, "on_control"), _method(driver, "on_message")

        def watched_control(channel: int, element: ChannelControl) -> None:
            match element:
                case CheckpointBarrier(checkpoint=checkpoint):
                    self.came.setdefault(int(checkpoint), {})[channel] = None
                    on_control(channel, element)
                    self.handled(int(checkpoint))
                case EndOfChannel():
                    self.closed[channel] = None
                    on_control(channel, element)
                    for number in sorted(self.came):  # the end may be all that several of them waited for
                        self.handled(number)
                case _:
                    on_control(channel, element)

        def watched_message(message: Any) -> None:
            match message:
                case NotifyCheckpointAborted(checkpoint=checkpoint):
                    self.over[int(checkpoint)] = None
                case NotifyCheckpointComplete(checkpoint=checkpoint):
                    self.completed = max(self.completed, int(checkpoint))
            on_message(message)

        vars(driver).update(on_control=watched_control, on_message=watched_message)


def _method(driver: SubtaskDriver, name: str) -> Callable[..., None]:
    """Return what is called by a name: what another instrument has put there, or the driver's method.

    A bound method would hold the driver.
    """
    put_there: Callable[..., None] | None = vars(driver).get(name)
    if put_there is not None:
        return put_there
    method, reference = getattr(type(driver), name), weakref.ref(driver)

    def called(*arguments: Any) -> None:
        own = reference()
        assert own is not None, "it is called by who holds it"
        method(own, *arguments)

    return called


@dataclass(frozen=True)
class _WatchedProbe:
    inner: Probe
    barriers: Barriers

    def reach(self, point: RuntimePoint, checkpoint: Any = None, attempt: int = 0) -> None:
        if point is RuntimePoint.ALIGNMENT_COMPLETED:
            self.barriers.takes(int(checkpoint))
        self.inner.reach(point, checkpoint, attempt)


@dataclass(frozen=True)
class _WatchedLink:
    inner: CoordinatorLink
    barriers: Barriers

    def send(self, message: Any) -> None:
        if isinstance(message, DeclineCheckpoint):
            self.barriers.over[int(message.checkpoint)] = None
        self.inner.send(message)


def _with_watched_barriers(
    parts: DriverParts, make: MakeDriver, keep: KeepSnapshot, in_line: bool
) -> SubtaskDriver:
    """Return a driver whose barriers are watched, if it reads channels and none of them closes a loop.

    A subtask that had finished in the checkpoint that was restored takes part in no other (BAR-6).
    """
    subtask, graph = parts.deployment.subtask, parts.graph
    names = tuple(str(channel) for channel in graph.inputs_of(subtask))
    in_loop = any(edge.feedback for edge in graph.edges if edge.target == subtask.vertex)
    if not names or in_loop or parts.deployment.finished_before:
        return make(parts)
    barriers = Barriers(parts.deployment, names, in_line, keep)
    driver = make(
        parts.with_ports(
            probe=_WatchedProbe(parts.ports.probe, barriers),
            coordinator=_WatchedLink(parts.ports.coordinator, barriers),
        )
    )
    barriers.watch(driver)
    return driver


def barriers_observed(components: Components, plan: CheckpointPlan, keep: KeepSnapshot) -> Components:
    """Return the components with drivers whose barriers are watched, if checkpoints are taken with barriers."""
    if plan.protocol != "barriers":
        return components
    return with_driver_instrument(
        components, partial(_with_watched_barriers, keep=keep, in_line=not plan.overtakes)
    )
