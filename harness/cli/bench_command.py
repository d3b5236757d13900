"""``barrier-tck bench``: finds the repository's benchmarks, which are not installed with the package, and runs one."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Annotated, Any

import typer

from barrier_tck.harness.cli.options import JsonOption
from barrier_tck.harness.cli.printing import console_for, emit
from barrier_tck.harness.support.errors import EnvironmentProblem, UsageProblem
from barrier_tck.harness.support.outside import look_where_run
from barrier_tck.harness.support.strict_input import nearest

BENCHMARKS = {
    "throughput": "throughput",
    "simulation": "simulation",
    "state": "state_access",
    "recovery": "recovery_times",
    "proxy": "proxy",
}
"""Name on the command line -> module below ``benchmarks``."""

Progress = Callable[[str], None]
"""Called with a sentence whenever a benchmark starts something new."""


def bench(
    name: Annotated[
        str,
        typer.Argument(metavar="throughput|simulation|state|recovery|proxy", help="The benchmark to run."),
    ],
    as_json: JsonOption = False,
) -> None:
    """Run a benchmark and print its numbers.

    Run it at the top of a checkout: benchmarks are not part of the installed package.

    \b
    Examples:
      barrier-tck bench throughput      rows per second, side by side with Structured Streaming
      barrier-tck bench simulation      simulated schedules per second
      barrier-tck bench state           snapshots of a million keys, on the heap and in RocksDB
      barrier-tck bench recovery        restoring 500 MB from the local copy and over a link of 100 MB/s
      barrier-tck bench proxy           a channel without a proxy, through Toxiproxy, and through the embedded one
      barrier-tck bench simulation --json
    """
    if name not in BENCHMARKS:
        raise UsageProblem(f"there is no benchmark {name!r}{nearest(name, BENCHMARKS)}")
    console = console_for(as_json)
    numbers = run_benchmark(name, lambda text: console.print(text, markup=False))
    for key, value in numbers.items():
        console.print(f"  {key}: {value}", markup=False)
    emit(as_json, numbers)


def run_benchmark(name: str, progress: Progress) -> dict[str, Any]:
    """Run a benchmark by its name and return its numbers, units in the names.

    Raises EnvironmentProblem if the benchmarks cannot be imported, for instance outside a checkout.
    """
    module_name = f"benchmarks.{BENCHMARKS[name]}"
    look_where_run()
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name not in ("benchmarks", module_name):
            raise
        raise EnvironmentProblem(
            f"{module_name} cannot be imported: benchmarks live in the repository, not in the installed "
            "package; run the command at the top of a checkout of barrier-tck"
        ) from error
    run: Callable[[Callable[[str, float], None]], dict[str, Any]] = module.run
    return run(lambda what, share: progress(f"{what} ({share:.0%} done)"))
