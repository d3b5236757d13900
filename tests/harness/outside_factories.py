"""Factories that a third party might name; each is wrong in its own way."""

from __future__ import annotations

import contextlib
import sys
import threading

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
