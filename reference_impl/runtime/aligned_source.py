"""What a subtask of an aligned source does: it reports how far it has come, and pauses what is ahead (EVT-6)."""

from __future__ import annotations

from barrier_tck.reference_impl.operators.api import SourceReader
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.protocol.messages import AllowWatermark, SourceWatermark
from barrier_tck.reference_impl.protocol.watermarks import BEGINNING_OF_TIME
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment, SubtaskPorts
from barrier_tck.reference_impl.runtime.subtask_event_time import SourceEventTime

REPORTS = "reports of an aligned source"
"""The name of the world's timer for the next report."""


class AlignedSource:
    """Keeps one subtask of one attempt within what its group allows. A snapshot holds nothing of it."""

    def __init__(
        self,
        deployment: SubtaskDeployment,
        ports: SubtaskPorts,
        update_interval_ms: float,
        event_time: SourceEventTime,
        reader: SourceReader,
    ) -> None:
        self._deployment = deployment
        self._ports = ports
        self._update_interval_ms = update_interval_ms
        self._event_time = event_time
        self._reader = reader
        self._largest_ms = BEGINNING_OF_TIME  # until it is told more: no split that has a watermark is read

    @classmethod
    def of(
        cls,
        graph: JobGraph,
        deployment: SubtaskDeployment,
        ports: SubtaskPorts,
        event_time: SourceEventTime | None,
        reader: SourceReader | None,
    ) -> AlignedSource | None:
        """Return a subtask as a member of its group; None if it is in none."""
        alignment = graph.vertex(deployment.subtask.vertex).alignment
        if alignment is None or event_time is None or reader is None:
            return None
        return cls(deployment, ports, alignment.update_interval_ms, event_time, reader)

    def report(self) -> None:
        """Report how far event time has come, and have the next report made in time."""
        deployment, ports = self._deployment, self._ports
        at_ms, idle, ended = self._event_time.slowest_split()
        ports.coordinator.send(SourceWatermark(deployment.attempt, deployment.subtask, at_ms, idle, ended))
        assert ports.timers is not None, "this job needs timers"
        ports.timers.set(REPORTS, ports.clock.now_ms() + self._update_interval_ms)

    def allow(self, message: AllowWatermark) -> None:
        """Take what the coordinator has announced."""
        self._largest_ms = message.largest_ms

    def pause_ahead(self) -> None:
        """Let the reader, which is about to be asked, pass over the splits that are ahead of what is allowed."""
        self._reader.pause(self._event_time.splits_beyond(self._largest_ms))
