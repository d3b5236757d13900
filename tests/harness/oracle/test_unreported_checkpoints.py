"""Checkpoints that were complete, though the coordinator died before it could say so, and jobs of other widths."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from barrier_tck.harness.oracle.checkers.snapshot_formula import SnapshotFormula
from barrier_tck.harness.oracle.jobs_of_trial import jobs_of_trial
from barrier_tck.harness.plan.reading import read_plan
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.history import History
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import execute

PLANS = Path(__file__).parents[2] / "plans"
UNTOLD = [  # the plan, how parallel the keyed vertex was, and is in the job that starts from the checkpoint
    ("narrower-after-a-checkpoint-that-nobody-told-of", 3, 2),
    ("wide-again-after-a-checkpoint-that-nobody-told-of", 2, 3),
]


def an_unreported_restore(history: History) -> tuple[int, int]:
    """Return an attempt, and the checkpoint that it restored though no coordinator had told that it was complete."""
    told_at = {line.operation.checkpoint: line.index for line in history.of(ops.CheckpointCompleted)}
    (found,) = (
        (started.operation.attempt, restored)
        for started in history.of(ops.AttemptStarted)
        if (restored := started.operation.restored_checkpoint) is not None
        and told_at.get(restored, started.index) >= started.index
    )
    return found


@pytest.mark.parametrize(("name", "before", "now"), UNTOLD)
def test_a_checkpoint_is_opened_as_parallel_as_it_was_taken(
    name: str, before: int, now: int, tmp_path: Path
) -> None:
    """A new coordinator finds it in storage, and by then the job has another parallelism."""
    plan = read_plan(PLANS / f"{name}.json")
    result = execute(plan, ReferenceSimulated(), tmp_path)
    assert result.history is not None
    assert result.record.verdict is Verdict.VALID, result.record.findings
    attempt, checkpoint = an_unreported_restore(result.history)
    jobs = jobs_of_trial(plan, result.history)
    (view,) = (one for one in result.history.checkpoints if one.checkpoint == checkpoint)
    assert view.attempt is not None
    taken, restoring = (jobs.plans[jobs.of[one]].job.vertex("totals") for one in (view.attempt, attempt))
    assert (taken.parallelism, restoring.parallelism) == (before, now)
    assert [part.subtask for part in view.state] == list(taken.subtasks)


@pytest.mark.parametrize("name", [name for name, _, _ in UNTOLD])
def test_what_is_wrong_in_a_checkpoint_that_was_not_reported_is_found(name: str, tmp_path: Path) -> None:
    plan = msgspec.structs.replace(read_plan(PLANS / f"{name}.json"), mutant="BE-01")
    result = execute(plan, ReferenceSimulated(), tmp_path)
    assert result.history is not None
    _, checkpoint = an_unreported_restore(result.history)
    (finding,) = (one for one in result.record.findings if one.checker == SnapshotFormula.name)
    assert finding.verdict is Verdict.INVALID
    wrong = [one for one in finding.examples if one.startswith(f"checkpoint {checkpoint}: ")]
    assert any("holds" in one for one in wrong), finding.examples
