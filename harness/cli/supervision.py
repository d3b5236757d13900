"""The command runs in a child process, and the parent exits with a verdict's code only if the child reported it.

A command also runs code of third parties: systems, state backends, workloads. Such code may end its process with
``os._exit(0)``, with ``os.abort()`` or by a crash inside a library. Nothing in that process can prevent this, and the
resulting exit code is not a verdict. So the parent believes only a code that the child wrote into a pipe at the end
of the command. Without such a code it says what happened and exits as for an unknown verdict.

The child stays in the parent's process group: Ctrl-C and Ctrl-Z reach both, and a debugger in the code under test can
read from the terminal. Signals that were sent only to the parent are passed on. If the parent dies, the child is
ended, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
import sys
from collections.abc import Callable, Mapping, Sequence

_PASSED_ON = (signal.SIGINT, signal.SIGTERM)
_WATCHED = {*_PASSED_ON, signal.SIGCHLD}
_FROM_OUTSIDE = (signal.SIGTERM, signal.SIGHUP)
"""Signals by which one program ends another; code that ends its own process takes others."""
_SENT_BY_A_PROCESS = 0
"""``si_code`` of a signal that ``kill`` sent. The terminal sends to the whole group, so the child has it already."""
_SET_PARENT_DEATH_SIGNAL = 1
"""Option of Linux's ``prctl``."""
_CODE = struct.Struct("<4si")
_MARK = b"code"


def supervised(work: Callable[[], int], without_a_code: Callable[[str], int]) -> int:
    """Run ``work`` in a child process and return the exit code that it returns.

    If the child ends without a code, ``without_a_code`` is called with a phrase that says how it ended, and returns
    the code instead. Call this function before there are threads. In the child it does not return.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    reader, writer = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        _end_with(parent)
        sys.exit(_reported(work(), writer))
    os.close(writer)
    try:
        status = _wait_for(child)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    code = _received_code(reader)
    return without_a_code(_how_it_ended(status)) if code is None else code


def other_program(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run another program as a child process, supervised in the same way, and return its exit code.

    If a signal ended it, the code is the signal's number below zero. Call this function before there are threads.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            _end_with(parent)
            os.execve(command[0], list(command), environment)
        finally:
            os._exit(127)  # only if it could not be started
    try:
        return os.waitstatus_to_exitcode(_wait_for(child))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with(parent: int) -> None:
    """Ask Linux to end this process when its parent dies, however this happens."""
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)


def _reported(code: int, writer: int) -> int:
    """Send the parent the exit code, after everything was printed."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):  # a reader that is gone does not change the code
                stream.flush()
    os.write(writer, _CODE.pack(_MARK, code))
    return code


def _wait_for(child: int) -> int:
    """Wait until the child has ended and return its status; meanwhile pass signals on."""
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        came = signal.sigwaitinfo(_WATCHED)
        if came.si_signo in _PASSED_ON and came.si_code == _SENT_BY_A_PROCESS:
            os.kill(child, came.si_signo)


def _received_code(reader: int) -> int | None:
    """Return the code that the child reported, if it did; other processes may still hold the pipe open."""
    os.set_blocking(reader, False)
    try:
        data = os.read(reader, _CODE.size)
    except BlockingIOError:
        return None
    finally:
        os.close(reader)
    if len(data) != _CODE.size:
        return None
    mark, code = _CODE.unpack(data)
    return int(code) if mark == _MARK else None


def cause_of(how: str) -> str:
    """Return who may have ended a process that ended in this way (the phrase of ``supervised``), as a sentence."""
    if any(number.name in how for number in _FROM_OUTSIDE):
        return "another program ended it, so this says nothing about what it ran"
    return (
        "something that it ran, for instance the system under test or its state backend, ended or crashed it"
    )


def _how_it_ended(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"by the signal {signal.Signals(os.WTERMSIG(status)).name}"
    return f"with exit code {os.WEXITSTATUS(status)}"
