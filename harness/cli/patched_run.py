"""Runs the command again in a process that imports a copy of the package with a user's patch in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import msgspec

import barrier_tck
from barrier_tck.harness.cli.supervision import other_program
from barrier_tck.harness.plan.reading import read_plan
from barrier_tck.harness.plan.trial_plan import to_json
from barrier_tck.harness.reference.bugs.patched_copy import make_copy
from barrier_tck.harness.support.atomic_files import write_atomically
from barrier_tck.harness.support.errors import OperatingError
from barrier_tck.harness.support.work_directories import temporary_work_directory

_COMMAND = "barrier_tck.harness.cli.main"


class RanElsewhere(Exception):
    """The command ran in another process, which wrote all there is to say."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code
        """The exit code of that process."""


def without_patch(plan: Path, plain: Path, system: str) -> tuple[str, ...]:
    """Return the checkers that say INVALID of a saved plan on the reference as it is, without the plan's patch.

    If there are any, ``plain`` is the plan that shows it. It is called in a process that runs a patched copy. Raises
    OperatingError if the plan could not be run.
    """
    copy = str(Path(barrier_tck.__file__).parents[1])
    path = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry not in ("", copy)]
    write_atomically(plain, to_json(msgspec.structs.replace(read_plan(plan), patch=None)).encode())
    done = subprocess.run(
        [sys.executable, "-P", "-m", _COMMAND, "replay", str(plain), "--system", system, "--json"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        (trial,) = json.loads(done.stdout.splitlines()[-1])["replayed"]
        invalid = tuple(trial["invalid"])
        if not invalid:
            plain.unlink()
        return invalid
    except (IndexError, KeyError, ValueError) as error:
        output = done.stderr.strip() or f"exit code {done.returncode}"
        raise OperatingError(f"{plan} could not be run without its patch: {output}") from error


def run_with_patch(patch: str, source: str, arguments: Sequence[str], world: str | None = None) -> NoReturn:
    """Run the command with these arguments and the patch, and raise RanElsewhere.

    ``world`` is where trials will run, if that is known. Raises PatchProblem if the patch does not fit, and
    OperatingError if the process ended without an exit code.
    """
    with temporary_work_directory("patch") as directory:
        environment = make_copy(patch, source, Path(directory), world)
        command = [sys.executable, "-P", "-m", _COMMAND, *arguments]
        code = other_program(command, environment)
    if code < 0:
        raise OperatingError(f"the process that ran with the patch was ended by signal {-code}")
    raise RanElsewhere(code)
