"""The command ``barrier-tck``: the composition root, which puts the folders together and maps exit codes.

0 valid, 1 a property is violated, 2 unknown, 3 usage or environment, 4 a bug of ours. With ``--json`` the
last line of standard output is one JSON object, and everything for people goes to standard error.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from barrier_tck.harness.cli.certify_options import add_certify_command
from barrier_tck.harness.cli.printing import print_campaign, print_mutant, print_options, print_replayed
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.errors import HarnessError, UsageProblem

if TYPE_CHECKING:
    from barrier_tck.harness.campaign.configuration import CampaignConfiguration, ClusterSection
    from barrier_tck.harness.campaign.mutant_hunt import MutantResult
    from barrier_tck.harness.record.records import CampaignRecord
    from barrier_tck.harness.system.system_under_test import SystemUnderTest

EXIT_CODES = {Verdict.VALID: 0, Verdict.INVALID: 1, Verdict.UNKNOWN: 2}
"""Verdict -> exit code."""
EXIT_USAGE = 3
EXIT_INTERNAL = 4
DEFAULT_OUT = Path("runs")
"""Where run directories are created."""

_COMMAND_LINE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]
"""Click's base of all mistakes on a command line; Typer carries a Click of its own since 0.20."""

app = typer.Typer(
    name="barrier-tck",
    help="Fault-injection campaigns and conformance for barrier snapshots on Apache Spark.",
    epilog="Exit codes: 0 valid, 1 violated, 2 unknown, 3 usage or environment, 4 a bug of ours.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object as the last line of standard output.")
]
SystemOption = Annotated[
    str | None,
    typer.Option(
        "--system",
        metavar="S",
        help="reference-simulated (the default), reference-spark, or package.module:Factory.",
    ),
]
StateBackendOption = Annotated[
    str | None,
    typer.Option("--state-backend", metavar="NAME", help="heap, rocksdb, or package.module:Factory."),
]
OutOption = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="Where the new run directory is created.")
]


def _console(as_json: bool) -> Console:
    """Return where people read: standard output, or standard error if machines read that."""
    return Console(stderr=as_json, highlight=False, soft_wrap=True)


def _emit(as_json: bool, value: dict[str, Any]) -> None:
    if as_json:
        print(msgspec.json.encode(value).decode(), flush=True)


@contextlib.contextmanager
def _opened(name: str, cluster: ClusterSection | None = None) -> Iterator[SystemUnderTest]:
    """Open a system and close it at the end; closing is not cut short by another Ctrl-C."""
    from barrier_tck.harness.system.system_names import open_system

    system = open_system(name)
    try:
        if cluster is not None:
            use_cluster = getattr(system, "use_cluster", None)
            if use_cluster is None:
                raise UsageProblem(f"{name} runs on no cluster of its own; remove the section [cluster]")
            use_cluster(**msgspec.structs.asdict(cluster))
        prepare = getattr(system, "prepare", None)
        if prepare is not None:
            # Before anything is written: an environment that cannot run it leaves no half of a run directory.
            with Console(stderr=True).status(f"starting {name}"):
                prepare()
        yield system
    finally:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            system.close()
        finally:
            signal.signal(signal.SIGINT, before)


# --- campaign -----------------------------------------------------------------------------------------------


@app.command()
def campaign(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE.toml", help="Campaign file; without it: the standard one."),
    ] = None,
    system: SystemOption = None,
    trials: Annotated[int | None, typer.Option("--trials", metavar="N", help="Number of trials.")] = None,
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="5m", help="Time instead of a number of trials.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="Seed of the drawn plans.")] = None,
    state_backend: StateBackendOption = None,
    out: OutOption = DEFAULT_OUT,
    as_json: JsonOption = False,
) -> None:
    """Run many trials, judge them, and write a report.

    \b
    Examples:
      barrier-tck campaign                              200 simulated trials
      barrier-tck campaign --budget 5m --seed 7         as many as fit into five minutes
      barrier-tck campaign campaigns/flights.toml       a campaign file
      barrier-tck campaign --system reference-spark --trials 4
      barrier-tck campaign --state-backend rocksdb
    """
    from barrier_tck.harness.campaign.runner import run_campaign
    from barrier_tck.harness.record.run_directory import new_run_path, require_place
    from barrier_tck.reports.loading import load_run
    from barrier_tck.reports.machine_readable import phase_fault_cells

    options = {"system": system, "seed": seed, "state_backend": state_backend}
    configuration = _configured(file, trials, budget, options)
    console = _console(as_json)
    require_place(out)
    with _opened(configuration.system, configuration.cluster) as deployed:
        path = new_run_path(out, configuration.name, datetime.now())
        print_options(console, configuration, path)
        record = run_campaign(configuration, deployed, path, console=Console(stderr=True))
    print_campaign(console, record, path, file)
    _emit(
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
            "phase_fault_cells": phase_fault_cells(load_run(path)),
            "run_directory": str(path),
            "interrupted": record.interrupted,
            "findings": [finding.summary for finding in record.findings],
        },
    )
    raise typer.Exit(_campaign_exit_code(record))


