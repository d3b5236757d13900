"""A process of this machine as a target of faults."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

import psutil

from barrier_tck.faults.targets import TargetGone
from barrier_tck.harness.cluster.stopped_processes import go_on, stop

_SIGNAL_TIMEOUT_S = 5.0
_POLL_S = 0.002

Lose = Callable[[Sequence[int]], object]
"""Takes back what dead processes, given by their pids, wrote and did not sync."""


class SignalledProcess:
    """A process on this machine as a fault target; implements ``barrier_tck.faults.targets.PausableTarget``."""

    def __init__(
        self,
        pid: int,
        description: str,
        on_kill: Callable[[], None],
        with_children: bool = False,
        lose: Lose | None = None,
    ) -> None:
        """Take hold of a process; ``on_kill`` is called right after the signal is sent, ``lose`` takes back the
        unsynced writes of dead processes.

        ``with_children`` also hits the processes that it started. After the death of an executor's JVM alone, its
        Python workers would live on for up to a quarter of a second; when a container or host dies, they die with it.
        """
        self._paused: list[psutil.Process] = []
        self._description = description
        self._on_kill = on_kill
        self._with_children = with_children
        self._lose = lose
        try:
            self._process: psutil.Process | None = psutil.Process(pid)
        except psutil.NoSuchProcess:
            self._process = None

    @property
    def description(self) -> str:
        """Return what is hit, for the fault log."""
        return self._description

    @property
    def is_journaled(self) -> bool:
        """Whether what its host did not sync can be taken back."""
        return self._lose is not None

    def kill(self, lose_unsynced: bool = False) -> None:
        """Send SIGKILL and wait for the death; then take back what was not synced, if that is to be lost.

        Raises TargetGone if the process was dead already.
        """
        self.end_by(_kill_each, lose_unsynced)

    def end_by(self, kill: Callable[[Sequence[psutil.Process]], object], lose_unsynced: bool = False) -> None:
        """Do as ``kill`` does, but let the caller's function end the processes, for instance with their whole host."""
        if lose_unsynced and self._lose is None:
            raise ValueError(f"there is no journal of what {self._description} did not sync")
        if self._process is None or self.is_dead():
            raise TargetGone(self._description)
        doomed = self._family(self._process)
        kill(doomed)
        self._on_kill()
        # They are not our children, so there is no exit status to wait for: look until they are gone.
        _poll_until(lambda: all(_is_dead(process) for process in doomed))
        if lose_unsynced and self._lose is not None:
            self._lose([process.pid for process in doomed])

    def is_dead(self) -> bool:
        """Return whether the process is gone, or a zombie that was not reaped yet."""
        return self._process is None or _is_dead(self._process)

    def pause(self) -> None:
        """Send SIGSTOP and wait until it is stopped; raises TargetGone if it is dead."""
        if self._process is None or self.is_dead():
            raise TargetGone(self._description)
        # The parent first: then it can start no further children, so the list of them is complete.
        self._stop(self._process)
        for child in self._family(self._process)[1:]:
            self._stop(child)
        _poll_until(self.is_paused)

    def resume(self) -> None:
        """Let every process that was stopped go on, unless another pause holds it. Harmless if it is dead or was not
        paused."""
        paused, self._paused = self._paused, []
        for process in paused:
            go_on(process)

    def is_paused(self) -> bool:
        """Return whether the system shows all of it as stopped (state T); processes that died while stopped do not
        count."""
        alive = [process for process in self._paused if not _is_dead(process)]
        return bool(alive) and all(_status(process) == psutil.STATUS_STOPPED for process in alive)

    def _stop(self, process: psutil.Process) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            stop(process)
            self._paused.append(process)

    def _family(self, process: psutil.Process) -> list[psutil.Process]:
        family = [process]
        if self._with_children:
            with contextlib.suppress(psutil.NoSuchProcess):
                family += process.children(recursive=True)
        return family


def _kill_each(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _poll_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _SIGNAL_TIMEOUT_S
    while not holds() and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _status(process: psutil.Process) -> str:
    try:
        return str(process.status())
    except psutil.NoSuchProcess:
        return str(psutil.STATUS_DEAD)


def _is_dead(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
