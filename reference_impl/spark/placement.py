"""Placement: from slots that offered themselves to the deployment of each subtask, and the addresses of its
channels."""

from __future__ import annotations

from collections.abc import Mapping

from barrier_tck.reference_impl.config import JobConfig
from barrier_tck.reference_impl.ids import AttemptNumber, SubtaskId
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint
from barrier_tck.reference_impl.protocol.slots import Placement, Slot, assign, homes_of, placement_of
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment
from barrier_tck.reference_impl.spark.link_messages import ChannelAddress, SlotOffer
from barrier_tck.reference_impl.spark.routes import ChannelEnds, Routes
from barrier_tck.reference_impl.spark.running_attempt import RunningAttempt
from barrier_tck.reference_impl.spark.spark_observer import SubtaskProcess


def assign_slots(attempt: RunningAttempt) -> tuple[dict[SubtaskId, SlotOffer], Placement]:
    """Give each subtask of an attempt one of the slots that were offered; return which, and the placement for
    observers."""
    offers: dict[int, SlotOffer] = {
        number: connection.offer
        for number, connection in sorted(attempt.offered.items())
        if connection.offer is not None
    }
    slots = [Slot(offer.place, offer.executor_id, number) for number, offer in offers.items()]
    homes = homes_of(attempt.restore, {offer.place: offer.copies for offer in offers.values()})
    chosen = assign(slots, attempt.graph.subtasks, homes)
    for subtask, slot in chosen.items():
        attempt.placed[subtask] = attempt.offered[slot.number]
        attempt.placed[subtask].subtask = subtask
    offer_of = {subtask: offers[slot.number] for subtask, slot in chosen.items()}
    return offer_of, placement_of(slots, chosen, homes)


def addresses(
    attempt: AttemptNumber, graph: JobGraph, offers: Mapping[SubtaskId, SlotOffer], routes: Routes
) -> dict[SubtaskId, tuple[ChannelAddress, ...]]:
    """Return where each subtask connects to, in the order of its output channels.

    ``offers`` is the slot of every subtask; ``routes`` may put a proxy before a receiver.
    """
    channels = {subtask: graph.outputs_of(subtask) for subtask in offers}
    listed = [channel for outputs in channels.values() for channel in outputs]
    asked = [
        (
            ChannelEnds(attempt, channel, offers[channel.sender].host, offers[channel.receiver].host),
            (offers[channel.receiver].host, offers[channel.receiver].data_port),
        )
        for channel in listed
    ]
    found = {
        channel: ChannelAddress(channel, host, port)
        for channel, (host, port) in zip(listed, routes.to_channels(asked), strict=True)
    }
    return {subtask: tuple(found[channel] for channel in outputs) for subtask, outputs in channels.items()}


def deployment_of(
    subtask: SubtaskId,
    job: str,
    attempt: AttemptNumber,
    config: JobConfig,
    restore: CompletedCheckpoint | None,
) -> SubtaskDeployment:
    """Return what a subtask begins with; ``restore`` None: from the beginning of its input."""
    return SubtaskDeployment(
        job=job,
        subtask=subtask,
        attempt=attempt,
        config=config,
        restore=restore.snapshot_of(subtask) if restore is not None else None,
        restored_checkpoint=restore.checkpoint if restore is not None else None,
        stopped=restore is not None and restore.stops_the_job,
    )


def process_of(subtask: SubtaskId, attempt: int, offer: SlotOffer) -> SubtaskProcess:
    """Return where a subtask runs."""
    return SubtaskProcess(
        subtask, attempt, offer.host, offer.worker_pid, offer.executor_pid, offer.executor_id, offer.slot
    )
