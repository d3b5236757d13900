"""``barrier-tck campaign``: run many trials, judge them, write a report."""

from __future__ import annotations

import os
import shlex
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console

from barrier_tck.harness.cli.exit_codes import exit_code_of
from barrier_tck.harness.cli.named_code import NamedCode, TrustOption, code_of_campaign, require_named
from barrier_tck.harness.cli.opening import opened, start
from barrier_tck.harness.cli.options import (
    DEFAULT_OUT,
    CheckpointStorageOption,
    ClusterOption,
    JsonOption,
    OutOption,
    QueryOption,
    StateBackendOption,
    SystemOption,
    listed,
)
from barrier_tck.harness.cli.pictures import note_what_is_shown
from barrier_tck.harness.cli.printing import VerdictConsole, console_for, emit
from barrier_tck.harness.cli.shipped import found_campaign
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.support.environment import environment
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.outside import look_where_run

if TYPE_CHECKING:
    from barrier_tck.harness.campaign.configuration import CampaignConfiguration
    from barrier_tck.harness.cluster.cluster_config import ClusterKind
    from barrier_tck.harness.record.records import CampaignRecord
    from barrier_tck.harness.system.system_under_test import SystemUnderTest

JOBS_MAX = 256
"""The largest number of processes for trials; a larger number must be a mistake."""


def campaign(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE.toml",
            help="Campaign file, or the name of one that comes with barrier-tck (barrier-tck init lists them). "
            "Default: the standard campaign.",
        ),
    ] = None,
    system: SystemOption = None,
    query: QueryOption = None,
    trials: Annotated[
        int | None,
        typer.Option(
            "--trials", metavar="N", help="Number of trials. Default: the campaign file's, else 200."
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="TIME",
            help="Run trials for this long, for instance 90s, 5m or 1h30m, instead of a number of trials.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            metavar="N",
            help="Seed from which plans are drawn. Default: the campaign file's, else 0.",
        ),
    ] = None,
    controls: Annotated[
        int | None,
        typer.Option(
            "--controls",
            metavar="N",
            help="Trials that run again with recovery broken on purpose, and must then be invalid. Default: the "
            "campaign file's, else one in 20, on Spark one or two; 0: none.",
        ),
    ] = None,
    state_backend: StateBackendOption = None,
    checkpoint_storage: CheckpointStorageOption = None,
    cluster: ClusterOption = None,
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            metavar="CLAUSE,...",
            help="Judge trials only for these clauses and for CAM-3, for instance REC-1,ALN-2. "
            "Default: the campaign file's clauses, else all.",
        ),
    ] = None,
    fail_fast: Annotated[
        bool | None,
        typer.Option(
            "--fail-fast/--no-fail-fast",
            help="End with the first invalid trial. Default: as the campaign file says, else no.",
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume",
            metavar="RUN_DIR",
            help="Continue the campaign in this run directory: run the missing trials, with the same plans.",
        ),
    ] = None,
    trust: TrustOption = False,
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs",
            metavar="N",
            min=1,
            max=JOBS_MAX,
            help="Run simulated trials in N processes at once; verdicts and files are those of one.",
        ),
    ] = 1,
    out: OutOption = DEFAULT_OUT,
    as_json: JsonOption = False,
) -> None:
    """Run many trials, judge them, and write a report.

    Options win over the campaign file. Exit code 0 if all trials are valid, 1 if a property is violated, 2 if the
    verdict is unknown or the campaign was interrupted.

    \b
    Examples:
      barrier-tck campaign                              200 simulated trials
      barrier-tck campaign --budget 5m --seed 7         as many trials as fit into five minutes
      barrier-tck campaign --trials 5000 --jobs 4       simulated trials on four cores
      barrier-tck campaign flights                      a campaign file that comes with barrier-tck
      barrier-tck campaign --system reference-spark --trials 4      on a local Spark cluster
      barrier-tck campaign flights --cluster docker     on hosts that are containers
      barrier-tck campaign --query my_job:job --budget 10m          your own query of Structured Streaming
      barrier-tck campaign --state-backend rocksdb      200 simulated trials with state in RocksDB
      barrier-tck campaign --checkpoint-storage my_storage:MyStorage     with checkpoints in a storage of yours
      barrier-tck campaign --only REC-1 --fail-fast     until the first wrong restore
      barrier-tck campaign --resume runs/standard-20260101-120000     the trials that an interruption left out
    """
    from barrier_tck.harness.campaign.configuration import NAME_MAX
    from barrier_tck.reports.loading import load_run
    from barrier_tck.reports.machine_readable import finding_objects, phase_fault_cells

    console = console_for(as_json)
    named = None
    if query is not None:
        system, trials = _of_query(query, system, trials, budget, file, resume)
        named = query.replace(":", ".")[-NAME_MAX:] if file is None else None
    file = None if file is None else found_campaign(file)
    options: dict[str, Any] = {
        "seed": seed,
        "controls": controls,
        "fail_fast": fail_fast,
    }
    options |= {"only": listed("--only", only) if only is not None else None}
    if resume is not None:
        options |= {"FILE.toml": file, "trials": trials, "budget": budget, "cluster": cluster}
        named_again = {
            "system": system,
            "state-backend": state_backend,
            "checkpoint-storage": checkpoint_storage,
        }
        path, record = _resumed(resume, named_again, options, trust, jobs, console)
    else:
        options |= {"name": named, "state_backend": state_backend}
        configured = _configured(file, system, trials, budget, options, checkpoint_storage, _source(file))
        configuration = _on(cluster, configured)
        path, record = _run(configuration, _source(file), out, jobs, console)
    _print_campaign(console, record, path, file)
    run = load_run(path)
    emit(
        as_json,
        {
            "verdict": record.verdict.value,
            "trials": record.trials,
            "valid": record.valid,
            "invalid": record.invalid,
            "unknown": record.unknown,
            "faults_fired": record.faults_fired,
            "recoveries": record.recoveries,
            "checkpoints_completed": record.checkpoints_completed,
            "phase_fault_cells": phase_fault_cells(run),
            "run_directory": str(path),
            "interrupted": record.interrupted,
            "findings": finding_objects(run),
            "controls": msgspec.to_builtins(record.controls),
        },
    )
    raise typer.Exit(exit_code_of(record.verdict, record.interrupted))


