"""The coordinator's part in the alignment of sources: which machine a report is for, in the present attempt (EVT-6)."""

from __future__ import annotations

from barrier_tck.reference_impl.ids import AttemptNumber, SubtaskId
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.protocol.messages import SourceWatermark
from barrier_tck.reference_impl.protocol.source_alignment import SourceAlignment
from barrier_tck.reference_impl.protocol.source_alignment_commands import AnnounceBound


class SourceCoordination:
    """The machines of all groups of aligned sources, anew for each attempt: reports of another one mean nothing."""

    def __init__(self) -> None:
        self._attempt = AttemptNumber(0)
        self._machines: tuple[SourceAlignment, ...] = ()

    def attempt_started(self, attempt: AttemptNumber, graph: JobGraph) -> None:
        self._attempt = attempt
        self._machines = tuple(
            SourceAlignment(
                one.group,
                one.max_drift_ms,
                [
                    SubtaskId(vertex.name, index)
                    for vertex in graph.aligned_sources(one.group)
                    for index in range(vertex.parallelism)
                ],
            )
            for one in graph.alignments
        )

    def attempt_ended(self) -> None:
        """Forget the attempt: whatever its members still report does not matter."""
        self._machines = ()

    def on_report(self, report: SourceWatermark) -> tuple[tuple[str, AnnounceBound], ...]:
        """Take a report; return the group of its member, and what to announce to it."""
        if report.attempt != self._attempt:
            return ()
        return tuple(
            (machine.group, command)
            for machine in self._machines
            if report.subtask in machine.members
            for command in machine.handle(report)
        )

    def waiting_for(self) -> tuple[str, ...]:
        """Say what the groups wait for (REC-6)."""
        return tuple(filter(None, (machine.waiting_for() for machine in self._machines)))
