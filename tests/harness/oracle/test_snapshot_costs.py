"""The checkers of what snapshots cost: files, requests, and what could have been named again (SNP-8, SNP-5)."""

from __future__ import annotations

import msgspec
import pytest

from barrier_tck.faults.kinds.refuse_deletions import RefuseDeletions
from barrier_tck.faults.targets import COORDINATOR
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.oracle.checkers.increments_reuse import IncrementsReuse
from barrier_tck.harness.oracle.checkers.snapshot_costs import SnapshotCosts
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.history import NamedFile, SnapshotView, StateView
from barrier_tck.harness.record.operations import SavepointRequested, StorageAsked
from barrier_tck.harness.record.verdict import Finding, Verdict
from tests.harness.oracle.oracle_histories import Book, a_context, a_plan

WHO = "totals[0]"
PLAN = a_plan()
SHARING = a_plan(checkpoints=CheckpointPlan(incremental=True))


def state(changed: int) -> StateView:
    entries = {f'["k{number}"]': [1 + (number < changed)] for number in range(10)}
    return StateView("totals", WHO, "aggregate", entries)


def view(checkpoint: int, *paths: str, attempt: int = 1, changed: int = 0) -> SnapshotView:
    files = {WHO: tuple(NamedFile(path, 9, f"crc32:{path}", shared=True) for path in paths)}
    return SnapshotView(checkpoint, attempt, {}, (state(changed),), (WHO,), files=files)


def asked(checkpoint: int, attempt: int = 1, reusable: int | None = None, **requests: int) -> StorageAsked:
    return StorageAsked(WHO, attempt, checkpoint, requests, reusable)


def costs(*notes: StorageAsked, plan: TrialPlan = PLAN) -> Finding:
    """Judge two checkpoints of a first attempt, and one of a second that restored the first of them."""
    book = Book().attempt(1).triggered(1).triggered(2)
    for note in notes:
        if note.attempt == 1:
            book.tell(note, "storage")
    book.completed(1).attempt_failed(1).attempt(2, 1).triggered(3, 2)
    for note in notes:
        if note.attempt == 2:
            book.tell(note, "storage")
    context = a_context(plan, book)
    history = msgspec.structs.replace(context.history, checkpoints=(view(1, "a"), view(3, "c", attempt=2)))
    return SnapshotCosts().check(type(context)(plan, history, context.faults))


def test_one_file_with_two_requests_for_each_checkpoint_and_one_read_are_what_is_needed() -> None:
    finding = costs(
        asked(1, write=1, sync=1), asked(2, write=2, sync=2), asked(3, 2, read=1, write=1, sync=1)
    )
    assert (finding.verdict, finding.clauses) == (Verdict.VALID, ("SNP-8",))
    assert (finding.counts["files"], finding.counts["requests"]) == (3, 7)


def test_a_system_that_wrote_no_file_shows_nothing() -> None:
    assert (costs().verdict, costs().clauses) == (Verdict.VALID, ())
    assert costs(asked(1)).clauses == ()


@pytest.mark.parametrize(
    ("note", "said"),
    [
        (asked(2, write=3, sync=3), "wrote 3 files for 2 checkpoints"),
        (asked(2, write=2, sync=9), "made names durable 9 times"),
        (asked(2, write=2, sync=2, list=4), "listed or looked up files 4 times"),
        (asked(2, write=2, sync=2, list=2, exists=2), "listed or looked up files 4 times"),
        (asked(2, write=2, sync=2, delete=5), "deleted files 5 times"),
        (asked(3, 2, read=2, write=1, sync=1), "read 2 files, and restored a checkpoint of 1"),
    ],
)
def test_what_is_asked_for_too_often_is_found(note: StorageAsked, said: str) -> None:
    finding = costs(note)
    assert finding.verdict is Verdict.INVALID and said in finding.summary
    (evidence,) = finding.evidence
    assert (evidence.clause, finding.counts["wrong"]) == ("SNP-8", 1)


