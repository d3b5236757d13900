"""One barrier stage: the Spark job behind one attempt, run from a thread and cancelled from any."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from pyspark import InheritableThread, SparkContext

from barrier_tck.reference_impl.spark.subtask_process import StatusRow, SubtaskProgram

_MESSAGE_LINES = 2
_log = logging.getLogger(__name__)

StageOutcome = list[StatusRow] | str
"""The rows that the slots returned, or why Spark says that the stage failed."""


class BarrierStage:
    """A gang of slots. ``on_ended`` is called once, on the stage's thread."""

    def __init__(
        self,
        context: SparkContext,
        group: str,
        slots: int,
        program: SubtaskProgram,
        on_ended: Callable[[StageOutcome], None],
    ) -> None:
        """Take the job group, unique per stage, by which it can be cancelled."""
        self._context = context
        self._group = group
        self._slots = slots
        self._program = program
        self._on_ended = on_ended
        self._cancelled = False
        self._thread: Any = None

    def start(self) -> None:
        # In PySpark a thread carries the job group; this kind also releases its counterpart in the JVM.
        self._thread = InheritableThread(target=self._run, session=None)
        self._thread.daemon = True
        self._thread.start()

    def cancel(self) -> None:
        """Ask Spark to end the stage. Call again until it has ended: a job not yet submitted does not hear of it."""
        self._cancelled = True
        self._context.cancelJobGroup(self._group)

    def join(self, timeout_s: float) -> bool:
        """Wait for the stage's thread; returns False if it still runs."""
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            outcome: StageOutcome = self._collect()
        except BaseException as error:  # noqa: BLE001 - of whatever kind: the coordinator decides what follows
            _log.debug("the stage %s failed", self._group, exc_info=True)
            outcome = _in_short(error)
        self._on_ended(outcome)

    def _collect(self) -> StageOutcome:
        if self._cancelled:
            return "cancelled before it was submitted"
        self._context.setJobGroup(self._group, f"{self._group}: {self._slots} subtasks", False)
        # Shown as the stage's name, in Spark's messages too; by default it would be a line of PySpark's code.
        self._context.setLocalProperty("callSite.short", self._group)
        slots = self._context.parallelize(range(self._slots), self._slots)
        rows: list[StatusRow] = slots.barrier().mapPartitions(self._program).collect()
        return rows


def _in_short(error: BaseException) -> str:
    """Return the lines that say what happened, without Py4J's preface and Java's stack."""
    lines = [line.strip() for line in str(error).splitlines()]
    telling = [
        line for line in lines if line and not line.startswith(("An error occurred while calling", "at "))
    ]
    return " ".join(telling[:_MESSAGE_LINES]).removeprefix(": ") or type(error).__name__
