"""Garbage, reachability, and which checkers judge which trial."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_fields

from barrier_tck.faults.kinds.damage_primary import DamagePrimary
from barrier_tck.faults.vocabulary import At, ScheduledFault
from barrier_tck.harness.oracle.applicable import checkers_for
from barrier_tck.harness.oracle.checkers.no_garbage import NoGarbage
from barrier_tck.harness.oracle.checkers.reachability import Reachability
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.history import CheckpointProblem, End, SnapshotView, StorageView
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.records import FaultRecord
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.support.errors import UsageError
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.workload_names import filled
from tests.harness.oracle.oracle_histories import Book, a_context, a_plan

ALL = frozenset(Capability)


def garbage(storage: StorageView | None, end: End = End.FINISHED) -> Verdict:
    return NoGarbage().check(a_context(a_plan(), end=end, storage=storage)).verdict


def reachable(storage: StorageView | None, end: End = End.FINISHED) -> Verdict:
    return Reachability().check(a_context(a_plan(), end=end, storage=storage)).verdict


def test_retained_checkpoints_alone_are_no_garbage() -> None:
    assert garbage(StorageView(retained=(3, 4))) is Verdict.VALID


def test_an_orphan_after_the_end_is_invalid_and_named() -> None:
    context = a_context(a_plan(), storage=StorageView(retained=(4,), orphans=("chk-2/state-1",)))
    finding = NoGarbage().check(context)
    assert finding.verdict is Verdict.INVALID
    assert "chk-2/state-1" in finding.summary


@pytest.mark.parametrize(
    ("path", "clause"),
    [
        ("checkpoints/job/chk-1/state-1", "COO-4"),
        ("checkpoints/job/chk-2/stray", "COO-3"),
        ("checkpoints/job/shared/chk-1/state-1", "COO-4"),
        ("checkpoints/job/chk-4/state-1", "COO-2"),
        ("checkpoints/job/shared/chk-5/state-1", "COO-3"),
        ("checkpoints/job/chk-6/state-1", "COO-3"),
        ("checkpoints/job/chk-3/state-of-a-part-that-came-twice", "COO-3"),
        ("output/pending-2", "COO-3"),
    ],
)
def test_what_is_broken_if_a_file_is_left_depends_on_its_checkpoint(path: str, clause: str) -> None:
    book = Book().attempt(1).checkpoint(1).checkpoint(2).checkpoint(3)
    book.triggered(4).acknowledged(4).aborted(4)
    book.triggered(5).aborted(5).acknowledged(5)
    book.acknowledged(3)
    context = a_context(a_plan(), book, storage=StorageView(retained=(2, 3), orphans=(path,)))
    finding = NoGarbage().check(context)
    assert (finding.verdict, finding.broken) == (Verdict.INVALID, clause)


def test_more_checkpoints_than_the_plan_retains_are_invalid() -> None:
    assert garbage(StorageView(retained=(2, 3, 4))) is Verdict.INVALID


def test_the_newest_completed_checkpoints_are_retained_as_many_as_configured() -> None:
    book = Book().attempt(1).checkpoint(1).checkpoint(2).checkpoint(3)

    def judged(*retained: int) -> Finding:
        return NoGarbage().check(a_context(a_plan(), book, storage=StorageView(retained=retained)))

    assert judged(2, 3).verdict is Verdict.VALID
    assert judged(3, 4).verdict is Verdict.VALID, "4 completed, and its coordinator died before it told"
    for retained in ((3,), (1, 3), ()):
        finding = judged(*retained)
        assert finding.verdict is Verdict.INVALID
        assert "checkpoint 2 had completed and is gone" in finding.summary
    harmed = replace(
        a_context(
            a_plan(faults=(ScheduledFault(DamagePrimary("totals[0]"), At(1)),)),
            book,
            storage=StorageView(retained=(3,)),
        ),
        faults=(FaultRecord(0, "damage", "damage_primary", "at 1 ms", None, "fired", 1.0),),
    )
    assert NoGarbage().check(harmed).verdict is Verdict.VALID


@pytest.mark.parametrize(
    ("damaged", "unreadable", "verdict"),
    [
        (("job/chk-3/totals-0", "job/chk-3/totals-1"), "job/chk-3/totals-1", Verdict.VALID),
        (("job/chk-3/totals",), "job/chk-3/totals-1", Verdict.INVALID),
        ((), "job/chk-3/totals-1", Verdict.INVALID),
        (("job/chk-3/totals-1",), None, Verdict.INVALID),
    ],
    ids=["the file", "another name", "no file told", "no file blamed"],
)
def test_only_the_files_that_a_trial_damaged_may_be_unreadable(
    damaged: tuple[str, ...], unreadable: str | None, verdict: Verdict
) -> None:
    context = a_context(
        a_plan(faults=(ScheduledFault(DamagePrimary("totals[0]"), At(1)),)),
        storage=StorageView(
            retained=(3,),
            unreadable=(CheckpointProblem(3, Reason.WRONG_SIZE, unreadable, "job/chk-3/totals-1"),),
        ),
    )
    record = FaultRecord(0, "damage", "damage_primary", "at 1 ms", None, "fired", 1.0, files=damaged)
    assert Reachability().check(replace(context, faults=(record,))).verdict is verdict


@pytest.mark.parametrize(
    ("retained", "shown"),
    [((), ()), ((4,), ()), ((3, 4), ("STA-3",))],
    ids=["none", "damaged", "another one"],
)
def test_storage_counts_if_it_holds_a_checkpoint_that_the_trial_spared(
    retained: tuple[int, ...], shown: tuple[str, ...]
) -> None:
    harmed = (CheckpointProblem(4, Reason.MISSING, "chk-4/state-1"),) if 4 in retained else ()
    storage = StorageView(retained=retained, unreadable=harmed)
    context = a_context(a_plan(faults=(ScheduledFault(DamagePrimary("totals[0]"), At(1)),)), storage=storage)
    record = FaultRecord(
        0, "damage", "damage_primary", "at 1 ms", None, "fired", 1.0, files=("chk-4/state-1",)
    )
    finding = Reachability().check(replace(context, faults=(record,)))
    assert (finding.verdict, finding.clauses) == (Verdict.VALID, shown)


@pytest.mark.parametrize("damaged", [False, True])
def test_a_file_that_was_gone_while_its_checkpoint_was_retained_is_missed_also_if_both_are_gone_at_the_end(
    damaged: bool,
) -> None:
    gone = CheckpointProblem(3, Reason.MISSING, "job/shared/chk-3/x", "it is gone")
    views = tuple(SnapshotView(number, 1, {}, lacking=(gone,)) for number in (5, 6))
    context = a_context(
        a_plan(faults=(ScheduledFault(DamagePrimary("totals[0]"), At(1)),)),
        views=views,
        storage=StorageView(retained=(6,)),
    )
    record = FaultRecord(0, "damage", "damage_primary", "at 1 ms", None, "fired", 1.0)
    files = ("job/shared/chk-3/x",) if damaged else ()
    found = Reachability().check(replace(context, faults=(replace_fields(record, files=files),)))
    assert found.verdict is (Verdict.VALID if damaged else Verdict.INVALID)
    if not damaged:
        assert found.examples == (
            "checkpoint 3 was retained when 5 completed: job/shared/chk-3/x: it is gone",
        ), "it is told once"


def test_files_that_an_unfinished_job_left_are_not_judged_as_garbage() -> None:
    assert garbage(StorageView(orphans=("x",)), End.STUCK) is Verdict.VALID


@pytest.mark.parametrize("end", list(End))
def test_an_unreadable_file_of_a_retained_checkpoint_is_invalid_at_any_end(end: End) -> None:
    gone = CheckpointProblem(4, Reason.MISSING, "chk-4/state-1")
    assert reachable(StorageView(retained=(4,), unreadable=(gone,)), end) is Verdict.INVALID
    assert reachable(StorageView(retained=(4,)), end) is Verdict.VALID


def test_storage_that_is_not_shown_is_unknown() -> None:
    assert garbage(None) is Verdict.UNKNOWN
    assert reachable(None) is Verdict.UNKNOWN


def names(plan: TrialPlan, capabilities: Iterable[Capability] = ALL) -> set[str]:
    return {checker.name for checker in checkers_for(filled(plan), frozenset(capabilities))}


def test_a_system_that_shows_everything_is_judged_on_everything() -> None:
    assert names(a_plan()) == {
        "ends-come-last",
        "exactly-once-output",
        "channel-order",
        "snapshot-formula",
        "checkpoint-life-cycle",
        "checkpoint-admission",
        "checkpoint-expiry",
        "tolerated-failures",
        "aborts-obeyed",
        "completions-learned",
        "snapshot-costs",
        "snapshot-sizes",
        "snapshot-order",
        "snapshot-at-barriers",
        "failures-explained",
        "finished-subtasks",
        "input-reads",
        "checkpoints-retained",
        "no-garbage",
        "no-local-copies",
        "committed-transactions",
        "commits-before-end",
        "reachability",
        "stored-checkpoints",
        "restorability",
        "restart-strategy",
        "checkpoints-go-on",
        "progress",
        "faults-fired",
    }


def test_a_system_without_snapshot_inspection_is_judged_on_output_and_progress() -> None:
    assert names(a_plan(), ()) == {"exactly-once-output", "progress", "faults-fired"}


def test_at_least_once_mode_is_not_judged_on_exactness() -> None:
    plan = a_plan(checkpoints=CheckpointPlan(mode="at_least_once"))
    assert not {"exactly-once-output", "snapshot-formula"} & names(plan)
    assert "nothing-held-back" in names(plan)


def test_without_checkpointing_no_checkpoint_is_judged() -> None:
    assert "snapshot-formula" not in names(a_plan(checkpoints=CheckpointPlan(enabled=False)))


def test_an_unknown_workload_is_refused() -> None:
    with pytest.raises(UsageError, match="keyed-totals"):
        checkers_for(filled(a_plan(workload=WorkloadPlan(name="keyed-total"))), ALL)