def coordinator_costs(requests: dict[str, int], plan: TrialPlan = PLAN) -> Finding:
    """Judge what a coordinator asked until it completed the second of two checkpoints."""
    note = StorageAsked(COORDINATOR, 1, 2, requests)
    book = Book().attempt(1).checkpoint(1).checkpoint(2).tell(note, "storage")
    return SnapshotCosts().check(a_context(plan, book))


ENOUGH = {"write": 15, "sync": 12, "list": 10, "exists": 16, "delete": 22}
"""What a coordinator that starts, and completes two checkpoints of one attempt, may ask for at the most."""


@pytest.mark.parametrize("kind", ENOUGH)
def test_the_requests_of_the_coordinator_are_bounded_by_its_checkpoints(kind: str) -> None:
    assert coordinator_costs(ENOUGH).verdict is Verdict.VALID
    finding = coordinator_costs(ENOUGH | {kind: ENOUGH[kind] + 1})
    assert finding.verdict is Verdict.INVALID
    assert f"sent {ENOUGH[kind] + 1} requests of the kind {kind}; 2 checkpoints need" in finding.summary
    assert [(one.clause, one.place) for one in finding.evidence] == [("SNP-8", COORDINATOR)]


def test_files_of_parts_that_come_when_their_checkpoint_was_aborted_are_deleted_one_by_one() -> None:
    """The coordinator gives up a checkpoint, and subtasks that have not heard of it yet acknowledge their parts."""

    def until_2(late: int, deletions: int) -> Verdict:
        book = Book().attempt(1).checkpoint(1).triggered(2).aborted(2)
        for _ in range(late):
            book.acknowledged(2, subtasks=(WHO,))
        book.checkpoint(3).tell(StorageAsked(COORDINATOR, 1, 3, {"delete": deletions}), "storage")
        return SnapshotCosts().check(a_context(PLAN, book)).verdict

    assert until_2(0, 28) is Verdict.VALID
    assert until_2(0, 29) is Verdict.INVALID
    assert until_2(3, 31) is Verdict.VALID
    assert until_2(3, 32) is Verdict.INVALID


def test_one_lookup_for_each_late_part_says_whether_its_savepoint_is_complete() -> None:
    def until_2(late: int, lookups: int, *savepoints: SavepointRequested) -> Verdict:
        book = Book().attempt(1)
        for savepoint in savepoints:
            book.tell(savepoint)
        book.triggered(1).aborted(1)
        for _ in range(late):
            book.acknowledged(1, subtasks=(WHO,))
        book.checkpoint(2).tell(StorageAsked(COORDINATOR, 1, 2, {"exists": lookups}), "storage")
        return SnapshotCosts().check(a_context(PLAN, book)).verdict

    savepoint = SavepointRequested("kept", False)
    assert (until_2(0, 16), until_2(0, 17)) == (Verdict.VALID, Verdict.INVALID)
    assert (until_2(3, 16), until_2(3, 17)) == (Verdict.VALID, Verdict.INVALID), "there is no savepoint"
    assert (until_2(0, 20, savepoint), until_2(0, 21, savepoint)) == (Verdict.VALID, Verdict.INVALID)
    assert (until_2(3, 23, savepoint), until_2(3, 24, savepoint)) == (Verdict.VALID, Verdict.INVALID)


def test_ids_that_were_used_before_increments_and_refused_deletions_need_more_requests() -> None:
    used = a_plan(checkpoints=CheckpointPlan(first_id=900))
    assert coordinator_costs({"exists": 70, "delete": 210}, used).verdict is Verdict.VALID
    assert coordinator_costs({"list": 14}, SHARING).verdict is Verdict.VALID
    refused = a_plan(faults=(ScheduledFault(RefuseDeletions(10), After(ProtocolPoint.ATTEMPT_STARTED)),))
    assert coordinator_costs({"delete": 1_000}, refused).verdict is Verdict.VALID
    assert coordinator_costs({"write": 1_000}, refused).verdict is Verdict.INVALID


