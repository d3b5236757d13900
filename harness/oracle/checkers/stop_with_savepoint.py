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
from barrier_tck.harness.oracle.evidence.moments import started_at
from barrier_tck.harness.oracle.evidence.recoveries import fell_back
from barrier_tck.harness.oracle.evidence.rescales import NARROWER, RESCALED, WIDER, rescales_seen
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sign import Breach, Directness, Sign
from barrier_tck.harness.oracle.sometimes import Sightings, Sometimes
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.plan.notes import is_listed
from barrier_tck.harness.record.history import End, History, Recorded
from barrier_tck.harness.record.operations import (
    AttemptStarted,
    CheckpointCompleted,
    CheckpointTriggered,
    Committed,
    Finished,
    InputLeft,
    InputRead,
    JobFinished,
    JobStopped,
    Operation,
    ReadBehindStop,
    SentBehindStop,
)
from barrier_tck.harness.record.records import TrialSummary
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.job_view import Role
from barrier_tck.harness.system.system_under_test import Capability

_STOPPED_EARLY = Sign("the job stops before the savepoint for it is complete", "COO-5")
_TRIGGERED = Sign("a checkpoint is triggered behind a terminal barrier", "COO-5")
_FINISHED = Sign("the savepoint for a stop completes, and the job finishes instead of stopping", "COO-5")
_READ = Sign("a source reads behind a terminal barrier", "COO-5")
_READ_AGAIN = Sign("an attempt that has only commits of a stop to finish reads input", "COO-5")
_WENT_ON = Sign("a subtask takes or sends records behind a terminal barrier", "COO-5")
_UNCOMMITTED = Sign("the job stops before a sink has committed for the savepoint", "COO-5")
_ELSEWHERE = Sign("the job that follows a stop does not start from its savepoint", "COO-5")


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
            # Campaigns with loops draw the fewest, one in seven.
            usual=0.12,
        ),
    )
    signs = (
        _STOPPED_EARLY,
        _TRIGGERED,
        _FINISHED,
        _READ,
        _READ_AGAIN,
        _WENT_ON,
        _UNCOMMITTED,
        _ELSEWHERE,
    )
    directness = Directness.OPERATIONS
    rank = 310

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.takes_checkpoints and bool(trial.plan.savepoints)

    def check(self, context: TrialContext) -> Finding:
        """Judge every stop of one trial."""
        story = _story_of(context)
        problems = list(story.problems)
        for stop in story.stops.values():
            problems += _problems(stop, context)
        stopped = sum(stop.stopped_at is not None for stop in story.stops.values())
        counts = {"stops": len(story.stops), "stopped": stopped, "violations": len(problems)}
        if context.plan.rescales:
            counts |= rescales_seen(context)
        if problems:
            summary = (
                f"{len(problems)} things happened that a stop forbids; the first: {problems[0].sentence}"
            )
            return self.broken(context, summary, counts, problems)
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
    next_attempt: int | None = None
    """The attempt that began after the stop, if one did."""
    next_restored: int | None = None


@dataclass(slots=True)
class _Story:
    """What the history shows of all stops."""

    stops: dict[int, _Stop] = field(default_factory=dict)
    latest: _Stop | None = None
    finished: dict[int, dict[str, None]] = field(default_factory=dict)
    """Attempt -> the subtasks that have finished, with everything committed."""
    problems: list[Breach] = field(default_factory=list)

    def stopped(self, checkpoint: int | None, line: Recorded[Operation]) -> None:
        """Take that the job stopped, with a checkpoint if that is known."""
        stop = self.stops.get(checkpoint) if checkpoint is not None else None
        if stop is None or stop.completed_at is None:
            early = "the job stopped, and the savepoint for it had not completed"
            attempt = stop.attempt if stop is not None else None
            self.problems.append(Breach(_STOPPED_EARLY, early, line.index, line.process, checkpoint, attempt))
        else:
            stop.stopped_at = line.index
            stop.finished = dict(self.finished.get(stop.attempt, {}))

    def started(self, attempt: int, restored: int | None, index: int, undone: bool) -> None:
        """Take that an attempt started; ``undone`` if savepoints of the trial could not be read afterwards."""
        latest = self.latest
        if latest is None:
            return
        if restored == latest.checkpoint and latest.completed_at is None:
            latest.completed_at = index  # its coordinator died before it could report that
        if latest.stopped_at is not None and latest.next_attempt is None:
            latest.next_attempt, latest.next_restored = attempt, restored
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
            case CheckpointTriggered(checkpoint=number, attempt=attempt) if (
                story.latest is not None and _is_final(story.latest)
            ):
                sentence = (
                    f"checkpoint {number} was triggered although the job was stopped with "
                    f"{story.latest.checkpoint}"
                )
                story.problems.append(Breach(_TRIGGERED, sentence, line.index, line.process, number, attempt))
            case CheckpointCompleted(checkpoint=number) if number in story.stops:
                story.stops[number].completed_at = line.index
            case Committed(checkpoint=number, subtask=subtask) if number in story.stops:
                if story.stops[number].stopped_at is None:
                    story.stops[number].committed[subtask] = None
            case Finished(attempt=attempt, subtask=subtask):
                story.finished.setdefault(attempt, {})[subtask] = None
            case JobStopped(checkpoint=number):
                story.stopped(number, line)
            case AttemptStarted(attempt=attempt, restored_checkpoint=restored):
                story.started(attempt, restored, line.index, undone)
    return story


