"""The command ``barrier-tck`` in a process that kills itself with SIGKILL at the nth of its steps on files.

``python -m tests.harness.campaign.dying_command DIRECTORY N ARGUMENT...``; steps are those below the directory, counted
from 0: a file is opened, renamed or removed, a directory made. The process is killed before the step is taken. If it
has fewer steps it runs to its end, and the last line of its output says how many there were.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from barrier_tck.harness.cli.main import run


def main(arguments: Sequence[str]) -> int:
    """Run the command, and return its exit code if it lives that long."""
    below, last = arguments[0], int(arguments[1])
    steps = 0

    def count(event: str, values: tuple[object, ...]) -> None:
        nonlocal steps
        if event != "open" and not event.startswith(("os.", "shutil.", "tempfile.")):
            return
        if not any(
            isinstance(value, (str, os.PathLike)) and str(value).startswith(below) for value in values
        ):
            return
        if steps == last:
            os.kill(os.getpid(), signal.SIGKILL)
        steps += 1

    sys.addaudithook(count)
    code = run(arguments[2:])
    print(steps)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
