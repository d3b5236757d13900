"""Outside packages, installed as by a third party, and the suite run with pytest: right ones pass, wrong ones
fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.test_tidy import ROOT

BAD = "tests.harness.certify.backend.misbehaving_backends"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Install both packages as a third party would, and return an environment that finds them."""
    directory = tmp_path_factory.mktemp("site")
    examples = [str(ROOT / "examples" / name) for name in ("lmdb_backend", "naive_backend")]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    command += ["--no-index", "--target", str(directory), *examples]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    assert len(list(directory.glob("barrier_tck_*.dist-info"))) == 2
    paths = [str(directory), *(path for path in sys.path if path)]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def certify_outside(
    target: str, environment: dict[str, str], out: Path, *options: str
) -> tuple[int, dict[str, Any]]:
    command = [
        sys.executable,
        "-m",
        "barrier_tck.harness.cli.main",
        "certify",
        target,
        "--seed",
        "20260101",
        "--out",
        str(out),
        "--json",
    ]
    command += ["--no-strength", *options]
    finished = subprocess.run(
        command, cwd=out, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert finished.stdout, finished.stderr
    return finished.returncode, json.loads(finished.stdout.splitlines()[-1])


@pytest.mark.nightly
def test_the_lmdb_backend_is_certified(installed: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("lmdb")
    target = "barrier_tck_lmdb:LmdbStateBackend"
    code, printed = certify_outside(target, installed, tmp_path, "--level", "contract")
    assert (code, printed["level"]) == (0, "contract"), printed
    assert printed["properties"]["snapshots-are-asynchronous"] == "passed"


@pytest.mark.nightly
@pytest.mark.spark
def test_the_lmdb_backend_passes_every_level(installed: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("lmdb")
    target = "barrier_tck_lmdb:LmdbStateBackend"
    code, printed = certify_outside(target, installed, tmp_path, "--level", "chaos")
    assert (code, printed["level"]) == (0, "chaos"), printed


@pytest.mark.nightly
def test_the_naive_backend_fails_with_clause_sequence_and_replay_line(
    installed: dict[str, str], tmp_path: Path
) -> None:
    target = "barrier_tck_naive:NaiveStateBackend"
    code, printed = certify_outside(target, installed, tmp_path, "--level", "contract")
    assert (code, printed["verdict"]) == (1, "failed")
    (found,) = [entry for entry in printed["failed"] if entry["property"] == "snapshots-are-isolated"]
    assert "SNP-1" in found["clauses"]
    assert 3 <= len(found["sequence"]) <= 6
    command, *arguments = found["replay_line"].split()
    assert command == "barrier-tck"
    repeated = subprocess.run(
        [sys.executable, "-m", "barrier_tck.harness.cli.main", *arguments],
        cwd=tmp_path,
        env=installed,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert repeated.returncode == 1, repeated.stdout + repeated.stderr
    assert found["reason"] in repeated.stdout
    assert all(f"{number}. {step}" in repeated.stdout for number, step in enumerate(found["sequence"], 1))


@pytest.mark.long
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
        "snapshots_are_isolated",
    ]
    target = "barrier_tck.harness.reference.mutants.backend_bugs:SnapshotsLiveTables"
    command += ["--seed", "1", "--state-backend", target]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert finished.returncode == pytest.ExitCode.TESTS_FAILED, finished.stdout + finished.stderr
    assert f"repeat: barrier-tck certify {target} --replay" in finished.stdout
    assert "snapshots-are-isolated (SNP-1) failed" in finished.stdout


@pytest.mark.nightly
def test_trials_of_the_suite_run_on_a_third_partys_backend(tmp_path: Path) -> None:
    """A trial that is invalid only on this backend shows that it was the one that ran."""
    target = "barrier_tck.harness.reference.mutants.backend_bugs:SnapshotsLiveTables"
    suite = ROOT / "conformance" / "test_snapshot_formula.py"
    command = [
        sys.executable,
        "-m",
        "pytest",
        str(suite),
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "--seed",
        "1",
    ]
    finished = subprocess.run(
        [*command, "--state-backend", target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert finished.returncode == pytest.ExitCode.TESTS_FAILED, finished.stdout + finished.stderr
    assert f"--state-backend {target}" in finished.stdout


@pytest.mark.nightly
def test_pytest_refuses_a_target_that_is_no_backend() -> None:
    suite = ROOT / "conformance" / "test_state_backend.py"
    command = [sys.executable, "-m", "pytest", str(suite), "-q", "-p", "no:cacheprovider"]
    command += ["--state-backend", f"{BAD}:HasNoOpen"]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == pytest.ExitCode.USAGE_ERROR, finished.stdout + finished.stderr
    assert "it has no open" in finished.stdout + finished.stderr
