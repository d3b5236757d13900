"""The judge of local recovery on literal histories: what it accepts, and everything that it refuses."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from barrier_tck.faults.fault import Fault
from barrier_tck.faults.kinds.damage_local_copy import DamageLocalCopy
from barrier_tck.faults.kinds.damage_primary import DamagePrimary
from barrier_tck.faults.kinds.fail_local_writes import FailLocalWrites
from barrier_tck.faults.kinds.fail_primary_writes import FailPrimaryWrites
from barrier_tck.faults.kinds.lose_host import LoseHost
from barrier_tck.faults.targets import Damage
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.campaign.sometimes import AllSometimes
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.checkers.local_recovery import LocalRecovery
from barrier_tck.harness.oracle.evidence.record_routes import key_groups_of
from barrier_tck.harness.plan.trial_plan import DeploymentPlan, RescalePlan
from barrier_tck.harness.record.history import NamedFile, SnapshotView
from barrier_tck.harness.record.operations import (
    Acknowledged,
    AttemptEnded,
    AttemptRunning,
    CheckpointAborted,
    CheckpointTriggered,
    FileRead,
    JobStopped,
    LocalCopyReported,
    Placed,
    ReadsObserved,
    Restored,
    ServedFile,
    ServedFrom,
)
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.records import FaultRecord, TrialSummary
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.reference.bugs.catalogue import planted_bugs
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.trial.trial_run import execute
from barrier_tck.harness.workloads.barrier_jobs import barrier_view
from barrier_tck.harness.workloads.keyed_totals import KeyedTotals
from barrier_tck.harness.workloads.workload_names import filled
from tests.harness.oracle.oracle_histories import Book, a_context, a_plan

WHO, HOME, AWAY = "totals[0]", "host-0", "host-1"
OTHER = "sink[0]"
"""It is where ``WHO`` is only when it is placed again."""
FILES = ("chk-1/state-0", "chk-1/state-1")
NAMED = tuple(NamedFile(path, 9, f"crc32:{path}") for path in FILES)


def restored_file(
    path: str, served_by: ServedFrom = ServedFrom.SECONDARY, groups: tuple[int, int] = (0, 8)
) -> ServedFile:
    reason = None if served_by is ServedFrom.SECONDARY else Reason.MISSING
    return ServedFile("totals", path, groups, served_by, reason=reason)


def judged(
    files: list[ServedFile] | None,
    *,
    placed: str = HOME,
    homes: tuple[str, ...] = (HOME,),
    fault: Fault | None = None,
    kept: bool = True,
    held: tuple[int, ...] = (1,),
    confirmed: int | None = None,
    fired: bool = True,
    reads: list[FileRead] | None = None,
    others_seen: bool = False,
    refused: bool = False,
    at_once: bool = False,
    at_point_of: int | None = None,
    repeatable: bool = False,
) -> Finding:
    """Judge one checkpoint, one failure, and one subtask's restore of this checkpoint.

    ``at_once``: the fault fires at the moment at which the next attempt is placed. ``at_point_of``: it fires at a point
    of this attempt.
    """
    book = Book().tell(Placed(1, hosts={WHO: HOME, OTHER: AWAY}, slots={HOME: 2, AWAY: 2}, homes={}))
    book.attempt(1).triggered(1)
    report = LocalCopyReported(kept, confirmed, held, HOME, Reason.STORAGE_FAILED if refused else None)
    book.tell(Acknowledged(1, 1, WHO, report))
    book.completed(1).attempt_failed(1)
    faults: tuple[FaultRecord, ...] = ()
    plan = msgspec.structs.replace(a_plan(), local_recovery=True)
    if fault is not None:
        plan = msgspec.structs.replace(
            plan, faults=(ScheduledFault(fault, After(ProtocolPoint.ATTEMPT_FAILED)),)
        )
        if fired:
            faults = (
                FaultRecord(
                    *(0, "a fault", "kind", "then", "attempt_running" if at_point_of else None, "fired"),
                    len(book.operations) + 2.0 * at_once,
                    attempt=at_point_of,
                ),
            )
        book.fault()
    slots = {HOME: 2, AWAY: 2}
    book.tell(Placed(2, hosts={WHO: placed, OTHER: HOME}, slots=slots, homes={WHO: homes} if homes else {}))
    if reads is not None:
        book.tell(ReadsObserved(WHO, 2, tuple(reads)), "file systems")
    if others_seen:
        book.tell(ReadsObserved("totals[1]", 2, ()), "file systems")
    if files is not None:
        book.tell(Restored(WHO, 2, 1, tuple(files)), WHO)
    book.attempt(2, restored=1)
    view = SnapshotView(1, 1, {}, files={WHO: NAMED})
    context = a_context(plan, book, views=(view,))
    return LocalRecovery().check(
        TrialContext(
            plan,
            context.history,
            faults=faults,
            subtasks=context.subtasks,
            job=barrier_view(plan),
            capabilities=frozenset({Capability.DETERMINISTIC_REPLAY.name} if repeatable else ()),
        )
    )


BOTH = [restored_file(path) for path in FILES]
NEITHER = [restored_file(path, ServedFrom.PRIMARY) for path in FILES]
LOST = DamageLocalCopy(WHO, Damage.MISSING)


def test_an_intact_copy_at_home_must_serve() -> None:
    found = judged(BOTH)
    assert found.verdict is Verdict.VALID and found.counts["secondary"] == 2
    assert {"LOC-1", "LOC-4", "LOC-9"} <= set(found.clauses)
    refused = judged(NEITHER)
    assert refused.verdict is Verdict.INVALID and "did not use its intact local copy" in refused.summary


def test_a_damaged_copy_must_not_serve() -> None:
    assert judged(NEITHER, fault=LOST).verdict is Verdict.VALID
    trusted = judged(BOTH, fault=LOST)
    assert trusted.verdict is Verdict.INVALID and "although the copy was missing" in trusted.summary


@pytest.mark.parametrize("damage", [damage for damage in Damage if damage is not Damage.PARTIAL])
def test_a_restore_meets_the_damage_on_the_host_of_the_copy_or_where_no_host_tells_of_one(
    damage: Damage,
) -> None:
    fault, met, done = DamageLocalCopy(WHO, damage), f"met_{damage.value}", f"done_{damage.value}"
    assert judged(NEITHER, fault=fault).counts[met] == 1
    assert judged(NEITHER, fault=fault, placed=AWAY, homes=()).counts[met] == 1
    external_storage = judged(NEITHER, fault=fault, placed=AWAY, homes=(AWAY,)).counts
    assert met not in external_storage and external_storage[done] == 1
    assert met not in judged(NEITHER, fault=fault, fired=False).counts


def test_who_stores_state_and_keeps_no_copy_says_why() -> None:
    silent = judged(NEITHER, kept=False)
    assert silent.verdict is Verdict.INVALID and "LOC-1" in silent.summary and "no reason" in silent.summary
    assert judged(NEITHER, kept=False, refused=True).verdict is Verdict.VALID
    made_up = judged(NEITHER, kept=False, refused=True, repeatable=True)
    assert made_up.verdict is Verdict.INVALID and "which nothing had refused" in made_up.summary
    full = judged(NEITHER, kept=False, refused=True, repeatable=True, fault=FailLocalWrites(WHO))
    assert full.verdict is Verdict.VALID


def test_a_savepoint_that_a_newer_checkpoint_overtook_needs_no_copy() -> None:
    """Copies of checkpoints older than the newest complete one are stale, also while they are being written."""
    assert "LOC-1" not in judged(NEITHER, kept=False, confirmed=2, held=(2,)).summary
    assert "LOC-1" in judged(NEITHER, kept=False, confirmed=1).summary


@pytest.mark.parametrize(
    ("clause", "with_it", "without_it"),
    [
        ("LOC-2", judged(NEITHER, kept=False, refused=True), judged(BOTH)),
        ("LOC-4", judged(BOTH), judged(NEITHER, placed=AWAY, homes=())),
        ("LOC-4", judged(NEITHER, fault=LOST), judged(NEITHER, kept=False, refused=True)),
        ("LOC-5", judged(NEITHER, fault=LOST), judged(BOTH)),
        ("LOC-8", judged(NEITHER, fault=LoseHost(WHO), homes=()), judged(NEITHER, fault=LOST)),
        ("LOC-9", judged(BOTH), judged(BOTH, homes=())),
    ],
    ids=["LOC-2", "LOC-4 home", "LOC-4 damaged", "LOC-5", "LOC-8", "LOC-9"],
)
def test_a_clause_counts_if_the_copy_could_have_done_harm(
    clause: str, with_it: Finding, without_it: Finding
) -> None:
    assert with_it.verdict is without_it.verdict is Verdict.VALID
    assert (clause in with_it.clauses, clause in without_it.clauses) == (True, False)


@pytest.mark.parametrize(
    ("confirmed", "host", "counts"), [(2, HOME, True), (1, HOME, False), (2, AWAY, False)], ids=str
)
def test_tidying_up_counts_if_an_older_copy_had_been_kept_on_the_host(
    confirmed: int, host: str, counts: bool
) -> None:
    book = Book().attempt(1)
    for number, home, known in ((1, host, None), (2, HOME, None), (3, HOME, confirmed)):
        held = (number,) if number != 3 else tuple(range(confirmed, 4))
        book.triggered(number)
        book.tell(Acknowledged(number, 1, WHO, LocalCopyReported(True, known, held, home, None)))
        book.completed(number)
    plan = msgspec.structs.replace(a_plan(), local_recovery=True)
    finding = LocalRecovery().check(a_context(plan, book))
    assert (finding.verdict, "LOC-3" in finding.clauses) == (Verdict.VALID, counts)


def test_the_restore_after_a_full_disk_is_counted() -> None:
    full = FailLocalWrites(WHO)
    assert judged(NEITHER, fault=full, kept=False, refused=True).counts["met_full_disk"] == 1
    assert "met_full_disk" not in judged(NEITHER, kept=False, refused=True).counts


@pytest.mark.parametrize(("fault", "blamed"), [(FailLocalWrites(WHO), True), (FailPrimaryWrites(WHO), False)])
def test_a_checkpoint_that_is_declined_when_only_a_local_disk_was_full_is_wrong(
    fault: Fault, blamed: bool
) -> None:
    trigger = After(ProtocolPoint.CHECKPOINT_TRIGGERED)
    plan = msgspec.structs.replace(a_plan(), local_recovery=True, faults=(ScheduledFault(fault, trigger),))
    book = Book().attempt(1).fault().triggered(1).tell(CheckpointAborted(1, 1, Reason.DECLINED))
    record = FaultRecord(0, "a fault", "kind", "then", None, "fired", 1.0)
    context = a_context(plan, book)
    repeatable = frozenset({Capability.DETERMINISTIC_REPLAY.name})
    found = LocalRecovery().check(
        TrialContext(
            plan, context.history, faults=(record,), subtasks=context.subtasks, capabilities=repeatable
        )
    )
    assert any("LOC-2" in example for example in found.examples) is blamed


def test_a_fault_that_did_not_fire_excuses_nothing() -> None:
    assert judged(NEITHER, fault=LOST, fired=False).verdict is Verdict.INVALID


def test_a_partial_copy_must_serve_a_part() -> None:
    partial = DamageLocalCopy(WHO, Damage.PARTIAL)
    mixed = [restored_file(FILES[0]), restored_file(FILES[1], ServedFrom.PRIMARY)]
    found = judged(mixed, fault=partial)
    assert found.verdict is Verdict.VALID and "LOC-6" in found.clauses
    assert "LOC-6" in judged(NEITHER, fault=partial).summary
    assert "LOC-6" in judged(BOTH, fault=partial).summary


def test_a_copy_on_a_lost_host_must_not_serve() -> None:
    found = judged(NEITHER, fault=LoseHost(WHO), homes=())
    assert found.verdict is Verdict.VALID and "LOC-8" in found.clauses
    assert "its host was lost" in judged(BOTH, fault=LoseHost(WHO), homes=()).summary


def test_a_host_is_not_lost_because_the_job_started_again_there_at_the_very_moment_of_the_loss() -> None:
    assert judged(BOTH, fault=LoseHost(OTHER), at_once=True).verdict is Verdict.VALID
    assert judged(BOTH, fault=LoseHost(WHO), homes=()).verdict is Verdict.INVALID


def test_a_host_that_was_lost_once_the_attempt_ran_kept_its_copy_until_then() -> None:
    """A restore takes no virtual time, so that placement, restore and loss may share one moment."""
    lost = LoseHost(WHO)
    assert judged(BOTH, fault=lost, at_once=True, at_point_of=2).verdict is Verdict.VALID
    assert judged(BOTH, fault=lost, at_once=True, at_point_of=1).verdict is Verdict.INVALID


def test_a_copy_on_another_host_or_never_kept_must_not_serve() -> None:
    assert "its copy was on host-0" in judged(BOTH, placed=AWAY, homes=()).summary
    assert judged(NEITHER, placed=AWAY, homes=()).verdict is Verdict.VALID
    assert "no copy was kept" in judged(BOTH, kept=False, refused=True).summary


def test_a_subtask_that_could_return_must() -> None:
    found = judged(NEITHER, placed=AWAY)
    assert found.verdict is Verdict.INVALID and "LOC-9" in found.summary


def test_every_file_is_restored_exactly_once_and_reported_once() -> None:
    assert "read" in judged(BOTH[:1]).summary
    assert "read" in judged([*BOTH, BOTH[0]]).summary
    assert "reported 0 times" in judged(None).summary


def test_foreign_key_groups_are_not_restored() -> None:
    foreign = [restored_file(path, groups=(8, 16)) for path in FILES]
    assert "outside of its own (0, 8)" in judged(foreign).summary


# --- what was read, compared with what is reported ----------------------------------------------------------

MANIFEST = FileRead(ServedFrom.SECONDARY, "totals-0/chk-1-a1/_manifest", 50, "crc32:m")
LOCAL = [
    FileRead(ServedFrom.SECONDARY, f"there/{n}", file.size, file.checksum) for n, file in enumerate(NAMED)
]
DURABLE = [FileRead(ServedFrom.PRIMARY, file.path, file.size, file.checksum) for file in NAMED]


def test_a_restore_that_read_what_it_reports_is_right() -> None:
    found = judged(BOTH, reads=[MANIFEST, *LOCAL])
    assert found.verdict is Verdict.VALID and found.counts["observed"] == 1
    assert judged(NEITHER, fault=LOST, reads=DURABLE).verdict is Verdict.VALID
    # A copy that was read but turned out to belong elsewhere did not serve.
    flipped = [msgspec.structs.replace(read, checksum="crc32:other") for read in LOCAL]
    assert judged(NEITHER, fault=LOST, reads=[MANIFEST, *flipped, *DURABLE]).verdict is Verdict.VALID


@pytest.mark.parametrize(
    ("files", "reads", "words"),
    [
        (
            BOTH,
            [MANIFEST, *DURABLE],
            "says that the secondary served chk-1/state-0, but was seen to read the primary",
        ),
        (
            NEITHER,
            [MANIFEST, *LOCAL],
            "says that the primary served chk-1/state-0, but was seen to read the secondary",
        ),
        (BOTH, [MANIFEST], "was not seen to read it anywhere"),
        (
            BOTH,
            [*LOCAL, FileRead(ServedFrom.PRIMARY, "chk-0/old", 9, "crc32:o")],
            "chk-0/old in durable storage",
        ),
    ],
    ids=["claims the copy", "claims the primary", "read nothing", "does not tell"],
)
def test_a_restore_that_reports_what_it_did_not_read_is_wrong(
    files: list[ServedFile], reads: list[FileRead], words: str
) -> None:
    found = judged(files, reads=reads)
    assert found.verdict is Verdict.INVALID and any(words in example for example in found.examples), (
        found.examples
    )


def test_a_restore_that_nobody_observed_while_others_were_observed_shows_nothing() -> None:
    found = judged(BOTH, others_seen=True)
    assert found.verdict is Verdict.UNKNOWN and "were not observed" in found.summary


def test_a_restore_that_only_claims_its_local_copy_shows_by_what_it_read_and_by_nothing_else(
    tmp_path: Path,
) -> None:
    plan = next(planted_bugs()["LO-08"].plans("simulated"))
    result = execute(plan, ReferenceSimulated(), tmp_path)
    wrong = [finding.checker for finding in result.record.findings if finding.verdict is not Verdict.VALID]
    assert wrong == ["local-recovery"] and result.history is not None
    told = tuple(line for line in result.history.operations if not isinstance(line.operation, ReadsObserved))
    history = msgspec.structs.replace(result.history, operations=told)
    assert LocalRecovery().check(TrialContext(filled(plan), history)).verdict is Verdict.VALID


def test_an_older_copy_that_is_kept_is_a_leak() -> None:
    for held in ((1, 3), (2, 3)):
        found = judged(BOTH, held=held, confirmed=3)
        assert found.verdict is Verdict.INVALID and "LOC-3" in found.summary


def test_a_damage_that_no_restore_met_shows_nothing() -> None:
    plan = msgspec.structs.replace(
        a_plan(), local_recovery=True, faults=(ScheduledFault(LOST, After(ProtocolPoint.ATTEMPT_FAILED)),)
    )
    context = a_context(plan, Book().attempt(1).checkpoint(1))
    record = FaultRecord(0, "a fault", "kind", "then", None, "fired", 3.0)
    found = LocalRecovery().check(TrialContext(plan, context.history, faults=(record,)))
    assert found.verdict is Verdict.UNKNOWN and "missing local copy" in found.summary


@pytest.mark.parametrize(
    ("files", "verdict"),
    [
        ((NAMED[:1], NAMED[:1]), Verdict.VALID),
        ((NAMED[:1], NAMED), Verdict.UNKNOWN),
        (((), ()), Verdict.VALID),
        ((NAMED[:1],), Verdict.UNKNOWN),
    ],
    ids=["nothing new", "something new", "no state", "not opened"],
)
def test_a_failing_primary_is_met_unless_nothing_is_written_to_it(
    files: tuple[tuple[NamedFile, ...], ...], verdict: Verdict
) -> None:
    fault = ScheduledFault(FailPrimaryWrites(WHO), After(ProtocolPoint.CHECKPOINT_TRIGGERED, nth=2))
    plan = msgspec.structs.replace(a_plan(), local_recovery=True, faults=(fault,))
    book = Book().attempt(1).checkpoint(1).checkpoint(2)
    fired_ms = [line.time_ms for line in a_context(plan, book).history.of(CheckpointTriggered)][-1]
    views = tuple(
        SnapshotView(number, 1, {}, files={WHO: named} if named else {})
        for number, named in enumerate(files, 1)
    )
    history = msgspec.structs.replace(a_context(plan, book).history, checkpoints=views)
    record = FaultRecord(0, "a fault", "kind", "then", None, "fired", fired_ms)
    assert LocalRecovery().check(TrialContext(plan, history, faults=(record,))).verdict is verdict


@pytest.mark.parametrize("fault", [FailLocalWrites(WHO), FailPrimaryWrites(WHO)])
@pytest.mark.parametrize(("between", "verdict"), [(0, Verdict.VALID), (1, Verdict.UNKNOWN)])
@pytest.mark.parametrize("reason", [Reason.ATTEMPT_FAILED, Reason.EXPIRED, Reason.SUBSUMED])
def test_a_refused_write_need_not_show_if_its_checkpoint_was_given_up_before(
    fault: Fault, between: int, verdict: Verdict, reason: Reason
) -> None:
    """The first checkpoint after the fault is given up, or a later one: then the write was not refused."""
    scheduled = ScheduledFault(fault, After(ProtocolPoint.CHECKPOINT_COMPLETED))
    plan = msgspec.structs.replace(a_plan(), local_recovery=True, faults=(scheduled,))
    book = Book().attempt(1).checkpoint(1)
    fired_ms = a_context(plan, book).history.operations[-1].time_ms
    book.fault()
    for number in range(between):
        book.checkpoint(2 + number)
    book.triggered(2 + between).tell(CheckpointAborted(2 + between, 1, reason)).attempt_failed(1)
    late = LocalCopyReported(False, 1, (1,), HOME, Reason.STORAGE_FAILED)
    book.tell(Acknowledged(2 + between, 1, WHO, late)).attempt(2, restored=1 + between)
    record = FaultRecord(0, "a fault", "kind", "then", None, "fired", fired_ms)
    context = a_context(plan, book)
    found = LocalRecovery().check(
        TrialContext(plan, context.history, faults=(record,), subtasks=context.subtasks)
    )
    assert found.verdict is verdict and "LOC-2" not in found.clauses


@pytest.mark.parametrize(("placed", "met"), [(HOME, 1), (AWAY, 0)])
def test_a_job_that_could_restore_neither_copy_met_the_local_one_if_it_was_beside_it(
    placed: str, met: int
) -> None:
    faults: tuple[Fault, ...] = (DamageLocalCopy(WHO, Damage.TRUNCATED), DamagePrimary(WHO, Damage.TRUNCATED))
    then = After(ProtocolPoint.ATTEMPT_FAILED)
    plan = msgspec.structs.replace(
        a_plan(), local_recovery=True, faults=tuple(ScheduledFault(fault, then) for fault in faults)
    )
    book = Book().tell(Placed(1, hosts={WHO: HOME}, slots={HOME: 2, AWAY: 2}, homes={}))
    book.attempt(1).triggered(1)
    book.tell(Acknowledged(1, 1, WHO, LocalCopyReported(True, None, (1,), HOME, None)))
    book.completed(1).attempt_failed(1)
    hurt_ms = float(len(book.operations))
    book.fault().fault()
    book.tell(Placed(2, hosts={WHO: placed}, slots={HOME: 2, AWAY: 2}, homes={WHO: (HOME,)}))
    book.started(2, 1).tell(AttemptEnded(2, Reason.CHECKPOINT_UNREADABLE))
    records = tuple(FaultRecord(n, "a fault", "kind", "then", None, "fired", hurt_ms) for n in range(2))
    context = a_context(plan, book)
    found = LocalRecovery().check(
        TrialContext(plan, context.history, faults=records, subtasks=context.subtasks, job=barrier_view(plan))
    )
    assert (found.counts["done_truncated"], found.counts.get("met_truncated", 0)) == (1, met)


def test_the_judge_is_told_of_the_key_groups_of_the_runtime() -> None:
    from barrier_tck.reference_impl.protocol.key_groups import key_group_range

    for width in (1, 2, 3, 5):
        plan = msgspec.structs.replace(
            a_plan(), job=KeyedTotals().job("line", {"totals": width}), deployment=DeploymentPlan(16)
        )
        for index in range(width):
            owned = key_group_range(index, width, 16)
            owner = key_groups_of(f"totals[{index}]", barrier_view(plan))
            assert owner == range(owned.start, owned.end)


# --- what a campaign must have seen -------------------------------------------------------------------------


def a_trial(note: str, setup: str, **counts: int) -> TrialSummary:
    finding = Finding("local-recovery", ("LOC-4",), Verdict.VALID, "", counts)
    return TrialSummary(0, Verdict.VALID, note=note, setup=setup, findings=(finding,))


def test_damage_that_a_campaign_lists_must_be_met_in_every_setup_and_drawn_damage_need_not() -> None:
    seen = AllSometimes().each["sometimes-falls-back"]
    seen.add(a_trial("", "", done_missing=1))
    seen.add(a_trial("nothing is damaged", "", restores=3))
    assert seen.finding() is None
    seen.add(a_trial("cell", "rocksdb", done_missing=1))
    seen.add(a_trial("cell", "rocksdb", done_missing=1, met_missing=1))
    found = seen.finding()
    assert found is not None and (found.verdict, found.counts) == (Verdict.VALID, {"cells": 1, "met": 1})
    seen.add(a_trial("cell", "heap", done_missing=1, met_truncated=1))
    found = seen.finding()
    assert found is not None and (found.verdict, found.counts) == (Verdict.UNKNOWN, {"cells": 2, "met": 1})
    assert (found.checker, found.clauses) == ("sometimes-falls-back", ("LOC-4",))
    assert "'cell' (missing)" in found.summary


# --- restores with another parallelism ----------------------------------------------------------------------


def rescaled(*files: ServedFile, reads: tuple[FileRead, ...] = ()) -> Finding:
    """Judge what one subtask restored of the savepoint of a job that had two keyed subtasks, and now has four."""
    plan = msgspec.structs.replace(filled(a_plan()), rescales=(RescalePlan({"totals": 4}),))
    book = Book().attempt(1).tell(JobStopped(1)).started(2, 1)
    if reads:
        book.tell(ReadsObserved(WHO, 2, reads), "file systems")
    book.tell(Restored(WHO, 2, 1, files), WHO).tell(AttemptRunning(2))
    named = {WHO: NAMED[:1], "totals[1]": NAMED[1:]}
    context = a_context(plan, book, views=(SnapshotView(1, 1, {}, files=named),))
    return LocalRecovery().check(
        TrialContext(
            plan,
            context.history,
            subtasks=context.subtasks,
            job=barrier_view(plan),
            later_jobs=(barrier_view(plan.after_stops(1)),),
        )
    )


def test_a_rescaled_restore_from_the_primaries_is_right() -> None:
    found = rescaled(NEITHER[0], reads=tuple(DURABLE[:1]))
    assert found.verdict is Verdict.VALID and found.counts["rescaled"] == 1, found.summary


@pytest.mark.parametrize(
    ("files", "reads", "words"),
    [
        ((BOTH[0],), (), "although its key groups were"),
        ((BOTH[1],), (), "which totals[1] wrote"),
        ((NEITHER[0], NEITHER[0]), (), "2 times"),
        ((restored_file("chk-1/unknown", ServedFrom.PRIMARY),), (), "which the checkpoint does not name"),
        ((restored_file(FILES[0], ServedFrom.PRIMARY, (8, 16)),), (), "read key groups 8 to 16"),
        ((NEITHER[0],), tuple(LOCAL[:1]), "was seen to read the secondary"),
    ],
    ids=["own copy", "copy of another", "twice", "unknown", "foreign key groups", "claims the primary"],
)
def test_a_rescaled_restore_that_used_the_wrong_copy_is_wrong(
    files: tuple[ServedFile, ...], reads: tuple[FileRead, ...], words: str
) -> None:
    found = rescaled(*files, reads=reads)
    assert found.verdict is Verdict.INVALID and words in found.summary, found.summary
