"""A job has finished only when all of its sinks have committed for the last checkpoint (SNK-1).

Output shows a job that ended too early only if the process of a sink dies between the end and its commit: then what it
had prepared stays hidden, and nobody is left to finish it. So what the sinks report is looked at when the job ends. A
sink that had finished before had committed all that it ever would (BAR-6). Of jobs that are stopped with a savepoint
``stop-with-savepoint`` says the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sign import Breach, Directness, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.operations import (
    AttemptStarted,
    CheckpointCompleted,
    Committed,
    Finished,
    JobFinished,
)
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.job_view import Role
from barrier_tck.harness.system.system_under_test import Capability

_TOO_EARLY = Sign("the job finishes before a sink has committed for the last checkpoint", "SNK-1")


class CommitsBeforeEnd(StandardChecker):
    """When the job finishes, every sink has committed for the last checkpoint, or had finished before."""

    name = "commits-before-end"
    requires = "A job has finished only when every sink has committed for the last checkpoint."
    judges = "systems with barriers, if their sinks report commits and the job takes checkpoints"
    covers = {"SNK-1": ALWAYS}
    needs = frozenset({Capability.BARRIERS, Capability.CHECKPOINTS})
    signs = (_TOO_EARLY,)
    directness = Directness.OPERATIONS
    rank = 252

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.takes_checkpoints

    def check(self, context: TrialContext) -> Finding:
        """Compare what the sinks of one trial had reported when its job finished with its last checkpoint."""
        problems = list(_too_early(context))
        commits = sum(1 for _ in context.history.of(Committed))
        counts = {"commits": commits, "violations": len(problems)}
        if problems:
            summary = f"the job finished before {len(problems)} sinks had committed; {problems[0].sentence}"
            return self.broken(context, summary, counts, problems)
        ended = commits and any(True for _ in context.history.of(JobFinished))
        summary = (
            "every sink had committed for the last checkpoint when the job finished"
            if ended
            else "no job finished whose sinks report commits"
        )
        return Finding(self.name, self.clauses if ended else (), Verdict.VALID, summary, counts)


def _too_early(context: TrialContext) -> Iterator[Breach]:
    """Yield the sinks that had not committed; none of a system whose sinks never say so."""
    attempt = last = 0
    reports = False
    committed: dict[str, int] = {}
    finished: dict[str, None] = {}
    for line in context.history.operations:
        match line.operation:
            case AttemptStarted(attempt=attempt):
                committed, finished = {}, {}
            case CheckpointCompleted(checkpoint=last):
                pass
            case Committed(subtask=subtask, checkpoint=int(checkpoint)):
                reports = True
                committed[subtask] = max(checkpoint, committed.get(subtask, 0))
            case Finished(subtask=subtask):
                finished[subtask] = None
            case JobFinished() if reports and (job := context.job_of(attempt)) is not None:
                for sink in job.in_role(Role.SINK):
                    until = committed.get(sink, 0)
                    if sink not in finished and until < last:
                        for_none = f"for checkpoint {until}" if until else "for none"
                        yield Breach(
                            _TOO_EARLY,
                            f"at {line.time_ms:g} ms the job finished with checkpoint {last}, and {sink} had reported "
                            f"its commits {for_none} at the latest",
                            line.index,
                            sink,
                            last,
                            attempt,
                        )
