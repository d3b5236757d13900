"""What ``barrier-tck campaign`` prints: all options before the first trial, and afterwards the summary."""

from __future__ import annotations

import os
import shlex
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console

from barrier_tck.harness.cli.campaign_settings import in_plain_text, profile_line, settings_of
from barrier_tck.harness.cli.cut_diagrams import trace_cuts_shown
from barrier_tck.harness.cli.printing import printable
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.environment import environment

if TYPE_CHECKING:
    from barrier_tck.harness.campaign.configuration import CampaignConfiguration
    from barrier_tck.harness.record.records import CampaignRecord, StoreRecord
    from barrier_tck.harness.support.root_seed import RootSeed
    from barrier_tck.harness.system.system_under_test import SystemUnderTest
    from barrier_tck.reports.loading import ReportedRun


_REPEATED_MAX = 3
"""How many failing trials are listed with the command that repeats them."""


def print_seed(console: Console, seed: RootSeed) -> None:
    """Print the root seed before anything starts, so that even a command that is killed can be repeated."""
    console.print(f"  seed: {seed}", markup=False)


def print_options(
    console: Console, configuration: CampaignConfiguration, system: SystemUnderTest, path: Path
) -> None:
    """Print all that differs from the defaults, so that a campaign can be repeated from its log alone."""
    from barrier_tck.harness.system.plan_fields import unused_by

    # The seed was printed first.
    options = {"name": configuration.name, "system": configuration.system.name, **settings_of(configuration)}
    if "state_backend" in unused_by(system):
        options.pop("state backend", None)
    options |= {"trials listed": str(len(configuration.trial))} if configuration.trial else {}
    options |= {"budget": str(configuration.budget_of_trials()), "run directory": str(path)}
    if not configuration.trial:
        options["profile"] = profile_line(configuration.profile_for(system), configuration)
    options |= _special_to(system, configuration.adjusted(TrialPlan()), configuration.system.settings)
    versions = environment()
    options["versions"] = ", ".join(
        f"{name} {versions[name]}" for name in ("barrier-tck", "python", "pyspark")
    )
    for name, value in options.items():
        console.print(printable(f"  {name}: {' '.join(value.split())}"), markup=False)


def _special_to(system: SystemUnderTest, plan: TrialPlan, settings: dict[str, Any]) -> dict[str, str]:
    """Return what is special to this system: its settings, plug-in checkers, and unused fields."""
    from barrier_tck.harness.oracle.plug_in_checkers import with_plug_ins
    from barrier_tck.harness.system.plan_fields import in_short, unused_by
    from barrier_tck.harness.workloads.workload_names import filled

    plug_ins = [checker.name for checker in with_plug_ins((), filled(plan), system)]
    unused = unused_by(system)
    return {
        **({"settings of the system": in_plain_text(settings)} if settings else {}),
        **({"checkers": f"the standard ones, and {', '.join(plug_ins)}"} if plug_ins else {}),
        **({"plan settings this system ignores": in_short(unused)} if unused else {}),
    }


def print_campaign(console: Console, run: ReportedRun, file: Path | None = None) -> None:
    """Write the reports, print their summary, and print a command that repeats each of the first failing trials.

    In GitHub Actions, also print annotations, attached to the campaign ``file``, and add to the step's summary.
    """
    from barrier_tck.reports.summary import print_run
    from barrier_tck.reports.write import write_reports

    record, path = run.campaign, run.directory
    if record.trials:
        trace_cuts_shown(run, console, trust=True)
        paths = write_reports(run)
        print_run(run, console)
        console.print(f"report: {paths.html}", markup=False)
    if record.store is not None:
        _print_store(console, record.store)
    if record.interrupted:
        console.print(f"interrupted after {record.trials} trials, which are kept")
        console.print(f"to continue: {command_to_resume(record, path)}", markup=False, soft_wrap=True)
    elif record.configuration["fail_fast"] and record.invalid:
        console.print(f"ended at the first trial that is invalid, after {record.trials} (fail_fast)")
    versions = record.environment
    for number in _to_repeat(run):
        console.print(
            f"repeat trial {number}: {run.replay_command(number)}   (seed {record.seed}, barrier-tck "
            f"{versions['barrier-tck']}, python {versions['python']})"
        )
        explain = explain_command(run, number)
        if explain is not None:
            console.print(f"follow a wrong row of it: {explain}", markup=False, soft_wrap=True)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        _annotate(console, run, file)


