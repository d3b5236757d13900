"""The certifier: it survives every candidate, catches every planted backend bug, and never mislabels a result."""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.harness.certify.backend import reached, steps, wire
from barrier_tck.harness.certify.backend.capabilities import CAPABILITIES
from barrier_tck.harness.certify.backend.model import NAMES
from barrier_tck.harness.certify.backend.planted_bugs import PLANTED_BUGS, hunt_planted
from barrier_tck.harness.certify.backend.pool import (
    MARK,
    Candidate,
    CandidateDied,
    CandidateRaised,
    Limits,
    Pool,
)
from barrier_tck.harness.certify.backend.properties import PROPERTIES
from barrier_tck.harness.certify.backend.stage import BackendStage, check
from barrier_tck.harness.certify.backend.suite import certify, probe, read_failure, replay
from barrier_tck.harness.certify.engine.certificate import (
    PropertyOutcome,
    Strength,
    achieved,
    verdict_of,
)
from barrier_tck.harness.certify.engine.levels import LEVELS, seed_of
from barrier_tck.harness.certify.engine.planted_bugs import PlantedBug
from barrier_tck.harness.certify.engine.playing import Breach, breach_of
from barrier_tck.harness.certify.engine.shrinker import smallest
from barrier_tck.harness.certify.engine.violation import Violation
from barrier_tck.harness.cli.main import run
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.owners import ProcessIdentity, this_process
from barrier_tck.reports.certificate_page import render_certificate
from tests.test_tidy import ROOT
from tests.waiting import eventually

BAD = "tests.harness.certify.backend.misbehaving_backends"
QUICK = Limits(call_s=60.0)
ALL = CAPABILITIES


def one_property(name: str) -> Any:
    return next(one for one in PROPERTIES if one.name == name)


def outcome(name: str, level: str, status: str, *clauses: str) -> PropertyOutcome:
    return PropertyOutcome(name, level, clauses or ("SNP-1",), "", status, "because")


# --- a candidate cannot take the certifier down -------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "limits", "message"),
    [
        ("RaisesWhenMade", QUICK, "no licence key found"),
        ("ExitsWhenMade", QUICK, "exit code 7"),
        ("HangsWhenMade", QUICK, "load() did not return within 60 s"),
        ("HangsWhenOpened", QUICK, "open() did not return within 60 s"),
        pytest.param(
            *("ExitsWhileWriting", QUICK, "delete() ended the process with exit code 0"),
            marks=pytest.mark.nightly,
        ),
        ("EatsMemory", Limits(call_s=60.0, memory_bytes=1 << 29), "MemoryError"),
    ],
)
def test_a_candidate_that_misbehaves_fails_with_the_reason(name: str, limits: Limits, message: str) -> None:
    certificate = certify(f"{BAD}:{name}", "contract", limits=limits, scale=0.05)
    assert (certificate.verdict, certificate.level) == ("failed", None)
    assert any(message in outcome.reason for outcome in certificate.outcomes if outcome.status == "failed")
    assert not marked_processes()


def test_a_candidate_that_ends_in_the_middle_fails_also_with_exit_code_0() -> None:
    pool = Pool(f"{BAD}:ExitsWhileWriting", QUICK)
    try:
        found, _ = check(one_property("reads-see-the-writes"), pool, 1, 0.1, shrink=False)
    finally:
        pool.close()
    assert found.status == "failed"
    assert "delete() ended the process with exit code 0" in found.reason


@pytest.mark.long
def test_a_candidate_that_prints_and_forks_is_judged_by_what_it_does() -> None:
    pool = Pool(f"{BAD}:ForksAndPrints", QUICK)
    try:
        found, _ = check(one_property("reads-see-the-writes"), pool, 1, 0.1)
        assert found.status in ("passed", "unknown"), found.reason
        left, _ = check(one_property("nothing-is-left-behind"), pool, 1)
        assert left.status == "failed"
    finally:
        pool.close()
    assert "opening opening" in pool.log
    assert len(pool.log) <= 16 * 1024
    assert not marked_processes()


