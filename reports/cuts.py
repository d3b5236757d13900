"""Cut diagrams: which checkpoints a report shows, and where the page of each one is.

A page (``cut_page``) is a file of its own in the directory ``cuts`` of the run directory. ``report.html`` shows the
diagrams too, as long as there is room.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from barrier_tck.harness.record.message_trace import TraceEvent
from barrier_tck.harness.record.records import TrialRecord
from barrier_tck.harness.record.run_directory import trial_directory
from barrier_tck.harness.record.run_reader import read_message_trace
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.reports.cut import CheckpointCut, NoCut, checkpoints_traced, cut_of
from barrier_tck.reports.drawn_watermarks import Mark
from barrier_tck.reports.loading import ReportedRun
from barrier_tck.reports.ranking import timeline_trials
from barrier_tck.reports.run_totals import verdict_of
from barrier_tck.reports.space_time import CutDiagram, diagram_of, legend, legend_of_marks

DIRECTORY = "cuts"
"""The pages, relative to the run directory."""

_PAGE = re.compile(r"trial-(\d+)-checkpoint-(\d+)\.html")
_NAMED = re.compile(r"\bcheckpoint (\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, order=True)
class Wanted:
    """A checkpoint of a trial of which a cut is requested."""

    trial: int
    checkpoint: int

    @classmethod
    def parse(cls, text: str) -> Wanted:
        """Read ``TRIAL:CHECKPOINT``; raises UsageProblem."""
        trial, _, checkpoint = text.partition(":")
        if not (trial.isdecimal() and checkpoint.isdecimal()):
            raise UsageProblem(
                f"--cut {text!r} is not TRIAL:CHECKPOINT; name two numbers, for instance --cut 12:3"
            )
        return cls(int(trial), int(checkpoint))

    @property
    def page(self) -> str:
        """Return the page, relative to the run directory."""
        return f"{DIRECTORY}/trial-{self.trial:05d}-checkpoint-{self.checkpoint}.html"


@dataclass(frozen=True, slots=True)
class CutView:
    """A cut with its diagram."""

    wanted: Wanted
    cut: CheckpointCut
    diagram: CutDiagram

    @property
    def anchor(self) -> str:
        """Return the id of its place in the report."""
        return f"cut-{self.wanted.trial}-{self.wanted.checkpoint}"

    @property
    def legend(self) -> tuple[tuple[str, str], ...]:
        """Return style and meaning of the lines in it."""
        return legend(self.diagram, self.cut.control)

    @property
    def legend_of_marks(self) -> tuple[tuple[Mark, str], ...]:
        """Return the marks in it, and what they mean."""
        return legend_of_marks(self.diagram, self.cut.control)


def shown_by_default(run: ReportedRun) -> tuple[Wanted, ...]:
    """Return what a report shows by default: of each invalid trial with a timeline the checkpoint that a finding
    names, and of the trials with a verdict that were kept that completed checkpoint which shows the most.
    """
    wanted = []
    for record in timeline_trials(run):
        if record.verdict is Verdict.INVALID:
            wanted += _failing(record)
    # A trial without a verdict may have been given up after a long time; that is not repeated here.
    wanted += _telling(
        run.details[trial]
        for trial in sorted(run.details)
        if run.details[trial].verdict is not Verdict.UNKNOWN
    )
    return tuple(dict.fromkeys(wanted))


def requested_before(run_directory: Path) -> tuple[Wanted, ...]:
    """Return the cuts of which the run directory already has a page."""
    names = (_PAGE.fullmatch(path.name) for path in sorted((run_directory / DIRECTORY).glob("*.html")))
    return tuple(Wanted(int(name[1]), int(name[2])) for name in names if name is not None)


def require_kept(run: ReportedRun, wanted: Iterable[Wanted]) -> None:
    """Raise UsageProblem, with the trials that there are, for a trial that was not kept in full."""
    for request in wanted:
        if request.trial not in run.details:
            kept = ", ".join(map(str, sorted(run.details)[:10])) or "none"
            raise UsageProblem(
                f"--cut {request.trial}:{request.checkpoint}: trial {request.trial} was not kept in full; kept: {kept}"
                + (", ..." if len(run.details) > 10 else "")
            )


def require_cuts(run: ReportedRun, wanted: Sequence[Wanted]) -> None:
    """Raise UsageProblem, with what there is instead, for a trial that was not kept or a checkpoint without a cut."""
    require_kept(run, wanted)
    for request in wanted:
        trace_events = _trace_events(run, request.trial)
        logged = checkpoints_traced(trace_events)
        if request.checkpoint not in logged:
            have = ", ".join(map(str, logged)) or "none"
            raise UsageProblem(
                f"--cut {request.trial}:{request.checkpoint}: no subtask took a snapshot for checkpoint "
                f"{request.checkpoint}; checkpoints of trial {request.trial} with a cut: {have}"
            )


def cut_views(run: ReportedRun, wanted: Iterable[Wanted]) -> tuple[CutView, ...]:
    """Return the diagrams, invalid trials first; what was not logged is left out."""
    notes: dict[int, tuple[TraceEvent, ...]] = {}
    views = []
    for request in dict.fromkeys(wanted):
        if request.trial in run.details:
            if request.trial not in notes:
                notes[request.trial] = _trace_events(run, request.trial)
            view = _view(run.details[request.trial], notes[request.trial], request)
            views += [view] if view is not None else []
    worst = {trial.trial: verdict_of(trial).severity for trial in run.listed}
    return tuple(
        sorted(
            views,
            key=lambda view: (-worst.get(view.wanted.trial, 0), view.wanted.trial, view.wanted.checkpoint),
        )
    )


def by_trial(views: Sequence[CutView]) -> Mapping[int, tuple[CutView, ...]]:
    """Return the diagrams of each trial."""
    found: dict[int, tuple[CutView, ...]] = {}
    for view in views:
        found[view.wanted.trial] = (*found.get(view.wanted.trial, ()), view)
    return found


def _trace_events(run: ReportedRun, trial: int) -> tuple[TraceEvent, ...]:
    return read_message_trace(trial_directory(run.directory, trial))


def _view(record: TrialRecord, trace_events: Sequence[TraceEvent], wanted: Wanted) -> CutView | None:
    try:
        cut = cut_of(record, trace_events, wanted.checkpoint)
    except NoCut:
        return None
    return CutView(wanted, cut, diagram_of(cut))


def _failing(record: TrialRecord) -> list[Wanted]:
    """Return the checkpoint that the first finding names; if none does, that from which the trial first recovered, or
    the first one."""
    known = [checkpoint.checkpoint for checkpoint in record.checkpoints]
    named = [
        int(number)
        for finding in record.findings
        if finding.verdict is Verdict.INVALID
        for text in (*finding.examples, finding.summary)
        for number in _NAMED.findall(text)
    ]
    restored = [
        attempt.restored_checkpoint for attempt in record.attempts if attempt.restored_checkpoint is not None
    ]
    chosen = next((number for number in (*named, *restored) if number in known), None)
    return _first(record) if chosen is None else [Wanted(record.trial, chosen)]


def _telling(records: Iterable[TrialRecord]) -> list[Wanted]:
    """Return a completed checkpoint with records in flight in its snapshots, or else one that was aligned, if any.

    Of equals, that one is taken which lies deepest in its attempt: around the first and the last one little may happen.
    """
    scores: dict[Wanted, tuple[int, ...]] = {}
    for record in records:
        numbers = [wanted.checkpoint for wanted in _completed(record)]
        attempts = {one.checkpoint: one.attempt for one in record.checkpoints}
        for wanted in _completed(record):
            own = sorted(one for one in numbers if attempts[one] == attempts[wanted.checkpoint])
            before = own.index(wanted.checkpoint)
            parts = [part for part in record.snapshots if part.checkpoint == wanted.checkpoint]
            scores[wanted] = (
                record.verdict is Verdict.VALID,
                any(part.channel_bytes for part in parts),
                any(part.alignment_buffered_bytes for part in parts),
                any(part.alignment_ms for part in parts),
                min(before, len(own) - 1 - before),
            )
    return [max(scores, key=lambda wanted: scores[wanted])] if scores else []


def _first(record: TrialRecord) -> list[Wanted]:
    return sorted(_completed(record))[:1]


def _completed(record: TrialRecord) -> list[Wanted]:
    return [
        Wanted(record.trial, checkpoint.checkpoint)
        for checkpoint in record.checkpoints
        if checkpoint.status == "completed"
    ]
