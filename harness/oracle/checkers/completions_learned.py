"""Every subtask learns that a checkpoint is complete (COO-1).

Once it is durable, all subtasks of the attempt are told, and not only the sinks that commit then. Others build on it:
what they share with later checkpoints, which local copies they keep, and whether they may finish. A subtask that is
never told goes on with full snapshots, and keeps what nobody needs; no output shows this. It says with each
acknowledgement of which completion it knows. Only where time is virtual is it known how long the notice may take.
"""

from __future__ import annotations

from collections import defaultdict

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
        due: dict[int, list[tuple[float, int]]] = defaultdict(list)
        """Attempt -> from when on a completion must be known, and the checkpoint."""
        for life, number, due_ms in notices_due(context):
            if life.completed:
                due[number].append((due_ms, life.number))
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
            known = [
                checkpoint
                for due_ms, checkpoint in due[asked.attempt]
                if since_ms is not None and due_ms < since_ms
            ]
            if not known:
                continue
            judged += 1
            newest = max(known)
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
