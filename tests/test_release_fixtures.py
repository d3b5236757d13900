"""What earlier releases wrote is still read: plans, campaign files, run directories, certificates and checkpoints.

``tests/fixtures/<release>/`` holds what that release's own code made; its README says how. Nothing there is changed
afterwards. Grain: the command line for what a user has kept, and whole simulated jobs for checkpoints.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from barrier_tck.harness import History, Row, TrialPlan, Verdict, read_configuration, read_plan
from barrier_tck.harness.certify.engine.certificate import Certificate
from barrier_tck.harness.cli.main import run
from barrier_tck.harness.record.operations import AttemptStarted
from barrier_tck.harness.reference.jobs import job_config
from barrier_tck.harness.reference.simulated import simulated_system, world
from barrier_tck.harness.reference.simulated.file_system import SimulatedDisk
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import execute, run_trial
from barrier_tck.reports.certificate_page import render_certificate

ROOT = Path(__file__).resolve().parents[1]
RELEASE = ROOT / "tests" / "fixtures" / "0.1.0"
VERDICTS: dict[str, str] = json.loads((RELEASE / "verdicts.json").read_text())
SAVEPOINT = "savepoints/savepoint-1"


def stems(pattern: str) -> list[str]:
    found = sorted(path.stem for path in RELEASE.glob(pattern))
    assert found, pattern
    return found


# --- plans and campaign files -------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("name", stems("plans/*.json"))
def test_a_plan_gives_the_verdict_that_it_gave(name: str, tmp_path: Path) -> None:
    plan = read_plan(RELEASE / "plans" / f"{name}.json")
    record = run_trial(plan, ReferenceSimulated(), tmp_path)
    assert record.verdict.value == VERDICTS[name], record.findings


def test_every_plan_of_the_release_has_a_verdict() -> None:
    assert sorted(VERDICTS) == stems("plans/*.json")


@pytest.mark.parametrize("bug", ["AL-01", "SO-02"])
def test_the_smallest_plan_of_a_planted_bug_shows_it_again(
    bug: str, capsys: pytest.CaptureFixture[str]
) -> None:
    results = json.loads((RELEASE / "mutants" / "mutants.json").read_text())["mutants"]
    (result,) = [each for each in results if each["id"] == bug]
    assert run(["replay", str(RELEASE / "mutants" / result["plan"])]) == 1
    said = capsys.readouterr().out.splitlines()
    assert any(line.strip().startswith(result["checker"]) and ": invalid: " in line for line in said)


@pytest.mark.parametrize("name", stems("campaigns/*.toml"))
def test_a_campaign_file_is_read(name: str) -> None:
    configuration = read_configuration(RELEASE / "campaigns" / f"{name}.toml")
    assert configuration.trial or configuration.trials or configuration.budget


@pytest.mark.long
@pytest.mark.parametrize("name", ["graphs", "rescale", "savepoints"])
def test_a_simulated_campaign_file_runs(name: str, tmp_path: Path) -> None:
    file = str(RELEASE / "campaigns" / f"{name}.toml")
    assert run(["campaign", file, "--trials", "2", "--controls", "0", "--out", str(tmp_path)]) in (0, 2)


# --- run directories and certificates -----------------------------------------------------------------------


@pytest.fixture
def kept_run(tmp_path: Path) -> Path:
    """A copy of a run directory in which trial 2 is INVALID, as its plan carries a planted bug."""
    return Path(shutil.copytree(RELEASE / "run", tmp_path / "run"))


def test_reports_are_written_from_a_run_directory(kept_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = json.loads((kept_run / "campaign.json").read_text())
    assert run(["report", str(kept_run), "--cut", "0:1"]) == 1
    assert "6 trials: 5 valid, 0 unknown, 1 invalid" in capsys.readouterr().out
    report = json.loads((kept_run / "report.json").read_text())
    assert report["verdict"] == recorded["verdict"] == "invalid"
    page = (kept_run / "report.html").read_text()
    assert "INVALID" in page and "exactly-once-output" in page
    assert "<failure" in (kept_run / "junit.xml").read_text()
    assert (kept_run / "cuts" / "trial-00000-checkpoint-1.html").is_file()


def test_the_shrunk_plan_of_a_run_directory_fails_again(kept_run: Path) -> None:
    (shrunk,) = kept_run.glob("shrunk/*.json")
    assert run(["replay", str(shrunk)]) == 1


@pytest.mark.parametrize("name", stems("certificates/*.json"))
def test_a_certificate_is_rendered(name: str) -> None:
    content = (RELEASE / "certificates" / f"{name}.json").read_bytes()
    certificate = msgspec.json.decode(content, type=Certificate)
    assert certificate.suite_version == RELEASE.name
    page = render_certificate(certificate)
    expected = "Failed: contract was asked for" if name == "naive-failed" else "Certified: level contract"
    assert expected in page
    assert all(outcome.name in page for outcome in certificate.outcomes)


@pytest.mark.long
@pytest.mark.parametrize("name", stems("certificates/sequences/*.json"))
def test_a_failing_sequence_is_repeated_on_another_backend(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = RELEASE / "certificates" / "sequences" / f"{name}.json"
    assert run(["certify", "heap", "--replay", str(file)]) == 0
    assert "nothing is violated" in capsys.readouterr().out


# --- checkpoints --------------------------------------------------------------------------------------------


def on_disk(files: Path) -> SimulatedDisk:
    """Return a simulated disk that holds the files below a directory."""
    disk = SimulatedDisk()
    host = disk.host()
    for path in sorted(files.rglob("*")):
        if path.is_file():
            stream = host.create(path.relative_to(files).as_posix())
            stream.write(path.read_bytes())
            stream.sync()
            stream.close()
    return disk


def went_on(
    plan: TrialPlan,
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
    directory: Path,
    savepoint: str | None = None,
) -> History:
    """Run the job on a disk that holds what another job left, from its newest checkpoint or from a savepoint."""
    with monkeypatch.context() as patched:
        patched.setattr(world, "SimulatedDisk", lambda: on_disk(files))
        patched.setattr(
            simulated_system,
            "job_config",
            lambda plan: dataclasses.replace(job_config(plan), start_from=savepoint),
        )
        # No checker: the history lacks what the first job did.
        result = execute(plan, ReferenceSimulated(), directory, checkers=())
    assert result.history is not None, result.record.findings
    return result.history


def restored_at_first(history: History) -> int | None:
    first = next(line.operation for line in history.of(AttemptStarted))
    assert isinstance(first, AttemptStarted)
    return first.restored_checkpoint


def newest_checkpoint(files: Path) -> int:
    found = [path.parent.name for path in files.glob("*/*/chk-*/_metadata")]
    return max(int(name.removeprefix("chk-")) for name in found)


def ids(history: History) -> Counter[int]:
    assert history.output is not None
    return Counter(row["id"] for row in history.output)


def last_rows(history: History) -> list[Row]:
    """Return the last row of each key: what was counted and summed over the whole input."""
    assert history.output is not None
    last: dict[str, Row] = {}
    for row in sorted(history.output, key=lambda row: row["count"]):
        last[row["key"]] = {name: row[name] for name in ("key", "count", "sum")}
    return [last[key] for key in sorted(last)]


def undisturbed(plan: TrialPlan, directory: Path) -> History:
    """Run the same job from the beginning."""
    result = execute(plan, ReferenceSimulated(), directory)
    assert result.history is not None and result.record.verdict is Verdict.VALID, result.record.findings
    return result.history


@pytest.mark.parametrize("name", [name for name in stems("checkpoints/*") if name != "savepoint"])
def test_a_job_goes_on_from_a_checkpoint(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = RELEASE / "checkpoints" / name
    # A job that is stopped again would be stopped in its first attempt.
    plan = msgspec.structs.replace(read_plan(kept / "plan.json"), savepoints=(), rescales=())
    history = went_on(plan, kept / "files", monkeypatch, tmp_path)
    assert history.end.value == "finished", history.detail
    assert restored_at_first(history) == newest_checkpoint(kept / "files")
    expected = undisturbed(plan, tmp_path)
    if name == "at-least-once":
        assert ids(history) >= ids(expected)
        return
    assert ids(history) == ids(expected)
    if plan.workload.name == "keyed-totals":
        assert last_rows(history) == last_rows(expected)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_job_of_any_width_starts_from_a_savepoint(
    parallelism: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = RELEASE / "checkpoints" / "savepoint"
    plan = msgspec.structs.replace(read_plan(kept / "plan.json"), savepoints=())
    vertices = tuple(
        msgspec.structs.replace(vertex, parallelism=parallelism) if vertex.name == "totals" else vertex
        for vertex in plan.job.vertices
    )
    wider = msgspec.structs.replace(plan, job=msgspec.structs.replace(plan.job, vertices=vertices))
    history = went_on(wider, kept / "files", monkeypatch, tmp_path, SAVEPOINT)
    assert history.end.value == "finished", history.detail
    assert restored_at_first(history) is not None
    expected = undisturbed(plan, tmp_path)
    assert ids(history) == ids(expected)
    assert last_rows(history) == last_rows(expected)


_GO_ON = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from barrier_tck.reference_impl.job_api import session_settings
from examples.savepoints.totals import committed, expected, go_on, totals, write_input
builder = SparkSession.builder.master("local[5]").config("spark.ui.enabled", "false")
for name, value in session_settings().items():
    builder = builder.config(name, value)
spark, directory = builder.getOrCreate(), Path(sys.argv[1])
end = go_on(spark, totals(write_input(directory / "in"), 100_000), directory / "files")
print(end.state.value, committed(directory / "files") == expected())
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.long
def test_a_job_on_spark_starts_from_a_savepoint_that_was_taken_there(tmp_path: Path) -> None:
    shutil.copytree(RELEASE / "spark-savepoint", tmp_path / "files")
    command = [sys.executable, "-c", _GO_ON, str(tmp_path)]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert finished.stdout.split() == ["finished", "True"], finished.stderr[-2_000:]
