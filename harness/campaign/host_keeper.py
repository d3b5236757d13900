"""Holds this host for one process with real trials, and leaves nothing of it behind:
``python -m barrier_tck.harness.campaign.host_keeper [docker]``.

Whoever starts it has the pipes of ``process_of_trials``. It

* waits until no other process of this user holds the host, so that no two real trials run on it at once; if that takes
  long, it says so once on its standard error;
* starts ``trial_process``, which inherits both pipes;
* lets that end in order, with its cluster, when its input ends: because the trial is over, or because who wanted it was
  killed. If it takes too long, it is killed;
* as a *child subreaper*, it then ends whatever is left of the tree, removes what orphans have left, and ends as the
  process did. Only then another trial may begin on the host.

If it is killed itself, ``trial_process`` ends in order, and holds the host until then.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from barrier_tck.harness.cluster.guard import Guard, adopt_orphans, die_with_parent
from barrier_tck.harness.support.host_lock import host_lock, opened_lock, wait_for_lock
from barrier_tck.harness.support.work_directories import remove_orphaned

DOCKER = "docker"
"""The argument that says that the trials' hosts are containers."""
IN_ORDER_S = 60.0
"""How long the process may take to stop its cluster."""
SWEEP_S = 5.0
"""How long what is left may take to end by itself: the guard of a cluster ends the cluster, and removes its files."""

QUIET_S = 300.0
"""How long it waits for the host before it says so: trials of one campaign wait for each other without a word."""

_TRIALS = "barrier_tck.harness.campaign.trial_process"


class _Events:
    """What may happen meanwhile: who started this process is gone, a signal came, or something is done here."""

    def __init__(self) -> None:
        self.unwanted = False
        """Whether nobody wants the trial any more, or it is over."""
        self._woken, self._wake = os.pipe()
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._end)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._poll = select.poll()
        self._poll.register(self._woken, select.POLLIN)
        # The process reads the input. Here it is only seen when nobody holds its other end any more.
        self._poll.register(0, 0)

    def wake(self) -> None:
        """Let ``wait`` return; for other threads."""
        os.write(self._wake, b"\0")

    def wait(self, seconds: float | None = None) -> None:
        """Return when something happened, or after this time."""
        for descriptor, _ in self._poll.poll(None if seconds is None else max(0.0, seconds) * 1_000):
            if descriptor == 0:
                self._poll.unregister(0)
                self.unwanted = True
            else:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._woken, 4_096)

    def _end(self, *_: object) -> None:
        self.unwanted = True


def main(arguments: Sequence[str]) -> int:
    """Return the exit code: that of the process with the trials, or minus the signal that ended it."""
    adopt_orphans()
    events = _Events()
    lock = _held_host(events)
    if lock is None:
        return 0
    code = _run(lock, events)
    # What the process ends in order, it ends completely. Killed processes are orphans, and may leave files and hosts.
    left = Guard().sweep(SWEEP_S)
    if left or code != 0:
        remove_orphaned()
        _reap_orphans(DOCKER in arguments)
    return code


def _held_host(events: _Events) -> int | None:
    """Return the descriptor of the lock when this process holds the host; None if nobody waits for that any more."""
    path = host_lock()
    try:
        descriptor = opened_lock(path)
    except OSError as error:
        _say_that_it_cannot_be_locked(
            f"{path} cannot be opened ({error.strerror or error}); remove it, or let its owner do that"
        )
        return None
    over = threading.Event()
    failed: list[OSError] = []

    def wait_for_it() -> None:
        try:
            wait_for_lock(descriptor)
        except OSError as error:
            failed.append(error)
        over.set()
        events.wake()

    # The wait cannot be ended, but this process can, which has started nothing yet.
    waiting = threading.Thread(target=wait_for_it, name="waits for the host", daemon=True)
    waiting.start()
    says_at: float | None = time.monotonic() + QUIET_S
    while not over.is_set() and not events.unwanted:
        events.wait(None if says_at is None else says_at - time.monotonic())
        if says_at is not None and time.monotonic() >= says_at and not over.is_set():
            _say_that_it_waits(path)
            says_at = None
    if failed:
        _say_that_it_cannot_be_locked(
            f"{path} cannot be locked ({failed[0].strerror or failed[0]}); {path.parent} must be on a file system with "
            "locks (flock), such as one on a disk of this host"
        )
        return None
    if events.unwanted:
        return None
    waiting.join()
    return descriptor


def _say_that_it_waits(path: Path) -> None:
    # An executor has no other way to say something before it answers.
    sys.stderr.write(
        f"a real trial has waited {QUIET_S:g} s for this host, and goes on waiting: another process holds {path} "
        f"(`fuser {path}` shows it)\n"
    )
    sys.stderr.flush()


def _say_that_it_cannot_be_locked(problem: str) -> None:
    # Only here: no trial needs these modules in this process.
    import socket

    from barrier_tck.harness.campaign.trial_messages import NotDone, line_of
    from barrier_tck.harness.support.errors import EnvironmentProblem

    answer = NotDone(EnvironmentProblem.__name__, f"on {socket.gethostname()}: {problem}")
    os.write(1, line_of(answer))


def _run(lock: int, events: _Events) -> int:
    """Run the process with the trials to its end, and return how it ended."""
    trials = subprocess.Popen(
        [sys.executable, "-P", "-m", _TRIALS],
        start_new_session=True,
        preexec_fn=_end_in_order_with_parent,  # safe, because this process has one thread again
        # The host is held as long as one of the two lives.
        pass_fds=[lock],
    )
    until: float | None = None
    while True:
        code = _reap(trials.pid)
        if code is not None:
            trials.returncode = code
            return code
        if events.unwanted and until is None:
            until = time.monotonic() + IN_ORDER_S
            trials.terminate()
        if until is not None and time.monotonic() >= until:
            trials.kill()
        events.wait(None if until is None else max(0.1, until - time.monotonic()))


def _end_in_order_with_parent() -> None:
    die_with_parent(signal.SIGTERM)


def _reap(wanted: int) -> int | None:
    """Collect all children that have ended, adopted ones included; return how the wanted one ended, None if it runs."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)  # the wanted one is there until it is found here
        if pid in (0, wanted):
            return os.waitstatus_to_exitcode(status) if pid else None


def _reap_orphans(with_containers: bool) -> None:
    """End what clusters left whose harness was killed."""
    # Only here: for most trials there is nothing to do.
    from barrier_tck.harness.support.errors import HarnessError

    try:
        if with_containers:
            from barrier_tck.harness.cluster.containers.docker_cluster import DockerCluster

            DockerCluster.reap_orphans()
        else:
            from barrier_tck.harness.cluster.local_cluster import LocalCluster

            LocalCluster.reap_orphans()
    except HarnessError as error:  # the next cluster on this host tries again
        sys.stderr.write(f"what a trial left behind is still there: {error}\n")


if __name__ == "__main__":
    _code = main(sys.argv[1:])
    if _code < 0:  # who started this process learns by which signal the trials were ended
        with contextlib.suppress(OSError):  # that of SIGKILL cannot be set, and need not be
            signal.signal(-_code, signal.SIG_DFL)
        os.kill(os.getpid(), -_code)
    sys.exit(_code)
