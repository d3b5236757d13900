"""The certifier: it survives every candidate, catches every planted backend bug, and never mislabels a result."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.certify import steps, wire
from harness.certify.candidate import MARK, Candidate, CandidateDied, CandidateRaised, Limits, Pool
from harness.certify.certificate import Strength, achieved, clause_results, verdict_of
from harness.certify.planted import BACKEND_MUTANTS, BackendMutant, hunt_planted
from harness.certify.properties import LEVELS, PROPERTIES, Failure, Outcome, check, play
from harness.certify.session import NAMES
from harness.certify.suite import certify, probe, read_failure, replay, seed_of
from harness.cli import run
from harness.errors import UsageProblem
from reports.certificate import render_certificate
from tests.test_tidy import ROOT

BAD = "harness.suts.mutants.misbehaving"
QUICK = Limits(call_s=8.0)


def one_property(name: str) -> Any:
    return next(one for one in PROPERTIES if one.name == name)


def outcome(name: str, level: str, status: str, *clauses: str) -> Outcome:
    return Outcome(name, level, clauses or ("SNP-1",), "", status, "because")


# --- a candidate cannot take the certifier down -------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "limits", "said"),
    [
        ("RaisesWhenMade", QUICK, "no licence key found"),
        ("ExitsWhenMade", QUICK, "exit code 7"),
        ("HangsWhenOpened", Limits(call_s=1.5), "did not return within 1.5 s"),
        ("EatsMemory", Limits(call_s=20.0, memory_bytes=1 << 29), "MemoryError"),
    ],
)
def test_a_candidate_that_misbehaves_fails_with_the_reason(name: str, limits: Limits, said: str) -> None:
    certificate = certify(f"{BAD}:{name}", "contract", limits=limits, scale=0.05)
    assert (certificate.verdict, certificate.level) == ("failed", None)
    assert any(said in outcome.reason for outcome in certificate.outcomes if outcome.status == "failed")
    assert not marked_processes()


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
    candidate.load()
    candidate.call(wire.Open(0, 0, 4, 0, 1))
    assert len(marked_processes()) == 2
    candidate.kill()
    assert not marked_processes()


def marked_processes() -> list[psutil.Process]:
    """Candidates of this very test: others may certify at the same time, or on another branch."""
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
        candidate.call(wire.Open(0, 0, 4, 0, 1))
        with pytest.raises(CandidateRaised) as raised:
            candidate.call(wire.Put(0, "totals", 9, b"k", b"v"))
        assert raised.value.kind == "usage"
    finally:
        candidate.kill()
    with pytest.raises(CandidateDied):
        candidate.call(wire.Close(0))


def test_directories_of_a_killed_certifier_are_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    finished = subprocess.Popen([sys.executable, "-c", ""])
    finished.wait()
    dead = tmp_path / f"barrier-tck-certify-{finished.pid}-x"
    alive = tmp_path / f"barrier-tck-certify-{os.getpid()}-x"
    dead.mkdir()
    alive.mkdir()
    pool = Pool("heap")
    assert not dead.exists() and alive.exists() and pool.directory.exists()
    pool.close()
    assert sorted(tmp_path.iterdir()) == [alive]


# --- bad targets --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("no.such.module:Backend", "cannot be imported: ModuleNotFoundError"),
        ("json:Backend", "json has no 'Backend'"),
        (f"{BAD}:no_backend", "is a int"),
        (f"{BAD}:HasNoOpen", "it has no open"),
        ("not a target", "use MODULE:NAME"),
    ],
)
def test_a_target_that_is_no_backend_is_a_mistake_of_usage(
    target: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["certify", target, "--out", str(tmp_path)]) == 3
    assert said in capsys.readouterr().err
    assert not list(tmp_path.glob("certify-*"))


def test_a_capability_that_is_not_declared_is_a_mistake_of_usage() -> None:
    with pytest.raises(UsageProblem, match="does not declare the capabilities incremental; it declares none"):
        certify("heap", "contract", require=("incremental",))


def test_a_backend_is_probed_without_being_imported_here() -> None:
    assert probe(f"{BAD}:LeavesAProcess")["name"] == "heap"
    assert BAD not in sys.modules


# --- planted bugs (CER-2) -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mutant", BACKEND_MUTANTS, ids=lambda mutant: mutant.id)
def test_a_planted_backend_bug_is_caught_and_its_sequence_replays(
    mutant: BackendMutant, tmp_path: Path
) -> None:
    one = one_property(mutant.property)
    assert mutant.clause in one.clauses
    pool = Pool(mutant.target, QUICK, 120.0)
    try:
        found, failure = check(one, pool, seed_of(1, one.name), shrink_s=3.0)
    finally:
        pool.close()
    assert found.status == "failed", f"{mutant.id} was missed: {mutant.description}"
    assert failure is not None
    assert len(failure.steps) <= 25
    file = tmp_path / "failure.json"
    file.write_bytes(msgspec.json.encode(failure))
    saved = read_failure(file)
    assert replay(saved) is not None
    assert replay(saved, "heap") is None


def test_what_catches_a_planted_bug_is_measured_in_the_same_way() -> None:
    bug = next(mutant for mutant in BACKEND_MUTANTS if mutant.id == "BE-07")
    assert hunt_planted(bug, 1).status == "failed"


def test_the_same_seed_finds_the_same_sequence() -> None:
    bug = next(mutant for mutant in BACKEND_MUTANTS if mutant.id == "BE-06")
    found = []
    for _ in range(2):
        pool = Pool(bug.target, QUICK)
        try:
            found.append(check(one_property(bug.property), pool, 7, shrink_s=0.0)[1])
        finally:
            pool.close()
    assert found[0] is not None
    assert found[0] == found[1]


# --- labels -------------------------------------------------------------------------------------------------

_STATUS = st.sampled_from(["passed", "failed", "unknown", "skipped"])


@given(st.lists(st.tuples(st.sampled_from(LEVELS), _STATUS), max_size=12), st.sampled_from(LEVELS))
def test_a_level_is_never_given_unless_all_it_requires_passed(
    drawn: list[tuple[str, str]], asked: str
) -> None:
    outcomes = [outcome(f"p{number}", level, status) for number, (level, status) in enumerate(drawn)]
    reached = achieved(outcomes)
    required = [o for o in outcomes if reached and LEVELS.index(o.level) <= LEVELS.index(reached)]
    assert all(o.status == "passed" for o in required)
    if reached is not None:
        assert any(o.level == reached for o in outcomes)
    verdict = verdict_of(outcomes, asked)
    own = [o for o in outcomes if LEVELS.index(o.level) <= LEVELS.index(asked)]
    certified = {level: [o for o in own if o.level == level] for level in LEVELS[: LEVELS.index(asked) + 1]}
    assert (verdict == "certified") == (all(certified.values()) and all(o.status == "passed" for o in own))


def test_a_skipped_cluster_does_not_cost_the_level_but_a_failed_one_does() -> None:
    below = [outcome("a", "contract", "passed"), outcome("b", "crash", "passed")]
    simulated = outcome("exactly-once-in-the-simulator", "chaos", "passed")
    spark = "exactly-once-on-spark"
    assert achieved([*below, simulated, outcome(spark, "chaos", "skipped")]) == "chaos"
    assert achieved([*below, simulated, outcome(spark, "chaos", "failed")]) == "crash"
    assert achieved([*below, outcome(spark, "chaos", "skipped")]) == "crash"


def test_the_worst_property_decides_its_clause() -> None:
    outcomes = [
        outcome("a", "contract", "passed", "SNP-1"),
        outcome("b", "crash", "failed", "SNP-1", "REC-1"),
    ]
    results = {result.clause: result for result in clause_results(outcomes, "contract")}
    assert results["SNP-1"].status == "failed" and results["SNP-1"].required
    assert results["REC-1"].status == "failed" and not results["REC-1"].required
    assert "because" in results["REC-1"].reason


# --- steps and replay files ---------------------------------------------------------------------------------


def test_every_step_has_words_and_survives_json() -> None:
    every: tuple[steps.AnyStep, ...] = (
        steps.Put(0, NAMES[0], 1, b"\xff\x00", b"v" * 100),
        steps.Delete(0, NAMES[0], 1, b""),
        steps.Get(0, NAMES[0], 1, b""),
        steps.Scan(1, NAMES[2], 7),
        steps.PutMany(0, NAMES[1], (1,), (b"k",), (b"v",)),
        steps.GetMany(0, NAMES[1], (1,), (b"k",)),
        steps.Snapshot(0, 1),
        steps.Snapshot(0, 2, wire.Fault(3, "short")),
        steps.Run(0, 1),
        steps.Start(0, 1, 2),
        steps.Finish(0, 1),
        steps.Cancel(0, 1),
        steps.Confirm(0, 1),
        steps.Abort(0, 1),
        steps.Verify(0, 1, elsewhere=True),
        steps.Rescale((1, 0), 2, 9),
        steps.Restart((0, 1), "call"),
        steps.Crowd(0, 1, 10, 16, 2),
        steps.Resources(2),
    )
    failure = Failure("heap", "all-at-once", "?", every)
    assert msgspec.json.decode(msgspec.json.encode(failure), type=Failure) == failure
    assert len({steps.words(step) for step in every}) == len(every)


def test_the_heap_backend_plays_a_life_with_a_kill_and_a_failed_write() -> None:
    pool = Pool("heap", QUICK)
    life: tuple[steps.AnyStep, ...] = (
        steps.Put(0, NAMES[0], 1, b"k", b"1"),
        steps.Snapshot(0, 1),
        steps.Start(0, 1, 2),
        steps.Put(0, NAMES[0], 1, b"k", b"2"),
        steps.Finish(0, 1),
        steps.Confirm(0, 1),
        steps.Snapshot(0, 2, wire.Fault(2)),
        steps.Run(0, 2),
        steps.Abort(0, 2),
        steps.Restart((1, 0), "kill"),
        steps.Get(0, NAMES[0], 1, b"k"),
        steps.Verify(0, 1),
    )
    try:
        assert play(pool, life) is None
    finally:
        pool.close()


@pytest.mark.parametrize("content", [b"", b"[]", b'{"target": "heap"}'])
def test_a_replay_file_that_is_none_is_a_mistake_of_usage(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "failure.json"
    file.write_bytes(content)
    with pytest.raises(UsageProblem, match="no replay file"):
        read_failure(file)


# --- the certificate ----------------------------------------------------------------------------------------


def test_heap_is_certified_for_chaos_in_one_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(["certify", "heap", "--level", "chaos", "--no-spark", "--out", str(tmp_path), "--json"])
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (code, printed["verdict"], printed["level"]) == (0, "certified", "chaos"), printed
    assert printed["seconds"] < 180
    saved = json.loads(Path(printed["certificate"]).read_bytes())
    assert {"suite_version", "seed", "environment", "clauses", "outcomes", "strength"} <= set(saved)
    skipped = [entry for entry in saved["outcomes"] if entry["status"] == "skipped"]
    assert [entry["reason"] for entry in skipped] == ["switched off with --no-spark"]
    assert "Certified: level chaos" in Path(printed["page"]).read_text()


def test_everything_on_the_page_is_escaped() -> None:
    evil = "<script>alert('x')</script>"
    certificate = certify(f"{BAD}:RaisesWhenMade", "contract", limits=QUICK)
    bad = msgspec.structs.replace(
        certificate,
        target=evil,
        backend=evil,
        log=evil,
        capabilities=(evil,),
        outcomes=(Outcome(evil, "contract", (evil,), evil, "failed", evil, sequence=(evil,), replay=evil),),
        strength=Strength(True, (evil,), (evil,)),
        environment={evil: evil},
    )
    page = render_certificate(bad)
    assert evil not in page
    assert "<script" not in page
    assert "&lt;script&gt;" in page


# --- outside packages ---------------------------------------------------------------------------------------


def installed(example: str, directory: Path) -> dict[str, str]:
    """Install a package as a stranger would, and return an environment that finds it."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    command += ["--target", str(directory), str(ROOT / "examples" / example)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    paths = [str(directory), *(path for path in sys.path if path)]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def certify_outside(
    target: str, environment: dict[str, str], out: Path, *options: str
) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "harness.cli", "certify", target, "--out", str(out), "--json"]
    command += ["--no-strength", *options]
    finished = subprocess.run(
        command, cwd=out, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert finished.stdout, finished.stderr
    return finished.returncode, json.loads(finished.stdout.splitlines()[-1])


def test_the_lmdb_backend_passes_every_level_it_claims(tmp_path: Path) -> None:
    pytest.importorskip("lmdb")
    environment = installed("lmdb_backend", tmp_path / "site")
    code, printed = certify_outside(
        "barrier_tck_lmdb:LmdbStateBackend", environment, tmp_path, "--level", "chaos", "--no-spark"
    )
    assert (code, printed["level"]) == (0, "chaos"), printed


def test_the_naive_backend_fails_with_clause_sequence_and_replay_line(tmp_path: Path) -> None:
    environment = installed("naive_backend", tmp_path / "site")
    code, printed = certify_outside(
        "barrier_tck_naive:NaiveStateBackend", environment, tmp_path, "--level", "contract"
    )
    assert (code, printed["verdict"]) == (1, "failed")
    failed = {entry["property"]: entry for entry in printed["failed"]}
    assert "SNP-1" in failed["snapshots-are-isolated"]["clauses"]
    assert 3 <= len(failed["snapshots-are-isolated"]["sequence"]) <= 8
    command = [sys.executable, "-m", "harness.cli", "certify", "--replay"]
    command.append(failed["snapshots-are-isolated"]["replay"])
    repeated = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert repeated.returncode == 1, repeated.stdout + repeated.stderr


def test_pytest_conformance_certifies_a_third_partys_backend(tmp_path: Path) -> None:
    suite = ROOT / "conformance" / "test_state_backend.py"
    command = [
        sys.executable,
        "-m",
        "pytest",
        str(suite),
        "-q",
        "-p",
        "no:cacheprovider",
        "-k",
        "isolated or writes",
    ]
    command += ["--state-backend", "harness.suts.mutants.backends:SnapshotsLiveTables"]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert finished.returncode == pytest.ExitCode.TESTS_FAILED, finished.stdout + finished.stderr
    assert "repeat: barrier-tck certify --replay" in finished.stdout
    assert "snapshots-are-isolated (SNP-1) failed" in finished.stdout


def test_pytest_refuses_a_target_that_is_no_backend() -> None:
    suite = ROOT / "conformance" / "test_state_backend.py"
    command = [sys.executable, "-m", "pytest", str(suite), "-q", "-p", "no:cacheprovider"]
    command += ["--state-backend", f"{BAD}:HasNoOpen"]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == pytest.ExitCode.USAGE_ERROR, finished.stdout + finished.stderr
    assert "it has no open" in finished.stdout + finished.stderr


def test_planted_backend_bugs_in_the_guide_are_those_of_the_registry() -> None:
    text = (ROOT / "docs" / "guide" / "certify.md").read_text()
    listed = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "| BE-" in line
    ]
    assert listed == [
        [mutant.id, mutant.description, mutant.source, mutant.clause, mutant.property]
        for mutant in BACKEND_MUTANTS
    ]


def test_each_property_has_a_conformance_test_with_its_clauses() -> None:
    suite = importlib.import_module("conformance.test_state_backend")
    for one in PROPERTIES:
        function = getattr(suite, f"test_{one.name.replace('-', '_')}")
        (mark,) = [mark for mark in function.pytestmark if mark.name == "clause"]
        assert mark.args == one.clauses, one.name
