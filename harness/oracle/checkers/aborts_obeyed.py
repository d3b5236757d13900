"""Every subtask learns of an abort and gives up its part: it must not acknowledge that checkpoint any more (COO-2,
SNP-2).

The messages of a subtask arrive in order, so its report that it learned of the abort comes before everything that it
sends later. An acknowledgement or a report that came before and is repeated does not count as a new one, and one that
a fault forged was not sent by the subtask. With its report it says for which checkpoints it still keeps records in
flight in memory, and which it still aligns or takes snapshots for. One that is over for it must not be among them: what
is kept for it would never be freed.

A subtask that never learns of an abort goes on storing what is no longer wanted, and no result shows this. Only where
time is virtual is it known how long the notice and the report may take. There every subtask must have reported by then,
unless it has finished (BAR-6), the attempt ended meanwhile, or a lasting fault held up what is sent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.moments import line_at
from barrier_tck.harness.oracle.evidence.notices import notices_due
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sign import Breach, Directness, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.history import Recorded
from barrier_tck.harness.record.operations import AbortLearned, Acknowledged, Finished, Operation
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

Part = tuple[int, int, str]
"""(checkpoint, attempt, subtask)"""


_KEPT = Sign("a subtask keeps what it recorded of channels for a checkpoint that is over", "SNP-2")
_UNDER_WAY = Sign("a subtask keeps a snapshot for a checkpoint that is over", "SNP-2")
_ACKNOWLEDGED = Sign("a subtask acknowledges a checkpoint of whose abort it knew", "COO-2")
_NOT_LEARNED = Sign("a subtask does not learn that a checkpoint was aborted", "COO-2")


class AbortsObeyed(StandardChecker):
    """Every subtask learns of an abort, and then neither acknowledges the checkpoint nor keeps anything of it."""

    name = "aborts-obeyed"
    requires = (
        "Every subtask learns of an abort in time, does not acknowledge the checkpoint afterwards, and "
        "keeps neither a snapshot nor records in flight of a checkpoint that is over."
    )
    judges = "systems with barriers, if they report which subtasks learned of an abort"
    covers = {"COO-2": ALWAYS, "SNP-2": ALWAYS}
    needs = frozenset({Capability.CHECKPOINTS, Capability.BARRIERS})
    signs = (_KEPT, _UNDER_WAY, _ACKNOWLEDGED, _NOT_LEARNED)
    directness = Directness.OPERATIONS
    rank = 160

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.takes_checkpoints

    def check(self, context: TrialContext) -> Finding:
        """Compare what each subtask of one trial learned with what it acknowledged, and with what was aborted."""
        learned: dict[Part, float] = {}
        acknowledged: set[Part] = set()
        problems: list[Breach] = []
        reported: set[AbortLearned] = set()
        open_parts = recordings = 0
        reads = _with_recorded_channels(context)
        for line in context.history.operations:
            match line.operation:
                case AbortLearned() as report if report in reported:
                    pass  # an older one that came again: what it says was so when it was sent
                case AbortLearned(checkpoint=checkpoint, attempt=attempt, subtask=subtask) as report:
                    reported.add(report)
                    part = (checkpoint, attempt, subtask)
                    is_open = part not in learned and part not in acknowledged
                    open_parts += is_open
                    recordings += subtask in reads or (is_open and report.under_way is not None)
                    learned.setdefault((checkpoint, attempt, subtask), line.time_ms)
                    problems += _still_kept(line, report, learned, acknowledged)
                case Acknowledged(checkpoint=checkpoint, attempt=attempt, subtask=subtask, forged=False):
                    part = (checkpoint, attempt, subtask)
                    if part in learned and part not in acknowledged:
                        sentence = (
                            f"at {line.time_ms:g} ms {subtask} of attempt {attempt} acknowledged checkpoint "
                            f"{checkpoint}, of whose abort it knew at {learned[part]:g} ms (COO-2)"
                        )
                        problems.append(
                            Breach(_ACKNOWLEDGED, sentence, line.index, subtask, checkpoint, attempt)
                        )
                    acknowledged.add(part)
        due: tuple[tuple[Part, float, float], ...] = ()
        if Capability.DETERMINISTIC_REPLAY.name in context.capabilities:
            due = tuple(_due(context))
            problems += [
                Breach(
                    _NOT_LEARNED,
                    f"at {due_ms:g} ms {part[2]} of attempt {part[1]} had not learned that checkpoint {part[0]} was "
                    f"aborted at {aborted_ms:g} ms (COO-2)",
                    line_at(context, due_ms),
                    part[2],
                    part[0],
                    part[1],
                )
                for part, aborted_ms, due_ms in due
                if part not in learned
            ]
        counts = {"learned": len(learned), "due": len(due), "violations": len(problems)}
        if problems:
            first = problems[0].sentence
            summary = f"{len(problems)} parts of aborted checkpoints were not given up; the first: {first}"
            return self.broken(context, summary, counts, problems)
        summary = f"subtasks learned of {len(learned)} aborts, and acknowledged none of these checkpoints afterwards"
        covered = (*(("COO-2",) if open_parts or due else ()), *(("SNP-2",) if recordings else ()))
        return Finding(self.name, covered, Verdict.VALID, summary, counts)


def _still_kept(
    line: Recorded[Operation], report: AbortLearned, learned: Collection[Part], acknowledged: Collection[Part]
) -> Iterator[Breach]:
    """Yield what a subtask keeps of checkpoints that are over for it."""
    for sign, what, kept in (
        (_KEPT, "records in flight of", report.recorded),
        (_UNDER_WAY, "a snapshot or an alignment for", report.under_way or ()),
    ):
        for number in kept:
            part = (number, report.attempt, report.subtask)
            if part in learned or part in acknowledged:
                sentence = (
                    f"at {line.time_ms:g} ms {report.subtask} of attempt {report.attempt} still kept {what} "
                    f"checkpoint {number}, which was over for it (SNP-2)"
                )
                yield Breach(sign, sentence, line.index, report.subtask, number, report.attempt)


def _with_recorded_channels(context: TrialContext) -> frozenset[str]:
    """Return the subtasks that may keep records in flight for a checkpoint: of all their channels, or round a loop."""
    checkpoints = context.plan.checkpoints
    return frozenset(
        receiver
        for plan in context.jobs.plans
        for edge in plan.job.edges
        if checkpoints.overtakes or checkpoints.records_all or edge.feedback
        for _, receiver in plan.job.channels_of(edge)
    )


def _due(context: TrialContext) -> Iterator[tuple[Part, float, float]]:
    """Yield whose report of an abort must have come, with the times of the abort and of the latest report."""
    finished_ms = {
        (line.operation.attempt, line.operation.subtask): line.time_ms
        for line in context.history.of(Finished)
    }
    for life, attempt, due_ms in notices_due(context):
        if life.failed is None or life.ended_ms is None:
            continue
        yield from (
            ((life.number, attempt, subtask), life.ended_ms, due_ms)
            for subtask in context.subtasks_of(attempt)
            if finished_ms.get((attempt, subtask), due_ms) >= due_ms
        )
