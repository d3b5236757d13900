"""Runs a proxy server for as long as the process that started it holds the other end of standard input.

``python -m barrier_tck.faults.toxiproxy.parent_death_watch`` runs the embedded server and prints its address as one
line. With arguments it runs that command instead and prints nothing. Either ends when standard input ends or the parent
changes, so that Ctrl-C, a crash or SIGKILL of a harness leaves no server behind; the kernel ends the command if this
process is killed.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence

from barrier_tck.faults.toxiproxy.embedded import EmbeddedServer

_TICK_S = 0.5
_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _hold(alive: Callable[[], bool]) -> None:
    """Return when standard input ends, the parent changes, or what is held is no longer alive."""
    parent = os.getppid()
    while alive() and os.getppid() == parent:
        ready, _, _ = select.select([0], [], [], _TICK_S)
        if ready and not os.read(0, 4096):
            return


def main(arguments: Sequence[str]) -> int:
    """Run a server; the exit code is the command's if it ended by itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if not arguments:
        server = EmbeddedServer()
        server.start()
        print(server.url, flush=True)  # noqa: T201 - who started this process waits for it
        _hold(lambda: True)
        # The process that used the proxies is gone; the threads are daemons, and the system closes the connections.
        return 0
    # Safe here and only here: this process has one thread.
    command = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, preexec_fn=_die_with_parent)
    _hold(lambda: command.poll() is None)
    code = command.poll()
    if code is None:
        command.kill()
        command.wait()
        return 0
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
