"""Candidates that misbehave as a process: a certifier must survive each and say what it did."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence

from reference_impl.protocol.messages import StateHandle
from reference_impl.state.backend import KeyedStateStore, StateReader, StateScope
from reference_impl.state.heap import HeapStateBackend, HeapStateStore

no_backend = 7
"""What is no backend at all."""


class RaisesWhenMade(HeapStateBackend):
    """Cannot be made."""

    def __init__(self) -> None:
        """Raise."""
        raise RuntimeError("no licence key found")


class ExitsWhenMade(HeapStateBackend):
    """Ends its process."""

    def __init__(self) -> None:
        """Exit."""
        sys.exit(7)


class HangsWhenOpened(HeapStateBackend):
    """Never returns."""

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Wait for what never comes."""
        threading.Event().wait()
        raise AssertionError("unreachable")


class EatsMemory(HeapStateBackend):
    """Asks for more than a process may have."""

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Take 64 GiB, in pieces."""
        eaten = [bytearray(1 << 26) for _ in range(1024)]
        raise AssertionError(f"got {len(eaten)} pieces")


class ForksAndPrints(HeapStateBackend):
    """Is right, but noisy, and a fork of it goes on as if it were the one."""

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Print, fork, go on in both."""
        sys.stdout.write("opening " * 1000)
        sys.stdout.flush()
        os.write(1, b"\xff\x00 raw bytes on standard output")
        if os.fork() == 0:
            # The copy believes itself to be the process; it has no connection any more.
            return HeapStateStore(scope)
        return super().open(scope, restore, reader)


class LeavesAProcess(HeapStateBackend):
    """Starts a helper in a session of its own, and never ends it."""

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Start the helper."""
        subprocess.Popen(
            [sys.executable, "-c", "import threading; threading.Event().wait()"], start_new_session=True
        )
        return super().open(scope, restore, reader)


class HasNoOpen:
    """Is no backend."""

    name = "no-open"
