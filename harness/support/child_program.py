"""Runs another program to its end. If this process is interrupted meanwhile, no process of that program is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any] | signal.Handlers

_PATIENCE_S = 20.0
"""How long an interrupted program may tidy up; a Spark cluster takes several seconds to end."""
_ASKED_EVERY_S = 1.0


def run_program(
    command: Sequence[str], environment: Mapping[str, str], until: Callable[[], bool] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program that reads nothing, and return its exit code and what it wrote; raises OSError without one.

    If an exception such as KeyboardInterrupt ends the wait, the program is interrupted, too, so that it removes its
    temporary files; what is left of its process group after 20 s is killed. The same happens when ``until``, which is
    asked each second, is true; then what it wrote until its end is returned.
    """
    process = None
    try:
        # An exception before Popen returns would leave a program that nobody knows.
        with _signals_held_back():
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                # A terminal's Ctrl-C reaches this process alone, so that the program is interrupted once and not twice.
                start_new_session=True,
            )
        out, err = process.communicate() if until is None else _until(process, until)
    except BaseException:
        if process is not None:
            with process:
                _end(process)
        raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _until(process: subprocess.Popen[str], until: Callable[[], bool]) -> tuple[str, str]:
    """Wait until a program ends, or end it when it is time; return what it wrote."""
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=_ASKED_EVERY_S)
        if until():
            _end(process)
            return process.communicate()


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


@contextlib.contextmanager
def _signals_held_back() -> Iterator[None]:
    """Let the signals that this process handles come at the end. A blocked signal would be so in the program, too."""
    if threading.current_thread() is not threading.main_thread():
        yield  # no handler is ever called here
        return
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    handled: dict[Any, Handler] = {number: handler for number, handler in before.items() if callable(handler)}
    # A shell lets a program in the background ignore Ctrl-C, and what that one starts would ignore it, too. What has a
    # handler here has the usual one there.
    if before[signal.SIGINT] is signal.SIG_IGN:
        handled[signal.SIGINT] = signal.SIG_IGN
    came: list[int] = []
    _handle(dict.fromkeys(handled, lambda number, _: came.append(number)))
    try:
        yield
    finally:
        _handle(handled)
    for number in came:
        signal.raise_signal(number)


def _handle(handlers: Mapping[signal.Signals, Handler]) -> None:
    """Set the handlers of some signals, all of them or none: one that comes meanwhile may raise an exception."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, handlers)
    try:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
