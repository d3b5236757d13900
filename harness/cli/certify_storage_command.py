"""``barrier-tck certify-storage``: certify a checkpoint storage and write its certificate."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barrier_tck.harness.cli import completion
from barrier_tck.harness.cli.certificate_output import (
    beginning,
    certified,
    output_certificate,
    printed_outcomes,
    short,
)
from barrier_tck.harness.cli.certificate_resume import ResumeOption, command_to_resume, to_resume
from barrier_tck.harness.cli.options import (
    DEFAULT_LEVEL,
    DEFAULT_OUT,
    JsonOption,
    LevelWithoutChaosOption,
    OnlyStoragePropertiesOption,
    OutOption,
    StrengthOption,
    chosen_properties,
)
from barrier_tck.harness.cli.printing import console_for
from barrier_tck.harness.support.errors import UsageProblem

if TYPE_CHECKING:
    from barrier_tck.harness.certify.engine.certificate import Certificate

_STORED = "storage"
"""Directory in the run directory where the storage is, unless ``--at`` says another place."""
_PROPERTY_S_MAX = 86_400.0


def certify_storage(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:NAME",
            autocompletion=completion.STORAGES,
            help="Class or function that makes the storage of a job, from its location and the job's name; or files, "
            "s3, hdfs, or memory.",
        ),
    ],
    level: LevelWithoutChaosOption = None,
    at: Annotated[
        str,
        typer.Option(
            "--at",
            metavar="LOCATION",
            help="Directory, or beginning of a URL, below which the storage may write. Nothing there is deleted "
            "afterwards. Default: a directory in the run directory.",
        ),
    ] = "",
    out: OutOption = DEFAULT_OUT,
    resume: ResumeOption = None,
    strength: StrengthOption = True,
    only: OnlyStoragePropertiesOption = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="Time that one property may take.")
    ] = 120.0,
    as_json: JsonOption = False,
) -> None:
    """Certify a checkpoint storage.

    It is checked clause by clause, up to a level. The storage runs in processes of its own. Exit code 0 if the level
    was reached, 1 if a property failed, 2 if no verdict is possible, 3 if the target cannot be imported or makes no
    checkpoint storage.

    \b
    Examples:
      barrier-tck certify-storage files
      barrier-tck certify-storage memory --level contract
      barrier-tck certify-storage s3 --at s3://bucket/prefix
      barrier-tck certify-storage hdfs --at webhdfs://localhost:9870/directory
      barrier-tck certify-storage your_package.your_module:YourStorage --at /mnt/shared/try
      barrier-tck certify-storage files --resume runs/certify-storage-20260101-120000
    """
    from barrier_tck.harness.certify.engine.levels import require_level
    from barrier_tck.harness.certify.storage.planted_bugs import measure_strength
    from barrier_tck.harness.certify.storage.properties import LEVELS
    from barrier_tck.harness.certify.storage.suite import certify as run_suite
    from barrier_tck.harness.plan.storage_targets import storage_target
    from barrier_tck.harness.record.run_directory import make_output_directory, new_run_path

    console = console_for(as_json)
    chosen = chosen_properties(only)
    earlier = to_resume(resume, strength and not chosen)
    level = level or (DEFAULT_LEVEL if earlier is None else earlier.asked_level)
    require_level(level, LEVELS)
    storage_target(target)
    if not 0 < timeout <= _PROPERTY_S_MAX:
        raise UsageProblem(f"--timeout is {timeout:g}; give seconds above 0, up to a day")
    path: Path = resume or short(new_run_path(out, "certify-storage", datetime.now()))
    if earlier is None:
        make_output_directory(path)
    else:
        chosen = chosen or earlier.only
    # Each time another place: what was interrupted may have left something.
    stored = path.name if earlier is None else f"{path.name}-{datetime.now():%Y%m%d-%H%M%S-%f}"
    location = f"{at.rstrip('/')}/{stored}" if at else str(_new_place(path).absolute())
    begins = f"certifying {target} up to {level} at {location}, in {path}"

    def run(keep: Callable[[Certificate], None]) -> Certificate:
        return run_suite(
            target,
            location,
            level,
            property_s=timeout,
            only=chosen,
            progress=printed_outcomes(
                console, beginning(begins, path, "certify-storage", target, earlier), target, path, chosen
            ),
            keep=keep,
            earlier=earlier,
        )

    measure = measure_strength if strength and not chosen else None
    certificate = certified(run, measure, path, console, command_to_resume(context.obj, path))
    raise typer.Exit(output_certificate(certificate, path, console, as_json))


def _new_place(path: Path) -> Path:
    """Return a directory in the run directory that is not there yet."""
    numbers = itertools.count(2)
    place = path / _STORED
    while place.exists():
        place = path / f"{_STORED}-{next(numbers)}"
    return place