def test_a_process_that_left_the_session_is_found_and_killed() -> None:
    candidate = Candidate(f"{BAD}:LeavesAProcess", QUICK)
    try:
        candidate.load()
        candidate.call(wire.OpenRequest(0, 0, 4, 0, 1))
        # its environment cannot be read during exec
        eventually("the candidate starts a process", lambda: len(marked_processes()) == 2)
    finally:
        candidate.kill()
    assert not marked_processes()


def marked_processes() -> list[psutil.Process]:
    """Return the candidates of this very test; others may certify at the same time, or on another branch."""
    found = []
    for process in psutil.process_iter():
        try:
            seen = process.environ()
        except (psutil.Error, OSError):
            continue
        if MARK in seen and seen.get("PYTEST_CURRENT_TEST") == os.environ["PYTEST_CURRENT_TEST"]:
            found.append(process)
    return found


def test_what_the_candidate_raises_comes_back_with_its_kind() -> None:
    candidate = Candidate("heap", QUICK)
    try:
        assert candidate.load()["name"] == "heap"
        candidate.call(wire.OpenRequest(0, 0, 4, 0, 1))
        with pytest.raises(CandidateRaised) as raised:
            candidate.call(wire.PutRequest(0, "totals", 9, b"k", b"v"))
        assert raised.value.kind == "usage"
    finally:
        candidate.kill()
    with pytest.raises(CandidateDied):
        candidate.call(wire.CloseRequest(0))


def test_directories_of_a_killed_certifier_are_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    us = this_process()
    before_us = ProcessIdentity(us.pid, us.created - 1_000)
    dead, alive = (tmp_path / f"barrier-tck-work-stores-{one.short}-x" for one in (before_us, us))
    somebodys = tmp_path / "barrier-tck-work-mine"
    for directory in (dead, alive, somebodys):
        directory.mkdir()
    pool = Pool("heap")
    assert not dead.exists() and alive.exists() and pool.directory.exists()
    pool.close()
    assert sorted(tmp_path.iterdir()) == [somebodys, alive]


# --- bad targets --------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("no.such.module:Backend", "cannot be imported: No module named 'no'"),
        ("json:Backend", "'json' has no 'Backend'"),
        (f"{BAD}:no_backend", "is an int, which makes no state backend"),
        (f"{BAD}:HasNoOpen", "it has no open"),
        ("json:loads", "json:loads cannot be called without arguments (missing a required argument: 's')"),
        ("builtins:dict", "which is not a state backend: it has no"),
        (
            f"{BAD}:DeclaresNonsense",
            "declares 'very fast', which is not a StateCapability; known: ASYNCHRONOUS",
        ),
        ("not a target", "use MODULE:NAME"),
    ],
)
def test_a_target_that_is_no_backend_is_a_usage_error(
    target: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["certify", target, "--out", str(tmp_path)]) == 3
    assert message in capsys.readouterr().err
    assert not list(tmp_path.glob("certify-*"))


@pytest.mark.long
def test_a_capability_that_is_not_declared_is_a_usage_error() -> None:
    with pytest.raises(
        UsageProblem, match="does not declare the capabilities local-files; it declares async"
    ):
        certify("heap", "contract", require=("local-files",))
    with pytest.raises(UsageProblem, match="names 'locale-files'; did you mean 'local-files'"):
        certify("heap", "contract", require=("locale-files",))


def test_a_backend_is_probed_without_being_imported_here() -> None:
    assert probe(f"{BAD}:LeavesAProcess")["name"] == "heap"
    assert BAD not in sys.modules


# --- planted bugs (CER-2) -----------------------------------------------------------------------------------


CAUGHT_QUICKLY = ("BE-01", "BE-keys", "SB-05", "SB-08", "SB-11")
"""Bugs of backends that are hunted in the quick tests; the long ones hunt them all."""


