"""Warm-up of executors, before they are needed.

The first Python task on an executor waits for classes to load and for the Python daemon to start: seconds on
a busy machine, in the middle of a recovery if that is when the executor is first used. So while a job runs, a
task that does nothing is sent to every executor that joins: spare ones at the beginning, replacements of lost
ones later.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from py4j.protocol import Py4JJavaError
from pyspark import InheritableThread, SparkContext

_POLL_S = 0.25
_JOIN_TIMEOUT_S = 2.0
_log = logging.getLogger(__name__)


def _nothing(_rows: Iterable[int]) -> list[int]:
    return []


class ExecutorWarmUp:
    """Watches for executors that join, from ``start`` until ``stop``."""

    def __init__(self, context: SparkContext, group: str) -> None:
        """Take the job group of the warming tasks, unique per warmer."""
        self._context = context
        self._group = group
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start watching; a second call does nothing."""
        if self._thread is None and not self._stopped.is_set():
            self._thread = InheritableThread(target=self._run, session=None)
            self._thread.daemon = True
            self._thread.start()

    def stop(self) -> None:
        """Stop watching, and end a task under way."""
        self._stopped.set()
        if self._thread is not None:
            self._context.cancelJobGroup(self._group)
            self._thread.join(_JOIN_TIMEOUT_S)

    def _run(self) -> None:
        try:
            self._watch()
        except Exception:  # noqa: BLE001 - Spark is stopping, or ended the task: the job does without
            level = logging.DEBUG if self._stopped.is_set() else logging.WARNING
            _log.log(level, "executors are no longer warmed", exc_info=True)

    def _watch(self) -> None:
        self._context.setJobGroup(self._group, "warming executors", False)
        known: list[tuple[str, int]] = []
        while not self._stopped.wait(_POLL_S):
            present = self._executors()
            if any(executor not in known for executor in present):
                try:
                    self._touch(len(present))
                except Py4JJavaError as error:
                    # An executor was lost with its task: what joins in its place is warmed at the next look.
                    _log.debug("a warming task failed: %s", error)
                    continue
            known = present

    def _touch(self, executors: int) -> None:
        """Run an empty task on each: Spark deals tasks out one to an executor at a time."""
        self._context.parallelize(range(executors), executors).mapPartitions(_nothing).collect()

    def _executors(self) -> list[tuple[str, int]]:
        infos = self._context._jsc.sc().statusTracker().getExecutorInfos()  # noqa: SLF001 - PySpark's lacks this
        return sorted((info.host(), info.port()) for info in infos)