def _is_final(stop: _Stop) -> bool:
    """Return whether the savepoint is complete and the job has not stopped yet."""
    return stop.completed_at is not None and stop.stopped_at is None


def _problems(stop: _Stop, context: TrialContext) -> Iterator[Breach]:
    if stop.completed_at is None:
        return
    history = context.history
    if stop.stopped_at is None and history.end is End.FINISHED and fell_back(context) is None:
        finished_at = next((line.index for line in history.of(JobFinished)), None)
        instead = "its savepoint completed, and the job finished instead of stopping"
        yield _breach(_FINISHED, instead, stop, finished_at)
    yield from _done_behind(stop, stop.completed_at, history)
    job = context.job_of(stop.attempt)
    if stop.stopped_at is not None and not stop.began_later and job is not None:
        for sink in job.in_role(Role.SINK):
            if sink not in stop.committed and sink not in stop.finished:
                lacks = f"the job stopped before {sink} had committed"
                yield _breach(_UNCOMMITTED, lacks, stop, stop.stopped_at, sink)
    if stop.next_attempt is not None and stop.next_restored != stop.checkpoint:
        other = f"the second job began with checkpoint {stop.next_restored}"
        started = started_at(context, stop.next_attempt)
        yield _breach(_ELSEWHERE, other, stop, started, attempt=stop.next_attempt)


def _done_behind(stop: _Stop, completed_at: int, history: History) -> Iterator[Breach]:
    """Yield what was read, taken and sent behind a terminal barrier.

    What came before its savepoint was complete counts from then on: until then it might have failed.
    """
    view = next((v for v in history.checkpoints if v.checkpoint == stop.checkpoint), None)
    positions = view.positions if view is not None and view.problem is None else {}
    only_commits = [n for n, restored in stop.began_later.items() if restored == stop.checkpoint]
    for line in history.operations:
        at = max(line.index, completed_at)
        match line.operation:
            case InputLeft(subtask=subtask, attempt=attempt, split=split, offset=offset):
                due = positions.get(split)
                if attempt in (stop.attempt, *only_commits) and due is not None and offset > due:
                    further = f"{subtask} read {split} up to record {offset}, and the barrier lies before record {due}"
                    yield _breach(_READ, further, stop, at, subtask, attempt)
            case InputRead(subtask=subtask, attempt=attempt, split=split) if attempt in only_commits:
                again = f"attempt {attempt} read {split}, and had only commits to finish"
                yield _breach(_READ_AGAIN, again, stop, at, subtask, attempt)
            case ReadBehindStop(subtask=subtask, attempt=attempt, checkpoint=stop.checkpoint):
                took = f"{subtask} took records from a channel behind the terminal barrier"
                yield _breach(_WENT_ON, took, stop, at, subtask, attempt)
            case SentBehindStop(subtask=subtask, attempt=attempt, checkpoint=stop.checkpoint):
                sent = f"{subtask} sent records behind the terminal barrier"
                yield _breach(_WENT_ON, sent, stop, at, subtask, attempt)
            case _:
                continue


def _breach(
    sign: Sign,
    problem: str,
    stop: _Stop,
    operation: int | None,
    place: str = "",
    attempt: int | None = None,
) -> Breach:
    """Return what is wrong with a stop; the attempt is that of its savepoint, unless it was another one."""
    sentence = f"stop with checkpoint {stop.checkpoint}: {problem}"
    of = stop.attempt if attempt is None else attempt
    return Breach(sign, sentence, operation, place, stop.checkpoint, of)