@pytest.mark.long
@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(bug, id=bug.id, marks=() if bug.id in CAUGHT_QUICKLY else pytest.mark.long)
        for bug in PLANTED_BUGS
    ],
)
def test_a_planted_backend_bug_is_caught_by_its_clause(mutant: PlantedBug) -> None:
    found = hunt_planted(mutant, seed_of(1, mutant.caught_by))
    assert found.status == "failed", f"{mutant.id} was missed: {mutant.description}"
    assert found.violated == mutant.clause, found.reason
    if mutant.caught_by == "writers-run-freely" and "it raised" not in found.reason:
        assert "writes meanwhile, these were made there: number" in found.reason


SMALL_SOON = ("BE-06", "SB-01")
"""Bugs whose failures are made smaller in the long tests; the nightly ones do so with all."""


@pytest.mark.long
@pytest.mark.parametrize(
    "identifier",
    [pytest.param(bug.id, marks=() if bug.id in SMALL_SOON else pytest.mark.nightly) for bug in PLANTED_BUGS],
)
def test_a_failing_sequence_becomes_small_and_replays(identifier: str, tmp_path: Path) -> None:
    mutant = next(mutant for mutant in PLANTED_BUGS if mutant.id == identifier)
    one = one_property(mutant.caught_by)
    pool = Pool(mutant.target, QUICK, 600.0)
    try:
        _, failure = check(one, pool, seed_of(1, one.name), mutant.scale, declared=ALL)
    finally:
        pool.close()
    assert failure is not None
    assert len(failure.steps) <= 20
    file = tmp_path / "failure.json"
    file.write_bytes(msgspec.json.encode(failure))
    saved = read_failure(file)
    numbers: list[int] = []
    assert replay(saved, watch=lambda number, step: numbers.append(number)) is not None
    assert numbers == list(range(1, len(numbers) + 1)) and numbers
    # The heap backend declares no order of its scans, so it has none.
    assert replay(saved, "rocksdb" if one.capability == "ordered-scan" else "heap") is None


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "capability", "message"),
    [
        ("NotAsynchronous", "asynchronous-snapshots", "wrote to storage before it returned"),
        (
            "NotConcurrent",
            "concurrent-snapshots",
            "raised SnapshotCancelled",
        ),
        ("NotOrdered", "ordered-scan", "gave the keys in the order"),
        ("NotLocal", "local-files", "are outside the working directory"),
        ("NotDeterministic", "deterministic-files", "wrote different files"),
        ("NotIncremental", "incremental-snapshots", "refers to no file of the confirmed one"),
        ("BuildsOnTheUnconfirmed", "incremental-snapshots", "belongs to a checkpoint that failed"),
        (
            "LosesTombstones",
            "incremental-snapshots",
            "it was deleted before snapshot 1000001, after 1 was confirmed",
        ),
    ],
)
def test_a_capability_that_is_declared_but_missing_fails_and_an_undeclared_one_is_not_tested(
    name: str, capability: str, message: str
) -> None:
    one = next(one for one in PROPERTIES if one.capability == capability)
    target = f"{BAD}:{name}"
    assert probe(target)["capabilities"] == [capability]
    pool = Pool(target, QUICK)
    try:
        found, failure = check(one, pool, 1, declared=(capability,))
        undeclared, _ = check(one, pool, 1)
    finally:
        pool.close()
    assert (found.status, undeclared.status, undeclared.optional) == ("failed", "skipped", True)
    assert message in found.reason
    assert failure is not None and len(failure.steps) <= 6
    assert capability in undeclared.reason


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_increments_in_any_order_refuse_a_backend_that_forgets_deletions(seed: int) -> None:
    """Every example ends with an increment that must leave out what was deleted since a confirmed one."""
    capability = "incremental-snapshots"
    pool = Pool(f"{BAD}:LosesTombstones", QUICK)
    try:
        found, failure = check(one_property("increments-in-any-order"), pool, seed, declared=(capability,))
    finally:
        pool.close()
    assert (found.status, found.violated) == ("failed", "BCK-2")
    assert "expected None" in found.reason
    assert failure is not None and len(failure.steps) <= 12


