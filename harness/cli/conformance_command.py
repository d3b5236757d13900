"""``barrier-tck conformance``: run the conformance suite on a system, and write what it showed of each clause."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, get_args

import msgspec
import typer

from barrier_tck.harness.cli import completion
from barrier_tck.harness.cli.options import DEFAULT_OUT, JsonOption, OutOption, listed
from barrier_tck.harness.cli.printing import VerdictConsole, console_for, emit, printable
from barrier_tck.harness.record.conformance_record import CaseStatus
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.errors import HarnessError, UsageProblem
from barrier_tck.harness.support.third_party import search_working_directory

if TYPE_CHECKING:
    from barrier_tck.harness.record.conformance_record import ConformanceRecord

_SUITE = "barrier_tck.conformance"
_OF_PLUG_INS = ("test_state_backend", "test_checkpoint_storage")
"""Modules about backends and storages, which have certificates of their own."""
_DATA, _PAGE, _JUNIT = "conformance.json", "conformance.html", "junit.xml"
_TRIALS = "trials"
"""Where plans and logs of trials are; kept if the verdict is not VALID."""
_EXIT = {Verdict.VALID: 0, Verdict.INVALID: 1, Verdict.UNKNOWN: 2}
_SIGNS = {"failed": "✗", "known failure": "–", "not shown": "?"}
"""What is printed before the name of a test that did not pass."""
_CLAUSES = {
    "shown": "shown",
    "failed": "failed",
    "known failure": "known to fail",
    "not shown": "not shown",
    "not claimed": "need a capability or plan setting that it does not declare",
}
"""Status of a clause -> what is said of a number of them."""
_LINES_MAX, _LINE_MAX = 3, 200
"""How many lines of a reason a terminal shows, and how many characters of each."""


def conformance(
    system: Annotated[
        str,
        typer.Option(
            "--system",
            metavar="NAME",
            autocompletion=completion.SYSTEMS,
            help="System under test: reference-simulated, reference-spark, or package.module:Factory.",
        ),
    ] = "reference-simulated",
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", metavar="N", help="Seed of the drawn plans. Default: a new one, which is printed first."
        ),
    ] = None,
    only: Annotated[
        str,
        typer.Option(
            "--only",
            metavar="CLAUSE,...",
            autocompletion=completion.CLAUSES,
            help="Run only the tests of these clauses. Default: all.",
        ),
    ] = "",
    known_failures: Annotated[
        Path | None,
        typer.Option(
            "--known-failures",
            metavar="FILE.toml",
            help="Tests that are known to fail, each with a reason; they do not make the system INVALID.",
        ),
    ] = None,
    out: OutOption = DEFAULT_OUT,
    as_json: JsonOption = False,
) -> None:
    """Run the conformance suite on a system.

    It says what its tests show of each clause, and which clauses the system does not claim. Tests that ask for what the
    system does not declare are left out, and listed by clause. The directory of the run gets a page, the same as data,
    and a report for JUnit. Exit code 0 if every test passed that ran, or is known to fail; 1 if another one failed; 2
    if a test could not show what it is about, or none ran; 3 for a mistake.

    \b
    Examples:
      barrier-tck conformance --system my_system:MySystem
      barrier-tck conformance --system my_system:MySystem --only SNK-1,REC-1
      barrier-tck conformance --system my_system:MySystem --known-failures known-failures.toml
    """
    from barrier_tck.harness.record.run_directory import make_output_directory, new_run_path
    from barrier_tck.harness.support.root_seed import root_seed
    from barrier_tck.harness.system.system_names import require_system

    console = console_for(as_json)
    search_working_directory()
    require_system(system)
    known = {} if known_failures is None else _read_known(known_failures)
    clauses = listed("--only", only) if only else ()
    chosen = root_seed(seed)
    path = new_run_path(out, "conformance", datetime.now().astimezone())
    make_output_directory(path)

    def announce() -> None:
        console.print(f"conformance of {printable(system)}, seed {chosen}, in {path}", markup=False)

    try:
        record = _run(system, chosen.value, clauses, known, path, console, announce)
    except HarnessError:
        with contextlib.suppress(OSError):
            (path / _JUNIT).unlink(missing_ok=True)
            shutil.rmtree(path / _TRIALS, ignore_errors=True)
            path.rmdir()
        raise
    if record.verdict is Verdict.VALID:
        shutil.rmtree(path / _TRIALS, ignore_errors=True)
    _write(record, path)
    print_record(record, path, console, known)
    emit(as_json, _summary(record, path))
    if record.interrupted:
        raise KeyboardInterrupt
    raise typer.Exit(_EXIT[record.verdict])


def _read_known(path: Path) -> Mapping[str, str]:
    """Return the tests of a file of known failures, each with its reason; raises UsageProblem if it is no such file."""
    from barrier_tck.harness.support.strict_input import read_toml

    found = read_toml(path)
    tests = found.get("known-failures")
    if set(found) != {"known-failures"} or not isinstance(tests, dict):
        raise UsageProblem(
            f'{path}: a file of known failures has one table, [known-failures], with lines such as "test_smoke.py::'
            'test_exactly_one_record_is_committed_once" = "why it fails"'
        )
    for name, reason in tests.items():
        if not isinstance(reason, str) or not reason.strip():
            raise UsageProblem(f"{path}: say why {name} fails: its value is {reason!r}")
    return tests


def _modules() -> tuple[str, ...]:
    """Return the modules of the suite that are about a system."""
    suite = importlib.util.find_spec(_SUITE)
    assert suite is not None and suite.submodule_search_locations is not None
    (folder,) = map(Path, suite.submodule_search_locations)
    names = sorted(file.stem for file in folder.glob("test_*.py"))
    return tuple(f"{_SUITE}.{name}" for name in names if name not in _OF_PLUG_INS)


def _run(
    system: str,
    seed: int,
    clauses: Sequence[str],
    known: Mapping[str, str],
    path: Path,
    console: VerdictConsole,
    begins: Callable[[], None],
) -> ConformanceRecord:
    """Run the tests in this process; raises what kept them from running, and KeyboardInterrupt never: the record says
    that it was interrupted.
    """
    import pytest
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from barrier_tck.harness.cli.conformance_outcomes import Outcomes
    from barrier_tck.harness.record.conformance_record import ConformanceRecord, verdict_of
    from barrier_tck.harness.support.environment import environment

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    started, began = datetime.now().astimezone(), time.monotonic()
    with Progress(*columns, console=console, transient=True) as progress:
        outcomes = Outcomes(system, clauses, known, progress, begins)
        arguments = [
            "--pyargs",
            *_modules(),
            f"--system={system}",
            f"--seed={seed}",
            f"--junit-xml={path / _JUNIT}",
            # What users configure for tests of their own does not decide what the suite says.
            f"--config-file={os.devnull}",
            f"--rootdir={path}",
            f"--basetemp={path / _TRIALS}",
            "-pno:cacheprovider",
            "-pno:terminal",
        ]
        with contextlib.redirect_stdout(sys.stderr):
            code = pytest.main(arguments, plugins=[outcomes])
    if outcomes.problem is not None:
        raise outcomes.problem
    expected = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
    if code not in expected and not outcomes.interrupted:
        raise RuntimeError("\n".join([f"pytest ended with {code}", *outcomes.errors]))
    found = outcomes.found
    return ConformanceRecord(
        system=system,
        verdict=verdict_of(found, outcomes.interrupted),
        interrupted=outcomes.interrupted,
        seed=seed,
        started_at=started.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - began, 1),
        environment=environment(),
        outcomes=found,
        passes_now=outcomes.passes_now,
    )


def _write(record: ConformanceRecord, path: Path) -> None:
    from barrier_tck.harness.support.atomic_files import write_atomically
    from barrier_tck.reports.conformance_page import write_page

    data = msgspec.json.format(msgspec.json.encode(record), indent=2)
    write_atomically(path / _DATA, data + b"\n")
    write_page(record, path / _PAGE)


def print_record(
    record: ConformanceRecord,
    path: Path,
    console: VerdictConsole,
    known: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Print what is not as it should be, one line a test, and how many clauses were shown."""
    for outcome in record.outcomes:
        if outcome.status in _SIGNS:
            clauses_of = ", ".join(outcome.broken or outcome.clauses)
            console.print(printable(f"{_SIGNS[outcome.status]} {outcome.name} ({clauses_of})"))
            for line in _first_lines(outcome.reason):
                console.print(printable(f"    {line.strip()}"))
    for name in record.passes_now:
        console.print(printable(f"✓ {name} is known to fail, and passed: take it out of the file"))
    not_run = sorted(set(known) - {outcome.name for outcome in record.outcomes})
    if not_run:
        tests = "1 test was" if len(not_run) == 1 else f"{len(not_run)} tests were"
        console.print(printable(f"of the file of known failures, {tests} not run: {', '.join(not_run)}"))
    clauses = record.clauses
    counted = {status: sum(clause.status == status for clause in clauses) for status in _CLAUSES}
    said = ", ".join(
        f"{number} {_CLAUSES[status]}" for status, number in counted.items() if number or status == "shown"
    )
    console.print(f"{record.verdict.value.upper()}: of {len(clauses)} clauses, {said}")
    console.print(f"{_counts(record)}; report: {path / _PAGE}")


