"""The report as one self-contained page: nothing is fetched, and only our own script and plotly.js run.

Everything from a record (names, notes, reasons, examples) is untrusted text: Jinja escapes it, the data of
figures is JSON with markup characters spelled out, and a content security policy admits the two scripts by their hash.
plotly.js lies in the page compressed, and our script unpacks it (decision 0028).
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from barrier_tck.conformance.clauses import CLAUSES
from barrier_tck.harness.plan.trial_plan import to_json
from barrier_tck.harness.record.records import FaultRecord, TrialRecord, TrialSummary
from barrier_tck.harness.record.run_reader import place_of_rows
from barrier_tck.harness.record.verdict import Evidence, Finding, Verdict
from barrier_tck.harness.support.first_line import first_line
from barrier_tck.reports import wording
from barrier_tck.reports.charts import histogram
from barrier_tck.reports.cuts import CutView, by_trial
from barrier_tck.reports.headline import headline
from barrier_tck.reports.intervals import Recovery, recoveries
from barrier_tck.reports.loading import BATCHES, ReportedRun, planned_faults
from barrier_tck.reports.matrix import unchecked_clauses
from barrier_tck.reports.ranking import RankedFinding, ranked_findings, timeline_trials
from barrier_tck.reports.run_totals import verdict_of
from barrier_tck.reports.timeline import Figure, legend, timeline

FINDINGS_MAX = 25
"""How many findings a page shows in full."""
VALID_ROWS_MAX = 200
"""How many valid trials the table lists; of the others it lists all that a run lists (``RunTotals``)."""
VALID_ROWS_OPEN = 25
"""The number of them that are not folded."""

LINES_INLINED_MAX = 800
"""How many lines and marks of cut diagrams, and lines of their tables, the page holds."""

PLOTLY = "plotly-basic.min.js.gz"
"""The library's file: the npm package ``plotly.js-basic-dist-min``, unchanged (reports/README.md)."""

Facts = tuple[tuple[str, str], ...]
"""Names with their values."""


@dataclass(frozen=True, slots=True)
class FindingView:
    """A finding with what is needed to look into it."""

    trial: int
    finding: Finding
    linked: bool
    """The trial has a section on the page."""
    command: str | None
    facts: tuple[tuple[str, str], ...]
    """Where and when the first clause was broken, and after which fault."""
    together: str | None
    """In how many trials it was found, and what it needs; None if that is not known."""


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One line of the table of trials."""

    summary: TrialSummary
    verdict: Verdict
    linked: bool

    @property
    def planned(self) -> int:
        """Return how many faults the trial planned."""
        return max(self.summary.faults_planned, len(self.summary.faults))


@dataclass(frozen=True, slots=True)
class TrialSection:
    """A trial shown with its timeline."""

    record: TrialRecord
    verdict: Verdict
    faults: tuple[FaultRecord, ...]
    recoveries: tuple[Recovery, ...]
    command: str | None
    plan: str
    """The plan as JSON."""
    figure: Figure


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram with the numbers beside it."""

    name: str
    count: int
    drawn: int
    """How many of them the figure, the median and the percentile are made of."""
    median: float
    p95: float
    most: float
    figure: Figure | None
    """None if all values are equal, so that there is nothing to draw."""


