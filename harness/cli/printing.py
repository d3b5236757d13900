"""What the commands print for people: options at the start, findings, and one line that repeats a failure."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console

from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.environment import environment

if TYPE_CHECKING:
    from barrier_tck.harness.campaign.configuration import CampaignConfiguration
    from barrier_tck.harness.campaign.mutant_hunt import MutantResult
    from barrier_tck.harness.record.records import CampaignRecord


def print_options(console: Console, configuration: CampaignConfiguration, path: Path) -> None:
    """Print everything that decides what is going to happen, so that a log alone can be repeated."""
    spelled_out = msgspec.to_builtins(configuration)
    listed = spelled_out.pop("trial")
    options = {name: value for name, value in spelled_out.items() if value not in (None, {})}
    options |= {"trials listed": len(listed)} if listed else {}
    options |= {"budget": str(configuration.the_budget()), "run directory": str(path)}
    if not listed:
        profile = configuration.the_profile()
        options["profile"] = f"{profile.name}: {profile.description}"
    versions = environment()
    options["versions"] = ", ".join(
        f"{name} {versions[name]}" for name in ("barrier-tck", "python", "pyspark")
    )
    for name, value in options.items():
        console.print(f"  {name}: {value}", markup=False)


def print_campaign(console: Console, record: CampaignRecord, path: Path, file: Path | None = None) -> None:
    """Write the reports, print their summary, and one line that repeats each failing trial.

    In GitHub Actions print annotations too, attached to the campaign ``file``, and add to the step's summary.
    """
    from barrier_tck.reports.summary import print_summary
    from barrier_tck.reports.write import write_reports

    if record.trials:
        paths = write_reports(path)
        print_summary(path, console)
        console.print(f"report: {paths.html}", markup=False)
    if record.interrupted:
        console.print(f"interrupted after {record.trials} trials; they are kept", markup=False)
    for number in record.failing[:3]:
        plan = record.shrunk.get(str(number), f"trials/{number:05d}/plan.json")
        command = f"barrier-tck replay {path / plan} --system {record.opened_as}"
        versions = record.environment
        console.print(
            f"repeat trial {number}: {command}   (seed {record.seed}, barrier-tck {versions['barrier-tck']}, "
            f"python {versions['python']})",
            markup=False,
        )
    _tell_github(console, path, file)


def _tell_github(console: Console, path: Path, file: Path | None) -> None:
    """Print annotations and append to the summary, if this runs in GitHub Actions."""
    from barrier_tck.reports.github import error_lines, step_summary
    from barrier_tck.reports.loading import load_run

    if os.environ.get("GITHUB_ACTIONS") != "true":
        return
    run = load_run(path)
    checkout = Path(os.environ.get("GITHUB_WORKSPACE", ".")).resolve()
    place = None if file is None else os.path.relpath(file.resolve(), checkout)
    for line in error_lines(run, place):
        console.print(line, markup=False)
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        with open(summary, "a", encoding="utf-8") as page:
            page.write(step_summary(run))


def print_replayed(console: Console, one: Any) -> None:
    """Print one replayed plan: verdict, trace, and what was found."""
    record, recorded = one.record, one.source.recorded
    was = f" (recorded: {recorded.verdict.value})" if recorded is not None else ""
    console.print(f"{one.source.path}: {record.verdict.value}{was}", markup=False)
    if record.trace_digest is not None:
        compared = "the same as recorded" if recorded is not None else "the same in both runs"
        console.print(f"  trace {record.trace_digest[:16]}, {compared}", markup=False)
    for finding in record.findings:
        if finding.verdict is not Verdict.VALID:
            console.print(f"  {finding.checker}: {finding.verdict.value}: {finding.summary}", markup=False)
            for example in finding.examples[:3]:
                console.print(f"    {example}", markup=False)


def print_mutant(console: Console, result: MutantResult, path: Path) -> None:
    """Print what became of one planted bug."""
    if not result.caught:
        console.print(f"{result.id} MISSED in {result.trials} trials ({result.clause})", markup=False)
        return
    replays = "replays" if result.replays else "DOES NOT REPLAY"
    console.print(
        f"{result.id} caught by {result.checker} in trial {result.trials} after {result.seconds:.1f} s "
        f"({result.clause}); {result.faults} faults left, {replays}: {path / (result.plan or '')}",
        markup=False,
    )
