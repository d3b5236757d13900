"""How far aligned sources may read: the smallest watermark of those that are active, and a bound (EVT-6).

Theory of operation. Each subtask of a source of the group reports again and again how far event time has come in it:
the smallest watermark of its active splits. Once every member has reported in an attempt, each report is answered with
the largest watermark that is allowed. If a report changes that, all members are told at once. A member reads no split
whose watermark is beyond what it was told last, and before it was told anything, no split that has a watermark at all.

A member that is idle or has ended does not count. A split that is paused counts with its watermark; since it is ahead,
it is never the smallest one. So a member with the smallest watermark is never held back by it, and whoever waits, waits
for a split that is being read, or that may still get a record. A split that was idle and comes back may have a smaller
watermark than all others; then less is allowed than before, until it has come closer.

Nothing of it is part of a snapshot: all of it follows from the watermarks of the splits, which are. Reports and answers
are repeated, so one that is late delays the others and does not stop them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.protocol.messages import SourceWatermark
from barrier_tck.reference_impl.protocol.source_alignment_commands import AnnounceBound
from barrier_tck.reference_impl.protocol.source_alignment_states import SourceAlignmentState
from barrier_tck.reference_impl.protocol.table import TableMachine, leads
from barrier_tck.reference_impl.protocol.watermarks import BEGINNING_OF_TIME, END_OF_TIME

Announcements = tuple[AnnounceBound, ...]


class SourceAlignment(TableMachine[SourceAlignmentState, AnnounceBound]):
    """Finds the largest watermark that is allowed in one group in one attempt. ``handle`` is the only entry point."""

    def __init__(self, group: str, max_drift_ms: int, members: Sequence[SubtaskId]) -> None:
        super().__init__(f"the group {group} of aligned sources", SourceAlignmentState.GATHERING)
        self.group = group
        self.members = tuple(members)
        self._max_drift_ms = max_drift_ms
        self._reports: dict[SubtaskId, SourceWatermark] = {}
        self._largest_ms = BEGINNING_OF_TIME

    def handle(self, event: SourceWatermark) -> Announcements:
        """Handle one report and return what to announce; raises ProtocolError if it is not of a member."""
        return self._take(event)

    def waiting_for(self) -> str:
        """Say what the members wait for, for liveness findings (REC-6); empty if they wait for nothing."""
        match self.state:
            case SourceAlignmentState.GATHERING:
                unknown = ", ".join(str(one) for one in self.members if one not in self._reports)
                return f"{self.name} waits for the first report of {unknown}"
            case SourceAlignmentState.ALIGNED:
                slowest = min(self._active(), key=lambda report: report.at_ms)
                return f"{self.name} may read up to {self._largest_ms} ms, and waits for {slowest.subtask}"
        return ""

    def _on_report(self, event: SourceWatermark) -> Announcements:
        self._check_member(event)
        self._reports[event.subtask] = event
        if len(self._reports) < len(self.members):
            return ()
        before = self.state, self._largest_ms
        self.state = SourceAlignmentState.ALIGNED if self._active() else SourceAlignmentState.FREE
        self._largest_ms = self._allowed()
        if (self.state, self._largest_ms) == before:
            return (AnnounceBound((event.subtask,), self._largest_ms),)
        reports = tuple(self._reports[one] for one in self.members)
        return (AnnounceBound(self.members, self._largest_ms, reports),)

    def _check_member(self, event: SourceWatermark) -> None:
        """Only the subtasks of the group's sources report."""
        if event.subtask not in self.members:
            raise self.illegal(event, f"the members are {list(map(str, self.members))}")

    def _active(self) -> list[SourceWatermark]:
        """Members that are idle or have ended hold back none."""
        return [report for report in self._reports.values() if report.active]

    def _allowed(self) -> int:
        """The smallest watermark of the active members and the bound are allowed; without one, every watermark is."""
        smallest_ms = min((report.at_ms for report in self._active()), default=END_OF_TIME)
        return min(smallest_ms + self._max_drift_ms, END_OF_TIME)

    RULES: ClassVar = (_check_member, _active, _allowed)

    TABLE: ClassVar = {
        SourceAlignmentState.GATHERING: {
            SourceWatermark: leads(_on_report, SourceAlignmentState.ALIGNED, SourceAlignmentState.FREE),
        },
        SourceAlignmentState.ALIGNED: {
            SourceWatermark: leads(_on_report, SourceAlignmentState.FREE),
        },
        SourceAlignmentState.FREE: {
            SourceWatermark: leads(_on_report, SourceAlignmentState.ALIGNED),
        },
    }
