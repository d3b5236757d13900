"""The verdict on a job that falls back to an older checkpoint, as its plan allows (REC-4): no false alarm, no pass."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from barrier_tck.faults.kinds.damage_local_copy import DamageLocalCopy
from barrier_tck.faults.kinds.damage_primary import DamagePrimary
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.targets import Damage
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.checkers.dataflow import Dataflow
from barrier_tck.harness.oracle.checkers.exactly_once_output import AGAIN, ExactlyOnceOutput
from barrier_tck.harness.oracle.checkers.progress import Progress
from barrier_tck.harness.oracle.evidence.opened_checkpoints import positions_of
from barrier_tck.harness.oracle.evidence.recoveries import (
    GivenUp,
    committed_again,
    given_up,
    restored_checkpoints,
)
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.oracle.jobs_of_trial import jobs_of_trial
from barrier_tck.harness.plan.reading import read_plan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointingMode,
    CheckpointPlan,
    NetworkPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.record.history import End, History, Recorded, Row, SnapshotView
from barrier_tck.harness.record.operations import (
    AttemptEnded,
    AttemptStarted,
    CheckpointCompleted,
    CheckpointTriggered,
    Operation,
)
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.records import FaultRecord, TrialRecord
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import execute, run_trial
from barrier_tck.harness.workloads.lineage import Lineage
from barrier_tck.harness.workloads.workload_names import filled, workload_named

FAILED = After(ProtocolPoint.ATTEMPT_FAILED)
COMPLETED = After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=3)
COMMITTED = After(ProtocolPoint.TRANSACTIONS_COMMITTED, "sink[0]", 3)
SLOW = NetworkPlan(slow_channel=0, slow_factor=6)
SEEDS = 4
PLANS = Path(__file__).parents[2] / "plans"
EXACT = "given-up-checkpoint-had-committed-what-lies-behind-the-next-cut"
AT_LEAST_ONCE = "given-up-checkpoint-in-at-least-once-mode"


def fell_back(
    mode: CheckpointingMode, moment: After, directory: Path, network: NetworkPlan | None = None
) -> list[TrialRecord]:
    """Run jobs whose sink dies at a given moment, and whose latest checkpoint cannot be read afterwards."""
    base = _falls_back(mode, moment, network)
    plans = [msgspec.structs.replace(base, seed=seed) for seed in range(SEEDS)]
    records = [run_trial(plan, ReferenceSimulated(), directory) for plan in plans]
    for record in records:
        first, second = (attempt.restored_checkpoint or 0 for attempt in record.attempts[1:3])
        assert first > second, "it went back"
    return records


def _falls_back(mode: CheckpointingMode, moment: After, network: NetworkPlan | None = None) -> TrialPlan:
    return TrialPlan(
        workload=WorkloadPlan(batches=30, records_per_second=600, keys=20),
        checkpoints=CheckpointPlan(mode=mode, retained=3),
        network=network or NetworkPlan(),
        local_recovery=True,
        on_unreadable="older",
        faults=(
            ScheduledFault(KillWorker("sink[0]"), moment),
            ScheduledFault(DamageLocalCopy("totals[0]", Damage.BIT_FLIPPED), FAILED),
            ScheduledFault(DamagePrimary("totals[0]", Damage.BIT_FLIPPED), FAILED),
        ),
    )


@pytest.mark.parametrize("network", [None, SLOW], ids=["even", "slow channel"])
@pytest.mark.parametrize("mode", ["exactly_once", "at_least_once"])
def test_output_that_was_not_committed_is_made_again_and_is_right(
    mode: CheckpointingMode, network: NetworkPlan | None, tmp_path: Path
) -> None:
    for record in fell_back(mode, COMPLETED, tmp_path, network):
        assert record.verdict is Verdict.VALID, record.findings


@pytest.mark.parametrize("mode", ["exactly_once", "unaligned"])
def test_output_that_was_committed_and_given_up_comes_twice_and_nothing_else_does(
    mode: CheckpointingMode, tmp_path: Path
) -> None:
    for record in fell_back(mode, COMMITTED, tmp_path):
        assert record.verdict is Verdict.VALID, record.findings
        (output,) = [finding for finding in record.findings if finding.checker == "exactly-once-output"]
        assert output.counts[AGAIN] > 0 == output.counts["duplicated"]
        assert "went back to checkpoint 2 although 3 had completed" in output.summary


@pytest.fixture(scope="module")
def given_up_totals(tmp_path_factory: pytest.TempPathFactory) -> TrialContext:
    plan, system = filled(_falls_back("exactly_once", COMMITTED)), ReferenceSimulated()
    result = execute(plan, system, tmp_path_factory.mktemp("totals"))
    assert result.history is not None
    job = system.job(plan)
    return TrialContext(plan, result.history, result.record.faults, job.names, job)


def output_judged(context: TrialContext, output: Sequence[Row]) -> Finding:
    history = msgspec.structs.replace(context.history, output=tuple(output))
    checker = ExactlyOnceOutput(TrialInput(workload_named("keyed-totals"), context.plan))
    return checker.check(dataclasses.replace(context, history=history))


@pytest.mark.long
def test_a_row_that_comes_more_often_than_it_was_given_up_is_invalid(given_up_totals: TrialContext) -> None:
    output = given_up_totals.history.output
    assert output is not None
    times = Counter(row["id"] for row in output)
    assert set(times.values()) == {1, 2}
    for row in output:
        finding = output_judged(given_up_totals, [*output, row])
        assert finding.verdict is Verdict.INVALID and finding.counts["duplicated"] == 1
    for row in output:
        fewer = [one for one in output if one["id"] != row["id"]]
        assert output_judged(given_up_totals, fewer).counts["lost"] == 1


def test_totals_of_rows_that_come_once_are_judged_although_others_come_twice(
    given_up_totals: TrialContext,
) -> None:
    output = given_up_totals.history.output
    assert output is not None
    again = committed_again(given_up_totals, TrialInput(workload_named("keyed-totals"), given_up_totals.plan))
    assert again
    for row in (row for row in output if row["id"] not in again):
        wrong = [{**one, "count": one["count"] + 1_000} if one is row else one for one in output]
        assert output_judged(given_up_totals, wrong).counts["wrong_count"] == 1


def test_what_was_given_up_and_cannot_be_opened_leaves_the_verdict_open(
    given_up_totals: TrialContext,
) -> None:
    views = tuple(view for view in given_up_totals.history.checkpoints if view.checkpoint != 3)
    history = msgspec.structs.replace(given_up_totals.history, checkpoints=views)
    context = dataclasses.replace(given_up_totals, history=history)
    assert history.output is not None
    assert output_judged(context, history.output).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("network", [None, SLOW], ids=["even", "slow channel"])
def test_there_is_no_false_alarm_in_at_least_once_mode_either(
    network: NetworkPlan | None, tmp_path: Path
) -> None:
    for record in fell_back("at_least_once", COMMITTED, tmp_path, network):
        assert record.verdict is not Verdict.INVALID, record.findings


# --- what sinks may show of a checkpoint that was given up, on a graph --------------------------------------


@pytest.fixture(scope="module", params=[EXACT, AT_LEAST_ONCE])
def given_up_trial(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TrialContext:
    """A trial in which a sink shows, at a later cut, what a checkpoint had committed that was given up."""
    plan, system = read_plan(PLANS / f"{request.param}.json"), ReferenceSimulated()
    result = execute(plan, system, tmp_path_factory.mktemp("given_up"))
    assert result.history is not None and result.record.verdict is Verdict.VALID, result.record.findings
    later = jobs_of_trial(plan, result.history).plans[1:]
    job = system.job(plan)
    return TrialContext(
        plan,
        result.history,
        result.record.faults,
        job.names,
        job,
        later_jobs=tuple(map(system.job, later)),
    )


def judged(context: TrialContext, history: History) -> Finding:
    exactly = context.plan.checkpoints.mode == "exactly_once"
    changed = dataclasses.replace(context, history=history)
    return Dataflow(TrialInput(Lineage(), context.plan), exactly).check(changed)


def lies_behind(row: Row, view: SnapshotView) -> bool:
    source = "right" if row["id"] >= 100_000_000 else "left"
    split, offset = divmod(row["id"] % 100_000_000, 100_000)
    return bool(offset >= positions_of(view)[f"{source}-{split}"])


def ahead_of_its_cut(context: TrialContext) -> tuple[int, int]:
    """Return the first checkpoint at which sinks show a record behind its cut after something was given up, and where
    among their rows it is."""
    for number, view in enumerate(context.history.checkpoints):
        for place, row in enumerate((view.reached_sinks or ()) if given_up(context, view.attempt) else ()):
            if lies_behind(row, view):
                return number, place
    raise AssertionError("nothing that was given up lies behind a later cut")


def with_rows(history: History, number: int, rows: Sequence[Row], writer: str) -> History:
    view = history.checkpoints[number]
    assert view.reached_sinks is not None
    more = msgspec.structs.replace(
        view,
        reached_sinks=(*view.reached_sinks, *rows),
        reached_by=(*view.reached_by, *[writer] * len(rows)),
    )
    views = (*history.checkpoints[:number], more, *history.checkpoints[number + 1 :])
    return msgspec.structs.replace(history, checkpoints=views)


def another_copy(context: TrialContext) -> History:
    """What was given up is at the later cut more often than it can have been committed."""
    number, place = ahead_of_its_cut(context)
    view = context.history.checkpoints[number]
    assert view.reached_sinks is not None
    # In at-least-once mode it may have come early once more.
    copies = 1 if context.plan.checkpoints.mode == "exactly_once" else 2
    return with_rows(context.history, number, [view.reached_sinks[place]] * copies, view.reached_by[place])


def a_record_of_nobody(context: TrialContext) -> History:
    """Behind the later cut is a record that no checkpoint before had committed."""
    number, _ = ahead_of_its_cut(context)
    views = context.history.checkpoints
    known = [row["id"] for one in views[: number + 1] for row in one.reached_sinks or ()]
    assert context.history.output is not None
    row, writer = next(
        (row, writer)
        for row, writer in zip(context.history.output, context.history.output_by, strict=True)
        if lies_behind(row, views[number]) and row["id"] not in known
    )
    return with_rows(context.history, number, [row], writer)


def one_more_in_the_output(context: TrialContext) -> History:
    """The output has a record once more that lies before all that was given up."""
    history = context.history
    assert history.output is not None
    place = next(i for i, row in enumerate(history.output) if not lies_behind(row, history.checkpoints[0]))
    return msgspec.structs.replace(
        history,
        output=(*history.output, history.output[place]),
        output_by=(*history.output_by, history.output_by[place]),
    )


def test_what_was_given_up_may_lie_behind_a_later_cut(given_up_trial: TrialContext) -> None:
    ahead_of_its_cut(given_up_trial)
    finding = judged(given_up_trial, given_up_trial.history)
    assert finding.verdict is Verdict.VALID and finding.counts["records"] > 0
    # A plan that does not allow older checkpoints excuses nothing.
    strict = msgspec.structs.replace(given_up_trial.plan, on_unreadable="fail")
    context = dataclasses.replace(given_up_trial, plan=strict)
    assert judged(context, context.history).verdict is Verdict.INVALID


@pytest.mark.long
@pytest.mark.parametrize("wrong", [another_copy, a_record_of_nobody, one_more_in_the_output])
def test_no_more_may_be_there_than_what_was_given_up(
    wrong: Callable[[TrialContext], History], given_up_trial: TrialContext
) -> None:
    finding = judged(given_up_trial, wrong(given_up_trial))
    assert finding.verdict is Verdict.INVALID
    assert "is in what out committed" in finding.examples[0]


def completed(checkpoint: int, attempt: int) -> tuple[Operation, ...]:
    return CheckpointTriggered(checkpoint, attempt), CheckpointCompleted(checkpoint, attempt)


BEGUN = (AttemptStarted(1), *completed(1, 1))


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ((*BEGUN, *completed(2, 1), AttemptStarted(2, 2)), ()),
        ((*BEGUN, *completed(2, 1), *completed(3, 1), AttemptStarted(2, 1)), (GivenUp(1, 3),)),
        ((*BEGUN, AttemptStarted(2)), (GivenUp(None, 1),)),
        (
            (*BEGUN, *completed(2, 1), AttemptStarted(2, 2), *completed(3, 2), AttemptStarted(3, 1)),
            (GivenUp(1, 2), GivenUp(2, 3)),
        ),
        (
            (*BEGUN, *completed(2, 1), AttemptStarted(2, 1), *completed(4, 2), AttemptStarted(3, 1)),
            (GivenUp(1, 2), GivenUp(1, 4)),
        ),
        (
            (*BEGUN, *completed(2, 1), AttemptStarted(2, 1), *completed(4, 2), AttemptStarted(3, 4)),
            (GivenUp(1, 2),),
        ),
        # The coordinator died before it could tell that 2 was complete; its successor restored it.
        (
            (*BEGUN, CheckpointTriggered(2, 1), AttemptStarted(2, 2), AttemptStarted(3, 1)),
            (GivenUp(1, 2),),
        ),
    ],
    ids=["nothing", "two at once", "all", "over two attempts", "twice", "gone on from", "not told"],
)
def test_what_was_given_up_follows_from_the_restored_checkpoints(
    operations: tuple[Operation, ...], expected: tuple[GivenUp, ...]
) -> None:
    lines = tuple(Recorded(i, float(i), "coordinator", one) for i, one in enumerate(operations))
    damage = ScheduledFault(DamagePrimary("totals[0]", Damage.BIT_FLIPPED), FAILED)
    newest = max(one.attempt for one in operations if isinstance(one, AttemptStarted))
    for policy in ("older", "fail"):
        plan = TrialPlan(faults=(damage,), on_unreadable=policy)
        fired = FaultRecord(
            0, damage.fault.description(), "damage_primary", "after attempt_failed", None, "fired"
        )
        history = History(lines, End.FINISHED, Reason.FINISHED, "", ())
        context = TrialContext(plan, history, (fired,))
        assert given_up(context, newest) == (expected if policy == "older" else ())


def test_a_damaged_file_explains_each_attempt_that_meets_it(tmp_path: Path) -> None:
    """Checkpoints that share it are given up one after the other; nothing else is wrong with these attempts."""
    plan, system = (
        read_plan(PLANS / "one-damaged-file-is-shared-by-two-checkpoints.json"),
        ReferenceSimulated(),
    )
    result = execute(plan, system, tmp_path)
    assert result.history is not None
    ended = [line.operation for line in result.history.of(AttemptEnded)]
    unreadable = [one.attempt for one in ended if one.reason is Reason.CHECKPOINT_UNREADABLE]
    began = restored_checkpoints(result.history)
    assert len(unreadable) == 2
    (judged,) = [finding for finding in result.record.findings if finding.checker == "progress"]
    assert judged.verdict is Verdict.VALID
    # The last of them, as if it had started from a checkpoint without the file.
    changed = tuple(
        msgspec.structs.replace(view, files={}) if view.checkpoint == began[unreadable[-1]] else view
        for view in result.history.checkpoints
    )
    job = system.job(plan)
    context = TrialContext(
        plan,
        msgspec.structs.replace(result.history, checkpoints=changed),
        result.record.faults,
        job.names,
        job,
        capabilities=frozenset(one.name for one in system.capabilities),
    )
    unexplained = Progress(TrialInput(workload_named(plan.workload.name), plan)).check(context)
    assert unexplained.verdict is Verdict.INVALID
    assert "failed attempts that no fault explains: 1" in unexplained.summary
