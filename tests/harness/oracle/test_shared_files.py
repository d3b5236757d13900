"""The checker of shared files: right histories pass, and each kind of mistake is found (SNP-5)."""

from __future__ import annotations

import msgspec
import pytest

from barrier_tck.harness.campaign.sometimes import AllSometimes
from barrier_tck.harness.oracle.applicable import checkers_for
from barrier_tck.harness.oracle.checkers.shared_files import REUSED, SharedFilesKept
from barrier_tck.harness.plan.trial_plan import CheckpointPlan
from barrier_tck.harness.record.history import End, NamedFile, SnapshotView, StorageView
from barrier_tck.harness.record.records import TrialSummary
from barrier_tck.harness.record.stored import StoredCheckpoint, StoredFile, StoredOperator, StoredPart
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.workload_names import filled
from tests.harness.oracle.oracle_histories import a_context, a_plan

FULL, INCREMENT = "job/shared/chk-1/full", "job/shared/chk-2/increment"
PLAN = a_plan(checkpoints=CheckpointPlan(incremental=True))


def view(
    checkpoint: int, *paths: str, checksum: str = "crc32:1", savepoint: str | None = None
) -> SnapshotView:
    files = {"totals[0]": tuple(NamedFile(path, 9, checksum, shared="/shared/" in path) for path in paths)}
    return SnapshotView(checkpoint, 1, {}, files=files, savepoint=savepoint)


def stored(checkpoint: int, *paths: str, gone: str = "") -> StoredCheckpoint:
    files = tuple(
        StoredFile(path, 9, "crc32:1", *((None, None) if path == gone else (9, "crc32:1"))) for path in paths
    )
    return StoredCheckpoint(checkpoint, (StoredPart("totals[0]", (StoredOperator("totals", {}, files),)),))


def judged(views: tuple[SnapshotView, ...], storage: StorageView | None, end: End = End.FINISHED) -> Finding:
    context = a_context(PLAN, end=end, storage=storage)
    history = msgspec.structs.replace(context.history, checkpoints=views)
    return SharedFilesKept().check(type(context)(context.plan, history, context.faults))


CHAIN = (view(1, FULL), view(2, FULL, INCREMENT))
KEPT = StorageView(retained=(2,), stored=(stored(2, FULL, INCREMENT),))


def test_increments_that_stay_as_they_are_are_valid_and_counted() -> None:
    finding = judged(CHAIN, KEPT)
    assert (finding.verdict, finding.clauses, finding.counts[REUSED]) == (Verdict.VALID, ("SNP-5",), 1)


def test_a_trial_without_any_reuse_shows_nothing() -> None:
    finding = judged((view(1, "a"), view(2, "b")), StorageView(retained=(2,)))
    assert (finding.verdict, finding.clauses) == (Verdict.VALID, ())


def test_sharing_counts_once_a_checkpoint_that_shared_a_file_is_gone() -> None:
    both = StorageView(retained=(1, 2), stored=(stored(1, FULL), stored(2, FULL, INCREMENT)))
    assert (judged(CHAIN, both).clauses, judged(CHAIN, KEPT).clauses) == ((), ("SNP-5",))


@pytest.mark.parametrize(
    ("views", "storage", "said"),
    [
        ((view(1, FULL), view(2, FULL, checksum="crc32:2")), KEPT, "checkpoints 1 and 2 name"),
        ((view(1, FULL, savepoint="savepoints/a"), view(2, FULL)), KEPT, "belongs to a savepoint"),
        ((view(1, FULL), view(2, FULL, savepoint="savepoints/a")), KEPT, "belongs to a savepoint"),
        (
            CHAIN,
            StorageView(retained=(2,), stored=(stored(2, FULL, INCREMENT, gone=FULL),)),
            "needs job/shared/chk-1/full, which is gone",
        ),
        (
            (*CHAIN, view(3, "job/shared/chk-3/full")),
            StorageView(retained=(3,), orphans=(f"checkpoints/{INCREMENT}",)),
            "is still there",
        ),
    ],
    ids=["replaced", "of a savepoint", "in a savepoint", "deleted too early", "left over"],
)
def test_each_mistake_is_found(views: tuple[SnapshotView, ...], storage: StorageView, said: str) -> None:
    finding = judged(views, storage)
    assert finding.verdict is Verdict.INVALID and said in finding.summary


def test_a_file_that_is_left_and_that_no_other_checkpoint_could_name_is_not_its_matter() -> None:
    own = "job/chk-2/channels"
    left = StorageView(retained=(3,), orphans=(f"checkpoints/{own}",))
    assert judged((view(1, FULL), view(2, FULL, own), view(3, FULL)), left).verdict is Verdict.VALID


def test_what_a_job_left_that_did_not_finish_is_not_judged() -> None:
    left = StorageView(retained=(2,), orphans=(f"checkpoints/{FULL}",))
    assert judged(CHAIN, left, End.FAILED).verdict is Verdict.VALID


def test_it_judges_plans_with_incremental_checkpoints_only() -> None:
    names = [checker.name for checker in checkers_for(filled(PLAN), frozenset(Capability))]
    assert SharedFilesKept.name in names
    assert SharedFilesKept.name not in [
        one.name for one in checkers_for(filled(a_plan()), frozenset(Capability))
    ]


def test_a_campaign_of_increments_must_have_seen_some() -> None:
    counted = AllSometimes().each["sometimes-reused"]
    assert counted.finding() is None
    for _ in range(4):
        counted.add(summary_of(judged((view(1, "a"),), None)))
    assert counted.finding() is None, "too few trials to expect it"
    for views, verdict in (((view(1, "a"),), Verdict.UNKNOWN), (CHAIN, Verdict.VALID)):
        counted.add(summary_of(judged(views, None)))
        finding = counted.finding()
        assert finding is not None and (finding.verdict, finding.clauses) == (verdict, ("SNP-5",))


def summary_of(*findings: Finding) -> TrialSummary:
    return TrialSummary(0, Verdict.VALID, findings=findings)
