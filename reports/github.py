"""A run as GitHub Actions shows it: annotations on the job, and a summary on its page.

Everything from a record is untrusted text: in a workflow command line breaks and separators are spelled as GitHub's
runner asks, in Markdown a cell is one line of code.
"""

from __future__ import annotations

from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.reports.headline import verdict_sentence
from barrier_tck.reports.loading import ReportedRun
from barrier_tck.reports.matrix import FaultMatrix, unchecked_clauses
from barrier_tck.reports.ranking import RankedFinding, ranked_findings
from barrier_tck.reports.wording import SYMBOL, duration, fault_name, known, one_line, plural

ANNOTATIONS_MAX = 10
"""GitHub shows ten errors of a step and drops the others."""
_FINDINGS_MAX = 25


def error_lines(run: ReportedRun, file: str | None = None) -> tuple[str, ...]:
    """Return one ``::error`` line for each finding that is not valid, with trial, clauses and replay command.

    ``file`` is the campaign file, relative to the checkout, to which GitHub attaches them. UNKNOWN is an error too: a
    trial that showed nothing is no pass.
    """
    findings = ranked_findings(run)
    shown = findings if len(findings) <= ANNOTATIONS_MAX else findings[: ANNOTATIONS_MAX - 1]
    lines = [
        _error(_title(entry), f"{one_line(entry.finding.summary)}\n{_replay(run, entry)}", file)
        for entry in shown
    ]
    if len(shown) < len(findings):
        rest = f"{plural(len(findings) - len(shown), 'finding')} more, all of them in report.json and in the summary"
        lines.append(_error("more findings", rest, file))
    if run.verdict is not Verdict.VALID and not findings:
        lines.append(_error(f"campaign {run.verdict.value}", verdict_sentence(run), file))
    return tuple(lines)


def _title(entry: RankedFinding) -> str:
    clauses = one_line(entry.finding.broken or entry.finding.named_clauses) or "no clause"
    return f"trial {entry.trial.trial} {entry.finding.verdict.value}: {one_line(entry.finding.checker)} ({clauses})"


def _replay(run: ReportedRun, entry: RankedFinding) -> str:
    command = run.replay_command(entry.trial.trial)
    return "no plan of this trial was kept" if command is None else f"replay: {one_line(command)}"


def _error(title: str, message: str, file: str | None) -> str:
    properties = [] if file is None else [f"file={_property(file)}"]
    return f"::error {','.join([*properties, f'title={_property(title)}'])}::{_data(message)}"


def _data(text: str) -> str:
    """Spell out what would end a workflow command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def step_summary(run: ReportedRun) -> str:
    """Return the run as Markdown: verdict, counts, findings with their replay lines, faults by phase, clauses."""
    campaign = run.campaign
    counts = ", ".join(f"{run.count(verdict)} {verdict.value}" for verdict in Verdict)
    totals = run.totals
    progress, what = run.went_on
    sums = (
        f"{plural(totals.trials, 'trial')}: {counts}; {totals.faults_fired} of "
        f"{plural(totals.faults_planned, 'fault')} fired; "
        f"recoveries: {known(run.recoveries)}; {what}: {known(progress)}; "
        f"{duration(campaign.wall_seconds * 1_000)}"
    )
    parts = [
        f"## {SYMBOL[run.verdict]} {run.verdict.value.upper()}: {_text(campaign.name)} on {_text(campaign.system)}",
        f"{_text(verdict_sentence(run))} Seed {campaign.seed}.",
        sums,
        *_findings(run),
        *_phases(run.phases),
        _clauses(run),
        *(f"> {_text(notice)}" for notice in run.notices),
    ]
    return "\n\n".join(parts) + "\n"


def _findings(run: ReportedRun) -> list[str]:
    findings = ranked_findings(run)
    if not findings:
        return []
    rows = [
        f"| {entry.trial.trial} | {entry.finding.verdict.value} | {_code(entry.finding.checker)} "
        f"| {_text(entry.finding.named_clauses)} | {_text(entry.finding.summary)} | {_code(_replay(run, entry))} |"
        for entry in findings[:_FINDINGS_MAX]
    ]
    table = ["| trial | verdict | checker | clauses | what | replay |", "|---|---|---|---|---|---|", *rows]
    return ["### Findings, worst first", "\n".join(table)]


def _phases(matrix: FaultMatrix) -> list[str]:
    if not matrix.kinds:
        return []
    rows = [
        [_text(row.replace("_", " ")), *(_cell(matrix, row, kind) for kind in matrix.kinds)]
        for row in matrix.rows
    ]
    head = ["phase", *(_text(fault_name(kind)) for kind in matrix.kinds)]
    lines = [f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows]]
    return [f"### Faults by phase: {matrix.fired} of {matrix.possible} combinations tried", "\n".join(lines)]


def _cell(matrix: FaultMatrix, row: str, kind: str) -> str:
    cell = matrix.cells.get((row, kind))
    if cell is not None:
        return f"{cell.fired} / {cell.planned}"
    return "·" if (row, kind) in matrix.reachable else ""


def _clauses(run: ReportedRun) -> str:
    rows = run.clauses
    bad = [
        f"{_text(row.clause)} {row.verdict.value}"
        for row in rows
        if row.verdict is not Verdict.VALID and not row.only_also
    ]
    also = [_text(row.clause) for row in rows if row.only_also]
    text = f"{plural(len(rows), 'clause')} checked, {len(unchecked_clauses(rows))} further ones not"
    text += f"; not valid: {', '.join(bad)}" if bad else ""
    return text + (f"; also {', '.join(also)}" if also else "")


def _text(text: str) -> str:
    """Return untrusted text without anything that Markdown or its tables would read."""
    escaped = one_line(text)
    for character in "\\`*_{}[]<>()#|!~@":
        escaped = escaped.replace(character, f"\\{character}")
    return escaped


def _code(text: str) -> str:
    """Return untrusted text as code in a table's cell."""
    line = one_line(text).replace("`", "'").replace("|", "\\|")
    return f"`{line}`"
