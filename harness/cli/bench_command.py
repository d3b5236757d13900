"""``barrier-tck bench``: finds the repository's benchmarks, which are not installed with the package, and runs one."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from barrier_tck.harness.cli import completion
from barrier_tck.harness.cli.options import JsonOption
from barrier_tck.harness.cli.printing import console_for, emit
from barrier_tck.harness.support.errors import EnvironmentProblem, UsageProblem
from barrier_tck.harness.support.strict_input import nearest
from barrier_tck.harness.support.third_party import search_working_directory

BENCHMARKS = {
    "throughput": "throughput",
    "simulation": "simulation",
    "state": "state_access",
    "incremental": "incremental",
    "large-state": "large_state",
    "rescale": "rescale_times",
    "recovery": "recovery_times",
    "proxy": "proxy",
    "backpressure": "backpressure",
    "protocols": "protocols",
    "spread": "spread_trials",
    "windows": "windows",
}
"""Name on the command line -> module below ``benchmarks``."""

Progress = Callable[[str], None]
"""Called with a sentence whenever a benchmark starts something new."""


def bench(
    name: Annotated[
        str,
        typer.Argument(
            metavar="throughput|simulation|state|incremental|large-state|rescale|recovery|proxy|backpressure|protocols"
            "|spread|windows",
            autocompletion=completion.one_of(*BENCHMARKS),
            help="The benchmark to run.",
        ),
    ],
    system: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            autocompletion=completion.REFERENCE_SYSTEMS,
            help="The world to measure, for benchmarks that know several.",
        ),
    ] = "",
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the curves as a page, for benchmarks that have any."),
    ] = None,
    pairs: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="For throughput: measure only what checkpoints cost, over at most N pairs of runs.",
        ),
    ] = None,
    state_mb: Annotated[
        int | None,
        typer.Option(
            metavar="MB", min=1, help="For large-state, rescale and recovery: how much state there is."
        ),
    ] = None,
    only: Annotated[
        str, typer.Option(metavar="PART", help="For windows: run one part, such as tumbling or burst.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Run a benchmark and print its numbers.

    Run it at the top of a checkout: benchmarks are not part of the installed package.

    \b
    Examples:
      barrier-tck bench throughput      rows per second, side by side with Structured Streaming
      barrier-tck bench throughput --pairs 40
      barrier-tck bench simulation      simulated schedules per second
      barrier-tck bench state           snapshots of a million keys, on the heap and in RocksDB
      barrier-tck bench incremental     checkpoints when 1 % of a million keys has changed, incremental and full
      barrier-tck bench large-state     state larger than memory, on disk: keys per second, snapshot, restore, memory
      barrier-tck bench large-state --state-mb 10240
      barrier-tck bench rescale         restores with another parallelism, in pairs with the same one
      barrier-tck bench rescale --state-mb 1024 --plot rescale.html
      barrier-tck bench recovery        restoring 500 MB from the local copy and over a link of 100 MB/s
      barrier-tck bench proxy           a channel without a proxy, through Toxiproxy, and through the embedded one
      barrier-tck bench backpressure    delay and size of checkpoints, aligned and unaligned, as the sink gets slower
      barrier-tck bench backpressure --system reference-spark --plot backpressure.html
      barrier-tck bench protocols       what barriers and Chandy-Lamport store and send, on the same acyclic runs
      barrier-tck bench spread          simulated trials in two processes, and on a Spark cluster of two workers
      barrier-tck bench windows         windows and joins in event time, side by side with Structured Streaming
      barrier-tck bench windows --only session
      barrier-tck bench simulation --json
    """
    if name not in BENCHMARKS:
        raise UsageProblem(f"there is no benchmark {name!r}{nearest(name, BENCHMARKS)}")
    console = console_for(as_json)
    module = _module_of(name)
    if plot is not None and not hasattr(module, "page"):
        raise UsageProblem(f"the benchmark {name!r} has no curves to plot")
    numbers = run_benchmark(
        name, lambda text: console.print(text, markup=False), system, pairs, state_mb, only
    )
    has_table = hasattr(module, "table")
    for key, value in numbers.items():
        if key != "points" or not has_table:
            console.print(f"  {key}: {value}", markup=False)
    if has_table:
        console.print(module.table(numbers), markup=False, soft_wrap=True)
    if plot is not None:
        plot.write_text(module.page(numbers))
        console.print(f"  plot: {plot}", markup=False)
    emit(as_json, numbers)


def run_benchmark(
    name: str,
    progress: Progress,
    system: str = "",
    pairs: int | None = None,
    state_mb: int | None = None,
    only: str = "",
) -> dict[str, Any]:
    """Run a benchmark by its name, in a world if it knows several, and return its numbers, units in the names.

    ``pairs`` limits it to so many pairs of runs, if it has pairs, ``state_mb`` says how much state there is, and
    ``only`` names one of its parts. Raises EnvironmentProblem if the benchmarks cannot be imported, for instance
    outside a checkout, and UsageProblem if the benchmark does not know what it is given.
    """
    module = _module_of(name)
    known: Sequence[str] = getattr(module, "SYSTEMS", ())
    if system and system not in known:
        what = f"one of: {', '.join(known)}" if known else "none: it measures one world only"
        raise UsageProblem(f"the benchmark {name!r} was given the system {system!r}; it takes {what}")
    run: Callable[..., dict[str, Any]] = module.run
    if pairs is not None and "pairs" not in inspect.signature(run).parameters:
        raise UsageProblem(f"the benchmark {name!r} has no pairs of runs; leave --pairs out")
    if state_mb is not None and "state_mb" not in inspect.signature(run).parameters:
        raise UsageProblem(f"the benchmark {name!r} has a state of fixed size; leave --state-mb out")
    parts: Sequence[str] = getattr(module, "PARTS", ())
    if only and only not in parts:
        what = f"one of: {', '.join(parts)}" if parts else "none: it is always run whole"
        raise UsageProblem(f"the benchmark {name!r} was given the part {only!r}; it takes {what}")
    given = {"system": system or None, "pairs": pairs, "state_mb": state_mb, "only": only or None}
    options = {option: value for option, value in given.items() if value is not None}
    return run(lambda what, share: progress(f"{what} ({share:.0%} done)"), **options)


def _module_of(name: str) -> Any:
    module_name = f"benchmarks.{BENCHMARKS[name]}"
    search_working_directory()
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name not in ("benchmarks", module_name):
            raise
        raise EnvironmentProblem(
            f"{module_name} cannot be imported: benchmarks live in the repository, not in the installed "
            "package; run the command at the top of a checkout of barrier-tck"
        ) from error
