"""What can be hit on a real cluster: executor JVMs and Python workers, by process id, with SIGKILL."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping

import psutil

from faults.targets import NoTargets, TargetGone
from reference_impl.ids import SubtaskId
from reference_impl.spark.observer import SubtaskProcess

_DEATH_TIMEOUT_S = 5.0


class KilledProcess:
    """A process of this machine as a fault target; implements ``faults.targets.ProcessTarget``."""

    def __init__(
        self, pid: int, description: str, on_kill: Callable[[], None], with_children: bool = False
    ) -> None:
        """Take hold of a process; ``on_kill`` is called right after the signal was sent.

        ``with_children`` also kills what it started: Python workers outlive their executor's JVM for up to a
        quarter of a second, but not the container or host that an executor dies with.
        """
        self._description = description
        self._on_kill = on_kill
        self._with_children = with_children
        try:
            self._process: psutil.Process | None = psutil.Process(pid)
        except psutil.NoSuchProcess:
            self._process = None

    @property
    def description(self) -> str:
        """Return what is hit, for the fault log."""
        return self._description

    def kill(self, lose_unsynced: bool = False) -> None:
        """Send SIGKILL and wait for the death; a machine's unsynced writes cannot be lost here.

        Raises TargetGone if the process was dead already.
        """
        if lose_unsynced:
            raise ValueError("unsynced writes can be lost in the simulator only")
        if self._process is None or self.is_dead():
            raise TargetGone(self._description)
        doomed = [self._process]
        if self._with_children:
            with contextlib.suppress(psutil.NoSuchProcess):
                doomed += self._process.children(recursive=True)
        for process in doomed:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._on_kill()
        deadline = time.monotonic() + _DEATH_TIMEOUT_S
        # Not children of ours, so there is no exit status to wait for: look until they are gone.
        while not all(_is_dead(process) for process in doomed) and time.monotonic() < deadline:
            time.sleep(0.002)

    def is_dead(self) -> bool:
        """Tell whether the process is gone, or a zombie that nobody has reaped yet."""
        return self._process is None or _is_dead(self._process)


def _is_dead(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class SparkTargets(NoTargets):
    """Hands out targets; implements ``faults.targets.Targets``."""

    def __init__(
        self, processes: Callable[[], Mapping[SubtaskId, SubtaskProcess]], on_kill: Callable[[], None]
    ) -> None:
        """Look subtasks up in what ``processes()`` says at that moment."""
        self._processes = processes
        self._on_kill = on_kill

    def executor_of(self, subtask: str) -> KilledProcess | None:
        """Return the executor JVM that hosts a subtask now."""
        where = self._processes().get(SubtaskId.parse(subtask))
        if where is None or not where.executor_pid:
            return None
        text = f"executor {where.executor_id} (pid {where.executor_pid}) on {where.host}"
        return KilledProcess(where.executor_pid, text, self._on_kill, with_children=True)

    def worker_of(self, subtask: str) -> KilledProcess | None:
        """Return the Python worker that runs a subtask now."""
        where = self._processes().get(SubtaskId.parse(subtask))
        if where is None:
            return None
        text = f"Python worker of {subtask} (pid {where.worker_pid}) on {where.host}"
        return KilledProcess(where.worker_pid, text, self._on_kill)

    def coordinator(self) -> None:
        """Return None: the coordinator lives in the driver, which is this process."""
        return
