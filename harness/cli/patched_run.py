"""Runs the command again in a process that imports a copy of the package with a user's patch in it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from barrier_tck.harness.cli.supervision import other_program
from barrier_tck.harness.reference.bugs.patched_copy import make_copy
from barrier_tck.harness.support.errors import OperatingError
from barrier_tck.harness.support.work_directories import temporary_work_directory


class RanElsewhere(Exception):
    """The command ran in another process, which said all there is to say."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code
        """The exit code of that process."""


def run_with_patch(patch: str, source: str, arguments: Sequence[str], world: str | None = None) -> NoReturn:
    """Run the command with these arguments and the patch, and raise RanElsewhere.

    ``world`` is where trials will run, if that is known. Raises PatchProblem if the patch does not fit, and
    OperatingError if the process ended without an exit code.
    """
    with temporary_work_directory("patch") as directory:
        environment = make_copy(patch, source, Path(directory), world)
        command = [sys.executable, "-P", "-m", "barrier_tck.harness.cli.main", *arguments]
        code = other_program(command, environment)
    if code < 0:
        raise OperatingError(f"the process that ran with the patch was ended by signal {-code}")
    raise RanElsewhere(code)