@pytest.mark.long
def test_a_backend_without_concurrent_snapshots_has_one_unfinished_at_a_time() -> None:
    """The store cancels the older snapshot, which only shows with several snapshots at once."""
    pool = Pool(f"{BAD}:NotConcurrent", QUICK)
    try:
        assert check(one_property("snapshots-are-isolated"), pool, 1, 0.4)[0].status == "passed"
        assert check(one_property("snapshots-are-isolated"), pool, 1, 0.4, False, ALL)[0].status == "failed"
    finally:
        pool.close()


@pytest.mark.nightly
def test_a_purely_synchronous_backend_passes() -> None:
    """Its storage fails inside snapshot(), and its files exist before the asynchronous part."""
    target = "examples.minimal_backend.backend:SortedDictBackend"
    names = ("nothing-is-left-behind", "a-failed-write-fails-the-snapshot", "scans-are-ordered")
    declared = tuple(probe(target)["capabilities"])
    pool = Pool(target, QUICK)
    try:
        found = [check(one_property(name), pool, 1, 0.5, declared=declared)[0] for name in names]
    finally:
        pool.close()
    assert [outcome.status for outcome in found] == ["passed"] * 3, found


@pytest.mark.long
def test_of_a_synchronous_backend_with_concurrent_snapshots_is_not_asked_what_cannot_come_about() -> None:
    """When storage fails in snapshot(), it is always the newest one that fails."""
    one = one_property("unfinished-snapshots-end-in-any-order")
    older, newer = (f"{reached.FAILED}, {which}" for which in (reached.THE_OLDER, reached.THE_NEWER))
    for target, not_asked in ((f"{BAD}:SynchronousAndConcurrent", [older]), ("heap", [])):
        pool = Pool(target, QUICK)
        try:
            found = check(one, pool, 3, declared=("concurrent-snapshots",))[0]
        finally:
            pool.close()
        assert (found.status, list(found.not_asked)) == ("passed", not_asked), found
        assert found.reached[newer] >= 5
        assert (reached.STORED_LATER in found.reached) == (older in found.reached) == (not not_asked)


@pytest.mark.long
def test_a_long_failing_sequence_becomes_the_few_calls_that_matter() -> None:
    pool = Pool(PLANTED_BUGS[0].target, QUICK)
    noise: tuple[steps.AnyStep, ...] = tuple(
        steps.PutMany(1, NAMES[1], (7, 8), (b"%d" % number, b"x"), (b"v" * 70_000, b"w"))
        for number in range(5)
    )
    long = (
        *(*noise, steps.Put(0, NAMES[0], 1, b"k", b"0"), steps.Snapshot(0, 4), *noise),
        steps.PutMany(0, NAMES[0], (1, 2), (b"k", b"l"), (b"1", b"2")),
        *(*noise, steps.Run(0, 4), *noise, steps.Verify(0, 4)),
    )
    try:
        found = smallest(BackendStage(pool), Breach(long, Violation("?", "SNP-1")))
    finally:
        pool.close()
    assert "snapshot 4" in str(found.violation)
    assert [type(step).__name__ for step in found.steps] == ["Put", "Snapshot", "Put", "Run", "Verify"]


@pytest.mark.long
def test_the_same_seed_finds_the_same_sequence() -> None:
    bug = next(mutant for mutant in PLANTED_BUGS if mutant.id == "BE-06")
    found = []
    for _ in range(2):
        pool = Pool(bug.target, QUICK)
        try:
            found.append(check(one_property(bug.caught_by), pool, 7, shrink=False, declared=ALL)[1])
        finally:
            pool.close()
    assert found[0] is not None
    assert found[0] == found[1]


