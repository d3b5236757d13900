"""Measures for how long a machine has held up the processes of a cluster, although they had something to do.

The kernel keeps for each thread how long it waited for a processor (its run delay), and for the machine how long some
process waited for a disk (its pressure). Both grow while a machine is busy with other things, and next to not at all
while processes sleep, because they wait for a message or for each other. So they tell a job that the machine holds up
from one that is stuck.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from barrier_tck.harness.support.wall_clock import disks_awaited_s, threads_waited_s

LOOKS_EVERY_MS = 1_000.0
"""How often is looked; what a thread waited between its last look and its end is not seen."""
_LOOKS_WITH_THE_SAME_PROCESSES = 5
"""After so many looks is asked again which processes there are."""


class MachineWaits:
    """How long the processes of one trial have waited for a processor, and those of the whole machine for a disk.

    At any time each counts once, however many wait. So it is the longest that the job can have been held up.
    """

    def __init__(
        self,
        processes: Callable[[], Sequence[int]],
        waited_s: Callable[[int], Mapping[int, float]] = threads_waited_s,
        disks_awaited_s: Callable[[], float] = disks_awaited_s,
    ) -> None:
        """Take what returns the pids of the processes, what returns for how many seconds each thread of one has waited
        for a processor, and what returns for how many seconds some process has waited for a disk."""
        self.processor_ms = 0.0
        self.disk_ms = 0.0
        self._disks_awaited_s = disks_awaited_s
        self._disks_before_ms = 0.0
        self._find = processes
        self._waited_s = waited_s
        self._looked_ms: float | None = None
        self._processes: Sequence[int] = ()
        self._looks_left = 0
        self._before: dict[tuple[int, int], float] = {}

    def look(self, now_ms: float) -> None:
        """Look if it is time to, by any clock in milliseconds; the first look begins the measurement."""
        before_ms = self._looked_ms
        if before_ms is not None and now_ms - before_ms < LOOKS_EVERY_MS:
            return
        if not self._looks_left:
            self._processes, self._looks_left = self._find(), _LOOKS_WITH_THE_SAME_PROCESSES
        self._looks_left -= 1
        waited = {
            (process, thread): waited_s * 1_000.0
            for process in self._processes
            for thread, waited_s in self._waited_s(process).items()
        }
        disks_ms = self._disks_awaited_s() * 1_000.0
        if before_ms is not None:
            # A number may be that of another thread by now, which has waited for less.
            grown = sum(max(0.0, ms - self._before.get(thread, 0.0)) for thread, ms in waited.items())
            self.processor_ms += min(grown, now_ms - before_ms)
            self.disk_ms += min(disks_ms - self._disks_before_ms, now_ms - before_ms)
        self._looked_ms, self._before, self._disks_before_ms = now_ms, waited, disks_ms