QUERY_TRIALS = 20
"""The number of trials of a user's query, if nothing else is asked for: each takes seconds, and not milliseconds."""


def _of_query(
    query: str,
    system: str | None,
    trials: int | None,
    budget: str | None,
    file: Path | None,
    resume: Path | None,
) -> tuple[str, int | None]:
    """Return the system that ``--query`` means, and the number of trials."""
    from barrier_tck.harness.streaming.streaming_job import StreamingJob
    from barrier_tck.harness.support.outside import imported, is_target, shown

    if system is not None:
        raise UsageProblem("--system and --query are both given; keep one of the two")
    look_where_run()
    if not is_target(query):
        raise UsageProblem(f"--query is {shown(query)}; name your job as package.module:job")
    if not isinstance(found := imported(query, "query"), StreamingJob):
        raise UsageProblem(
            f"--query names {shown(query)}, which is no StreamingJob, but {type(found).__name__}"
        )
    if trials is None and budget is None and file is None and resume is None:
        trials = QUERY_TRIALS
    return query, trials


def _source(file: Path | None) -> str:
    return str(file) if file is not None else "the options"


def _run(
    configuration: CampaignConfiguration, source: str, out: Path, jobs: int, console: VerdictConsole
) -> tuple[Path, CampaignRecord]:
    """Run a campaign from its beginning; return its directory and record."""
    from barrier_tck.harness.campaign.configuration_checks import check_configuration, import_system
    from barrier_tck.harness.campaign.runner import run_campaign
    from barrier_tck.harness.campaign.trial_pool import require_parallel
    from barrier_tck.harness.record.run_directory import new_run_path, require_place

    require_place(out)
    look_where_run()
    import_system(configuration, source)
    with opened(configuration.system.name) as deployed:
        check_configuration(configuration, deployed, source)
        require_parallel(deployed, jobs)
        start(deployed, configuration.cluster)
        path = new_run_path(out, configuration.name, datetime.now())
        _print_options(console, configuration, deployed, path)
        shown = VerdictConsole(stderr=True)
        return path, run_campaign(configuration, deployed, path, console=shown, jobs=jobs)


def _resumed(
    path: Path,
    named: dict[str, str | None],
    options: dict[str, Any],
    trust: bool,
    jobs: int,
    console: VerdictConsole,
) -> tuple[Path, CampaignRecord]:
    """Continue an interrupted campaign; return its directory and record.

    ``named`` are the options that may name code again, which the campaign names already.
    """
    from barrier_tck.harness.campaign.configuration import stored_configuration
    from barrier_tck.harness.campaign.resuming import require_resumable
    from barrier_tck.harness.campaign.runner import resume_campaign
    from barrier_tck.harness.campaign.trial_pool import require_parallel

    given = [name for name, value in options.items() if value is not None]
    if given:
        raise UsageProblem(
            f"--resume takes everything from the run directory; leave {given[0].replace('_', '-')} out"
        )
    record = path / "campaign.json"
    stored = require_resumable(path)
    configuration = stored_configuration(stored.campaign.configuration, str(record))
    stored_names = {
        "system": configuration.system.name,
        "state-backend": configuration.state_backend,
        "checkpoint-storage": configuration.checkpoints.get("storage", TrialPlan().checkpoints.storage),
    }
    for name, here in named.items():
        if here is not None and here != stored_names[name]:
            raise UsageProblem(
                f"--{name} is {here!r}, but the campaign runs on {stored_names[name]!r}; leave it out"
            )
    if not trust:
        allowed = [NamedCode(name.replace("-", " "), here or "") for name, here in named.items()]
        require_named(code_of_campaign(configuration), allowed, str(record))
    if trust or any(here is not None for here in named.values()):
        look_where_run()
    with opened(configuration.system.name) as deployed:
        require_parallel(deployed, jobs)
        start(deployed, configuration.cluster)
        _print_options(console, configuration, deployed, path)
        console.print(f"resumed after {len(stored.trials)} trials")
        return path, resume_campaign(path, deployed, console=VerdictConsole(stderr=True), jobs=jobs)


