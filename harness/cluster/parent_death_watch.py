"""The harness's end of the pipe to the guard process of a cluster (`barrier_tck.harness.cluster.guard`)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from barrier_tck.harness.cluster import guard
from barrier_tck.harness.cluster.json_lines import JsonLines
from barrier_tck.harness.support.owners import ProcessIdentity

_END_TIMEOUT_S = 20.0


class ParentDeathWatch:
    """Starts a guard; then one command, one answer."""

    def __init__(self, directory: Path, *, temporary: bool) -> None:
        script = Path(guard.__file__)
        with open(directory / "guard.log", "ab") as log:
            # -P: the modules in the script's own directory must not shadow others of the same names.
            popen = subprocess.Popen(
                [sys.executable, "-P", str(script), str(os.getpid()), str(directory) if temporary else ""],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )
        self._lines = JsonLines(popen, "the cluster's guard")
        self.process = ProcessIdentity(popen.pid, float(psutil.Process(popen.pid).create_time()))

    def call(self, command: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send a command and wait for its answer.

        Raises:
            OperatingError: the guard is gone, silent for `timeout_s`, or could not do it.
        """
        return self._lines.call(command, timeout_s)

    def close(self) -> None:
        """Wait for the guard to end; kill it if it does not. Its children die with it then."""
        self._lines.close(_END_TIMEOUT_S)