def test_copies_databases_and_records_in_flight_need_more_files() -> None:
    split, table, each = (asked(1, write=number, sync=number) for number in (8, 24, 4))
    copies = a_plan(local_recovery=True)
    assert (costs(split).verdict, costs(split, plan=copies).verdict) == (Verdict.INVALID, Verdict.VALID)
    database = a_plan(state_backend="rocksdb")
    assert (costs(table).verdict, costs(table, plan=database).verdict) == (Verdict.INVALID, Verdict.VALID)
    overtaking = a_plan(checkpoints=CheckpointPlan(mode="unaligned"))
    assert (costs(each).verdict, costs(each, plan=overtaking).verdict) == (Verdict.INVALID, Verdict.VALID)


def reuse(*views: SnapshotView, reusable: int | None = 1, plan: TrialPlan = SHARING) -> Finding:
    book = Book().attempt(1).checkpoint(1).checkpoint(2).tell(asked(2, reusable=reusable), "storage")
    context = a_context(plan, book)
    history = msgspec.structs.replace(context.history, checkpoints=views)
    return IncrementsReuse().check(type(context)(plan, history, context.faults))


def test_what_a_subtask_knew_to_be_complete_is_named_again_if_little_changed() -> None:
    again = reuse(view(1, "full"), view(2, "full", "increment", changed=2))
    assert (again.verdict, again.counts["increments"]) == (Verdict.VALID, 1)
    anew = reuse(view(1, "full"), view(2, "full-again", "increment", changed=2))
    assert anew.verdict is Verdict.INVALID and "of which it knew that it was complete" in anew.summary


def test_a_full_snapshot_is_right_if_nothing_could_be_reused_or_most_has_changed() -> None:
    anew = (view(1, "full"), view(2, "full-again", changed=2))
    assert reuse(*anew, reusable=None).counts["increments"] == 0
    changed = reuse(view(1, "full"), view(2, "full-again", changed=6))
    assert (changed.verdict, changed.counts["increments"]) == (Verdict.VALID, 0)


def sized(number: int, changed: int, **files: int) -> SnapshotView:
    named = tuple(NamedFile(path, size, f"crc32:{path}", shared=True) for path, size in files.items())
    return msgspec.structs.replace(view(number, changed=changed), files={WHO: named})


@pytest.mark.parametrize(
    ("size", "plan", "verdict"),
    [
        (1_000, SHARING, Verdict.INVALID),
        (500, SHARING, Verdict.VALID),
        (1_000, a_plan(checkpoints=CheckpointPlan(incremental=True, compression="zstd")), Verdict.VALID),
        (1_000, a_plan(checkpoints=SHARING.checkpoints, state_backend="rocksdb"), Verdict.VALID),
        (1_000, a_plan(checkpoints=SHARING.checkpoints, workload=WorkloadPlan("lineage")), Verdict.VALID),
    ],
    ids=["all again", "what changed", "compressed", "a database", "entries that come and go"],
)
def test_an_increment_is_no_larger_than_what_has_changed_explains(
    size: int, plan: TrialPlan, verdict: Verdict
) -> None:
    """Of ten entries, which take 1,000 bytes, one has changed: neither output nor state shows an increment of all."""
    views = (sized(1, 0, full=1_000), sized(2, 1, full=1_000, increment=size))
    found = reuse(*views, plan=plan)
    assert found.verdict is verdict
    assert ("an increment of 1000 bytes of totals[0]" in found.summary) == (verdict is Verdict.INVALID)


def test_records_in_flight_are_no_part_of_an_increment() -> None:
    """They have a file of their own, which no later checkpoint shares, and which may be larger than all entries."""
    later = sized(2, 1, full=1_000, increment=400)
    channels = NamedFile("channels", 5_000, "crc32:channels", shared=False)
    found = reuse(
        sized(1, 0, full=1_000),
        msgspec.structs.replace(later, files={WHO: (*later.files[WHO], channels)}),
        plan=SHARING,
    )
    assert (found.verdict, found.counts["measured"]) == (Verdict.VALID, 1)