def _configured(
    file: Path | None, trials: int | None, budget: str | None, options: dict[str, Any]
) -> CampaignConfiguration:
    """Read the campaign file, if any, and lay the options that were given over it."""
    from barrier_tck.harness.campaign.configuration import (
        CampaignConfiguration,
        check_configuration,
        read_configuration,
    )

    configuration = CampaignConfiguration() if file is None else read_configuration(file)
    if trials is not None and budget is not None:
        raise UsageProblem("--trials and --budget are both given; keep one of the two")
    changes = {name: value for name, value in options.items() if value is not None}
    if trials is not None or budget is not None:
        changes |= {"trials": trials, "budget": budget}
    configuration = msgspec.structs.replace(configuration, **changes)
    check_configuration(configuration, str(file) if file is not None else "the options")
    return configuration


def _campaign_exit_code(record: CampaignRecord) -> int:
    """An interrupted campaign has not shown what it set out to show: never 0."""
    if record.interrupted and record.verdict is Verdict.VALID:
        return EXIT_CODES[Verdict.UNKNOWN]
    return EXIT_CODES[record.verdict]


# --- replay, report -----------------------------------------------------------------------------------------


@app.command()
def replay(
    path: Annotated[
        Path, typer.Argument(metavar="PLAN.json|RUN_DIR", help="A plan, a trial or a run directory.")
    ],
    system: SystemOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a plan again: the same verdict, and in the simulator the same trace?

    Of a run directory the failing trials are replayed, or, if none failed, all that were kept.

    \b
    Examples:
      barrier-tck replay runs/standard-20260101-120000/shrunk/00012.json
      barrier-tck replay runs/standard-20260101-120000
    """
    from barrier_tck.harness.campaign import replay as replaying
    from barrier_tck.harness.system.system_names import DEFAULT_SYSTEM

    console = _console(as_json)
    sources = replaying.sources_of(path)
    recorded = sources[0].recorded
    name = system or (recorded.opened_as or recorded.system if recorded is not None else DEFAULT_SYSTEM)
    replayed = []
    with _opened(name) as deployed:
        for source in sources:
            one = replaying.replay(source, deployed)
            replayed.append(one)
            print_replayed(console, one)
    verdict = replaying.worst_verdict(replayed)
    same = all(one.same_verdict for one in replayed)
    _emit(
        as_json,
        {
            "verdict": verdict.value,
            "same_verdict": same,
            "replayed": [
                {
                    "plan": str(one.source.path),
                    "verdict": one.record.verdict.value,
                    "same_verdict": one.same_verdict,
                    "trace_digest": one.record.trace_digest,
                    "invalid": [f.checker for f in one.record.findings if f.verdict is Verdict.INVALID],
                }
                for one in replayed
            ],
        },
    )
    raise typer.Exit(EXIT_CODES[verdict])


@app.command()
def report(
    run_directory: Annotated[
        Path, typer.Argument(metavar="RUN_DIR", help="A run directory, or the directory that contains them.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Write report.html, report.json and junit.xml into a run directory and print the summary.

    \b
    Example:
      barrier-tck report runs/standard-20260101-120000
    """
    from barrier_tck.harness.record.run_directory import latest_run
    from barrier_tck.reports.summary import print_summary
    from barrier_tck.reports.write import write_reports

    console = _console(as_json)
    path = latest_run(run_directory)
    paths = write_reports(path)
    verdict = print_summary(path, console)
    console.print(f"report: {paths.html}", markup=False)
    files = {"html": str(paths.html), "report_json": str(paths.json), "junit": str(paths.junit)}
    _emit(as_json, {"verdict": verdict.value, "run_directory": str(path)} | files)
    raise typer.Exit(EXIT_CODES[verdict])


# --- doctor -------------------------------------------------------------------------------------------------


@app.command()
def doctor(as_json: JsonOption = False) -> None:
    """Tell what is installed, what is missing, and what to do about it.

    Exit code 3 if something is missing or too old for campaigns on Spark.
    """
    from barrier_tck.harness.cli.doctor import diagnose

    findings = diagnose()
    table = Table("", "found", "status", "what to do", box=None)
    for finding in findings:
        table.add_row(finding.name, finding.found, finding.status.value, finding.advice)
    console = _console(as_json)
    console.print(table)
    blocked = [finding.name for finding in findings if finding.blocks]
    console.print("cannot run on Spark yet: " + ", ".join(blocked) if blocked else "ready")
    rows = [
        {"name": f.name, "status": f.status.value, "found": f.found, "advice": f.advice} for f in findings
    ]
    _emit(as_json, {"ready": not blocked, "findings": rows})
    raise typer.Exit(EXIT_USAGE if blocked else 0)


# --- mutants ------------------------------------------------------------------------------------------------

SYSTEM_OF_WORLD = {"simulated": "reference-simulated", "spark": "reference-spark"}
"""The system in which planted bugs are run, by world."""


@app.command()
def mutants(
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="ID,...", help="Only these bugs, for instance AL-01,SO-02."),
    ] = None,
    world: Annotated[
        str, typer.Option("--world", metavar="simulated|spark", help="Where to run them.")
    ] = "simulated",
    out: OutOption = DEFAULT_OUT,
    as_json: JsonOption = False,
) -> None:
    """Run planted bugs: does the suite catch them? Saves the smallest plan that shows each.

    Exit code 0 if all were caught, 1 if one was missed.

    \b
    Examples:
      barrier-tck mutants
      barrier-tck mutants --only AL-01,CO-03 --world spark
    """
    from barrier_tck.harness.campaign.mutant_hunt import choose, hunt
    from barrier_tck.harness.record.run_directory import make_output_directory, new_run_path, write_atomically
    from barrier_tck.harness.reference.mutants.catalogue import MUTANTS
    from barrier_tck.harness.support.strict_input import nearest

    if world not in SYSTEM_OF_WORLD:
        raise UsageProblem(f"--world is {world!r}{nearest(world, SYSTEM_OF_WORLD)}")
    names = [name.strip() for name in only.split(",") if name.strip()] if only else []
    chosen = choose(dict(MUTANTS), names, world)
    console = _console(as_json)
    path = new_run_path(out, "mutants", datetime.now())
    make_output_directory(path)
    results: list[MutantResult] = []
    with _opened(SYSTEM_OF_WORLD[world]) as system:
        for mutant in chosen:
            result = hunt(mutant, system, path)
            results.append(result)
            print_mutant(console, result, path)
    caught = sum(result.caught for result in results)
    summary = {
        "caught": caught,
        "total": len(results),
        "mutants": [msgspec.to_builtins(result) for result in results],
        "run_directory": str(path),
    }
    write_atomically(path / "mutants.json", json.dumps(summary, indent=2).encode() + b"\n")
    console.print(f"{caught} of {len(results)} planted bugs caught; plans in {path}", markup=False)
    _emit(as_json, summary)
    complete = all(result.caught and result.replays for result in results)
    raise typer.Exit(0 if complete else EXIT_CODES[Verdict.INVALID])