# --- labels -------------------------------------------------------------------------------------------------

_STATUS = st.sampled_from(["passed", "failed", "unknown", "skipped"])


@given(st.lists(st.tuples(st.sampled_from(LEVELS), _STATUS), max_size=12), st.sampled_from(LEVELS))
def test_a_level_is_only_given_if_everything_that_it_requires_passed(
    drawn: list[tuple[str, str]], asked: str
) -> None:
    outcomes = [outcome(f"p{number}", level, status) for number, (level, status) in enumerate(drawn)]
    highest = achieved(outcomes)
    required = [o for o in outcomes if highest and LEVELS.index(o.level) <= LEVELS.index(highest)]
    assert all(o.status == "passed" for o in required)
    if highest is not None:
        assert any(o.level == highest for o in outcomes)
    verdict = verdict_of(outcomes, asked)
    own = [o for o in outcomes if LEVELS.index(o.level) <= LEVELS.index(asked)]
    certified = {level: [o for o in own if o.level == level] for level in LEVELS[: LEVELS.index(asked) + 1]}
    assert (verdict == "certified") == (all(certified.values()) and all(o.status == "passed" for o in own))


def test_chaos_without_a_cluster_is_no_chaos() -> None:
    below = [outcome("a", "contract", "passed"), outcome("b", "crash", "passed")]
    simulated = outcome("exactly-once-in-the-simulator", "chaos", "passed")
    spark = "exactly-once-on-spark"
    assert achieved([*below, simulated, outcome(spark, "chaos", "passed")]) == "chaos"
    for status in ("skipped", "unknown", "failed"):
        assert achieved([*below, simulated, outcome(spark, "chaos", status)]) == "crash"
    assert verdict_of([*below, simulated, outcome(spark, "chaos", "skipped")], "chaos") == "unknown"


def test_an_undeclared_capability_does_not_cost_a_backend_its_level() -> None:
    left_out = msgspec.structs.replace(outcome("b", "contract", "skipped"), optional=True)
    assert achieved([outcome("a", "contract", "passed"), left_out]) == "contract"
    assert achieved([outcome("a", "contract", "passed"), outcome("b", "contract", "skipped")]) is None
    assert achieved([left_out]) is None


