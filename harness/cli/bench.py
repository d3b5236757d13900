"""Finds the repository's benchmarks, which are not installed with the package, and runs one."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from barrier_tck.harness.support.errors import EnvironmentProblem

BENCHMARKS = {
    "throughput": "throughput",
    "simulation": "simulation",
    "state": "state_backends",
    "recovery": "recovery",
    "proxy": "proxy",
}
"""Name on the command line -> module below ``benchmarks``."""

Progress = Callable[[str], None]
"""Told a sentence whenever a benchmark comes to something new."""


def run_benchmark(name: str, progress: Progress) -> dict[str, Any]:
    """Run a benchmark by its name and return its numbers, units in the names.

    Raises EnvironmentProblem if the benchmarks cannot be imported, that is outside a checkout.
    """
    module_name = f"benchmarks.{BENCHMARKS[name]}"
    here = str(Path.cwd())
    if here not in sys.path:  # an installed command does not look where it is run
        sys.path.append(here)
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
