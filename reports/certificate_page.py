"""The certificate of whatever was certified, as one self-contained page; all its texts are escaped."""

from __future__ import annotations

import hashlib
from pathlib import Path

from markupsafe import Markup

from barrier_tck.conformance.clauses import CLAUSES
from barrier_tck.harness.certify.engine.certificate import Certificate, replay_line
from barrier_tck.harness.support.atomic_files import write_atomically
from barrier_tck.reports.html import page_source, templates
from barrier_tck.reports.wording import moment

_TITLES = {
    "certified": "Certified: level {level}",
    "failed": "Failed: {asked} was asked for, {level} was reached",
    "unknown": "Unknown: {asked} was asked for, {level} was reached",
}
_MEANINGS = {
    "certified": "Every property that this level requires was checked and holds.",
    "failed": "At least one property is violated; the smallest failing sequence is shown.",
    "unknown": "No verdict is possible: something that the level requires could not be checked. It is not a pass.",
}
_INTERRUPTED = (
    "The certification was interrupted. What had been shown by then is kept; what was not run is skipped. The same "
    "command with --resume and this directory goes on with it."
)
_CLASSES = {
    "certified": "valid",
    "passed": "valid",
    "shown": "valid",
    "failed": "invalid",
    "unknown": "unknown",
    "skipped": "skipped",
}
_SIGNS = {"certified": "✓", "passed": "✓", "shown": "✓", "failed": "✗", "unknown": "?", "skipped": "–"}


def render_certificate(certificate: Certificate) -> str:
    """Return the page."""
    reached = certificate.level or "no level"
    title = _TITLES[certificate.verdict].format(level=reached, asked=certificate.asked_level)
    return (
        templates()
        .get_template("certificate.html.j2")
        .render(
            certificate=certificate,
            title=title,
            meaning=_INTERRUPTED if certificate.interrupted else _MEANINGS[certificate.verdict],
            tiles=_tiles(certificate),
            failed=[outcome for outcome in certificate.outcomes if outcome.status in ("failed", "unknown")],
            facts=_facts(certificate),
            clause_texts=CLAUSES,
            classes=_CLASSES,
            signs=_SIGNS,
            replay_line=replay_line,
            style=Markup(page_source("page.css")),  # our own file
        )
    )


def write_certificate(certificate: Certificate, path: Path) -> None:
    """Write the page whole or not at all; raises EnvironmentProblem."""
    write_atomically(path, render_certificate(certificate).encode("utf-8", "backslashreplace"))


def _tiles(certificate: Certificate) -> tuple[tuple[str, str], ...]:
    outcomes = certificate.outcomes
    counts = {
        status: sum(outcome.status == status for outcome in outcomes)
        for status in ("passed", "failed", "unknown", "skipped")
    }
    return (
        *(
            (str(count), f"{'property' if count == 1 else 'properties'} {status}")
            for status, count in counts.items()
        ),
        (f"{sum(outcome.examples for outcome in outcomes):,}", "examples and trials"),
        (f"{sum(outcome.calls for outcome in outcomes if outcome.level != 'chaos'):,}", "calls"),
        (f"{sum(outcome.processes for outcome in outcomes):,}", "processes"),
        (f"{certificate.seconds:.0f} s", "time"),
    )


def _files(certificate: Certificate) -> str:
    """Return how many files were certified, and the digest of the list that ``sha256sum`` would print of them."""
    if not certificate.files:
        return "not named"
    listed = "".join(f"{digest}  {name}\n" for name, digest in sorted(certificate.files.items()))
    return f"{len(certificate.files)}, SHA-256 of their list {hashlib.sha256(listed.encode()).hexdigest()}"


def _facts(certificate: Certificate) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    about = (
        ("target", certificate.target),
        ("distribution", certificate.distribution or "not installed as one"),
        ("files", _files(certificate)),
        (certificate.kind, certificate.backend or "could not be made"),
        ("capabilities", ", ".join(certificate.capabilities) or "none"),
        ("level asked for", certificate.asked_level),
        ("level reached", certificate.level or "none"),
        ("suite version", certificate.suite_version),
        ("seed", str(certificate.seed)),
        ("started", moment(certificate.started_at)),
        *(("went on after an interruption", moment(when)) for when in certificate.resumed),
    )
    return (("Certification", about), ("Environment", tuple(sorted(certificate.environment.items()))))
