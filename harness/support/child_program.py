"""Runs another program to its end. If this process is interrupted meanwhile, no process of that program is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

_PATIENCE_S = 20.0
"""How long an interrupted program may tidy up; a Spark cluster takes several seconds to end."""


def run_program(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program that reads nothing, and return its exit code and what it wrote; raises OSError without one.

    If an exception such as KeyboardInterrupt ends the wait, the program is interrupted, too, so that it removes its
    temporary files; what is left of its process group after 20 s is killed.
    """
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        # A terminal's Ctrl-C reaches this process alone, so that the program is interrupted once and not twice.
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate()
        except BaseException:
            _end(process)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _end(process: subprocess.Popen[str]) -> None:
    # Only the program itself: one that runs others, as pip and our own command do, passes it on.
    process.send_signal(signal.SIGINT)
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_PATIENCE_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()  # after Ctrl-C, Popen itself does not
