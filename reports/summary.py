"""The report for a terminal: headline, counts, worst findings with their repro lines, verdict per clause."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.reports.headline import verdict_sentence
from barrier_tck.reports.loading import ReportedRun
from barrier_tck.reports.matrix import unchecked_clauses
from barrier_tck.reports.ranking import RankedFinding, ranked_findings
from barrier_tck.reports.wording import (
    SYMBOL,
    duration,
    in_how_many_trials,
    known,
    measured_name,
    measurement,
    median,
    one_line,
    plural,
    printable,
)

FINDINGS_MAX = 5
"""How many findings are printed in full."""
_EXAMPLES_MAX = 3
_STYLE = {Verdict.VALID: "bold green", Verdict.UNKNOWN: "bold yellow", Verdict.INVALID: "bold red"}


def print_run(run: ReportedRun, console: Console) -> None:
    """Print the summary of a loaded run."""
    _print_headline(run, console)
    _print_controls(run, console)
    findings = ranked_findings(run)
    for entry in findings[:FINDINGS_MAX]:
        _print_finding(run, entry, console)
    if len(findings) > FINDINGS_MAX:
        rest = len(findings) - FINDINGS_MAX
        console.print(Text(f"... and {plural(rest, 'finding')} more, all of them in report.json"))
    _print_clauses(run, console)
    _print_lengths(run, console)
    for kind, count in run.campaign.refused_connections.items():
        console.print(Text(f"connections refused: {count:,} ({one_line(kind).replace('_', ' ')})"))
    for notice in run.notices:
        console.print(Text(f"Note: {one_line(notice)}", style="yellow"))


def _badge(verdict: Verdict) -> Text:
    """Return a verdict with its sign and colour."""
    return Text(f"{SYMBOL[verdict]} {verdict.value.upper()}", style=_STYLE[verdict])


def _print_headline(run: ReportedRun, console: Console) -> None:
    """Print the verdict, what it means, and the counts behind it."""
    campaign, verdict = run.campaign, run.verdict
    headline = _badge(verdict)
    headline.append(
        f"  {one_line(campaign.name)} on {one_line(campaign.system)}, seed {campaign.seed}", "default"
    )
    if campaign.interrupted:
        headline.append("  (interrupted: only finished trials are counted)", "yellow")
    console.print(headline)
    console.print(Text(one_line(verdict_sentence(run)), style="dim"))
    totals = run.totals
    counts = ", ".join(f"{run.count(each)} {each.value}" for each in Verdict)
    progress, what = run.went_on
    console.print(
        Text(
            f"{plural(totals.trials, 'trial')}: {counts}; {totals.faults_fired} of "
            f"{plural(totals.faults_planned, 'fault')} fired; "
            f"recoveries: {known(run.recoveries)}; "
            f"{what}: {known(progress)}; "
            f"{duration(campaign.wall_seconds * 1_000)}"
        )
    )
    first = totals.clauses.broken_first()
    if first is not None:
        console.print(Text(f"broken: {one_line(first)}", style="bold red"))
    phases = run.phases
    if phases.possible:
        console.print(
            Text(
                f"kinds of faults tried per phase: {phases.fired} of {plural(phases.possible, 'possible combination')} "
                f"({plural(len(phases.rows), 'phase')} × {plural(len(phases.kinds), 'kind')} of fault)"
            )
        )


def _print_controls(run: ReportedRun, console: Console) -> None:
    """Print in how many trials each clause could have been violated, and the results of the controls."""
    controls = run.campaign.controls
    if controls is None:
        return
    shown = {clause: trials for clause, trials in controls.could_be_violated.items() if trials}
    exercised = ", ".join(f"{clause} {trials}" for clause, trials in shown.items())
    parts = [f"{one_line(exercised)}, of {plural(controls.trials, 'trial')}"] if exercised else []
    rows = {row.clause: row for row in run.clauses}
    if controls.not_reported:
        parts.append(f"not reported: {one_line(', '.join(controls.not_reported))}")
    if parts:
        console.print(Text(f"trials in which a wrong recovery would have shown: {'; '.join(parts)}"))
    unshown = [
        clause
        for clause in controls.could_be_violated
        if clause not in shown and clause in rows and not rows[clause].trials.get(Verdict.INVALID)
    ]
    if unshown:
        # Such a clause may be VALID in every trial: what was judged was right, and recovery had no part in it.
        console.print(
            Text(
                f"no trial could have shown a wrong recovery for: {one_line(', '.join(unshown))}; "
                "VALID says nothing about recovery there"
            )
        )
    invalid = sum(control.verdict is Verdict.INVALID for control in controls.ran)
    if controls.ran:
        console.print(
            Text(
                f"self-check: recovery was broken on purpose in {plural(len(controls.ran), 'trial')}, and the suite "
                f"noticed it in {invalid} of {len(controls.ran)}"
            )
        )
    if controls.note:
        console.print(Text(f"self-check: {one_line(controls.note)}"))


def _print_finding(run: ReportedRun, entry: RankedFinding, console: Console) -> None:
    """Print one finding with examples and the line that replays it."""
    finding = entry.finding
    head = Text("\n").append_text(_badge(finding.verdict))
    head.append(f"  trial {entry.trial.trial}, {one_line(finding.checker)}", "bold")
    if finding.clauses:
        head.append(f" ({one_line(finding.named_clauses)})")
    console.print(head)
    lines = [Text(in_how_many_trials(entry.group), "dim")] if entry.group is not None else []
    lines.append(Text(printable(finding.summary)))
    if finding.first is not None:
        # The line to paste into a report of the bug: it is not cut off at the terminal's width.
        first = Text(f"  {one_line(finding.broken)}: {one_line(finding.first.description)}", style="bold")
        console.print(first, soft_wrap=True)
    counts = {name: count for name, count in finding.counts.items() if count}
    if counts:
        lines.append(
            Text(
                ", ".join(f"{one_line(name).replace('_', ' ')}: {count}" for name, count in counts.items()),
                "dim",
            )
        )
    lines += [Text(f"- {one_line(example)}") for example in finding.examples[:_EXAMPLES_MAX]]
    for line in lines:
        console.print(Padding(line, (0, 0, 0, 2), expand=False))
    command = run.replay_command(entry.trial.trial)
    # A command line must survive copying: no wrapping, no padding to the terminal's width.
    text = Text(f"  {printable(command)}" if command else "  No plan of this trial was kept.", style="cyan")
    console.print(text, soft_wrap=True)


def _print_clauses(run: ReportedRun, console: Console) -> None:
    """Print the verdict per clause."""
    rows = run.clauses
    console.print()
    if rows:
        table = Table(box=None, pad_edge=False)
        for name in ("clause", "verdict", "valid", "unknown", "invalid", "checked by"):
            table.add_column(name, justify="right" if name in ("valid", "unknown", "invalid") else "left")
        for row in rows:
            counts = (str(row.trials[verdict]) for verdict in Verdict)
            checkers = Text(", ".join(map(one_line, row.checkers)))
            verdict = Text("also", style="dim") if row.only_also else _badge(row.verdict)
            table.add_row(Text(one_line(row.clause)), verdict, *counts, checkers)
        console.print(table)
    missing = unchecked_clauses(rows)
    if missing:
        were = "further clause was" if len(missing) == 1 else "further clauses were"
        console.print(Text(f"{len(missing):,} {were} not checked by this campaign", style="dim"))


def _print_lengths(run: ReportedRun, console: Console) -> None:
    """Print median and maximum of what was measured."""
    series = run.totals.lengths.series()
    if not series:
        return
    table = Table(box=None, pad_edge=False)
    for name in ("measured", "median", "max", "times measured", "in trials"):
        table.add_column(name, justify="left" if name == "measured" else "right")
    for each in series:
        middle, most = median(each.values), each.most
        label, counts = Text(measured_name(one_line(each.name))), (str(each.count), str(each.trials))
        table.add_row(label, measurement(each.name, middle), measurement(each.name, most), *counts)
    console.print()
    console.print(table)
