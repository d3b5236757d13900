"""Factories that a third party might name; each is wrong in its own way."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Sequence

from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.system.job_view import JobView
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.state.backend import KeyedStateStore, StateBackend, StateReader, StateScope
from barrier_tck.reference_impl.state.heap import HeapStateBackend
from tests.harness.fake_system import FakeSystem

NO_FACTORY = 3


def raises() -> FakeSystem:
    raise ZeroDivisionError("nothing to divide by")


def exits() -> FakeSystem:
    sys.exit(0)


def hangs() -> FakeSystem:
    """Wait for something that never comes, and catch everything that an ordinary handler can catch."""
    while True:
        with contextlib.suppress(Exception):
            threading.Event().wait()


def makes_a_class() -> type[FakeSystem]:
    return FakeSystem


class Halfway:
    """Has a name and a world, but cannot run anything."""

    name = "halfway"
    world = "simulated"


class Exiting(FakeSystem):
    """Ends the program in the middle of a trial."""

    def __init__(self) -> None:
        super().__init__(lambda plan: sys.exit(0))


class Quitting(FakeSystem):
    """In the middle of a trial, raises an error that no ordinary handler catches."""

    class Quit(BaseException):
        """Neither an Exception nor a SystemExit."""

    def __init__(self) -> None:
        super().__init__(self._quit)

    def _quit(self, plan: TrialPlan) -> Verdict:
        raise self.Quit("enough")


class ExitingAtItsJob(FakeSystem):
    """Ends the program when it is asked for the job of a plan."""

    def job(self, plan: TrialPlan) -> JobView:
        sys.exit(0)


class ExitingAtTheEnd(FakeSystem):
    """Ends the program when it is closed."""

    def close(self) -> None:
        sys.exit(0)


def vanishes() -> FakeSystem:
    """End the process without any message."""
    os._exit(0)


class Vanishing(FakeSystem):
    """Ends the process in the middle of the second trial."""

    def __init__(self) -> None:
        super().__init__(lambda plan: os._exit(0) if self.runs > 1 else Verdict.VALID)


class Right(ReferenceSimulated):
    """Does nothing wrong."""


class Aborting(FakeSystem):
    """Crashes the process, as a broken library does."""

    def __init__(self) -> None:
        super().__init__(lambda plan: os.abort())


class VanishingBackend:
    """A state backend that ends the process that opens it."""

    name = "vanishing"
    capabilities = HeapStateBackend.capabilities

    def open(self, scope: StateScope, restore: Sequence[object], reader: object) -> KeyedStateStore:
        os._exit(0)


class ExitingBackend:
    """A state backend that ends the program that opens it, with SystemExit."""

    name = "exiting"
    capabilities = HeapStateBackend.capabilities

    def open(self, scope: StateScope, restore: Sequence[object], reader: object) -> KeyedStateStore:
        sys.exit(0)


class SleepingBackend(HeapStateBackend):
    """A state backend whose restore never ends, and that catches every ordinary error meanwhile."""

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        if restore:
            hangs()
        return super().open(scope, restore, reader)


class DeadlockedBackend(HeapStateBackend):
    """A state backend whose restore stands still where no signal reaches it, as in a library."""

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        if restore:
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
            hangs()
        return super().open(scope, restore, reader)


def hanging_backend() -> StateBackend:
    """Never make one."""
    hangs()
    raise AssertionError("it never returns")
