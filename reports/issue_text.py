"""The text of an issue about a finding: clause, what was seen, how to repeat it, on which version, the smallest plan.

Everything from a record is untrusted text. It is quoted, so that it cannot become a heading, a link or a mention.
"""

from __future__ import annotations

from collections.abc import Iterator

from barrier_tck.harness.record.records import NOT_SMALLER, FindingGroup
from barrier_tck.reports.loading import ReportedRun
from barrier_tck.reports.wording import one_line, plural, printable

DIRECTORY = "issues"
"""The folder of a run directory with these texts, one for each finding."""

TITLE_MAX = 100
"""Most characters of what was seen that a title has; the rest is in the line below it."""
PLAN_MAX = 50_000
"""Most characters of a plan that an issue quotes; GitHub takes 65,536 in all."""


def issue_texts(run: ReportedRun) -> dict[str, str]:
    """Return the texts by their file names, in the order of the findings."""
    return {
        f"{number:02d}-{_file_name(group)}.md": issue_text(run, group)
        for number, group in enumerate(run.campaign.groups, start=1)
    }


def _struck(run: ReportedRun, trial: int) -> Iterator[str]:
    """Yield a line that says which faults struck in a trial, in the words of its system."""
    faults = run.details[trial].faults if trial in run.details else ()
    struck = [f"{fault.label} ({fault.trigger})" for fault in faults if fault.fired_at_ms is not None]
    if struck:
        yield f"- in trial {trial} there struck: {_quoted('; '.join(struck))}"


def _file_name(group: FindingGroup) -> str:
    name = "-".join(part for part in (group.clause, group.checker) if part)
    return "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in name)[:80]


def issue_text(run: ReportedRun, group: FindingGroup) -> str:
    """Return the text of an issue about one finding of a run, in Markdown."""
    campaign, versions = run.campaign, run.campaign.environment
    system = campaign.opened_as or campaign.system
    presumed = f", {group.presumed} of them presumed" if group.presumed else ""
    command = run.replay_command(group.smallest_trial)
    first = min(group.numbers, default=group.smallest_trial)
    version, python = (versions.get(name, "unknown") for name in ("barrier-tck", "python"))
    seen = one_line(group.summary)
    title = seen if len(seen) <= TITLE_MAX else f"{seen[:TITLE_MAX]}..."
    shrunk = group.shape != NOT_SMALLER
    lines = [
        f"# {_quoted(group.clause or 'no clause')} broken: {_quoted(title)}",
        "",
        *([_quoted(seen), ""] if title != seen else []),
        f"- clause: {_quoted(group.clause or 'none')}, by the checker {_quoted(group.checker)}",
        f"- seen in {plural(group.trials, 'trial')} of {campaign.trials}{presumed}, first in trial {first}",
        *([f"- it needs: {_quoted(group.shape)}"] if shrunk else []),
        *_struck(run, group.smallest_trial),
        f"- system: {_quoted(system)}, campaign {_quoted(campaign.name)}, seed {campaign.seed}",
        f"- version: barrier-tck {_quoted(version)}, Python {_quoted(python)}",
    ]
    if group.runs > 1:
        lines.append(f"- the smallest plan failed in {group.failed_runs} of {group.runs} runs")
    lines += ["", "To repeat it, save the plan below as `plan.json`, then:", ""]
    lines += [f"    {one_line(command or 'no plan of this trial was kept')}"]
    whose = "The smallest plan" if shrunk else f"The plan of trial {group.smallest_trial}"
    lines += ["", "(or `barrier-tck replay plan.json` with the same options)", "", f"{whose}:", ""]
    path = run.plan_path(group.smallest_trial)
    plan = path.read_text(encoding="utf-8", errors="replace") if path is not None else "no plan was kept"
    if len(plan) > PLAN_MAX:
        plan = f"too long to be quoted: {path}"
    lines += [f"    {printable(line)}" for line in plan.splitlines()]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return f"`{one_line(text).replace('`', chr(39))}`"