def test_chaos_is_refused_before_anything_starts_where_there_is_no_java(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert run(["certify", "heap", "--level", "chaos", "--out", str(tmp_path)]) == 3
    message = capsys.readouterr().err
    assert (
        "the level chaos needs Spark" in message and "Install a Java" in message and "--no-spark" in message
    )
    assert not list(tmp_path.glob("certify-*"))


# --- steps and replay files ---------------------------------------------------------------------------------


@pytest.mark.long
def test_the_heap_backend_plays_a_life_with_a_kill_and_a_failed_write() -> None:
    pool = Pool("heap", QUICK)
    life: tuple[steps.AnyStep, ...] = (
        steps.Put(0, NAMES[0], 1, b"k", b"1"),
        steps.Snapshot(0, 1),
        steps.Start(0, 1, 2),
        steps.Put(0, NAMES[0], 1, b"k", b"2"),
        steps.Finish(0, 1),
        steps.Confirm(0, 1),
        steps.Snapshot(0, 2, wire.StorageFault(2)),
        steps.Run(0, 2),
        steps.AbortSnapshot(0, 2),
        steps.Restart((1, 0), "kill"),
        steps.Get(0, NAMES[0], 1, b"k"),
        steps.Verify(0, 1),
    )
    try:
        assert breach_of(BackendStage(pool), life) is None
    finally:
        pool.close()


@pytest.mark.parametrize("content", [b"", b"[]", b'{"target": "heap"}'])
def test_a_file_that_is_no_replay_file_is_a_usage_error(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "failure.json"
    file.write_bytes(content)
    with pytest.raises(UsageProblem, match="not a replay file"):
        read_failure(file)


# --- the certificate ----------------------------------------------------------------------------------------


def certified_by_the_command(
    out: Path, capsys: pytest.CaptureFixture[str], *arguments: str
) -> dict[str, Any]:
    """Run the command, which must succeed; check the files that it wrote and return what it prints."""
    code = run(["certify", *arguments, "--seed", "20260101", "--out", str(out), "--json"])
    printed: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (code, printed["verdict"]) == (0, "certified"), printed
    saved = json.loads(Path(printed["certificate"]).read_bytes())
    assert {"suite_version", "seed", "environment", "clauses", "outcomes", "strength"} <= set(saved)
    assert f"Certified: level {printed['level']}" in Path(printed["page"]).read_text()
    printed["skipped"] = {o["name"]: o["reason"] for o in saved["outcomes"] if o["status"] == "skipped"}
    return printed


@pytest.mark.nightly
def test_heap_is_certified_in_one_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = certified_by_the_command(tmp_path, capsys, "heap", "--level", "contract", "--no-strength")
    assert printed["level"] == "contract"
    assert printed["skipped"]["scans-are-ordered"] == "the backend does not declare ordered-scan"
    assert printed["skipped"]["killed-anywhere"] == "the level crash was not asked for"


@pytest.mark.nightly
def test_the_sqlite_backend_of_the_guide_is_certified() -> None:
    certificate = certify("examples.sqlite_backend.backend:SqliteStateBackend", "crash")
    assert (certificate.verdict, certificate.level) == ("certified", "crash"), certificate.outcomes


@pytest.mark.nightly
def test_chaos_in_the_simulator_alone_is_run_and_does_not_give_the_level() -> None:
    certificate = certify("heap", "chaos", spark=False, scale=0.2)
    statuses = {outcome.name: outcome.status for outcome in certificate.outcomes}
    if "unknown" not in statuses.values():  # with few examples, some kinds of steps may not be drawn
        assert (certificate.verdict, certificate.level) == ("unknown", "crash")
        assert statuses["exactly-once-in-the-simulator"] == "passed"
    assert statuses["exactly-once-on-spark"] == "skipped"
    assert "failed" not in statuses.values()


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_the_shipped_backends_are_certified_for_chaos(
    backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = certified_by_the_command(tmp_path, capsys, backend, "--level", "chaos", "--no-strength")
    assert printed["level"] == "chaos"
    assert printed["properties"]["exactly-once-on-spark"] == "passed"


def test_everything_on_the_page_is_escaped() -> None:
    evil = "<script>alert('x')</script>"
    certificate = certify(f"{BAD}:RaisesWhenMade", "contract", limits=QUICK)
    bad = msgspec.structs.replace(
        certificate,
        target=evil,
        backend=evil,
        log=evil,
        capabilities=(evil,),
        outcomes=(
            PropertyOutcome(evil, "contract", (evil,), evil, "failed", evil, sequence=(evil,), replay=evil),
        ),
        strength=Strength(True, (evil,), (evil,)),
        environment={evil: evil},
    )
    page = render_certificate(bad)
    assert evil not in page
    assert "<script" not in page
    assert "&lt;script&gt;" in page


# --- what is written about it -------------------------------------------------------------------------------


def test_planted_backend_bugs_in_the_guide_are_those_of_the_registry() -> None:
    text = (ROOT / "docs" / "guide" / "certify.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith(("| BE-", "| IN-", "| SB-"))]
    listed = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
    assert listed == [
        [mutant.id, mutant.description, mutant.source, mutant.clause, mutant.caught_by]
        for mutant in PLANTED_BUGS
    ]


def test_each_property_has_a_conformance_test_with_its_clauses() -> None:
    suite = importlib.import_module("barrier_tck.conformance.test_state_backend")
    for one in PROPERTIES:
        function = getattr(suite, f"test_{one.name.replace('-', '_')}")
        (mark,) = [mark for mark in function.pytestmark if mark.name == "clause"]
        assert mark.args == one.clauses, one.name