def render(run: ReportedRun, cuts: Sequence[CutView] = ()) -> str:
    """Return the page; ``cuts`` are the diagrams that it shows or, once there is no room, names."""
    sections = tuple(_section(run, record) for record in timeline_trials(run))
    distributions = _distributions(run)
    linked = {section.record.trial for section in sections}
    findings = ranked_findings(run)
    controls = run.campaign.controls
    rows, unlisted = _rows(run, linked)
    plotly, script = plotly_bundle() if sections or distributions else b"", page_source("page.js")
    scripts = (script, gzip.decompress(plotly).decode()) if plotly else (script,)
    page = templates().get_template("page.html.j2")
    return page.render(
        run=run,
        campaign=run.campaign,
        headline=headline(run),
        tiles=_tiles(run),
        of_batches=run.went_on[1] == BATCHES,
        findings=[_view(run, entry, linked) for entry in findings[:FINDINGS_MAX]],
        findings_unlisted=max(0, len(findings) - FINDINGS_MAX),
        controls_invalid=sum(
            control.verdict is Verdict.INVALID for control in (controls.ran if controls is not None else ())
        ),
        clauses=run.clauses,
        unchecked=unchecked_clauses(run.clauses),
        clause_texts=CLAUSES,
        phases=run.phases,
        points=run.totals.faults.by_point(),
        rows=rows,
        rows_open=sum(row.verdict is not Verdict.VALID for row in rows) + VALID_ROWS_OPEN,
        rows_unlisted=unlisted,
        rows_file=place_of_rows(run.directory),
        sections=sections,
        legend=legend(section.record for section in sections),
        distributions=distributions,
        facts=_facts(run),
        verdicts=tuple(reversed(Verdict)),
        cuts=cuts,
        cuts_of=by_trial(cuts),
        inlined=_inlined(cuts),
        style=Markup(page_source("page.css") + (page_source("cut.css") if cuts else "")),  # our own files
        script=Markup(script),  # our own file
        plotly=base64.b64encode(plotly).decode(),
        script_hashes=[script_hash(text) for text in scripts],
    )


def _inlined(cuts: Sequence[CutView]) -> frozenset[str]:
    """Return the anchors of the diagrams that the page holds; each has a page of its own too."""
    chosen, room = [], LINES_INLINED_MAX
    for view in cuts:
        drawn = view.diagram
        room -= len(drawn.lines) + len(drawn.marks) + len(drawn.labels) + len(view.cut.channels)
        if room >= 0:
            chosen.append(view.anchor)
    return frozenset(chosen)


