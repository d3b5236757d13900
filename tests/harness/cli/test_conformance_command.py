"""``barrier-tck conformance`` says of each clause what the suite showed of a system; grain: the command, in process."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from rich.progress import Progress

from barrier_tck.harness.cli import main as cli
from barrier_tck.harness.cli.conformance_command import print_record
from barrier_tck.harness.cli.conformance_outcomes import Outcomes
from barrier_tck.harness.cli.printing import VerdictConsole
from barrier_tck.harness.record.conformance_record import CaseOutcome, ConformanceRecord, verdict_of
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.reports.conformance_page import render_conformance
from tests.harness.cli.test_cli import last_json

SMALL_JOB = "test_smoke.py::test_a_small_job_is_checkpointed_and_its_output_is_exact"
SKIPS_ONE = ("position += len(batch)\n", "position += len(batch) + (position == 6)\n")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which the skeleton of a system lies, right as ``right`` and wrong as ``wrong``."""
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    assert cli.run(["init", "system", "right.py"]) == 0
    right = (tmp_path / "right.py").read_text()
    assert SKIPS_ONE[0] in right
    (tmp_path / "wrong.py").write_text(right.replace(*SKIPS_ONE))
    yield tmp_path
    sys.path[:] = before
    for name in ("right", "wrong"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


def conformance(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = cli.run(["conformance", "--seed", "1", "--only", "COO-1", "--json", *options])
    return code, last_json(capsys)


@pytest.mark.long
def test_a_right_system_is_valid_and_what_it_does_not_claim_is_said_by_clause(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = conformance(capsys, "--system", "right:MySystem")
    assert (code, said["verdict"]) == (0, "valid")
    assert said["clauses"]["SNK-1"] == "shown"
    assert said["clauses"]["COO-1"] == said["clauses"]["BAR-1"] == "not claimed", "it has no checkpoints"
    assert said["tests"]["passed"] >= 2
    assert said["tests"]["not_claimed"] > said["tests"]["passed"]
    record = msgspec.json.decode(Path(said["record"]).read_bytes(), type=ConformanceRecord)
    not_claimed = [outcome.reason for outcome in record.outcomes if outcome.status == "not claimed"]
    assert any(reason.startswith("does not declare ") for reason in not_claimed)
    assert all(reason for reason in not_claimed)
    ran = [case.get("name") for case in ElementTree.parse(said["junit"]).iter("testcase")]
    assert SMALL_JOB.partition("::")[2] in ran
    assert not (Path(said["page"]).parent / "trials").exists()


@pytest.mark.long
def test_a_wrong_system_is_invalid_by_the_clause_that_it_breaks_and_its_plan_is_kept(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = conformance(capsys, "--system", "wrong:MySystem")
    assert (code, said["verdict"]) == (1, "invalid")
    assert SMALL_JOB in said["failed"]
    assert said["clauses"]["SNK-1"] == "failed"
    assert said["clauses"]["REC-6"] == "not shown", "the finding does not name it"
    page = Path(said["page"]).read_text()
    assert "1 lost" in page
    record = json.loads(Path(said["record"]).read_bytes())
    (outcome,) = [outcome for outcome in record["outcomes"] if outcome["name"] == SMALL_JOB]
    line = outcome["reason"].splitlines()[-1]
    assert line.startswith("replay: barrier-tck replay ")
    assert cli.run([*line.removeprefix("replay: barrier-tck ").split(), "--json"]) == 1


@pytest.mark.nightly
def test_a_known_failure_does_not_make_a_system_invalid_and_one_that_passes_is_told(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generated = "test_exactly_once.py::test_generated_jobs_and_faults"
    known = here / "known.toml"
    known.write_text(f'[known-failures]\n"{SMALL_JOB}" = "ticket 7"\n"{generated}" = "ticket 7"\n')
    code, said = conformance(capsys, "--system", "right:MySystem", "--known-failures", str(known))
    assert (code, said["passes_now"]) == (0, [SMALL_JOB, generated])
    code, said = conformance(capsys, "--system", "wrong:MySystem", "--known-failures", str(known))
    assert (said["failed"], said["tests"]["known_failure"]) == ([], 2)
    assert said["clauses"]["SNK-1"] == "known failure"
    assert said["clauses"]["REC-6"] != "known failure", "it was not broken"
    assert code != 1


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--system", "right:MySystm"), "did you mean 'MySystem'?"),
        (("--system", "absent:MySystem"), "No module named 'absent'"),
        (("--system", "right:MySystem", "--only", "SNK-99"), "did you mean 'SNK-"),
        (("--system", "right:MySystem", "--only", ","), "names nothing"),
        (("--system", "right:MySystem", "--known-failures", "absent.toml"), "absent.toml"),
        (("--system", "right:MySystem", "--known-failures", "other.toml"), "did you mean"),
        (("--system", "right:MySystem", "--known-failures", "silent.toml"), "say why"),
        (("--system", "right:MySystem", "--known-failures", "table.toml"), "[known-failures]"),
    ],
)
def test_a_mistake_is_said_in_a_sentence_and_leaves_no_run_directory(
    options: tuple[str, ...], says: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "other.toml").write_text(f'[known-failures]\n"{SMALL_JOB}ly" = "x"\n')
    (here / "silent.toml").write_text(f'[known-failures]\n"{SMALL_JOB}" = " "\n')
    (here / "table.toml").write_text(f'"{SMALL_JOB}" = "x"\n')
    capsys.readouterr()
    assert cli.run(["conformance", *options]) == 3
    assert says in capsys.readouterr().err
    assert not list(here.glob("runs/*"))


def printed(capsys: pytest.CaptureFixture[str], known: dict[str, str], *outcomes: CaseOutcome) -> list[str]:
    record = ConformanceRecord(
        system="mine",
        verdict=Verdict.VALID,
        seed=1,
        started_at="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        environment={},
        outcomes=outcomes,
    )
    print_record(record, Path("run"), VerdictConsole(), known)
    return capsys.readouterr().out.splitlines()


def test_the_counts_say_what_was_left_out_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    one = outcome("passed", "SNK-1")
    left_out = [outcome("not claimed", f"UNA-{number}") for number in range(36)]
    assert printed(capsys, {}, one, *left_out) == [
        "VALID: of 37 clauses, 1 shown, 36 need a capability or plan setting that it does not declare",
        "1 test passed, 36 were left out; report: run/conformance.html",
    ]
    assert printed(capsys, {}, one, one, left_out[0])[-1].startswith("2 tests passed, 1 was left out; ")
    assert printed(capsys, {}, one)[-1].startswith("1 test passed; ")


def test_a_known_failure_that_was_not_run_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """``--only`` leaves tests out, and an interruption too."""
    known = {"test_passed": "ticket 7", "test_other": "ticket 8"}
    line = "of the file of known failures, 1 test was not run: test_other"
    assert line in printed(capsys, known, outcome("passed", "SNK-1"))
    plugin = Outcomes("mine", (), known, Progress(), lambda: None)
    assert plugin.passes_now == ()


def outcome(status: str, *clauses: str, broken: tuple[str, ...] = ()) -> CaseOutcome:
    return msgspec.convert(
        {
            "name": f"test_{status}",
            "clauses": clauses,
            "status": status,
            "broken": broken,
            "reason": "<b>why",
        },
        CaseOutcome,
    )


@pytest.mark.parametrize(
    ("statuses", "interrupted", "verdict"),
    [
        (["passed", "not claimed", "known failure"], False, Verdict.VALID),
        (["passed", "failed", "not shown"], False, Verdict.INVALID),
        (["passed", "failed"], True, Verdict.INVALID),
        (["passed", "not shown"], False, Verdict.UNKNOWN),
        (["passed"], True, Verdict.UNKNOWN),
        (["not claimed", "known failure"], False, Verdict.UNKNOWN),
        ([], False, Verdict.UNKNOWN),
    ],
)
def test_valid_is_said_only_if_all_that_ran_showed_something_and_something_ran(
    statuses: list[str], interrupted: bool, verdict: Verdict
) -> None:
    clauses = {"passed": "REC-1"}
    outcomes = tuple(outcome(status, clauses.get(status, "SNK-1")) for status in statuses)
    assert verdict_of(outcomes, interrupted) is verdict


def test_valid_is_not_said_if_no_clause_was_shown() -> None:
    broken = outcome("known failure", "SNK-1", "REC-1", broken=("SNK-1",))
    assert verdict_of((outcome("passed", "SNK-1"), broken), False) is Verdict.UNKNOWN
    assert verdict_of((outcome("passed", "REC-1"), broken), False) is Verdict.VALID


def test_a_clause_fails_if_one_of_its_tests_does_and_only_if_it_may_be_the_broken_one() -> None:
    outcomes = (
        outcome("passed", "SNK-1", "REC-1", "REC-10"),
        outcome("failed", "SNK-1", "REC-1", broken=("SNK-1", "BAR-2")),
        outcome("failed", "REC-2"),
        outcome("not claimed", "REC-2", "UNA-1"),
    )
    record = ConformanceRecord(
        system="mine",
        verdict=Verdict.INVALID,
        seed=1,
        started_at="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        environment={},
        outcomes=outcomes,
    )
    assert [(clause.clause, clause.status, clause.passed, clause.tests) for clause in record.clauses] == [
        ("BAR-2", "failed", 0, 1),
        ("REC-1", "shown", 1, 2),
        ("REC-2", "failed", 0, 1),
        ("REC-10", "shown", 1, 1),
        ("SNK-1", "failed", 1, 2),
        ("UNA-1", "not claimed", 0, 0),
    ]
    page = render_conformance(record)
    assert "<b>why" not in page
    assert "&lt;b&gt;why" in page


def test_why_a_clause_is_not_claimed_is_said_in_few_words() -> None:
    lists = ["A", "A, B", "B, C, D", "A, B, C, D", "B, C, D, E, F"]
    outcomes = [
        msgspec.structs.replace(outcome("not claimed", "UNA-1"), reason=f"does not declare {one}")
        for one in lists
    ]
    passed = msgspec.structs.replace(
        outcome("passed", "BAR-1"), unclaimed={"BAR-1": "does not declare BARRIERS"}
    )
    record = ConformanceRecord(
        system="mine",
        verdict=Verdict.VALID,
        seed=1,
        started_at="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        environment={},
        outcomes=(passed, *reversed(outcomes)),
    )
    for status in ("passed", "not shown", "failed"):
        other = msgspec.structs.replace(passed, status=status)
        assert (other.says_of("BAR-1"), other.says_of("SNK-1")) == ("not claimed", status)
    assert msgspec.structs.replace(passed, status="failed", broken=("BAR-1",)).says_of("BAR-1") == "failed"
    barriers, unaligned = record.clauses
    assert (barriers.status, barriers.passed, barriers.reason) == (
        "not claimed",
        0,
        "does not declare BARRIERS",
    )
    assert unaligned.reason == (
        "does not declare A; does not declare A, B; does not declare B, C, D; and 2 more"
    )
