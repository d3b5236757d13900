"""Snapshot futures: the three forms in which an operator or a backend hands over its asynchronous part.

``FinishedSnapshot`` has its result already, ``DeferredSnapshot`` computes it in ``run``,
``MappedSnapshot`` makes its result from another one's. All keep the contract of
``backend.SnapshotFuture``: the work is done at most once, and ``cancel`` is harmless at any time, from any
thread, and twice (SNP-1, SNP-2).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from threading import Lock
from typing import Any, Generic, TypeVar

from barrier_tck.reference_impl.runtime_errors import JobUsageError, SnapshotCancelled
from barrier_tck.reference_impl.state.backend import SnapshotFuture

ResultT = TypeVar("ResultT")
PartT = TypeVar("PartT")
ResultT_co = TypeVar("ResultT_co", covariant=True)


class FinishedSnapshot(Generic[ResultT_co]):
    """A purely synchronous snapshot: the result is there, so ``cancel`` comes too late and does nothing."""

    __slots__ = ("_value",)

    def __init__(self, value: ResultT_co) -> None:
        self._value = value

    @property
    def done(self) -> bool:
        return True

    def run(self) -> ResultT_co:
        return self._value

    def cancel(self) -> None:
        """Do nothing: nothing is held."""


class _Phase(Enum):
    """Where a deferred snapshot stands; it only ever moves down this list."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled before it ran"


class DeferredSnapshot(Generic[ResultT]):
    """Runs a function, once. ``on_cancel`` is called at most once, and only while there is something to
    cancel.

    A cancel before ``run`` means that the function never runs; ``on_cancel`` must then release what is held.
    A cancel during ``run`` only calls ``on_cancel``: the function has to notice, stop and raise
    SnapshotCancelled. If it returns nevertheless, the cancel came too late: ``run`` gives the result, and its
    caller owns the files.
    """

    __slots__ = ("_cancel_asked", "_function", "_lock", "_on_cancel", "_phase")

    def __init__(self, function: Callable[[], ResultT], on_cancel: Callable[[], None] | None = None) -> None:
        self._function = function
        self._on_cancel = on_cancel
        self._lock = Lock()
        self._phase = _Phase.WAITING
        self._cancel_asked = False

    @property
    def done(self) -> bool:
        """Whether ``run`` ended, with a result or an error."""
        return self._phase is _Phase.DONE

    def run(self) -> ResultT:
        """Run the function; raises SnapshotCancelled after a cancel, JobUsageError when called again."""
        with self._lock:
            if self._phase is _Phase.CANCELLED:
                raise SnapshotCancelled("the snapshot was cancelled before its asynchronous part began")
            if self._phase is not _Phase.WAITING:
                raise JobUsageError(f"this snapshot is {self._phase.value} already; run() is called once")
            self._phase = _Phase.RUNNING
        try:
            return self._function()
        finally:
            # Drop what the function holds: a finished snapshot must not keep a copy of the state alive.
            with self._lock:
                self._phase = _Phase.DONE
                self._function = _already_run
                self._on_cancel = None

    def cancel(self) -> None:
        """Ask the function to stop, or see to it that it never runs."""
        with self._lock:
            if self._phase is _Phase.DONE or self._cancel_asked:
                return
            self._cancel_asked = True
            if self._phase is _Phase.WAITING:
                self._phase = _Phase.CANCELLED
                self._function = _already_run
            on_cancel = self._on_cancel
        # Outside the lock: the callback may take locks of its own, or call back.
        if on_cancel is not None:
            on_cancel()


def _already_run() -> Any:
    raise JobUsageError("this snapshot has run already; run() is called once")


class MappedSnapshot(Generic[ResultT_co]):
    """A snapshot whose result is made from another one's."""

    __slots__ = ("_function", "_snapshot")

    def __init__(self, snapshot: SnapshotFuture[PartT], function: Callable[[PartT], ResultT_co]) -> None:
        self._snapshot: SnapshotFuture[Any] = snapshot
        self._function = function

    @property
    def done(self) -> bool:
        """Whether the other one is done."""
        return self._snapshot.done

    def run(self) -> ResultT_co:
        return self._function(self._snapshot.run())

    def cancel(self) -> None:
        self._snapshot.cancel()