def test_an_increment_is_not_measured_by_a_full_snapshot_that_nobody_has_seen_alone() -> None:
    """What is in a file that comes with increments is not known, so neither is what an entry takes."""
    views = (sized(1, 0, full=100, increment=400), sized(2, 1, full=100, increment=400, again=900))
    found = reuse(*views)
    assert (found.verdict, found.counts["measured"]) == (Verdict.VALID, 0)


def _of_subtask(kind: str, begun: int, incremental: bool) -> int:
    """Return the most requests of a subtask with one stateful operator that has begun so many checkpoints."""
    return {
        "write": begun,
        "sync": begun + begun * (1 + incremental) + 4,
        "list": begun + 1,
        "exists": begun + 1,
        "delete": 2 * begun,
    }[kind]


def _of_coordinator(kind: str, begun: int, incremental: bool) -> int:
    """Return the most requests of a coordinator in its first attempt, which wrote no file that it may drop."""
    return {
        "write": 2 * begun + 11,
        "sync": begun + 10,
        "list": 2 * begun * incremental + 10,
        "exists": 3 * begun + 10,
        "read": 11 + CheckpointPlan().retained,
        "delete": 6 * begun + 10,
    }[kind]


LIMITS = {WHO: _of_subtask, COORDINATOR: _of_coordinator}


def _over(who: str, kind: str, plan: TrialPlan, excess_at: int | None, attempt: int, last: int) -> Finding:
    """Judge what was asked until each of ``last`` checkpoints of an attempt, with one request too many at one of them.

    An attempt before it, if there is one, had twice as many checkpoints.
    """
    incremental = plan.checkpoints.incremental
    book, first = Book(), 1
    for earlier in range(1, attempt):
        book.attempt(earlier)
        for _ in range(6):
            book.checkpoint(first, earlier)
            first += 1
        book.attempt_failed(earlier)
    book.attempt(attempt)
    for begun in range(1, last + 1):
        book.triggered(first, attempt)
        # A file that is written allows a sync and a deletion more, so all that were allowed are written.
        requests = {"write": begun} if who == WHO else {}
        requests[kind] = LIMITS[who](kind, begun, incremental) + (begun == excess_at)
        book.tell(StorageAsked(who, attempt, first, requests), "storage").nothing(2).completed(first, attempt)
        first += 1
    shown = msgspec.structs.replace(view(1), files={})
    return SnapshotCosts().check(a_context(plan, book, views=(shown,)))


@pytest.mark.parametrize("plan", [PLAN, SHARING], ids=["full", "incremental"])
@pytest.mark.parametrize(
    ("who", "kind", "attempt"),
    [
        *(
            (WHO, kind, attempt)
            for kind in ("write", "sync", "list", "exists", "delete")
            for attempt in (1, 2)
        ),
        *((COORDINATOR, kind, 1) for kind in ("write", "sync", "list", "exists", "read", "delete")),
    ],
)
def test_requests_are_bounded_by_the_checkpoints_so_far_and_what_comes_later_excuses_nothing(
    who: str, kind: str, attempt: int, plan: TrialPlan
) -> None:
    count = 4
    assert _over(who, kind, plan, None, attempt, count).verdict is Verdict.VALID
    for excess_at in range(1, count + 1):
        for last in range(1, count + 1):
            found = _over(who, kind, plan, excess_at, attempt, last)
            expected = Verdict.INVALID if last >= excess_at else Verdict.VALID
            assert found.verdict is expected, (excess_at, last, found.summary)
            seen = [(one.place, one.checkpoint, one.attempt) for one in found.evidence]
            number = 6 * (attempt - 1) + excess_at
            assert seen == ([(who, number, attempt)] if last >= excess_at else [])