# --- bench --------------------------------------------------------------------------------------------------


@app.command()
def bench(
    name: Annotated[
        str, typer.Argument(metavar="throughput|simulation|state|recovery|proxy", help="Which benchmark.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Measure: throughput against Structured Streaming, simulated schedules a second, state backends, recovery.

    Run it at the top of a checkout; benchmarks are not part of the installed package.

    \b
    Examples:
      barrier-tck bench simulation
      barrier-tck bench throughput --json
      barrier-tck bench state                           heap and RocksDB with a million keys
      barrier-tck bench recovery                        500 MB from the local copy, and over a link of 100 MB/s
      barrier-tck bench proxy                           a channel directly, through Toxiproxy, embedded
    """
    from barrier_tck.harness.cli.bench import BENCHMARKS, run_benchmark
    from barrier_tck.harness.support.strict_input import nearest

    if name not in BENCHMARKS:
        raise UsageProblem(f"there is no benchmark {name!r}{nearest(name, BENCHMARKS)}")
    console = _console(as_json)
    numbers = run_benchmark(name, lambda text: console.print(text, markup=False))
    for key, value in numbers.items():
        console.print(f"  {key}: {value}", markup=False)
    _emit(as_json, numbers)


add_certify_command(app, _console, _emit)

# --- exit codes ---------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit; see the module's head for the codes."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code; nothing escapes but KeyboardInterrupt's code 130."""
    as_json = "--json" in arguments
    try:
        result = app(list(arguments), standalone_mode=False)
    except HarnessError as error:
        return _fail(as_json, str(error), error.exit_code)
    except typer.Exit as stop:
        return stop.exit_code
    except _COMMAND_LINE_ERROR as error:
        return _fail(as_json, f"{_sentence(error)} (see barrier-tck --help)", EXIT_USAGE)
    except (typer.Abort, KeyboardInterrupt):
        return _fail(as_json, "interrupted", 130)
    except BrokenPipeError:
        return EXIT_USAGE
    except Exception as error:  # noqa: BLE001 - the last resort: say so, keep the traceback, exit 4
        return _fail(as_json, _bug_message(error), EXIT_INTERNAL)
    return result if isinstance(result, int) else 0


def _sentence(error: Exception) -> str:
    """Return Click's message with the name of the option, which ``str`` leaves out."""
    format_message = getattr(error, "format_message", None)
    return str(format_message()) if format_message is not None else str(error)


def _fail(as_json: bool, message: str, code: int) -> int:
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"barrier-tck: {message}", markup=False)
    _emit(as_json, {"error": message, "exit_code": code})
    return code


def _bug_message(error: Exception) -> str:
    last_line = traceback.format_exception_only(error)[-1].strip()
    with tempfile.NamedTemporaryFile("w", prefix="barrier-tck-crash-", suffix=".txt", delete=False) as file:
        traceback.print_exception(error, file=file)
    where = f"the traceback is in {file.name}; please report it with the command line"
    return f"a bug of ours: {last_line}\n  {where}"


if __name__ == "__main__":
    main()
