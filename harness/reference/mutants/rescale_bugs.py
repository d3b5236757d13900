"""Planted bugs of redistribution: what subtasks get of a checkpoint that is restored, at any parallelism."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace as with_fields

import msgspec
from msgspec.structs import replace

from barrier_tck.harness.reference.mutants.channel_bugs import Recovered
from barrier_tck.reference_impl.operators.api import DataPlane, Payload
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.protocol.key_groups import key_group_range
from barrier_tck.reference_impl.protocol.messages import (
    CompletedCheckpoint,
    OperatorSnapshot,
    ReroutedChannel,
    StateList,
    SubtaskSnapshot,
)
from barrier_tck.reference_impl.protocol.rescale import NewJob, redistributed, widths_of
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.rescaling import Rerouting
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment, SubtaskPorts
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver
from barrier_tck.reference_impl.storage.channel_state import Fragment


class Redistribution:
    """Redistributes as the product does, then changes each part."""

    def __call__(self, completed: CompletedCheckpoint, job: NewJob) -> CompletedCheckpoint:
        """Take and return what the product does."""
        found = redistributed(completed, job)
        return replace(
            found,
            snapshots=tuple(self.changed(part, found, completed, job) for part in found.snapshots),
        )

    def changed(
        self, part: SubtaskSnapshot, found: CompletedCheckpoint, before: CompletedCheckpoint, job: NewJob
    ) -> SubtaskSnapshot:
        """Return what a subtask gets; ``found`` is what the product gives everybody, ``before`` the checkpoint."""
        raise NotImplementedError


def _with(part: SubtaskSnapshot, rerouted: list[ReroutedChannel]) -> SubtaskSnapshot:
    return replace(part, rerouted=tuple(rerouted) or msgspec.UNSET)


class GivesStateToHeadsOnly(Redistribution):
    """RS-01: of the operators of a chain, only the first one that keeps state gets its keyed state back."""

    def changed(
        self, part: SubtaskSnapshot, found: CompletedCheckpoint, before: CompletedCheckpoint, job: NewJob
    ) -> SubtaskSnapshot:
        """Leave out the files of the others."""
        stateful = {vertex.name: vertex.stateful for vertex in job.shape.vertices}[part.subtask.vertex]
        operators = tuple(
            replace(one, handles=()) if one.operator in stateful[1:] else one for one in part.operators
        )
        return replace(part, operators=operators)


class ForgetsChannelsOfStateless(Redistribution):
    """UC-07: records in flight are redistributed for vertices that keep state, and for no others."""

    def changed(
        self, part: SubtaskSnapshot, found: CompletedCheckpoint, before: CompletedCheckpoint, job: NewJob
    ) -> SubtaskSnapshot:
        """Skip a vertex without state."""
        stateful = [vertex.name for vertex in job.shape.vertices if vertex.stateful]
        return part if part.subtask.vertex in stateful else _with(part, [])


class DealsWithoutGaps(Redistribution):
    """RS-02: lists are dealt out at any parallelism, one for each subtask, and those without an entry are left out."""

    def changed(
        self, part: SubtaskSnapshot, found: CompletedCheckpoint, before: CompletedCheckpoint, job: NewJob
    ) -> SubtaskSnapshot:
        """Take the list of the subtask that stands at the own index among those that have entries."""
        peers = [other for other in found.snapshots if other.subtask.vertex == part.subtask.vertex]

        def dealt(one: OperatorSnapshot) -> OperatorSnapshot:
            held = [
                own.lists or () for peer in peers for own in peer.operators if own.operator == one.operator
            ]
            filled = [lists for lists in held if any(kept.entries for kept in lists)]
            if not one.lists or any(kept.to_all for kept in one.lists):
                return one
            index = part.subtask.index
            return replace(one, lists=filled[index] if index < len(filled) else ())

        return replace(part, operators=tuple(map(dealt, part.operators)))


class DealsOutListsForAll(Redistribution):
    """RS-13: a list that is for all subtasks is given back as any other, so each gets a part of it."""

    def changed(
        self, part: SubtaskSnapshot, found: CompletedCheckpoint, before: CompletedCheckpoint, job: NewJob
    ) -> SubtaskSnapshot:
        """Take every list as if its entries were dealt out."""
        width, index = widths_of(job.shape)[part.subtask.vertex], part.subtask.index

        def dealt(kept: StateList) -> StateList:
            return replace(kept, entries=kept.entries[index::width]) if kept.to_all else kept

        return _with_lists(part, dealt)


class GivesListsToAll(Redistribution):
    """RS-14: after a change of parallelism, each subtask gets the whole of every list."""

    def changed(
        self, part: SubtaskSnapshot, found: CompletedCheckpoint, before: CompletedCheckpoint, job: NewJob
    ) -> SubtaskSnapshot:
        """Take the entries of all."""
        if not part.redistributed:
            return part
        peers = [other for other in found.snapshots if other.subtask.vertex == part.subtask.vertex]

        def whole(kept: StateList) -> StateList:
            lists = [one for peer in peers for own in peer.operators for one in own.lists or ()]
            entries = [entry for one in lists if one.name == kept.name for entry in one.entries]
            return kept if kept.to_all else replace(kept, entries=tuple(entries))

        return _with_lists(part, whole)


def _with_lists(part: SubtaskSnapshot, changed: Callable[[StateList], StateList]) -> SubtaskSnapshot:
    operators = tuple(
        replace(one, lists=tuple(map(changed, one.lists))) if one.lists else one for one in part.operators
    )
    return replace(part, operators=operators)


class SendsToFormerOwners(Redistribution):
    """RS-04: records in flight go to the subtask with the index of their former receiver, whatever their keys."""

    def changed(
        self, part: SubtaskSnapshot, found: CompletedCheckpoint, before: CompletedCheckpoint, job: NewJob
    ) -> SubtaskSnapshot:
        """Take whole batches of that index, or of those above, if this is the last one."""
        last = widths_of(job.shape)[part.subtask.vertex] - 1
        own = [
            replace(one, by_key=False)
            for one in part.rerouted or ()
            if min(one.origin.receiver.index, last) == part.subtask.index
        ]
        return _with(part, own)


class ForgetsWhatSendersHold(Redistribution):
    """RS-05: of the records in flight, only those are redistributed that receivers hold."""

    def changed(
        self, part: SubtaskSnapshot, found: CompletedCheckpoint, before: CompletedCheckpoint, job: NewJob
    ) -> SubtaskSnapshot:
        """Name no file of a sender."""
        states = {one.subtask: one.channels for one in before.snapshots}

        def received(one: ReroutedChannel) -> ReroutedChannel:
            state = states[one.origin.receiver]
            return replace(one, files=tuple(f for f in one.files if state is not None and f == state.file))

        return _with(part, [received(one) for one in part.rerouted or ()])


class GivesEachFileOnce(Redistribution):
    """RS-07: a file of keyed state goes to the owner of its first key group only."""

    def changed(
        self, part: SubtaskSnapshot, found: CompletedCheckpoint, before: CompletedCheckpoint, job: NewJob
    ) -> SubtaskSnapshot:
        """Take the files that begin in the own key groups."""
        width, groups = widths_of(job.shape)[part.subtask.vertex], job.shape.max_parallelism
        own = key_group_range(part.subtask.index, width, groups)
        operators = tuple(
            replace(one, handles=tuple(file for file in one.handles if file.key_groups.start in own))
            for one in part.operators
        )
        return replace(part, operators=operators)


class DoublesWholeBatches(Redistribution):
    """RS-08: batches in flight on edges without a key go to every present receiver."""

    def changed(
        self, part: SubtaskSnapshot, found: CompletedCheckpoint, before: CompletedCheckpoint, job: NewJob
    ) -> SubtaskSnapshot:
        """Take what any subtask of the vertex takes."""
        keyed = [one for one in part.rerouted or () if one.by_key]
        whole = [
            replace(one, target=replace(one.target, receiver=part.subtask))
            for other in found.snapshots
            if other.subtask.vertex == part.subtask.vertex
            for one in other.rerouted or ()
            if not one.by_key
        ]
        return _with(part, keyed + whole)


class BeginsSplitsAgain(Redistribution):
    """RS-09: a source's subtask gets positions of the splits that the subtask of its name had, and of no others."""

    def changed(
        self, part: SubtaskSnapshot, found: CompletedCheckpoint, before: CompletedCheckpoint, job: NewJob
    ) -> SubtaskSnapshot:
        """Leave out the positions of other splits, which then begin at their start."""
        own = before.snapshot_of(part.subtask)
        known = [place.split for one in own.operators for place in one.positions] if own is not None else []
        operators = tuple(
            replace(one, positions=tuple(place for place in one.positions if place.split in known))
            for one in part.operators
        )
        return replace(part, operators=operators)


