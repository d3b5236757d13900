"""What a certificate of Spark's state stores compares; grain: a store in Python, right and with one mistake at a time.

Each mistake is one that a provider could make. Whoever leaves out or weakens a comparison finds it here: a mistake is
then not seen, or taken for a breach of another clause.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from barrier_tck.faults.targets import WriteFault
from barrier_tck.harness.certify.engine.levels import DEFAULT_SEED
from barrier_tck.harness.certify.engine.playing import breach_of
from barrier_tck.harness.certify.engine.violation import Violation
from barrier_tck.harness.certify.spark_store import clauses, steps
from barrier_tck.harness.certify.spark_store.java_process import Died
from barrier_tck.harness.certify.spark_store.layouts import (
    MANY,
    PLAIN,
    PREFIXED,
    RANGED,
    Family,
    Key,
)
from barrier_tck.harness.certify.spark_store.properties import PROPERTIES
from barrier_tck.harness.certify.spark_store.session import StoreSession
from barrier_tck.harness.certify.spark_store.session_settings import FORMAT_VERSION, SETTINGS
from barrier_tck.harness.certify.spark_store.stage import StoreFailure, StoreProperty, StoreStage, check
from barrier_tck.harness.certify.spark_store.storage_files import HOW
from barrier_tck.harness.certify.spark_store.targets import CHANGELOG
from tests.harness.certify.spark_store.pretended_stores import (
    MISTAKES,
    AbortsNothing,
    CountsWrongly,
    DeletesOneTooMany,
    DiesAndDeletes,
    EvictsTwice,
    GetsFromAnotherFamily,
    GetsNothing,
    GetsWhatIsNotThere,
    GivesAnotherValue,
    GivesARowTwice,
    GivesUpForGood,
    GivesWhatWasRemoved,
    HasNoOrder,
    IgnoresTheId,
    KeepsADroppedFamily,
    KeepsItToItself,
    KeepsOneCommitOfAVersion,
    LeavesAHalf,
    Machine,
    MergesInFront,
    MergesOnce,
    MissesARow,
    OpensTheNewest,
    PublishesInTwoParts,
    RangesBehindTheStart,
    RangesToTheEnd,
    RangesTwice,
    RangesWithoutOrder,
    ReadsInOneFormat,
    ScansEverything,
    ScansNothing,
    ScansTwice,
    ServesAnOlderOne,
    SpoilsTheBase,
    Store,
    StoreWithIds,
    TakesItForDone,
    play,
)

SEEDS = (DEFAULT_SEED, 1, 2)
A, B, C, OTHER = (0, "a"), (0, "b"), (5, "a"), (-1, "a")
WRITES = (steps.PutRow(0, 0, A, "x"), steps.PutRow(0, 0, B, "y"), steps.PutRow(0, 0, C, "z"))
BATCH = (*WRITES, steps.CommitBatch(0))
NEXT = (steps.PutRow(0, 0, OTHER, "v"), steps.RemoveRow(0, 0, A), steps.CommitBatch(0))
SCAN = steps.ScanFamily(0, 0, 0, 5)
MERGES = tuple(steps.MergeRow(0, 1, A, value) for value in ("x", "y", "z", "x"))
LAST = steps.CompareVersion(steps.FRESH, 0)
DAMAGE = tuple(steps.DamageFile(how, file) for how in HOW for file in (0, 1))
FAIL_WRITES = steps.FailWrites(0, "commit", WriteFault.FULL, 1)
KILL = steps.KillJvm(0, "commit", 500)

IDS = steps.StartQuery(((FORMAT_VERSION, "2"),))
CONTENDED = (
    *(IDS, *BATCH, steps.PutRow(0, 0, OTHER, "v"), steps.PutRow(1, 0, OTHER, "w")),
    *(steps.CommitBatch(0), steps.CommitLate(1)),
)
"""Two executors run the second batch, and that which commits first counts."""

CASES: list[tuple[type[Store], str, steps.Steps, str]] = [
    (GivesARowTwice, PLAIN, (*WRITES, SCAN), clauses.READS),
    (MissesARow, PLAIN, (*WRITES, SCAN), clauses.READS),
    (GivesAnotherValue, PLAIN, (*WRITES, SCAN), clauses.READS),
    (GivesWhatWasRemoved, PLAIN, (*WRITES, steps.RemoveRow(0, 0, A), steps.ReadRow(0, 0, A)), clauses.READS),
    (GetsNothing, PLAIN, (*WRITES, steps.ReadRow(0, 0, A)), clauses.READS),
    (GetsWhatIsNotThere, PLAIN, (*WRITES, steps.ReadRow(0, 0, OTHER)), clauses.READS),
    (GetsWhatIsNotThere, "families", (*BATCH, LAST), clauses.VERSIONS),
    (GetsFromAnotherFamily, "families", (*WRITES, steps.ReadRow(0, 1, A)), clauses.FAMILIES),
    (GetsFromAnotherFamily, "families", (*BATCH, LAST), clauses.FAMILIES),
    (EvictsTwice, PLAIN, (*WRITES, steps.EvictRows(0, 0, 2)), clauses.READS),
    (HasNoOrder, RANGED, (*WRITES, SCAN), clauses.SCANS),
    (HasNoOrder, RANGED, (*BATCH, LAST), clauses.SCANS),
    (RangesWithoutOrder, RANGED, (*WRITES, steps.ScanFamily(0, 0, 0, 6)), clauses.SCANS),
    (RangesToTheEnd, RANGED, (*WRITES, SCAN), clauses.SCANS),
    (RangesBehindTheStart, RANGED, (*WRITES, SCAN), clauses.SCANS),
    (RangesTwice, RANGED, (*WRITES, SCAN), clauses.SCANS),
    (ScansEverything, PREFIXED, (*WRITES, SCAN), clauses.SCANS),
    (ScansTwice, PREFIXED, (*WRITES, SCAN), clauses.SCANS),
    (ScansNothing, PREFIXED, (*WRITES, SCAN), clauses.SCANS),
    (MergesInFront, MANY, (*MERGES, steps.ReadRow(0, 1, A)), clauses.VALUES),
    (MergesInFront, MANY, (*MERGES, steps.CommitBatch(0), LAST), clauses.VALUES),
    (MergesOnce, MANY, (*MERGES, steps.ReadRow(0, 1, A)), clauses.VALUES),
    (
        KeepsADroppedFamily,
        "families",
        (
            steps.PutRow(0, 1, A, "x"),
            steps.CommitBatch(0),
            steps.DropFamily(0, 1),
            steps.CommitBatch(0),
            LAST,
        ),
        clauses.VERSIONS,
    ),
    (IgnoresTheId, PLAIN, (*CONTENDED, LAST), clauses.IDS),
    (KeepsOneCommitOfAVersion, PLAIN, (*CONTENDED, steps.MaintainStore(0), LAST), clauses.IDS),
    (ReadsInOneFormat, PLAIN, (*BATCH, steps.StartQuery(((CHANGELOG, "true"),)), LAST), clauses.VERSIONS),
    (CountsWrongly, PLAIN, BATCH, clauses.VERSIONS),
    (OpensTheNewest, PLAIN, (*BATCH, *NEXT, steps.CompareVersion(steps.FRESH, 1)), clauses.VERSIONS),
    (KeepsItToItself, PLAIN, (*BATCH, LAST), clauses.VERSIONS),
    (KeepsItToItself, PLAIN, (*BATCH, steps.CompareVersion(1, 0)), clauses.VERSIONS),
    (
        AbortsNothing,
        PLAIN,
        (*BATCH, steps.PutRow(0, 0, OTHER, "never"), steps.AbortBatch(0), steps.CommitBatch(0), LAST),
        clauses.ABORTS,
    ),
    (
        DeletesOneTooMany,
        PLAIN,
        (*BATCH, *NEXT, *BATCH, steps.MaintainStore(0), steps.CompareVersion(steps.FRESH, 1)),
        clauses.MAINTENANCE,
    ),
    (ServesAnOlderOne, PLAIN, (*BATCH, *NEXT, *DAMAGE), clauses.DAMAGE),
    (GivesUpForGood, PLAIN, (*BATCH, *NEXT, *DAMAGE), clauses.VERSIONS),
    (TakesItForDone, PLAIN, (*BATCH, FAIL_WRITES), clauses.WRITES),
    (SpoilsTheBase, PLAIN, (*BATCH, FAIL_WRITES), clauses.WRITES),
    (LeavesAHalf, PLAIN, (*BATCH, FAIL_WRITES), clauses.WRITES),
    (SpoilsTheBase, PLAIN, (*BATCH, KILL), clauses.KILLS),
    (LeavesAHalf, PLAIN, (*BATCH, KILL), clauses.KILLS),
    (PublishesInTwoParts, PLAIN, (*BATCH, steps.KillJvm(0, "commit", files=1)), clauses.KILLS),
    (DiesAndDeletes, PLAIN, (*BATCH, *NEXT, steps.KillJvm(0, "maintenance", 500)), clauses.KILLS),
]
"""A store with a mistake, its layout, the steps that show it, and the clause that it breaks."""


def apply_all(session: StoreSession, played: steps.Steps) -> None:
    """Play steps, without the end of a session, where all that is retained is compared once more."""
    for step in played:
        session.apply(step)


@pytest.mark.parametrize(
    ("store", "layout", "played", "clause"),
    [pytest.param(*case, id=f"{case[0].__name__}-{case[1]}-{number}") for number, case in enumerate(CASES)],
)
def test_a_mistake_of_a_store_is_seen_and_a_right_store_plays_the_same_steps(
    store: type[Store], layout: str, played: steps.Steps, clause: str, tmp_path: Path
) -> None:
    right = Machine(StoreWithIds, tmp_path / "right").session(layout)
    play(right, played)
    assert right.shown.total() > 0, "nothing was compared"
    wrong = Machine(store, tmp_path / "wrong").session(layout)
    with pytest.raises(Violation) as found:
        apply_all(wrong, played)
    assert found.value.clause == clause, found.value


def test_a_query_keeps_some_settings_when_it_starts_again_and_the_others_are_those_of_the_start(
    tmp_path: Path,
) -> None:
    machine = Machine(StoreWithIds, tmp_path)
    session = machine.session(PLAIN)
    both = steps.StartQuery(((FORMAT_VERSION, "2"), (CHANGELOG, "true")))
    apply_all(session, (steps.StartQuery(()), both, *BATCH))
    assert machine.settings == SETTINGS | dict(both.settings)
    assert session.model.commit_id(1) is not None
    apply_all(session, (steps.StartQuery(((FORMAT_VERSION, "1"),)), LAST))
    assert machine.settings == SETTINGS | {FORMAT_VERSION: "2"}
    session.close()


def test_a_store_without_ids_is_not_asked_for_them_and_nobody_commits_late(tmp_path: Path) -> None:
    machine = Machine(Store, tmp_path)
    session = machine.session(PLAIN)
    apply_all(session, CONTENDED)
    assert FORMAT_VERSION not in machine.settings
    assert session.model.content(2)["default"][OTHER] == ("v",)
    session.close()


def test_settings_that_do_not_matter_are_left_out_of_a_failing_sequence(tmp_path: Path) -> None:
    one = next(one for one in PROPERTIES if one.name == "commits-have-ids")
    _, failure = check(one, Machine(IgnoresTheId, tmp_path).as_processes(), SEEDS[0])
    assert failure is not None
    starts = [step for step in failure.steps if isinstance(step, steps.StartQuery)]
    assert starts == [IDS]


# --- whole properties --------------------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("one", PROPERTIES, ids=lambda one: one.name)
def test_a_right_store_has_every_property_and_each_shows_what_it_is_for(
    one: StoreProperty, tmp_path: Path
) -> None:
    for number, seed in enumerate(SEEDS):
        processes = Machine(StoreWithIds, tmp_path / str(number)).as_processes()
        outcome, failure = check(one, processes, seed)
        assert (outcome.status, outcome.reason, failure) == ("passed", "", None)
        assert set(outcome.shown) == set(one.clauses)


@pytest.mark.nightly
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda one: one.__name__)
def test_drawn_and_listed_sequences_meet_each_mistake_whatever_the_seed(
    mistake: type[Store], tmp_path: Path
) -> None:
    expected = {clause for store, _, _, clause in CASES if store is mistake}
    assert expected, "no case shows it"
    likely = sorted(PROPERTIES, key=lambda one: (not expected & set(one.clauses), not one.listed))
    for seed in SEEDS:
        for one in likely:
            processes = Machine(mistake, tmp_path / f"{seed}-{one.name}").as_processes()
            if check(one, processes, seed, shrink=False)[0].status == "failed":
                break
        else:
            pytest.fail(f"no property has met it with the seed {seed}")


def test_a_property_whose_steps_or_clauses_were_not_met_is_unknown(tmp_path: Path) -> None:
    one = next(one for one in PROPERTIES if one.name == "versions-are-exact")
    for number, (lacking, reason) in enumerate(
        [
            (replace(one, needs=("kill",)), "no step of kind kill"),
            (replace(one, clauses=(*one.clauses, clauses.KILLS)), "too few to show kills"),
        ]
    ):
        machine = Machine(Store, tmp_path / str(number))
        outcome, _ = check(lacking, machine.as_processes(), SEEDS[0], scale=0.1)
        assert outcome.status == "unknown" and reason in outcome.reason, outcome.reason
    late = Machine(Store, tmp_path / "late")
    late.remaining_s = -1.0
    assert check(one, late.as_processes(), SEEDS[0])[0].status == "unknown"


@pytest.mark.parametrize("mistake", [GivesARowTwice, KeepsItToItself])
def test_a_failing_sequence_is_made_smaller_and_fails_again_for_the_same_reason(
    mistake: type[Store], tmp_path: Path
) -> None:
    one = next(one for one in PROPERTIES if one.name == "versions-are-exact")
    _, failure = check(one, Machine(mistake, tmp_path / "first").as_processes(), SEEDS[0])
    assert failure is not None and len(failure.steps) <= 3, failure
    for store, violated in ((mistake, failure.violation), (Store, "None")):
        machine = Machine(store, tmp_path / store.__name__)
        assert violation_of(failure, machine) == violated


def violation_of(failure: StoreFailure, machine: Machine) -> str:
    breach = breach_of(StoreStage(machine.as_processes(), failure.layout), failure.steps)
    return str(breach and breach.violation)


class CountsWronglyOrForgets(Store):
    """Its commits count wrongly; once it has aborted a batch they do not, but it finds nothing any more."""

    aborted = False

    def abort(self) -> None:
        self.aborted = True
        super().abort()

    def commit(self) -> int:
        return super().commit() + (not self.aborted)

    def get(self, family: Family, key: Key) -> str | None:
        return None if self.aborted else super().get(family, key)


def test_a_failing_sequence_is_not_made_smaller_into_another_failure(tmp_path: Path) -> None:
    found = (steps.PutRow(0, 0, A, "never"), steps.AbortBatch(0), *BATCH, steps.ReadRow(0, 0, A))
    one = next(one for one in PROPERTIES if one.name == "batches-read-their-writes")
    machine = Machine(CountsWronglyOrForgets, tmp_path)
    outcome, failure = check(replace(one, listed=lambda _: found), machine.as_processes(), SEEDS[0])
    assert failure is not None
    kinds = [type(step) for step in failure.steps]
    assert kinds == [steps.PutRow, steps.AbortBatch, steps.PutRow, steps.ReadRow]
    assert outcome.violated == clauses.READS, outcome.reason


class IsAskedToEnd(Store):
    """Another program ends its JVM while it commits."""

    def commit(self) -> int:
        raise Died("the JVM ended with exit code 143", from_outside=True)


@pytest.mark.parametrize("played", [BATCH, (steps.KillJvm(0, "commit", files=1),)])
def test_sigterm_from_outside_is_no_failure_of_the_store(played: steps.Steps, tmp_path: Path) -> None:
    one = next(one for one in PROPERTIES if one.name == "batches-read-their-writes")
    machine = Machine(IsAskedToEnd, tmp_path)
    outcome, failure = check(replace(one, listed=lambda _: played), machine.as_processes(), SEEDS[0])
    assert (outcome.status, outcome.violated, failure) == ("unknown", "", None)
    assert "143" in outcome.reason and "says nothing about the candidate" in outcome.reason
