"""What `certify` and `certify-storage` print about the strength of their suites."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from barrier_tck.harness.certify.engine.certificate import (
    CERTIFICATE_VERSION,
    Certificate,
    ClauseResult,
    PropertyOutcome,
    Strength,
)
from barrier_tck.harness.certify.engine.certification import NOT_MEASURED
from barrier_tck.harness.cli.certificate_output import output_certificate, printed_outcomes


@pytest.mark.parametrize(
    ("strength", "told"),
    [
        (Strength(True, ("A-1", "A-2"), ()), "planted bugs: the suite caught 2 of 2"),
        (
            Strength(True, ("A-1",), ("A-2",), "why"),
            "planted bugs: the suite caught 1 of 2; missed: A-2 (why)",
        ),
        (Strength(False, note="there is no javac"), "planted bugs: not run (there is no javac)"),
        (Strength(False, note=NOT_MEASURED), "planted bugs: not run (--no-strength)"),
    ],
)
def test_the_strength_of_the_suite_and_what_was_shown_is_told(
    strength: Strength, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate = Certificate(
        version=CERTIFICATE_VERSION,
        suite_version="1",
        target="some.module:Backend",
        backend="Backend",
        capabilities=(),
        asked_level="contract",
        level="contract",
        verdict="certified",
        outcomes=(),
        clauses=(ClauseResult("BCK-1", "shown", True, ("reads",), shown_by=("reads",), times=7),),
        seed=1,
        seconds=1.0,
        started_at="2026-01-01T12:00:00+00:00",
        strength=strength,
    )
    console = Console(file=io.StringIO(), width=200, record=True)
    assert output_certificate(certificate, tmp_path, console, as_json=True) == 0
    printed = console.export_text().splitlines()
    assert told in printed
    assert "BCK-1  holds in 7 comparisons of 1 property (required)" in printed
    summary = json.loads(capsys.readouterr().out)
    assert summary["strength"]["caught"] == list(strength.caught)
    assert summary["shown"] == {"BCK-1": 7}


def test_what_each_level_took_is_told_in_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def outcome(name: str, level: str, status: str, seconds: float, processor: float) -> PropertyOutcome:
        return PropertyOutcome(
            name, level, (), "", status, seconds=seconds, processor_seconds=processor, examples=1
        )

    outcomes = (
        outcome("starts", "contract", "passed", 0.0, 0.0),
        outcome("reads", "contract", "passed", 1_000.4, 2_000.2),
        outcome("writes", "contract", "failed", 30.0, 40.0),
        outcome("kills", "crash", "passed", 7.0, 0.0),
        outcome("trials", "chaos", "skipped", 0.0, 0.0),
    )
    certificate = Certificate(
        version=CERTIFICATE_VERSION,
        suite_version="1",
        target="some.module:Backend",
        backend="Backend",
        capabilities=(),
        asked_level="chaos",
        level=None,
        verdict="failed",
        outcomes=outcomes,
        clauses=(),
        seed=1,
        seconds=1.0,
        started_at="2026-01-01T12:00:00+00:00",
    )
    console = Console(file=io.StringIO(), width=200, record=True)
    output_certificate(certificate, tmp_path, console, as_json=True)
    told = console.export_text().splitlines()
    assert "took: contract 1,030 s (2,040 s of CPU), crash 7 s" in told
    assert json.loads(capsys.readouterr().out)["levels"] == {
        "contract": {"seconds": 1030.4, "processor_seconds": 2040.2},
        "crash": {"seconds": 7.0, "processor_seconds": 0.0},
    }


def test_a_run_of_a_few_properties_says_what_became_of_them_and_that_no_certificate_was_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = (
        PropertyOutcome("one", "contract", ("BCK-1",), "", "passed", shown={"BCK-1": 1}),
        PropertyOutcome("two", "contract", ("BCK-2",), "", "failed", "wrong", violated="BCK-2"),
        PropertyOutcome("left-out", "contract", ("BCK-3",), "", "skipped", "--only leaves it out"),
    )
    certificate = Certificate(
        version=CERTIFICATE_VERSION,
        suite_version="1",
        target="some.module:Backend",
        backend="Backend",
        capabilities=(),
        asked_level="contract",
        level=None,
        verdict="failed",
        outcomes=outcomes,
        clauses=(),
        seed=1,
        seconds=1.0,
        started_at="2026-01-01T12:00:00+00:00",
        only=("one", "two"),
    )
    console = Console(file=io.StringIO(), width=200, record=True)
    assert output_certificate(certificate, tmp_path, console, as_json=True) == 1
    capsys.readouterr()
    line = "only 2 properties were checked: 1 passed, 1 failed (two); nothing is certified by that; 1 s"
    assert line in console.export_text().splitlines()


def test_a_level_that_was_not_asked_for_has_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def skipped(name: str, level: str) -> PropertyOutcome:
        return PropertyOutcome(name, level, (), "", "skipped", f"the level {level} was not asked for")

    outcomes = (
        PropertyOutcome("reads", "contract", (), "", "passed", examples=1),
        *(skipped(f"killed-{number}", "crash") for number in range(8)),
        skipped("trials", "chaos"),
    )
    certificate = Certificate(
        version=CERTIFICATE_VERSION,
        suite_version="1",
        target="some.module:Backend",
        backend="Backend",
        capabilities=(),
        asked_level="contract",
        level="contract",
        verdict="certified",
        outcomes=outcomes,
        clauses=(),
        seed=1,
        seconds=1.0,
        started_at="2026-01-01T12:00:00+00:00",
    )
    console = Console(file=io.StringIO(), width=200, record=True)
    progress = printed_outcomes(console, "certifying", certificate.target, tmp_path, ())
    for outcome in outcomes:
        progress(outcome)
    output_certificate(certificate, tmp_path, console, as_json=True)
    capsys.readouterr()
    printed = console.export_text().splitlines()
    assert "– not asked for: crash (8 properties), chaos (1 property)" in printed
    assert not [line for line in printed if "killed-" in line]