class ReplaysTheNewestFirst(Rerouting):
    """RS-10: the batches of a former channel are put back from a stack, the newest one first."""

    def batches(self, one: ReroutedChannel) -> Iterator[Payload]:
        """Turn them round."""
        yield from reversed(list(super().batches(one)))


class _WithoutPrecedence(Recovered):
    """Puts data of a checkpoint into its channel, and lets the other channels be read meanwhile."""

    def recover(self, channel: int, fragments: Sequence[Fragment], before_all: int = 0) -> None:
        """Let nothing come before the other channels."""
        super().recover(channel, fragments)


class LetsNewerRecordsPass(SubtaskDriver):
    """RS-11: what is redistributed is read in turn with what arrives on other channels."""

    def __init__(
        self,
        deployment: SubtaskDeployment,
        graph: JobGraph,
        plane: DataPlane,
        ports: SubtaskPorts,
        components: Components,
    ) -> None:
        """Change how restored data gets into the input buffers."""
        if ports.input_buffers is not None:
            ports = with_fields(ports, input_buffers=_WithoutPrecedence(ports.input_buffers))
        super().__init__(deployment, graph, plane, ports, components)


class ForgetsWhatCameFirst(SubtaskDriver):
    """RS-12: a checkpoint that was taken while redistributed records were replayed is restored, at the same
    parallelism, as if they had come like all others.
    """

    def __init__(
        self,
        deployment: SubtaskDeployment,
        graph: JobGraph,
        plane: DataPlane,
        ports: SubtaskPorts,
        components: Components,
    ) -> None:
        """Change how data gets into the input buffers, unless it is redistributed."""
        plain = deployment.restore is not None and not deployment.restore.rerouted
        if plain and ports.input_buffers is not None:
            ports = with_fields(ports, input_buffers=_WithoutPrecedence(ports.input_buffers))
        super().__init__(deployment, graph, plane, ports, components)
