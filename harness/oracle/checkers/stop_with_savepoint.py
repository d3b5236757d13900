"""A job that is stopped with a savepoint does nothing behind its barrier (COO-5).

The barrier of that savepoint is terminal. No source reads a record behind its position in the savepoint, and no subtask
takes one from a channel; nor does it send one that it took before the barrier came on its channel, as happens round a
loop and under Chandy-Lamport. All that is observed below the runtime, where mistakes of it cannot hide. When the job
has stopped, every sink has committed for the savepoint. An attempt that comes in between, because something failed
before the commits were done, only finishes them. A second job goes on exactly where the first one stopped.

If the savepoint fails, the job goes on, and nothing is required of it here; progress is judged elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.examples import chosen
from barrier_tck.harness.oracle.evidence.recoveries import fell_back
from barrier_tck.harness.oracle.evidence.rescales import NARROWER, RESCALED, WIDER, rescales_seen
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sometimes import Sightings, Sometimes
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.plan.notes import is_listed
from barrier_tck.harness.record.history import End
from barrier_tck.harness.record.operations import (
    AttemptStarted,
    CheckpointCompleted,
    CheckpointTriggered,
    Committed,
    Finished,
    InputLeft,
    InputRead,
    JobStopped,
    ReadBehindStop,
    SentBehindStop,
)
from barrier_tck.harness.record.records import TrialSummary
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.job_view import Role
from barrier_tck.harness.system.system_under_test import Capability

RESCALED_MIN = 20
"""Of so many drawn trials with rescaled jobs, some must have become narrower, and some wider."""


def _rescaled_by_a_draw(finding: Finding, trial: TrialSummary) -> Sightings | None:
    """Return how a drawn trial rescaled its jobs. For listed ones, the campaign file says how each is rescaled."""
    counts = finding.counts
    drawn = counts.get(RESCALED) and not is_listed(trial.note)
    return {NARROWER: counts[NARROWER], WIDER: counts[WIDER]} if drawn else None


class StopWithSavepoint(StandardChecker):
    """Nothing happens behind a terminal barrier, and everything before it is committed."""

    name = "stop-with-savepoint"
    requires = (
        "Behind the barrier of a savepoint with which the job stops nothing is read, everything before it "
        "is committed, and a second job goes on from there."
    )
    judges = "systems that take savepoints, if the plan asks for some"
    covers = {"COO-5": ALWAYS}
    needs = frozenset({Capability.SAVEPOINTS})
    sometimes = (
        Sometimes(
            name="sometimes-rescaled",
            clauses=("RSC-2",),
            seen=_rescaled_by_a_draw,
            things={NARROWER: NARROWER, WIDER: WIDER},
            shown=(
                "in {narrower} of {trials} drawn trials with jobs that were rescaled after a stop some vertex became "
                "narrower, and in {wider} some became wider"
            ),
            not_shown=(
                "of {trials} drawn trials with a job that was rescaled after a stop it became {missed} only; look at "
                "what is drawn, or give the first job another parallelism"
            ),
            trials_min=RESCALED_MIN,
            one_in=10,  # a width of before is drawn now and then, which makes some narrower by itself
        ),
    )
    rank = 310

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.takes_checkpoints and bool(trial.plan.savepoints)

    def check(self, context: TrialContext) -> Finding:
        """Judge every stop of one trial."""
        story = _story_of(context)
        problems = list(story.problems)
        for stop in story.stops.values():
            problems += [
                f"stop with checkpoint {stop.checkpoint}: {problem}"
                for problem in _problems(stop, story, context)
            ]
        stopped = sum(stop.stopped_at is not None for stop in story.stops.values())
        counts = {"stops": len(story.stops), "stopped": stopped, "violations": len(problems)}
        if context.plan.rescales:
            counts |= rescales_seen(context)
        if problems:
            summary = f"{len(problems)} things happened that a stop forbids; the first: {problems[0]}"
            return Finding(self.name, self.clauses, Verdict.INVALID, summary, counts, chosen(problems))
        summary = f"the job was stopped {stopped} times, and nothing happened behind a terminal barrier"
        return Finding(self.name, self.clauses if stopped else (), Verdict.VALID, summary, counts)


@dataclass(slots=True)
class _Stop:
    """One savepoint with which the job was to be stopped."""

    checkpoint: int
    attempt: int
    completed_at: int | None = None
    """Position in the history; the same for the other fields of this form."""
    stopped_at: int | None = None
    committed: dict[str, None] = field(default_factory=dict)
    """The sinks that had committed for it when the job stopped."""
    began_later: dict[int, int | None] = field(default_factory=dict)
    """Attempt -> restored checkpoint, of those that began after it completed and before the job stopped."""
    finished: dict[str, None] = field(default_factory=dict)
    """The subtasks of its attempt that had finished before, with everything committed (BAR-6)."""
    next_restored: int | None = None
    goes_on: bool = False
    """Whether another attempt began after the stop."""


@dataclass(slots=True)
class _Story:
    """What the history shows of all stops."""

    stops: dict[int, _Stop] = field(default_factory=dict)
    latest: _Stop | None = None
    finished: dict[int, dict[str, None]] = field(default_factory=dict)
    """Attempt -> the subtasks that have finished, with everything committed."""
    behind: list[ReadBehindStop | SentBehindStop] = field(default_factory=list)
    left: list[InputLeft] = field(default_factory=list)
    read: list[InputRead] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def stopped(self, checkpoint: int | None, index: int) -> None:
        """Take that the job stopped, with a checkpoint if that is known."""
        stop = self.stops.get(checkpoint) if checkpoint is not None else None
        if stop is None or stop.completed_at is None:
            self.problems.append("the job stopped, and the savepoint for it had not completed")
        else:
            stop.stopped_at = index
            stop.finished = dict(self.finished.get(stop.attempt, {}))

    def started(self, attempt: int, restored: int | None, index: int, undone: bool) -> None:
        """Take that an attempt started; ``undone`` if savepoints of the trial could not be read afterwards."""
        latest = self.latest
        if latest is None:
            return
        if restored == latest.checkpoint and latest.completed_at is None:
            latest.completed_at = index  # its coordinator died before it could report that
        if latest.stopped_at is not None and not latest.goes_on:
            latest.goes_on, latest.next_restored = True, restored
        elif _is_final(latest):
            if restored != latest.checkpoint and undone:
                latest.completed_at = None  # it could not be read, so the stop is undone
            latest.began_later[attempt] = restored


def _story_of(context: TrialContext) -> _Story:
    story = _Story()
    undone = fell_back(context) is not None
    for line in context.history.operations:
        match line.operation:
            case CheckpointTriggered(checkpoint=number, attempt=attempt, stops=True):
                story.latest = story.stops[number] = _Stop(number, attempt)
            case CheckpointTriggered(checkpoint=number) if story.latest is not None and _is_final(
                story.latest
            ):
                story.problems.append(
                    f"checkpoint {number} was triggered although the job was stopped with {story.latest.checkpoint}"
                )
            case CheckpointCompleted(checkpoint=number) if number in story.stops:
                story.stops[number].completed_at = line.index
            case Committed(checkpoint=number, subtask=subtask) if number in story.stops:
                if story.stops[number].stopped_at is None:
                    story.stops[number].committed[subtask] = None
            case Finished(attempt=attempt, subtask=subtask):
                story.finished.setdefault(attempt, {})[subtask] = None
            case JobStopped(checkpoint=number):
                story.stopped(number, line.index)
            case AttemptStarted(attempt=attempt, restored_checkpoint=restored):
                story.started(attempt, restored, line.index, undone)
            case ReadBehindStop() | SentBehindStop():
                story.behind.append(line.operation)
            case InputLeft():
                story.left.append(line.operation)
            case InputRead():
                story.read.append(line.operation)
    return story


def _is_final(stop: _Stop) -> bool:
    """Return whether the savepoint is complete and the job has not stopped yet."""
    return stop.completed_at is not None and stop.stopped_at is None


def _problems(stop: _Stop, story: _Story, context: TrialContext) -> Iterator[str]:
    if stop.completed_at is None:
        return
    ended = context.history.end
    if stop.stopped_at is None and ended is End.FINISHED and fell_back(context) is None:
        yield "its savepoint completed, and the job finished instead of stopping"
    view = next((v for v in context.history.checkpoints if v.checkpoint == stop.checkpoint), None)
    positions = view.positions if view is not None and view.problem is None else {}
    ends_with = [
        stop.attempt,
        *(n for n, restored in stop.began_later.items() if restored == stop.checkpoint),
    ]
    for left in story.left:
        due = positions.get(left.split)
        if left.attempt in ends_with and due is not None and left.offset > due:
            yield (
                f"{left.subtask} read {left.split} up to record {left.offset}, and the barrier lies before record {due}"
            )
    for read in story.read:
        if read.attempt in stop.began_later and stop.began_later[read.attempt] == stop.checkpoint:
            yield f"attempt {read.attempt} read {read.split}, and had only commits to finish"
    for behind in story.behind:
        if behind.checkpoint == stop.checkpoint:
            did = "took records from a channel" if isinstance(behind, ReadBehindStop) else "sent records"
            yield f"{behind.subtask} {did} behind the terminal barrier"
    job = context.job_of(stop.attempt)
    if stop.stopped_at is not None and not stop.began_later and job is not None:
        for sink in job.in_role(Role.SINK):
            if sink not in stop.committed and sink not in stop.finished:
                yield f"the job stopped before {sink} had committed"
    if stop.goes_on and stop.next_restored != stop.checkpoint:
        yield f"the second job began with checkpoint {stop.next_restored}"
