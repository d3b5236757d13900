"""Planted bugs of elastic jobs: how parallel they go on, and what their fewer subtasks get."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from barrier_tck.harness.reference.mutants.rescale_bugs import Redistribution
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.operators.sinks import TransactionalFileSink
from barrier_tck.reference_impl.protocol.coordinator import CoordinatorMachine
from barrier_tck.reference_impl.protocol.coordinator_checkpoints import Commands
from barrier_tck.reference_impl.protocol.coordinator_events import CoordinatorEvent, JobResized
from barrier_tck.reference_impl.protocol.messages import (
    CompletedCheckpoint,
    SubtaskSnapshot,
)
from barrier_tck.reference_impl.protocol.narrowing import narrowed
from barrier_tck.reference_impl.protocol.rescale import NewJob, widths_of
from barrier_tck.reference_impl.protocol.transactions import TransactionHandle
from barrier_tck.reference_impl.runtime.elasticity import Elasticity

_Joined = Sequence[tuple[str, str]]


class _Narrowing(ABC):
    """Chooses a parallelism for so many slots."""

    @abstractmethod
    def __call__(
        self, wanted: Mapping[str, int], joined: _Joined, fixed: Collection[str], slots: int
    ) -> dict[str, int] | None:
        """Take and return what the product does."""


class TakesOneSlotTooMany(_Narrowing):
    """EL-01: count the slots from 0 to their number, so that there is one more of them."""

    def __call__(
        self, wanted: Mapping[str, int], joined: _Joined, fixed: Collection[str], slots: int
    ) -> dict[str, int] | None:
        """Choose for one slot more."""
        return narrowed(wanted, joined, fixed, slots + 1)


class NarrowsWhateverIsFixed(_Narrowing):
    """EL-02: forget which vertices are to stay as they are."""

    def __call__(
        self, wanted: Mapping[str, int], joined: _Joined, fixed: Collection[str], slots: int
    ) -> dict[str, int] | None:
        """Let every vertex change."""
        return narrowed(wanted, joined, (), slots)


class NarrowsToOne(_Narrowing):
    """EL-03: give each vertex one subtask, however many slots are left."""

    def __call__(
        self, wanted: Mapping[str, int], joined: _Joined, fixed: Collection[str], slots: int
    ) -> dict[str, int] | None:
        """Leave as they are only those that must be left so."""
        found = narrowed(wanted, joined, fixed, slots)
        return {name: wanted[name] if name in fixed else 1 for name in wanted} if found is not None else None


class LeavesSlotsEmpty(_Narrowing):
    """EL-10: when vertices that stay equally parallel gave up more than was missing, nobody gets the slot back."""

    def __call__(
        self, wanted: Mapping[str, int], joined: _Joined, fixed: Collection[str], slots: int
    ) -> dict[str, int] | None:
        """Take away in the same order, one step after the other, until there is room."""
        for missing in range(sum(wanted.values()) - slots, 0, -1):
            step = narrowed(wanted, joined, fixed, slots + missing)
            if step is not None:
                wanted = step
        return narrowed(wanted, joined, fixed, slots)


class LeavesStateOfLostSubtasks(Redistribution):
    """EL-04: of a vertex that is narrower, the key groups of the subtasks that are gone are left to nobody."""

    def changed(
        self, part: SubtaskSnapshot, found: CompletedCheckpoint, before: CompletedCheckpoint, job: NewJob
    ) -> SubtaskSnapshot:
        """Take only the files that the subtask of the same name wrote."""
        former, own = before.job, before.snapshot_of(part.subtask)
        vertex = part.subtask.vertex
        if former is None or own is None or widths_of(job.shape)[vertex] >= widths_of(former)[vertex]:
            return part
        written = [handle for one in own.operators for handle in one.handles]
        operators = tuple(
            replace(one, handles=tuple(handle for handle in one.handles if handle in written))
            for one in part.operators
        )
        return replace(part, operators=operators)


class SweepsItsOwnOnly(TransactionalFileSink):
    """EL-06: a sink deletes what older attempts of its own index left pending; those that are gone have nobody."""

    def discard_leftovers(self, kept: Sequence[TransactionHandle]) -> None:
        """Look at names that begin like its own."""
        keep = {file.pending for transaction in kept for file in transaction.files}
        own = re.compile(re.escape(f"{self._pending_directory}/{self._subtask_name}-a") + "([0-9]+)-.*")
        for path in self._files.list_files(self._pending_directory):
            match = own.fullmatch(path)
            if match and int(match[1]) < self._attempt and path not in keep:
                self._files.delete(path)


class NarrowsLoops(NarrowsWhateverIsFixed):
    """EL-07: the vertices of a loop, which nobody has to name, give up subtasks like others."""


class HandsTransactionsOn(Redistribution):
    """EL-08: what waits for its commit goes on from who holds it, not from who prepared it, as sinks sweep it."""

    def changed(
        self, part: SubtaskSnapshot, found: CompletedCheckpoint, before: CompletedCheckpoint, job: NewJob
    ) -> SubtaskSnapshot:
        """Take what the subtasks of this index, modulo the parallelism, held."""
        vertex, width = part.subtask.vertex, widths_of(job.shape)[part.subtask.vertex]
        if before.job is None or widths_of(before.job)[vertex] == width:
            return part
        held = [
            one
            for former in before.snapshots
            if former.subtask.vertex == vertex and former.subtask.index % width == part.subtask.index
            for one in former.operators
        ]
        operators = tuple(
            replace(
                own,
                transactions=tuple(
                    t for one in held if one.operator == own.operator for t in one.transactions
                ),
            )
            for own in part.operators
        )
        return replace(part, operators=operators)


class AwaitsEverybody(CoordinatorMachine):
    """EL-05: the coordinator waits for the subtasks that the job had when it was started."""

    def handle(self, event: CoordinatorEvent, now_ms: float) -> Commands:
        """Do not hear that there are others."""
        return () if isinstance(event, JobResized) else super().handle(event, now_ms)


class WaitsOnlyOnce(Elasticity):
    """EL-09: when the slots are there in time, it is not forgotten since when they were missing."""

    def job_for(
        self, slots: int | None, now_ms: float, completed: Sequence[CompletedCheckpoint]
    ) -> JobGraph | None:
        """Forget it only when the wait is over."""
        since_ms = self._waiting_since_ms
        job = super().job_for(slots, now_ms, completed)
        if slots is None or slots >= len(self.wanted.subtasks):
            self._waiting_since_ms = since_ms
        return job