def as_json(value: object) -> Markup:
    """Return JSON that is safe inside a script element: no character of it can end the element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # markup characters were replaced above


def _tiles(run: ReportedRun) -> tuple[tuple[str, str], ...]:
    """Return the counts under the headline."""
    totals = run.totals
    progress, what = run.went_on
    return (
        (f"{totals.trials:,}", "trials"),
        *((f"{run.count(verdict):,}", verdict.value) for verdict in Verdict),
        (f"{totals.faults_fired:,} / {totals.faults_planned:,}", "faults fired / planned"),
        (wording.known(run.recoveries), "recoveries"),
        (wording.known(progress), what),
        (wording.duration(run.campaign.wall_seconds * 1_000), "wall time"),
    )


def _view(run: ReportedRun, entry: RankedFinding, linked: set[int]) -> FindingView:
    """Return one finding as the page shows it."""
    number = entry.trial.trial
    command = run.replay_command(number)
    together = None if entry.group is None else wording.in_how_many_trials(entry.group)
    seen = (*_seen(entry.finding.first), *_faults_before(entry))
    return FindingView(number, entry.finding, number in linked, command, seen, together)


def _seen(first: Evidence | None) -> Iterator[tuple[str, str]]:
    """Yield where and when the first clause was broken, and after which fault, as far as it is known."""
    if first is None:
        return
    if first.place:
        yield "where", first.place
    if first.checkpoint is not None or first.attempt is not None:
        parts = [("checkpoint", first.checkpoint), ("attempt", first.attempt)]
        yield "in", ", ".join(f"{name} {number}" for name, number in parts if number is not None)
    if first.at_ms is not None:
        yield "at", wording.duration(first.at_ms)
    if first.after:
        yield "before it", first.after


def _faults_before(entry: RankedFinding) -> Iterator[tuple[str, str]]:
    """Yield the faults that struck in the trial, unless it is known which one came before."""
    first = entry.finding.first
    struck = [fault for fault in entry.trial.faults if fault.outcome == "fired"]
    if struck and (first is None or not first.after):
        yield "faults", "; ".join(f"{fault.label} {fault.trigger}" for fault in struck)


def _rows(run: ReportedRun, linked: set[int]) -> tuple[tuple[TrialRow, ...], int]:
    """Return the table of trials, worst first, and how many it leaves out."""
    rows = [TrialRow(trial, verdict_of(trial), trial.trial in linked) for trial in run.listed]
    rows.sort(key=lambda row: (-row.verdict.severity, row.summary.trial))
    bad = sum(row.verdict is not Verdict.VALID for row in rows)
    shown = rows[: bad + VALID_ROWS_MAX]
    return tuple(shown), run.totals.trials - len(shown)


def _section(run: ReportedRun, record: TrialRecord) -> TrialSection:
    """Return one trial with its timeline."""
    summary = next(trial for trial in run.listed if trial.trial == record.trial)
    return TrialSection(
        record=record,
        verdict=verdict_of(summary),
        faults=planned_faults(record),
        recoveries=recoveries(record),
        command=run.replay_command(record.trial),
        plan=to_json(record.plan),
        figure=timeline(record),
    )


def _distributions(run: ReportedRun) -> tuple[Distribution, ...]:
    """Return what there is to show as histograms."""
    return tuple(
        Distribution(
            name=series.name,
            count=series.count,
            drawn=len(series.values),
            median=wording.median(series.values),
            p95=wording.percentile(series.values, 0.95),
            most=series.most,
            figure=histogram(series) if min(series.values) < max(series.values) else None,
        )
        for series in run.totals.lengths.series()
    )


def _facts(run: ReportedRun) -> tuple[tuple[str, Facts], ...]:
    """Return what was run: the campaign, its environment, and its configuration flattened, under titles."""
    campaign = run.campaign
    about = (
        ("campaign", campaign.name),
        ("system", campaign.system),
        ("seed", str(campaign.seed)),
        ("started", wording.moment(campaign.started_at)),
        ("run directory", str(run.directory)),
    )
    groups = (
        ("Campaign", about),
        ("Environment", tuple(sorted(campaign.environment.items()))),
        ("Configuration", flattened(campaign.configuration)),
    )
    return tuple((title, facts) for title, facts in groups if facts)


def flattened(configuration: dict[str, Any], prefix: str = "") -> Facts:
    """Return nested configuration as dotted keys with JSON values."""
    entries: list[tuple[str, str]] = []
    for key, value in configuration.items():
        if isinstance(value, dict) and value:
            entries += flattened(value, f"{prefix}{key}.")
        else:
            entries.append((f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value)))
    return tuple(entries)


@cache
def templates() -> jinja2.Environment:
    """Return the templates, which escape everything and refuse names that are not there."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("barrier_tck.reports", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["fault_colour"] = wording.fault_colour
    environment.filters["fault_name"] = wording.fault_name
    environment.filters["duration"] = wording.duration
    environment.filters["event_time"] = wording.event_time
    environment.filters["moment"] = wording.moment
    environment.filters["measurement"] = lambda value, name: wording.measurement(name, value)
    environment.filters["measured_name"] = wording.measured_name
    environment.filters["known"] = wording.known
    environment.filters["first_line"] = first_line
    environment.filters["printable"] = wording.printable
    environment.filters["script_json"] = as_json
    environment.filters["sentence"] = lambda text: text[:1].upper() + text[1:]
    environment.globals["VALID"] = Verdict.VALID
    environment.globals["INVALID"] = Verdict.INVALID
    environment.globals["SYMBOL"] = wording.SYMBOL
    environment.globals["MEANING"] = wording.MEANING
    return environment


def page_source(name: str) -> str:
    """Return a file of ours that goes into the page as it is."""
    environment = templates()
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


@cache
def plotly_bundle() -> bytes:
    """Return the compressed basic bundle of plotly.js, so that the page is small and needs no network."""
    return (resources.files("barrier_tck.reports") / "templates" / PLOTLY).read_bytes()


def script_hash(script: str) -> str:
    """Return the source expression by which the page's policy admits a script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
