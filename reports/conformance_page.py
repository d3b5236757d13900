"""What a run of the conformance suite showed of a system, clause by clause, as one self-contained page."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from barrier_tck.conformance.clauses import CLAUSES
from barrier_tck.harness.record.conformance_record import ConformanceRecord
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.atomic_files import write_atomically
from barrier_tck.reports.html import page_source, templates

_TITLES = {
    Verdict.VALID: "Every test that ran passed",
    Verdict.INVALID: "A test failed",
    Verdict.UNKNOWN: "Not all was shown",
}
_MEANINGS = {
    Verdict.VALID: "The system did what the suite asks for, in all tests of what it claims. No finite number of tests "
    "proves that it always does.",
    Verdict.INVALID: "The system broke at least one clause, and no file of known failures says so.",
    Verdict.UNKNOWN: "In at least one test, what it is about did not happen, or no test ran. It is not a pass.",
}
_INTERRUPTED = "The run was interrupted. What had been shown by then is kept; other tests did not run."
_CLASSES = {
    "valid": "valid",
    "invalid": "invalid",
    "unknown": "unknown",
    "passed": "valid",
    "shown": "valid",
    "failed": "invalid",
    "known failure": "unknown",
    "not shown": "unknown",
    "not claimed": "skipped",
}
_SIGNS = {
    "valid": "✓",
    "invalid": "✗",
    "unknown": "?",
    "passed": "✓",
    "shown": "✓",
    "failed": "✗",
    "known failure": "✗",
    "not shown": "?",
    "not claimed": "–",
}


def render_conformance(record: ConformanceRecord) -> str:
    """Return the page."""
    return (
        templates()
        .get_template("conformance.html.j2")
        .render(
            record=record,
            title=_TITLES[record.verdict],
            meaning=_INTERRUPTED if record.interrupted else _MEANINGS[record.verdict],
            tiles=_tiles(record),
            wrong=[one for one in record.outcomes if one.status in ("failed", "known failure", "not shown")],
            clause_texts=CLAUSES,
            classes=_CLASSES,
            signs=_SIGNS,
            in_two=_in_two,
            style=Markup(page_source("page.css")),  # our own file
        )
    )


def write_page(record: ConformanceRecord, path: Path) -> None:
    """Write the page whole or not at all; raises EnvironmentProblem."""
    write_atomically(path, render_conformance(record).encode("utf-8", "backslashreplace"))


def _in_two(reason: str) -> tuple[str, str]:
    """Return what a test says, and the plan in it, which is long; empty if there is none."""
    before, found, rest = reason.partition("\nplan:\n")
    plan, _, after = rest.partition("\n}\n")
    return ("\n".join([before, *([after] if after else [])]), f"{plan}\n}}") if found else (reason, "")


def _tiles(record: ConformanceRecord) -> tuple[tuple[str, str], ...]:
    clauses = record.clauses
    shown = sum(clause.status == "shown" for clause in clauses)
    return (
        (f"{shown} of {len(clauses)}", "clauses shown"),
        (str(record.count("passed")), "tests passed"),
        (str(record.count("failed")), "failed"),
        (str(record.count("known failure")), "known to fail"),
        (str(record.count("not shown")), "showed nothing"),
        (str(record.count("not claimed")), "not claimed"),
        (f"{record.seconds:.0f} s", "time"),
    )
