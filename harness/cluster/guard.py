"""The guard: parent of a local cluster's processes, which cleans up when the harness cannot.

It is started as a script of its own and does four things:

* it starts what the harness asks for (one JSON object a line on standard input, one answer a line);
* it is a *child subreaper*: whatever a killed executor leaves behind becomes the guard's child instead of
  vanishing into the machine's process 1, so every process of the cluster stays in one tree;
* when its input ends, its parent changes or it is asked to stop, it ends the whole tree and removes the
  cluster's directory if that was temporary. So neither Ctrl-C nor a SIGKILL of the harness leaves anything behind;
* if the guard itself is killed, the kernel kills what it started.

Run as a script, it imports only the standard library and psutil, so that it starts in a tenth of a second.

Commands: `{"do": "start", "name", "argv", "env", "cwd", "log"}` answers `{"pid", "created"}`;
`{"do": "status"}` answers `{"exited": {name: exit code}}`; `{"do": "stop", "grace_s"}` answers
`{"left": [pid, ...]}` and ends the guard. A command that fails answers `{"error": text}`.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_TICK_S = 0.5
_KILL_TIMEOUT_S = 10.0

_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl({option}, {value}): {os.strerror(code)}")


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Let the kernel send this process a signal when its parent dies."""
    _prctl(_PR_SET_PDEATHSIG, number)


def adopt_orphans() -> None:
    """Let processes that lose their parent below this one become its children, and not those of the machine's first."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


class Guard:
    """The guard's state: what it started, what has ended."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._exited: dict[str, int] = {}

    def start(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Start one process; its output goes to the file `log`."""
        with open(command["log"], "ab") as log:
            process = subprocess.Popen(
                command["argv"],
                env=command["env"],
                cwd=command["cwd"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A session of its own: a terminal's Ctrl-C must reach the harness alone.
                start_new_session=True,
                # Safe here and only here: this process has one thread.
                preexec_fn=die_with_parent,
            )
        self._names[process.pid] = command["name"]
        # `reap` collects all children; Popen must not warn about one whose end it did not see.
        process.returncode = 0
        return {"pid": process.pid, "created": psutil.Process(process.pid).create_time()}

    def reap(self) -> None:
        """Collect the exit codes of all children that have ended, adopted ones included."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._names:
                self._exited[self._names.pop(pid)] = os.waitstatus_to_exitcode(status)

    def exited(self) -> dict[str, int]:
        """Exit codes of the started processes that have ended, by name; negative for a signal."""
        self.reap()
        return dict(self._exited)

    def sweep(self, grace_s: float) -> list[int]:
        """End every descendant: SIGTERM, then SIGKILL after `grace_s`. Returns the pids that remain."""
        start = time.monotonic()
        asked: set[int] = set()
        while True:
            self.reap()
            alive = psutil.Process().children(recursive=True)
            elapsed = time.monotonic() - start
            if not alive or elapsed > grace_s + _KILL_TIMEOUT_S:
                return [process.pid for process in alive]
            for process in alive:
                try:
                    if elapsed >= grace_s:
                        process.kill()
                    elif process.pid not in asked:
                        asked.add(process.pid)
                        process.terminate()
                except psutil.NoSuchProcess:
                    continue
            time.sleep(0.02)


def _answer(reply: Mapping[str, Any]) -> None:
    try:
        os.write(1, json.dumps(reply).encode() + b"\n")
    except BrokenPipeError:
        # Nothing listens any more: the end of the input, seen next, makes the guard clean up.
        return


def main() -> int:
    """Serve commands until the input ends, then clean up. Returns the exit code: 1 if something remains."""
    owner, temporary_directory = int(sys.argv[1]), sys.argv[2] or None
    adopt_orphans()
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    os.set_blocking(wake_read, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stopping.append(number))
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    guard, pending, grace_s, asked_to_stop = Guard(), b"", 0.0, False
    # The parent is watched as well as the input: a fork of the harness may hold the pipe open.
    while not stopping and not asked_to_stop and os.getppid() == owner:
        ready, _, _ = select.select([0, wake_read], [], [], _TICK_S)
        if wake_read in ready:
            os.read(wake_read, 4096)
        guard.reap()
        if 0 not in ready:
            continue
        data = os.read(0, 65536)
        if not data:
            break
        pending += data
        while b"\n" in pending:
            line, _, pending = pending.partition(b"\n")
            command = json.loads(line)
            if command["do"] == "start":
                try:
                    _answer(guard.start(command))
                except (OSError, subprocess.SubprocessError) as error:
                    _answer({"error": f"{type(error).__name__}: {error}"})
            elif command["do"] == "status":
                _answer({"exited": guard.exited()})
            else:
                asked_to_stop, grace_s = True, float(command["grace_s"])
    left = guard.sweep(grace_s)
    if temporary_directory is not None:
        shutil.rmtree(temporary_directory, ignore_errors=True)
    if asked_to_stop:
        _answer({"left": left})
    return 1 if left or (temporary_directory and Path(temporary_directory).exists()) else 0


if __name__ == "__main__":
    sys.exit(main())
