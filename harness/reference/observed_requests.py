"""Counts what each subtask, and the coordinator, asks of checkpoint storage: what snapshots cost (SNP-8).

The counts are made between the storage and its medium, where every request for a file passes. They are handed over when
the subtask acknowledges a checkpoint, or the coordinator completes one. With those of a subtask goes which checkpoint's
files it could have named again instead of writing them: the newest one of which it had learned that it is complete, if
the barrier says that its files stay.

In the simulator the notes are recorded at once; on Spark a file takes them from the executor to the driver.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from barrier_tck.faults.targets import COORDINATOR
from barrier_tck.harness.record.operations import StorageAsked
from barrier_tck.harness.reference.instrumented import (
    DriverParts,
    MakeDriver,
    with_driver_instrument,
    with_instruments,
)
from barrier_tck.reference_impl.protocol.messages import (
    AcknowledgeCheckpoint,
    CheckpointBarrier,
    NotifyCheckpointComplete,
    TriggerCheckpoint,
)
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.coordinator_ports import CoordinatorPorts
from barrier_tck.reference_impl.runtime.ports import CoordinatorLink, Probe, RuntimePoint
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver
from barrier_tck.reference_impl.storage.checkpoint_storage import MediumCheckpointStorage
from barrier_tck.reference_impl.storage.whole_files import WholeFiles

KeepAsked = Callable[[StorageAsked], None]
"""Keeps a note."""


@dataclass
class _Asked:
    """What one subtask has asked so far, and which files it may name again."""

    subtask: str
    attempt: int
    keep: KeepAsked
    requests: Counter[str] = field(default_factory=Counter)
    completed: int = 0
    """The newest checkpoint of which the subtask has learned that it is complete."""
    stay_from: dict[int, int] = field(default_factory=dict)
    """Checkpoint that may share files -> the oldest one whose files stay until it has ended."""
    reusable: dict[int, int] = field(default_factory=dict)
    """Checkpoint of which the snapshot was taken -> the one whose files could have been named again."""

    def barrier(self, checkpoint: int, reuse_from: int) -> None:
        if reuse_from:
            self.stay_from[checkpoint] = reuse_from

    def taken(self, checkpoint: int) -> None:
        stay_from = self.stay_from.pop(checkpoint, 0)
        if stay_from and self.completed >= stay_from:
            self.reusable[checkpoint] = self.completed

    def acknowledged(self, checkpoint: int) -> None:
        asked = dict(sorted(self.requests.items()))
        reusable = self.reusable.pop(checkpoint, None)
        self.keep(
            StorageAsked(self.subtask, self.attempt, checkpoint, asked, reusable, completed=self.completed)
        )


@dataclass(frozen=True)
class _CountedMedium:
    """A medium that counts the requests."""

    inner: WholeFiles
    requests: Counter[str]

    def read(self, path: str) -> bytes:
        self.requests["read"] += 1
        return self.inner.read(path)

    def list_files(self, directory: str) -> list[str]:
        self.requests["list"] += 1
        return self.inner.list_files(directory)

    def exists(self, path: str) -> bool:
        self.requests["exists"] += 1
        return self.inner.exists(path)

    def delete(self, path: str) -> None:
        self.requests["delete"] += 1
        self.inner.delete(path)

    def delete_tree(self, directory: str) -> None:
        self.requests["delete"] += 1
        self.inner.delete_tree(directory)

    def write(self, path: str, chunks: Iterable[bytes]) -> tuple[int, int]:
        self.requests["write"] += 1
        return self.inner.write(path, chunks)

    def put(self, path: str, content: bytes) -> None:
        self.requests["write"] += 1
        self.inner.put(path, content)

    def put_new(self, path: str, content: bytes) -> bool:
        self.requests["write"] += 1
        return self.inner.put_new(path, content)

    def sync_directory(self, path: str) -> None:
        self.requests["sync"] += 1
        self.inner.sync_directory(path)


@dataclass(frozen=True)
class _ToCoordinator:
    inner: CoordinatorLink
    asked: _Asked

    def send(self, message: Any) -> None:
        if isinstance(message, AcknowledgeCheckpoint):
            self.asked.acknowledged(int(message.checkpoint))
        self.inner.send(message)


@dataclass(frozen=True)
class _WatchedProbe:
    inner: Probe
    asked: _Asked

    def reach(self, point: RuntimePoint, checkpoint: Any = None, attempt: int = 0) -> None:
        if point is RuntimePoint.SNAPSHOT_TAKEN:
            self.asked.taken(int(checkpoint))
        self.inner.reach(point, checkpoint, attempt)


def _with_counted_requests(parts: DriverParts, make: MakeDriver, keep: KeepAsked) -> SubtaskDriver:
    """Return a driver; one whose storage has no medium is not watched."""
    deployment, ports = parts.deployment, parts.ports
    if deployment.config.checkpoints is None or not isinstance(ports.storage, MediumCheckpointStorage):
        return make(parts)
    asked = _Asked(str(deployment.subtask), deployment.attempt, keep)
    ports.storage.reach_through(lambda medium: _CountedMedium(medium, asked.requests))
    coordinator, probe = _ToCoordinator(ports.coordinator, asked), _WatchedProbe(ports.probe, asked)
    driver = make(parts.with_ports(coordinator=coordinator, probe=probe))
    _watch(driver, asked)
    return driver


def _watch(driver: SubtaskDriver, asked: _Asked) -> None:
    """Look at what a subtask learns of checkpoints; the driver does not come to hold itself by that."""
    kind, reference = type(driver), weakref.ref(driver)

    def own() -> SubtaskDriver:
        found = reference()
        assert found is not None, "it is called by who holds it"
        return found

    def observed_control(channel: int, element: Any) -> None:
        if isinstance(element, CheckpointBarrier):
            asked.barrier(int(element.checkpoint), element.reuse_from)
        kind.on_control(own(), channel, element)

    def observed_announced(channel: int, barrier: CheckpointBarrier) -> None:
        asked.barrier(int(barrier.checkpoint), barrier.reuse_from)
        kind.on_announced(own(), channel, barrier)

    def observed_message(message: Any) -> None:
        if isinstance(message, TriggerCheckpoint):
            asked.barrier(int(message.checkpoint), message.reuse_from)
        elif isinstance(message, NotifyCheckpointComplete):
            asked.completed = max(asked.completed, int(message.checkpoint))
        kind.on_message(own(), message)

    vars(driver).update(
        on_control=observed_control, on_announced=observed_announced, on_message=observed_message
    )


@dataclass(frozen=True)
class _CompletionProbe:
    """Hands the coordinator's counts over when a checkpoint is complete."""

    inner: Probe
    requests: Counter[str]
    keep: KeepAsked

    def reach(self, point: RuntimePoint, checkpoint: Any = None, attempt: int = 0) -> None:
        if point is RuntimePoint.CHECKPOINT_COMPLETED:
            self.keep(
                StorageAsked(COORDINATOR, attempt, int(checkpoint), dict(sorted(self.requests.items())))
            )
        self.inner.reach(point, checkpoint, attempt)


def _coordinator_counted(ports: CoordinatorPorts, keep: KeepAsked) -> CoordinatorPorts:
    """Return the ports of a coordinator whose requests are counted; one whose storage has no medium is not watched."""
    storage, requests = ports.storage, Counter[str]()
    if not isinstance(storage, MediumCheckpointStorage):
        return ports
    storage.reach_through(lambda medium: _CountedMedium(medium, requests))
    return replace(ports, probe=_CompletionProbe(ports.probe, requests, keep))


def requests_counted(components: Components, keep: KeepAsked) -> Components:
    """Return the components with subtasks and a coordinator whose requests are counted."""
    counted = with_instruments(components, coordinator_ports=partial(_coordinator_counted, keep=keep))
    return with_driver_instrument(counted, partial(_with_counted_requests, keep=keep))
