"""What a certificate says about clauses: what was shown, and that a failure breaks one clause."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from random import Random

import msgspec
import pytest

from barrier_tck.harness.certify.backend import reached, steps
from barrier_tck.harness.certify.backend.model import NAMES, RANGES
from barrier_tck.harness.certify.backend.pool import Limits, Pool
from barrier_tck.harness.certify.backend.properties import PROPERTIES
from barrier_tck.harness.certify.backend.session import Session
from barrier_tck.harness.certify.backend.shapes import Shape
from barrier_tck.harness.certify.backend.stage import BackendProperty, check
from barrier_tck.harness.certify.backend.wire import StorageFault
from barrier_tck.harness.certify.engine.certificate import PropertyOutcome, clause_results
from barrier_tck.harness.certify.engine.check import NOT_REACHED, NOT_SHOWN
from barrier_tck.harness.certify.engine.hunt import Hunt

QUICK = Limits(call_s=60.0)


@pytest.fixture(scope="module", name="heap")
def _heap() -> Iterator[Pool]:
    """Processes of a right backend."""
    pool = Pool("heap", Limits(call_s=60.0))
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
        found = [check(one, pool, 1, 0.2, shrink=False)[0] for one in PROPERTIES if one.name in names]
    finally:
        pool.close()
    assert [(one.status, one.violated) for one in found] == [("failed", "BCK-1")] * 4


@pytest.mark.long
def test_what_was_written_after_a_snapshot_breaks_isolation_also_in_stores_side_by_side() -> None:
    one = next(entry for entry in PROPERTIES if entry.name == "stores-side-by-side-stay-apart")
    pool = Pool("barrier_tck.harness.reference.mutants.backend_bugs:SnapshotsLiveTables", QUICK)
    try:
        found = check(one, pool, 1, shrink=False)[0]
    finally:
        pool.close()
    assert (found.status, found.violated) == ("failed", "SNP-1"), found.reason


@pytest.mark.nightly
def test_examples_that_show_too_little_are_followed_by_others(heap: Pool) -> None:
    """A certificate of a right backend must not depend on the seed."""
    one = next(entry for entry in PROPERTIES if entry.name == "all-at-once")
    few = [check(one, heap, seed, 0.4, declared=("concurrent-snapshots",))[0] for seed in range(8)]
    assert {outcome.status for outcome in few} == {"passed"}
    played = [outcome.examples + outcome.idle for outcome in few]
    assert max(played) > min(played)


@pytest.mark.long
def test_most_drawn_examples_show_something(heap: Pool) -> None:
    """A snapshot of a store into which nothing was ever written shows little, and takes as long."""
    found = check(next(entry for entry in PROPERTIES if entry.name == "key-groups-move"), heap, 5, 0.25)[0]
    assert found.status == "passed" and found.idle <= found.examples


@pytest.mark.nightly
def test_examples_are_not_drawn_for_ever_if_they_cannot_show_what_they_should(heap: Pool) -> None:
    one = next(entry for entry in PROPERTIES if entry.name == "reads-see-the-writes")
    idle = dataclasses.replace(one, needs=("cancel",))
    found, enough = (check(entry, heap, 1, 0.1)[0] for entry in (idle, one))
    assert (found.status, enough.status) == ("unknown", "passed") and found.reason.endswith(" cancel")
    assert found.examples > 2 * enough.examples


PUT = steps.Put(0, NAMES[0], 1, b"key", b"value")
OTHER, DELETED = steps.Put(0, NAMES[0], 1, b"key", b"other"), steps.Delete(0, NAMES[0], 1, b"key")
BESIDE, ELSEWHERE = steps.Put(0, NAMES[0], 1, b"new", b""), steps.Put(0, NAMES[1], 1, b"new", b"")
TAKEN = (steps.Snapshot(0, 1), steps.Run(0, 1))
TWICE = steps.Layout(RANGES, second="zstd")
"""From here on, files have a second copy in another format."""
TORN = (steps.Snapshot(0, 1, StorageFault(2)), steps.Run(0, 1))


@pytest.mark.parametrize(
    ("played", "shown"),
    [
        ((), ""),
        ((PUT,), ""),
        ((PUT, steps.Get(0, NAMES[0], 1, b"key")), "BCK-1"),
        ((PUT, *TAKEN), ""),
        ((PUT, steps.Get(0, NAMES[0], 1, b"other")), ""),
        ((DELETED, steps.Get(0, NAMES[0], 1, b"key")), "BCK-1"),
        ((*TAKEN, steps.Verify(0, 1)), ""),
        ((*TAKEN, steps.Rescale((1, 0), 0, 4)), ""),
        ((PUT, *TAKEN, steps.Verify(0, 1)), "BCK-1 BCK-2"),
        ((PUT, *TAKEN, steps.Rescale((1, 0), 2, 4)), ""),
        ((PUT, *TAKEN, steps.Rescale((1, 0), 0, 4)), "BCK-1 BCK-2"),
        ((PUT, *TAKEN, OTHER, steps.Verify(0, 1)), "BCK-1 BCK-2"),
        ((PUT, TAKEN[0], PUT, TAKEN[1], steps.Verify(0, 1)), "BCK-1 BCK-2"),
        ((PUT, TAKEN[0], OTHER, PUT, TAKEN[1], steps.Verify(0, 1)), "BCK-1 BCK-2"),
        ((PUT, TAKEN[0], ELSEWHERE, TAKEN[1], steps.Verify(0, 1)), "BCK-1 BCK-2"),
        ((TAKEN[0], PUT, TAKEN[1], steps.Verify(0, 1)), ""),
        ((PUT, TAKEN[0], OTHER, TAKEN[1], steps.Verify(0, 1)), "BCK-1 BCK-2 SNP-1"),
        ((PUT, TAKEN[0], DELETED, TAKEN[1], steps.Verify(0, 1)), "BCK-1 BCK-2 SNP-1"),
        ((PUT, TAKEN[0], BESIDE, TAKEN[1], steps.Verify(0, 1)), "BCK-1 BCK-2 SNP-1"),
        ((PUT, TAKEN[0], OTHER, TAKEN[1], steps.Rescale((1, 0), 2, 4)), ""),
        ((PUT, *TAKEN, steps.Confirm(0, 1)), ""),
        ((PUT, *TAKEN, steps.Confirm(0, 1), steps.ReadAll(0)), "BCK-1 BCK-3"),
        ((PUT, *TORN), "BCK-3"),
        ((PUT, *TAKEN, steps.Cancel(0, 1)), ""),
        ((PUT, TAKEN[0], steps.Cancel(0, 1), TAKEN[1]), "SNP-2"),
        ((PUT, *TAKEN, steps.Restart((1, 0))), ""),
        ((PUT, *TAKEN, steps.Restart((1, 0)), steps.ReadAll(0)), "BCK-1 BCK-2"),
        ((PUT, *TAKEN, steps.Restart((1, 0)), OTHER, steps.ReadAll(0)), "BCK-1"),
        ((PUT, *TAKEN, steps.Restart((1, 0)), steps.ReadAll(1)), ""),
        ((PUT, *TAKEN, steps.Damaged(0, 1, 0, "empty")), "BCK-4"),
        ((PUT, *TAKEN, steps.CutOff(0, 1, 0, 10)), "BCK-4"),
        ((PUT, *TAKEN, steps.Verify(0, 1, second=True)), ""),
        ((TWICE, PUT, *TAKEN, steps.Verify(0, 1, second=True)), "BCK-1 BCK-2"),
        ((TWICE, PUT, TAKEN[0], OTHER, TAKEN[1], steps.Verify(0, 1, second=True)), "BCK-1 BCK-2 SNP-1"),
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


@dataclasses.dataclass(frozen=True)
class Repeated:
    """Plays one sequence in every round."""

    played: tuple[steps.AnyStep, ...]

    def run(self, one: BackendProperty, hunt: Hunt[steps.AnyStep], seed: int, examples: int) -> None:
        hunt.play(self.played)


@pytest.mark.parametrize(
    ("kept", "situation", "status", "reason"),
    [
        (5, reached.CHANGED, "passed", ""),
        (4, reached.CHANGED, "unknown", f"{NOT_SHOWN} SNP-1"),
        (5, reached.DELETED, "unknown", f"{NOT_REACHED} this 2 times: {reached.DELETED} (0 times)"),
    ],
)
def test_what_shows_nothing_does_not_count_and_what_is_demanded_must_be_reached(
    kept: int, situation: str, status: str, reason: str, heap: Pool
) -> None:
    """Without its comparison at the end, the sequence shows nothing."""
    shows = (PUT, TAKEN[0], OTHER, TAKEN[1], steps.Verify(0, 1))
    one = next(entry for entry in PROPERTIES if entry.name == "snapshots-are-isolated")
    repeated = Repeated(shows[:kept])
    one = dataclasses.replace(one, drawn=repeated, examples=1, needs=(), reaches=((situation, 2),))
    found = check(one, heap, 1)[0]
    assert (found.status, found.reason) == (status, reason)
    assert bool(found.examples) == (kept == 5) != bool(found.idle)


@pytest.mark.parametrize(
    ("needed", "status", "not_asked"),
    [
        (reached.BASE_GONE, "passed", {reached.DELETED: f"no example had {reached.BASE_GONE}"}),
        (reached.STORED_LATER, "unknown", {}),
    ],
)
def test_what_cannot_come_about_is_not_asked_and_the_outcome_says_so(
    needed: str, status: str, not_asked: dict[str, str], heap: Pool
) -> None:
    """Nothing is deleted in the sequence; heap stores its snapshots in their asynchronous parts."""
    drawn = Repeated((PUT, TAKEN[0], OTHER, TAKEN[1], steps.Verify(0, 1)))
    one = next(entry for entry in PROPERTIES if entry.name == "snapshots-are-isolated")
    demands = ((reached.CHANGED, 1), (reached.DELETED, 1))
    one = dataclasses.replace(
        *(one,), drawn=drawn, examples=1, needs=(), reaches=demands, only_with=((reached.DELETED, needed),)
    )
    found = check(one, heap, 1)[0]
    assert (found.status, found.not_asked) == (status, not_asked)


def test_each_situation_that_is_asked_only_with_another_one_is_asked_at_all() -> None:
    for one in PROPERTIES:
        asked = dict(one.reaches)
        assert all(situation in asked for situation, _ in one.only_with), one.name


def test_only_a_few_more_are_drawn_if_a_situation_was_not_reached_often_enough(heap: Pool) -> None:
    asked: list[int] = []

    class Asked(Repeated):
        def run(self, one: BackendProperty, hunt: Hunt[steps.AnyStep], seed: int, examples: int) -> None:
            asked.append(examples)
            for _ in range(examples):
                hunt.play(self.played)

    drawn = Asked((PUT, TAKEN[0], OTHER, TAKEN[1], steps.Verify(0, 1)))
    one = next(entry for entry in PROPERTIES if entry.name == "snapshots-are-isolated")
    for wanted, often in ((6, [4, 1, 1]), (99, [4, *[1] * 16])):
        asked.clear()
        found = check(
            dataclasses.replace(one, drawn=drawn, examples=4, needs=(), reaches=((reached.CHANGED, wanted),)),
            heap,
            1,
        )[0]
        assert asked == often
        assert found.status == ("passed" if wanted == 6 else "unknown")


@pytest.mark.parametrize("seed", range(5))
def test_chosen_shapes_have_many_unfinished_snapshots_that_end_in_every_way_and_are_all_compared(
    seed: int,
) -> None:
    one = next(each for each in PROPERTIES if each.name == "unfinished-snapshots-end-in-any-order")
    assert isinstance(one.drawn, Shape)
    drawn = [one.drawn.sequence(Random(f"{seed} {number}"), several=True) for number in range(20)]
    most = [max(unfinished_of(played)) for played in drawn]
    assert min(most) >= 2 and max(most) >= 10
    for played in drawn:
        taken = {step.checkpoint for step in played if isinstance(step, steps.Snapshot)}
        ended = {step.checkpoint for step in played if isinstance(step, steps.Run | steps.Finish)}
        off = {step.checkpoint for step in played if isinstance(step, steps.Cancel | steps.AbortSnapshot)}
        compared = {step.checkpoint for step in played if isinstance(step, steps.Verify)}
        assert taken == ended | off and compared <= ended
        assert {n for n in ended - off if fault_of(played, n) is None} <= compared
    kinds = {step.kind for played in drawn for step in played}
    assert kinds >= {"start", "finish", "cancel", "abort", "confirm", "restart", "verify", "delete", "put"}
    alone = one.drawn.sequence(Random(seed), several=False)
    assert max(unfinished_of(alone)) == 1


NOTHING = tuple(
    step
    for number in range(2, 2 + reached.MANY_FOR_NOTHING)
    for step in (steps.Snapshot(0, number), steps.Run(0, number), steps.AbortSnapshot(0, number))
)
NEWER = (steps.Snapshot(0, 9), steps.Run(0, 9))
COMPRESSED = steps.Layout(RANGES, compression="zstd")


@pytest.mark.parametrize(
    ("played", "situations"),
    [
        ((PUT, *TAKEN, steps.Restart((1, 0)), steps.ReadAll(0)), ()),
        ((PUT, *TAKEN, *NEWER, steps.Restart((9, 0)), steps.ReadAll(0)), ()),
        ((PUT, *TAKEN, *NEWER, steps.Restart((1, 0))), ()),
        ((PUT, *TAKEN, *NEWER, steps.Restart((1, 0)), OTHER, steps.ReadAll(0)), ()),
        ((PUT, *TAKEN, *NEWER, steps.Restart((1, 0)), steps.ReadAll(0)), (reached.OLDER,)),
        (
            (PUT, *TAKEN, *NOTHING, *NEWER, steps.Restart((1, 0)), steps.ReadAll(0)),
            (reached.OLDER, reached.OLDER_AFTER_MANY),
        ),
        ((*TAKEN, PUT, *NEWER, steps.Restart((1, 0)), steps.ReadAll(0)), ()),
        ((COMPRESSED, PUT, *TAKEN, steps.Verify(0, 1)), (reached.COMPRESSED,)),
        (
            (COMPRESSED, PUT, *TAKEN, steps.Verify(0, 1, compression="none")),
            (reached.COMPRESSED, reached.COMPRESSED_OTHERWISE),
        ),
        ((PUT, *TAKEN, steps.Verify(0, 1, compression="zstd")), (reached.COMPRESSED_OTHERWISE,)),
        (
            (PUT, *TAKEN, steps.Restart((1, 0), compression="zstd"), steps.Verify(0, 1)),
            (reached.COMPRESSED_OTHERWISE,),
        ),
        ((PUT, *TAKEN, steps.Verify(0, 1, read_only=True)), (reached.READ_ONLY,)),
        ((COMPRESSED, *TAKEN, steps.Verify(0, 1, read_only=True)), ()),
    ],
)
def test_hints_and_older_snapshots_count_when_something_is_compared_that_could_be_wrong(
    played: tuple[steps.AnyStep, ...], situations: tuple[str, ...], heap: Pool
) -> None:
    with session_of(heap) as session:
        for step in played:
            session.apply(step)
        own = {reached.OLDER, reached.OLDER_AFTER_MANY, reached.READ_ONLY}
        own |= {reached.COMPRESSED, reached.COMPRESSED_OTHERWISE}
        assert sorted(own & set(session.reached)) == sorted(situations)


@pytest.mark.parametrize("several", [False, True])
def test_chosen_shapes_have_several_lives_that_go_on_from_older_snapshots_with_any_hints(
    several: bool,
) -> None:
    one = next(each for each in PROPERTIES if each.name == "stores-go-on-from-any-snapshot")
    assert isinstance(one.drawn, Shape)
    drawn = [one.drawn.sequence(Random(f"lives {number}"), several=several) for number in range(20)]
    restarts = [[step for step in played if isinstance(step, steps.Restart)] for played in drawn]
    # A life of which every snapshot came to nothing has none to go on from.
    assert sum(map(bool, restarts)) >= 17 and max(map(len, restarts)) == 3
    for played in drawn:
        for number, step in enumerate(played):
            if isinstance(step, steps.Restart):
                assert isinstance(played[number + 1], steps.ReadAll)
    every = [step for played in drawn for step in played]
    layouts = [step for step in every if isinstance(step, steps.Layout)]
    verified = [step for step in every if isinstance(step, steps.Verify)]
    assert {step.compression for step in layouts} == {"none", "zstd"}
    assert {step.own_threads for step in layouts} == {True, False}
    assert {step.compression for step in verified} == {"", "none", "zstd"}
    assert {step.read_only for step in verified} == {True, False}
    assert {step.compression for each in restarts for step in each} == {"", "none", "zstd"}


@pytest.mark.parametrize("seed", range(3))
def test_chosen_shapes_of_increments_forbid_older_files_until_something_newer_is_confirmed(seed: int) -> None:
    one = next(each for each in PROPERTIES if each.name == "increments-end-in-any-order")
    assert isinstance(one.drawn, Shape)
    forbidden = 0
    for number in range(20):
        confirmed, oldest = 0, 1
        for step in one.drawn.sequence(Random(f"{seed} {number}"), several=True, incremental=True):
            if isinstance(step, steps.Confirm):
                confirmed = max(confirmed, step.checkpoint)
            elif isinstance(step, steps.Restart):
                confirmed, oldest = max(step.checkpoints), 1
            elif isinstance(step, steps.Snapshot) and step.reuse_from:
                assert step.checkpoint > step.reuse_from >= oldest or step.reuse_from == 1
                if step.reuse_from > confirmed > 0:
                    forbidden, oldest = forbidden + 1, step.reuse_from
    assert forbidden >= 5


def test_names_that_look_alike_are_printed_in_ascii() -> None:
    composed, decomposed = (steps.Get(0, name, 1, b"k") for name in ("gr\u00f6\u00dfe", "gro\u0308\u00dfe"))
    assert composed.description() == r"store0.get('gr\xf6\xdfe', 1, b'k')"
    assert decomposed.description() == r"store0.get('gro\u0308\xdfe', 1, b'k')"


def unfinished_of(played: tuple[steps.AnyStep, ...]) -> Iterator[int]:
    """Yield how many snapshots are unfinished after each step."""
    unfinished: set[int] = set()
    for step in played:
        if isinstance(step, steps.Snapshot):
            unfinished.add(step.checkpoint)
        elif isinstance(step, steps.Run | steps.Finish | steps.Cancel | steps.AbortSnapshot):
            unfinished.discard(step.checkpoint)
        yield len(unfinished)


def fault_of(played: tuple[steps.AnyStep, ...], checkpoint: int) -> StorageFault | None:
    (taken,) = [one for one in played if isinstance(one, steps.Snapshot) and one.checkpoint == checkpoint]
    return taken.fault


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