def _configured(
    file: Path | None,
    system: str | None,
    trials: int | None,
    budget: str | None,
    options: dict[str, Any],
    checkpoint_storage: str | None,
    source: str,
) -> CampaignConfiguration:
    """Read the campaign file, if there is one, and let the given options override it."""
    from barrier_tck.harness.campaign.configuration import (
        CampaignConfiguration,
        check_values,
        read_configuration,
    )

    configuration = CampaignConfiguration() if file is None else read_configuration(file)
    if trials is not None and budget is not None:
        raise UsageProblem("--trials and --budget are both given; keep one of the two")
    if system is not None:
        section = msgspec.structs.replace(configuration.system, name=system)
        configuration = msgspec.structs.replace(configuration, system=section)
    changes = {name: value for name, value in options.items() if value is not None}
    if checkpoint_storage is not None:
        changes["checkpoints"] = {**configuration.checkpoints, "storage": checkpoint_storage}
    if trials is not None or budget is not None:
        changes |= {"trials": trials, "budget": budget}
    try:
        configuration = msgspec.structs.replace(configuration, **changes)
    except ValueError as error:
        raise UsageProblem(f"{source}: {error}") from error
    check_values(configuration, source)
    return configuration


def _on(cluster: ClusterKind | None, configuration: CampaignConfiguration) -> CampaignConfiguration:
    """Return a configuration for another kind of cluster, of the same shape."""
    from barrier_tck.harness.campaign.configuration import ClusterSection

    if cluster is None:
        return configuration
    section = msgspec.structs.replace(configuration.cluster or ClusterSection(), name=cluster)
    return msgspec.structs.replace(configuration, cluster=section)


def _print_options(
    console: Console, configuration: CampaignConfiguration, system: SystemUnderTest, path: Path
) -> None:
    """Print everything that decides what will happen, so that a campaign can be repeated from its log alone."""
    from barrier_tck.harness.system.plan_fields import unused_by

    spelled_out = msgspec.to_builtins(configuration)
    trials = spelled_out.pop("trial")
    settings = spelled_out["system"].pop("settings")
    spelled_out["system"] = spelled_out["system"]["name"]
    options = {name: value for name, value in spelled_out.items() if value not in (None, {}, "", (), [])}
    if "state_backend" in unused_by(system):
        del options["state_backend"]
    options |= {"trials listed": len(trials)} if trials else {}
    options |= {"budget": str(configuration.the_budget()), "run directory": str(path)}
    if not trials:
        profile = configuration.the_profile(system)
        options["profile"] = f"{profile.name}: {profile.description}"
    options |= _said_of(system, configuration.adjusted(TrialPlan()), settings)
    versions = environment()
    options["versions"] = ", ".join(
        f"{name} {versions[name]}" for name in ("barrier-tck", "python", "pyspark")
    )
    for name, value in options.items():
        console.print(f"  {name}: {value}", markup=False)


def _said_of(system: SystemUnderTest, plan: TrialPlan, settings: dict[str, Any]) -> dict[str, object]:
    """Return what is special to this system: its settings, the checkers that are brought, and unused fields."""
    from barrier_tck.harness.oracle.plug_in_checkers import with_plug_ins
    from barrier_tck.harness.system.plan_fields import in_short, unused_by
    from barrier_tck.harness.workloads.workload_names import filled

    brought = [checker.name for checker in with_plug_ins((), filled(plan), system)]
    unused = unused_by(system)
    return {
        **({"settings of the system": settings} if settings else {}),
        **({"checkers": f"the standard ones, and {', '.join(brought)}"} if brought else {}),
        **({"not used by the system": in_short(unused)} if unused else {}),
    }


def _print_campaign(console: Console, record: CampaignRecord, path: Path, file: Path | None = None) -> None:
    """Write the reports, print their summary, and print a command that repeats each of the first failing trials.

    In GitHub Actions, also print annotations, attached to the campaign ``file``, and add to the step's summary.
    """
    from barrier_tck.reports.loading import load_run
    from barrier_tck.reports.summary import print_summary
    from barrier_tck.reports.write import write_reports

    if record.trials:
        note_what_is_shown(path, console, trust=True)
        paths = write_reports(path)
        print_summary(path, console)
        console.print(f"report: {paths.html}", markup=False)
    if record.interrupted:
        console.print(f"interrupted after {record.trials} trials, which are kept")
        console.print(f"to continue: barrier-tck campaign --resume {shlex.quote(str(path))}")
    elif record.configuration["fail_fast"] and record.invalid:
        console.print(f"ended at the first trial that is invalid, after {record.trials} (fail_fast)")
    run = load_run(path)
    versions = record.environment
    for number in record.failing[:3]:
        console.print(
            f"repeat trial {number}: {run.replay_command(number)}   (seed {record.seed}, barrier-tck "
            f"{versions['barrier-tck']}, python {versions['python']})"
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
