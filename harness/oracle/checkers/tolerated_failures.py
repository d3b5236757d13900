"""An attempt ends as soon as more checkpoints have failed in a row than are tolerated, and not before (COO-2). A failed
savepoint does not count: it fails the request, not the job."""

from __future__ import annotations

from collections.abc import Iterator

from barrier_tck.faults.targets import COORDINATOR
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.checkpoint_lives import AttemptLife, lives_of
from barrier_tck.harness.oracle.evidence.failed_checkpoints import ended_checkpoints, rows_of_failures
from barrier_tck.harness.oracle.evidence.life_preconditions import FAILED
from barrier_tck.harness.oracle.evidence.moments import line_at
from barrier_tck.harness.oracle.sign import Breach, Directness, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

_TOO_EARLY = Sign(
    "an attempt gives up although no more checkpoints have failed in a row than tolerated", "COO-2"
)
_WENT_ON = Sign("an attempt goes on after more checkpoints have failed in a row than are tolerated", "COO-2")


class ToleratedFailures(StandardChecker):
    """No more checkpoints fail in a row than are tolerated."""

    name = "tolerated-failures"
    requires = (
        "An attempt ends as soon as more checkpoints have failed in a row than are tolerated, and not before."
    )
    judges = "systems with barriers"
    covers = {"COO-2": FAILED}
    needs = frozenset({Capability.CHECKPOINTS, Capability.BARRIERS})
    signs = (_TOO_EARLY, _WENT_ON)
    directness = Directness.OPERATIONS
    rank = 150

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.takes_checkpoints

    def check(self, context: TrialContext) -> Finding:
        """Count the failures of each attempt of one trial."""
        tolerated = context.plan.checkpoints.tolerated_failures
        lives = lives_of(context)
        rows = [row for attempt in lives for row in rows_of_failures(attempt)]
        gave_up = sum(attempt.reason is Reason.CHECKPOINTS_FAILED for attempt in lives)
        problems = [problem for attempt in lives for problem in _problems(attempt, tolerated, context)]
        counts = {"longest_row": max(rows, default=0), "gave_up": gave_up, "violations": len(problems)}
        if problems:
            summary = f"{tolerated} failures in a row are tolerated, but {problems[0].sentence}"
            return self.broken(context, summary, counts, problems)
        summary = f"at most {counts['longest_row']} checkpoints failed in a row; {gave_up} attempts ended because of it"
        covered = self.clauses if counts["longest_row"] else ()
        return Finding(self.name, covered, Verdict.VALID, summary, counts)


def _problems(attempt: AttemptLife, tolerated: int, context: TrialContext) -> Iterator[Breach]:
    rows = rows_of_failures(attempt)
    longest = max(rows, default=0)
    if attempt.reason is Reason.CHECKPOINTS_FAILED and longest <= tolerated:
        ended_at = line_at(context, attempt.ended_ms)
        early = f"attempt {attempt.number} gave up after {longest} (COO-2)"
        yield Breach(_TOO_EARLY, early, ended_at, COORDINATOR, attempt=attempt.number)
    if longest <= tolerated:
        return
    too_many = next(position for position, row in enumerate(rows) if row > tolerated)
    last = ended_checkpoints(attempt)[too_many]
    later = [checkpoint for checkpoint in attempt.checkpoints if last.ended_before(checkpoint)]
    if later:
        late = (
            f"attempt {attempt.number} went on to checkpoint {later[0].number} after {rows[too_many]} had failed, the "
            f"last of them checkpoint {last.number} (COO-2)"
        )
        yield Breach(_WENT_ON, late, later[0].triggered_at, COORDINATOR, later[0].number, attempt.number)
