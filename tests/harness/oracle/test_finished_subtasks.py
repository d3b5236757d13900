"""Subtasks that finish: right histories pass, and each kind of mistake is found; grain: scripted histories."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from barrier_tck.harness.campaign.sometimes import AllSometimes
from barrier_tck.harness.oracle.checkers.finished_subtasks import DUE_MIN, FinishedSubtasks
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import TrialPlan, WorkloadPlan
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.history import SnapshotView
from barrier_tck.harness.record.records import TrialSummary, summary_of
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import run_trial
from barrier_tck.harness.workloads.barrier_jobs import barrier_view
from barrier_tck.harness.workloads.keyed_totals import KeyedTotals
from barrier_tck.harness.workloads.workload_names import filled
from tests.harness.oracle.oracle_histories import Book, a_context, a_plan, right_view

PLAN = a_plan()
SPLITS = KeyedTotals().splits(PLAN)
EVERYBODY = ("source[0]", "source[1]", "totals[0]", "totals[1]", "sink[0]")


def view(checkpoint: int, *finished: str, attempt: int = 1, unread: int = 0) -> SnapshotView:
    """Return a checkpoint behind all input but the last records of each split."""
    at = {split.name: len(split.rows) - unread for split in SPLITS}
    return msgspec.structs.replace(right_view(PLAN, checkpoint, at), attempt=attempt, finished=finished)


def judge(book: Book, *views: SnapshotView) -> Finding:
    context = replace(a_context(PLAN, book, views=views), job=barrier_view(PLAN))
    return FinishedSubtasks(TrialInput(KeyedTotals(), PLAN)).check(context)


def told_of(finding: Finding, words: str) -> bool:
    return finding.verdict is Verdict.INVALID and any(words in example for example in finding.examples)


def finish(book: Book, *subtasks: str, attempt: int = 1) -> Book:
    for subtask in subtasks:
        book.tell(ops.Finished(subtask, attempt))
    return book


def committed(book: Book, checkpoint: int, attempt: int = 1) -> Book:
    return book.tell(ops.Committed("sink[0]", checkpoint, attempt))


def early() -> Book:
    """One source finishes after a checkpoint, and the next one completes without it."""
    return finish(Book().attempt(1).checkpoint(1), "source[0]").checkpoint(2)


def test_a_subtask_may_finish_when_a_checkpoint_is_complete_and_later_ones_say_so() -> None:
    finding = judge(early(), view(1), view(2, "source[0]"))
    assert (finding.verdict, finding.clauses) == (Verdict.VALID, ("BAR-6",))
    assert (finding.counts["finished"], finding.counts["after_finish"]) == (1, 1)


def test_a_trial_in_which_nobody_finished_early_shows_nothing() -> None:
    finding = judge(Book().attempt(1).checkpoint(1), view(1))
    assert (finding.verdict, finding.clauses) == (Verdict.VALID, ())


def test_who_finishes_before_any_checkpoint_is_complete_is_told() -> None:
    book = finish(Book().attempt(1), "source[0]").checkpoint(1)
    assert told_of(judge(book, view(1, "source[0]")), "no checkpoint of the attempt was complete")


def test_a_sink_that_finishes_without_a_commit_or_with_a_transaction_left_is_told() -> None:
    begun = Book().attempt(1).checkpoint(1)
    assert told_of(judge(finish(begun, *EVERYBODY), view(1)), "it had not committed anything")
    book = committed(Book().attempt(1).checkpoint(1), 1).triggered(2)
    book.tell(ops.Acknowledged(2, 1, "sink[0]", prepared=3)).completed(2)
    assert told_of(
        judge(finish(book, "sink[0]"), view(1), view(2)), "prepared for checkpoint 2 was not committed"
    )


def test_a_checkpoint_that_counts_somebody_as_finished_who_had_not_is_told() -> None:
    book = Book().attempt(1).checkpoint(1).checkpoint(2)
    assert told_of(judge(book, view(1), view(2, "source[1]")), "source[1], which had never finished")


def test_a_part_that_was_acknowledged_is_not_replaced_because_the_subtask_finishes_then() -> None:
    def book() -> Book:
        begun = Book().attempt(1).checkpoint(1).triggered(2)
        begun.tell(ops.Acknowledged(2, 1, "source[0]"))
        return finish(begun, "source[0]").completed(2)

    assert judge(book(), view(1), view(2)).verdict is Verdict.VALID
    finding = judge(book(), view(1), view(2, "source[0]"))
    assert told_of(finding, "source[0], which had acknowledged its own part") and finding.broken == "BAR-6"
    savepoint = msgspec.structs.replace(view(2, "source[0]"), savepoint="savepoints/one")
    assert judge(book(), view(1), savepoint).broken == "COO-5"


def test_a_receiver_that_counts_as_finished_before_its_sender_is_told() -> None:
    book = finish(Book().attempt(1).checkpoint(1), "source[0]", "totals[0]").checkpoint(2)
    finding = judge(book, view(1), view(2, "source[0]", "totals[0]"))
    assert told_of(finding, "totals[0], although source[1] before it had not finished")


def test_a_restore_that_forgets_who_had_finished_is_told() -> None:
    book = early().attempt_failed(1).attempt(2, 2).checkpoint(3, 2)
    right = finish(early().attempt_failed(1).attempt(2, 2), "source[0]", attempt=2).checkpoint(3, 2)
    views = (view(1), view(2, "source[0]"))
    finding = judge(right, *views, view(3, "source[0]", attempt=2))
    assert (finding.verdict, finding.counts["restored_after_finish"]) == (Verdict.VALID, 1)
    assert told_of(judge(book, *views, view(3, attempt=2)), "has forgotten that source[0] had finished")


def test_a_split_that_was_not_read_to_its_end_by_those_who_had_finished_is_told() -> None:
    book = finish(Book().attempt(1).checkpoint(1), "source[0]", "source[1]").checkpoint(2)
    finding = judge(book, view(1), view(2, "source[0]", "source[1]", unread=1))
    assert told_of(finding, "had finished, which is at")


def test_a_split_that_was_read_and_has_no_position_when_its_readers_have_finished_is_told() -> None:
    [name, *_] = (split.name for split in SPLITS)
    begun = Book().attempt(1).checkpoint(1).tell(ops.InputRead("source[0]", 1, name, 0))
    book = finish(begun, "source[0]", "source[1]").checkpoint(2)
    whole = view(2, "source[0]", "source[1]")
    left = {split: at for split, at in whole.positions.items() if split != name}
    finding = judge(book, view(1), msgspec.structs.replace(whole, positions=left))
    assert told_of(finding, f"the readers of {name} had finished, and it has no position")
    assert finding.broken == "STA-3"


def test_a_split_that_was_never_read_by_those_who_have_finished_is_no_lost_position() -> None:
    [name, *_] = (split.name for split in SPLITS)
    book = finish(Book().attempt(1).checkpoint(1), "source[0]", "source[1]").checkpoint(2)
    whole = view(2, "source[0]", "source[1]")
    left = {split: at for split, at in whole.positions.items() if split != name}
    finding = judge(book, view(1), msgspec.structs.replace(whole, positions=left))
    assert told_of(finding, "had finished, which is at 0") and finding.broken == "BAR-6"


@pytest.mark.parametrize(("final", "unread", "wrong"), [(True, 1, True), (True, 0, False), (False, 1, False)])
def test_a_last_checkpoint_before_the_end_of_the_input_is_told(final: bool, unread: int, wrong: bool) -> None:
    book = Book().attempt(1).tell(ops.CheckpointTriggered(1, 1, final=final)).acknowledged(1).completed(1)
    finding = judge(book, view(1, unread=unread))
    assert told_of(finding, "checkpoint 1 was to be the last one, and split-0-0 is at") is wrong
    assert (finding.broken, finding.verdict) == (("BAR-6", Verdict.INVALID) if wrong else ("", Verdict.VALID))


@pytest.mark.parametrize(
    ("said_in", "clause"), [((1,), "REC-2"), ((1, 2), "BAR-6"), ((2,), "BAR-6"), ((), "BAR-6")]
)
def test_a_last_checkpoint_because_a_former_attempt_had_consumed_all_is_told_as_such(
    said_in: tuple[int, ...], clause: str
) -> None:
    book = Book().attempt(1).attempt_failed(1).attempt(2)
    for attempt in said_in:
        book.tell(ops.ConsumedAll("sink[0]", attempt))
    book.tell(ops.CheckpointTriggered(1, 2, final=True)).acknowledged(1, 2).completed(1, 2)
    finding = judge(book, view(1, attempt=2, unread=1))
    assert told_of(finding, "checkpoint 1 was to be the last one") and finding.broken == clause
    finished = judge(book, view(1, "sink[0]", attempt=2, unread=1))
    assert finished.evidence and "REC-2" not in {entry.clause for entry in finished.evidence}, (
        "it waits for nobody"
    )


def test_a_former_attempt_is_the_cause_only_if_all_that_were_waited_for_had_consumed_their_input_there() -> (
    None
):
    job = barrier_view(PLAN)
    apart = msgspec.structs.replace(job, links=tuple(link for link in job.links if link[0] != "totals[1]"))
    for said, clause in ((["sink[0]"], "BAR-6"), (["sink[0]", "totals[1]"], "REC-2")):
        book = Book().attempt(1).attempt_failed(1).attempt(2)
        for subtask in said:
            book.tell(ops.ConsumedAll(subtask, 1))
        book.tell(ops.CheckpointTriggered(1, 2, final=True)).acknowledged(1, 2).completed(1, 2)
        context = replace(a_context(PLAN, book, views=(view(1, attempt=2, unread=1),)), job=apart)
        assert FinishedSubtasks(TrialInput(KeyedTotals(), PLAN)).check(context).broken == clause


def test_a_snapshot_from_behind_the_end_of_an_input_that_ends_later_is_told() -> None:
    book = Book().attempt(1).checkpoint(1)
    early = msgspec.structs.replace(view(1, unread=1), ended=("totals[1]",))
    finding = judge(book, early)
    assert told_of(finding, "checkpoint 1: all input of totals[1] had ended in it, and split-")
    assert finding.broken == "SNP-1"
    behind = msgspec.structs.replace(early, ended=("sink[0]",))
    assert told_of(judge(book, behind), "all input of sink[0] had ended"), (
        "it is behind the one behind the source"
    )
    assert judge(book, msgspec.structs.replace(early, ended=("source[0]",))).verdict is Verdict.VALID, (
        "the other source has the rest"
    )
    assert judge(book, msgspec.structs.replace(view(1), ended=("totals[1]",))).verdict is Verdict.VALID


def test_in_at_least_once_mode_an_end_may_come_before_the_last_barrier() -> None:
    book = Book().attempt(1).checkpoint(1)
    early = msgspec.structs.replace(view(1, unread=1), ended=("totals[1]",))
    mode = msgspec.structs.replace(PLAN.checkpoints, mode="at_least_once")
    plan = msgspec.structs.replace(PLAN, checkpoints=mode)
    context = replace(a_context(plan, book, views=(early,)), job=barrier_view(plan))
    assert FinishedSubtasks(TrialInput(KeyedTotals(), plan)).check(context).verdict is Verdict.VALID


def test_a_number_that_is_given_again_for_the_last_checkpoint_is_not_that_of_the_first_one() -> None:
    book = Book().attempt(1).checkpoint(1).tell(ops.CheckpointTriggered(1, 1, final=True)).aborted(1)
    assert judge(book, view(1, unread=1)).verdict is Verdict.VALID


# --- what a campaign must have seen -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def summaries(tmp_path_factory: pytest.TempPathFactory) -> list[TrialSummary]:
    """A trial with a source that ends early and many checkpoints, one with none of them, and one as any other."""
    directory, made = tmp_path_factory.mktemp("trials"), []
    for early_ends, batches in ((1, 16), (1, 1), (0, 16)):
        workload = WorkloadPlan("lineage", batches=batches, records_per_second=300, early_ends=early_ends)
        plan = filled(TrialPlan(seed=1, workload=workload, job=JobPlan("joined")))
        record = run_trial(plan, ReferenceSimulated(), directory)
        assert record.verdict is Verdict.VALID, record.findings
        made.append(summary_of(record))
    return made


def seen(*trials: TrialSummary) -> Finding | None:
    counted = AllSometimes().each["sometimes-after-finish"]
    for trial in trials:
        counted.add(trial)
    return counted.finding()


def test_a_campaign_with_early_ends_must_have_seen_a_checkpoint_after_a_finish(
    summaries: list[TrialSummary], tmp_path: Path
) -> None:
    shown, short, other = summaries
    assert seen(other) is None
    finding = seen(shown, *[short] * (DUE_MIN - 1), other)
    assert finding is not None and finding.verdict is Verdict.VALID
    assert (finding.checker, finding.clauses) == ("sometimes-after-finish", ("BAR-6",))
    assert finding.counts["trials"] == DUE_MIN and finding.counts["checkpoints"] > 3
    assert seen(*[short] * (DUE_MIN - 1)) is None, "too few to tell"
    nothing = seen(*[short] * DUE_MIN)
    assert nothing is not None and nothing.verdict is Verdict.UNKNOWN
