"""What a certificate says about clauses: what was shown, and that a failure breaks one clause."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

import msgspec
import pytest

from barrier_tck.harness.certify.backend import steps
from barrier_tck.harness.certify.backend.model import NAMES
from barrier_tck.harness.certify.backend.pool import Limits, Pool
from barrier_tck.harness.certify.backend.properties import PROPERTIES
from barrier_tck.harness.certify.backend.session import Session
from barrier_tck.harness.certify.backend.stage import check
from barrier_tck.harness.certify.backend.wire import StorageFault
from barrier_tck.harness.certify.engine.certificate import PropertyOutcome, clause_results

QUICK = Limits(call_s=8.0)


@pytest.fixture(scope="module", name="heap")
def _heap() -> Iterator[Pool]:
    """Processes of a right backend."""
    pool = Pool("heap", Limits(call_s=30.0))
    yield pool
    pool.close()


@contextlib.contextmanager
def session_of(pool: Pool) -> Iterator[Session]:
    """Play steps in a process, which is left for the next session if nothing went wrong in it."""
    session = Session(pool)
    try:
        yield session
    except BaseException:
        session.abandon()
        raise
    session.end()


def outcome(name: str, level: str, status: str, *clauses: str) -> PropertyOutcome:
    return PropertyOutcome(name, level, clauses, "", status, "because")


def test_a_failure_breaks_one_clause_and_leaves_the_others_of_its_property_unknown() -> None:
    outcomes = [
        msgspec.structs.replace(outcome("a", "contract", "passed", "SNP-1"), shown={"SNP-1": 3}),
        msgspec.structs.replace(outcome("b", "crash", "failed", "SNP-1", "BCK-2"), violated="BCK-2"),
        msgspec.structs.replace(outcome("c", "contract", "passed", "BCK-1"), shown={"BCK-1": 5}),
    ]
    results = {result.clause: result for result in clause_results(outcomes, "contract")}
    assert results["SNP-1"].status == "unknown" and results["SNP-1"].required
    assert results["BCK-2"].status == "failed" and not results["BCK-2"].required
    assert "because" in results["BCK-2"].reason
    assert (results["BCK-1"].status, results["BCK-1"].times, results["BCK-1"].shown_by) == (
        "shown",
        5,
        ("c",),
    )


def test_a_clause_that_nothing_showed_is_not_shown_because_its_property_passed() -> None:
    passed = msgspec.structs.replace(outcome("a", "contract", "passed", "SNP-1", "BCK-2"), shown={"SNP-1": 1})
    results = {result.clause: result.status for result in clause_results([passed], "contract")}
    assert results == {"SNP-1": "shown", "BCK-2": "skipped"}


def test_the_certificate_claims_nothing_of_a_job_by_the_calls_of_a_backend() -> None:
    named = {clause for one in PROPERTIES for clause in one.clauses}
    assert named == {"SNP-1", "SNP-2", *(f"BCK-{number}" for number in range(1, 7))}


@pytest.mark.long
def test_a_bug_of_scans_breaks_the_clause_of_reads_and_no_other() -> None:
    """Snapshots and restores are compared by reading, so all of these properties fail; but only reading is broken."""
    names = (
        "what-differs-stays-apart",
        "snapshots-are-isolated",
        "a-restored-store-starts-anew",
        "key-groups-move",
    )
    pool = Pool("tests.harness.certify.backend.confusing_backends:DropsTheLast", QUICK)
    try:
        found = [check(one, pool, 1, 0.2, shrink_s=0.0)[0] for one in PROPERTIES if one.name in names]
    finally:
        pool.close()
    assert [(one.status, one.violated) for one in found] == [("failed", "BCK-1")] * 4


@pytest.mark.nightly
def test_examples_that_show_too_little_are_followed_by_others(heap: Pool) -> None:
    """A certificate of a right backend must not depend on the seed."""
    one = next(entry for entry in PROPERTIES if entry.name == "all-at-once")
    few = [check(one, heap, seed, 0.4, declared=("concurrent-snapshots",))[0] for seed in range(8)]
    assert {outcome.status for outcome in few} == {"passed"}
    assert max(outcome.examples for outcome in few) > 1.5 * min(outcome.examples for outcome in few)


@pytest.mark.long
def test_examples_are_not_drawn_for_ever_if_they_cannot_show_what_they_should(heap: Pool) -> None:
    one = next(entry for entry in PROPERTIES if entry.name == "reads-see-the-writes")
    idle = dataclasses.replace(one, needs=("cancel",))
    found, enough = (check(entry, heap, 1, 0.1)[0] for entry in (idle, one))
    assert (found.status, enough.status) == ("unknown", "passed") and found.reason.endswith(" cancel")
    assert found.examples > 2 * enough.examples


PUT = steps.Put(0, NAMES[0], 1, b"key", b"value")
TAKEN = (steps.Snapshot(0, 1), steps.Run(0, 1))
TORN = (steps.Snapshot(0, 1, StorageFault(2)), steps.Run(0, 1))


@pytest.mark.parametrize(
    ("played", "shown"),
    [
        ((), ""),
        ((PUT,), ""),
        ((PUT, steps.Get(0, NAMES[0], 1, b"key")), "BCK-1"),
        ((PUT, *TAKEN), ""),
        ((*TAKEN, steps.Verify(0, 1)), "BCK-1"),
        ((*TAKEN, steps.Rescale((1, 0), 0, 4)), "BCK-1"),
        ((PUT, *TAKEN, steps.Verify(0, 1)), "BCK-1 BCK-2"),
        ((PUT, *TAKEN, steps.Rescale((1, 0), 2, 4)), "BCK-1"),
        ((PUT, *TAKEN, steps.Rescale((1, 0), 0, 4)), "BCK-1 BCK-2"),
        ((PUT, *TAKEN, PUT, steps.Verify(0, 1)), "BCK-1 BCK-2"),
        ((PUT, TAKEN[0], PUT, TAKEN[1], steps.Verify(0, 1)), "BCK-1 BCK-2 SNP-1"),
        ((PUT, *TORN), "BCK-3"),
        ((PUT, *TAKEN, steps.Cancel(0, 1)), ""),
        ((PUT, TAKEN[0], steps.Cancel(0, 1), TAKEN[1]), "SNP-2"),
        ((PUT, *TAKEN, steps.Restart((1, 0))), ""),
        ((PUT, *TAKEN, steps.Damaged(0, 1, 0, "empty")), "BCK-4"),
    ],
)
def test_steps_show_the_clauses_that_their_comparisons_could_have_broken_and_no_others(
    played: tuple[steps.AnyStep, ...], shown: str, heap: Pool
) -> None:
    """What was empty shows no restore, what was not written meanwhile no isolation, and what was not read nothing."""
    with session_of(heap) as session:
        for step in played:
            session.apply(step)
        assert sorted(session.shown) == shown.split()


@pytest.mark.parametrize(
    ("meetings", "rounds"), [([True] * 9, 4), ([False, True] * 9, 8), ([False] * 20, 12)]
)
def test_a_round_in_which_two_threads_did_not_meet_is_repeated_but_not_for_ever(
    meetings: list[bool], rounds: int, heap: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine a race may not take place, and then it shows nothing."""
    raced: list[int] = []

    def race(session: Session, step: steps.Race, checkpoint: int) -> bool:
        raced.append(checkpoint)
        return meetings[len(raced) - 1]

    monkeypatch.setattr(Session, "_raced", race)
    with session_of(heap) as session:
        session.apply(steps.Race(0, 5, NAMES[0], (1, 2), 4))
    assert raced == list(range(5, 5 + rounds))
