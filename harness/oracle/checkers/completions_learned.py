"""Every subtask learns that a checkpoint is complete (COO-1).

Once it is durable, all subtasks of the attempt are told, and not only the sinks that commit then. Others build on it:
what they share with later checkpoints, which local copies they keep, and whether they may finish. A subtask that is
never told goes on with full snapshots, and keeps what nobody needs; no output shows this. It says with each
acknowledgement of which completion it knows. Only where time is virtual is it known how long the notice may take.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from operator import itemgetter

from barrier_tck.faults.targets import COORDINATOR
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.checkpoint_lives import lives_of
from barrier_tck.harness.oracle.evidence.notices import notices_due
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sign import Breach, Directness, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.operations import StorageAsked
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

_NOT_LEARNED = Sign("a subtask does not learn that a checkpoint is complete", "COO-1")


class _Due:
    """From when on it must be known in one attempt that checkpoints are complete."""

    def __init__(self) -> None:
        self._times_ms: list[float] = []
        self._newest: list[int] = []
        """Beside each time, the newest checkpoint that must be known by then."""

    def add(self, due_ms: float, checkpoint: int) -> None:
        """Add one, in the order of the times."""
        self._times_ms.append(due_ms)
        self._newest.append(max([checkpoint, *self._newest[-1:]]))

    def newest_before(self, time_ms: float) -> int | None:
        """Return the newest checkpoint that must have been known before a time; None if there is none."""
        known = bisect_left(self._times_ms, time_ms)
        return self._newest[known - 1] if known else None


class CompletionsLearned(StandardChecker):
    """A subtask that acknowledges a checkpoint knows of those that were complete long before it was triggered."""

    name = "completions-learned"
    requires = "Every subtask learns in time that a checkpoint is complete."
    judges = "systems with barriers in virtual time, if they report which completions their subtasks know of"
    covers = {"COO-1": ALWAYS}
    needs = frozenset(
        {
            Capability.CHECKPOINTS,
            Capability.BARRIERS,
            Capability.DETERMINISTIC_REPLAY,
            Capability.REQUEST_LOG,
        }
    )
    signs = (_NOT_LEARNED,)
    directness = Directness.OPERATIONS
    rank = 161

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.takes_checkpoints

    def check(self, context: TrialContext) -> Finding:
        """Compare what each subtask knew when it acknowledged a checkpoint with what it must have known."""
        due: dict[int, _Due] = defaultdict(_Due)
        completed = (
            (due_ms, number, life) for life, number, due_ms in notices_due(context) if life.completed
        )
        for due_ms, number, life in sorted(completed, key=itemgetter(0)):
            due[number].add(due_ms, life.number)
        triggered_ms = {
            (attempt.number, life.number): life.triggered_ms
            for attempt in lives_of(context)
            for life in attempt.checkpoints
        }
        problems: list[Breach] = []
        judged = 0
        for line in context.history.of(StorageAsked):
            asked = line.operation
            if asked.completed is None or asked.subtask == COORDINATOR:
                continue
            since_ms = triggered_ms.get((asked.attempt, asked.checkpoint))
            newest = due[asked.attempt].newest_before(since_ms) if since_ms is not None else None
            if newest is None:
                continue
            judged += 1
            if asked.completed < newest:
                sentence = (
                    f"when {asked.subtask} of attempt {asked.attempt} acknowledged checkpoint {asked.checkpoint}, it "
                    f"did not know that checkpoint {newest} was complete (COO-1)"
                )
                problems.append(
                    Breach(_NOT_LEARNED, sentence, line.index, asked.subtask, asked.checkpoint, asked.attempt)
                )
        counts = {"judged": judged, "violations": len(problems)}
        if problems:
            first = problems[0].sentence
            summary = f"{len(problems)} times a subtask had not learned of a completion; the first: {first}"
            return self.broken(context, summary, counts, problems)
        summary = f"{judged} acknowledgements came from subtasks that knew of the completions before"
        return Finding(self.name, self.clauses if judged else (), Verdict.VALID, summary, counts)