def _counts(record: ConformanceRecord) -> str:
    """Return how many tests passed, and how many were left out."""
    passed, left_out = record.count("passed"), record.count("not claimed")
    left = f"{left_out:,} {'was' if left_out == 1 else 'were'} left out"
    return f"{passed:,} {'test' if passed == 1 else 'tests'} passed" + (f", {left}" if left_out else "")


def _first_lines(reason: str) -> Sequence[str]:
    """Return what a terminal shows of a reason; the page has all of it."""
    lines = [line if len(line) <= _LINE_MAX else f"{line[:_LINE_MAX]}…" for line in reason.splitlines()]
    return lines[:_LINES_MAX]


def _summary(record: ConformanceRecord, path: Path) -> dict[str, Any]:
    """Return what ``--json`` prints."""
    return {
        "verdict": record.verdict.value,
        "interrupted": record.interrupted,
        "system": record.system,
        "seed": record.seed,
        "seconds": record.seconds,
        "tests": {status.replace(" ", "_"): record.count(status) for status in get_args(CaseStatus)},
        "failed": [outcome.name for outcome in record.outcomes if outcome.status == "failed"],
        "passes_now": list(record.passes_now),
        "clauses": {clause.clause: clause.status for clause in record.clauses},
        "record": str(path / _DATA),
        "page": str(path / _PAGE),
        "junit": str(path / _JUNIT),
    }
