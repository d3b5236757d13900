"""What can be hit on a real cluster: executor JVMs and Python workers, by process id, with SIGKILL."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping

import psutil

from faults.targets import NoTargets, TargetGone
from harness.suts.spark_disks import JobDisks
from harness.suts.state_copies import LocalCopies, PrimaryCopies
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


class LostHost:
    """An executor and the local copies on its worker's disk: what a machine takes with it."""

    def __init__(self, executor: KilledProcess, host: str, disks: JobDisks) -> None:
        """Take the executor's process and the disks of the job."""
        self._executor = executor
        self._host = host
        self._disks = disks

    @property
    def description(self) -> str:
        """Return what is hit, for the fault log."""
        return f"host {self._host}: its disk, and {self._executor.description}"

    def kill(self, lose_unsynced: bool = False) -> None:
        """Kill the executor with all it started, then wipe the disk; raises TargetGone if it was dead already."""
        self._executor.kill(lose_unsynced)
        self._disks.wipe(self._host)

    def is_dead(self) -> bool:
        """Tell whether the executor is gone, and nothing is left of the job on the disk."""
        return self._executor.is_dead() and self._host not in self._disks.directories()


def _is_dead(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class SparkTargets(NoTargets):
    """Hands out targets; implements ``faults.targets.Targets``."""

    def __init__(
        self,
        processes: Callable[[], Mapping[SubtaskId, SubtaskProcess]],
        on_kill: Callable[[], None],
        disks: JobDisks,
        primaries: Callable[[str], PrimaryCopies],
        local_recovery: bool,
    ) -> None:
        """Look subtasks up in what ``processes()`` says at that moment; ``disks`` are the workers' own."""
        self._processes = processes
        self._on_kill = on_kill
        self._disks = disks
        self._primaries = primaries
        self._local_recovery = local_recovery

    def host_of(self, subtask: str) -> LostHost | None:
        """Return the worker's machine on which a subtask's executor runs now."""
        executor = self.executor_of(subtask)
        where = self._processes().get(SubtaskId.parse(subtask))
        if executor is None or where is None:
            return None
        return LostHost(executor, where.host, self._disks)

    def local_copies_of(self, subtask: str) -> LocalCopies | None:
        """Return the copies of a subtask on the workers' disks, with local recovery on."""
        return self._disks.copies_of(subtask) if self._local_recovery else None

    def primary_of(self, subtask: str) -> PrimaryCopies:
        """Return a subtask's part of the latest completed checkpoint."""
        return self._primaries(subtask)

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