def _to_repeat(run: ReportedRun) -> list[int]:
    """Return the failing trials to repeat, first those of the findings above, in their order, then the smallest."""
    from barrier_tck.reports.ranking import ranked_findings
    from barrier_tck.reports.run_totals import size_of

    sizes = {trial.trial: size_of(trial) for trial in run.listed}
    failing = sorted(run.campaign.failing, key=lambda number: sizes.get(number, (inf,)))
    shown = [entry.trial.trial for entry in ranked_findings(run) if entry.trial.trial in failing]
    return list(dict.fromkeys([*shown, *failing]))[:_REPEATED_MAX]


def explain_command(run: ReportedRun, trial: int) -> str | None:
    """Return the command that follows a row of a query's output that was wrong in a trial; None if none was."""
    from barrier_tck.harness.streaming.committed_output import CommittedOutput

    kept = run.details.get(trial)
    wrong = kept is not None and any(
        finding.checker == CommittedOutput.name and finding.verdict is Verdict.INVALID
        for finding in kept.findings
    )
    return shlex.join(["barrier-tck", "explain", str(run.directory), str(trial)]) if wrong else None


def command_to_resume(record: CampaignRecord, path: Path) -> str:
    """Return the command that goes on with a campaign; it names again what code of the user's the campaign runs."""
    from barrier_tck.harness.campaign.configuration import stored_configuration
    from barrier_tck.harness.cli.untrusted_code import code_of_campaign

    words = ["barrier-tck", "campaign", "--resume", str(path)]
    for code in code_of_campaign(stored_configuration(record.configuration, str(path))):
        words += [code.option, code.target]
    return shlex.join(words)


def _print_store(console: Console, store: StoreRecord) -> None:
    """Print what came from the store of plans and what went there; notices are part of the summary."""
    from barrier_tck.reports.wording import plural

    first = [
        f"{plural(number, 'stored plan')} {what}"
        for number, what in ((store.tried_first, "that had failed"), (store.new_tried, "that reached most"))
        if number
    ]
    tried = f"{' and '.join(first)} tried first; " if first else ""
    kept = f"{store.new} with new behaviour, {store.failed} failing"
    console.print(f"{tried}plans kept for next time: {kept} (in {store.location})", markup=False)


def _annotate(console: Console, run: ReportedRun, file: Path | None) -> None:
    """Print annotations for GitHub Actions, and append to the step's summary."""
    from barrier_tck.reports.github import error_lines, step_summary

    checkout = Path(os.environ.get("GITHUB_WORKSPACE", ".")).resolve()
    place = None if file is None else os.path.relpath(file.resolve(), checkout)
    for line in error_lines(run, place):
        console.print(line, markup=False)
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        with open(summary, "a", encoding="utf-8") as page:
            page.write(step_summary(run))


def as_object(run: ReportedRun) -> dict[str, Any]:
    """Return what the command prints with ``--json``."""
    from barrier_tck.reports.machine_readable import finding_objects, phase_fault_cells

    record = run.campaign
    return {
        "verdict": record.verdict.value,
        "seed": record.seed,
        "trials": record.trials,
        "valid": record.valid,
        "invalid": record.invalid,
        "unknown": record.unknown,
        "why_unknown": run.why_unknown,
        "faults_fired": record.faults_fired,
        "recoveries": run.recoveries,
        "checkpoints_completed": record.checkpoints_completed,
        "phase_fault_cells": phase_fault_cells(run),
        "run_directory": str(run.directory),
        "interrupted": record.interrupted,
        "findings": finding_objects(run),
        "groups": msgspec.to_builtins(record.groups),
        "store": msgspec.to_builtins(record.store),
        "controls": msgspec.to_builtins(record.controls),
    }
