"""What a check may do with a candidate: call its process, and ask for the number of its stores' current life.

``comparison.Session`` implements it; checks that open a store of their own (``declared_capabilities``,
``leftovers``) need no more of a session.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from barrier_tck.harness.certify.backend import wire

Place = tuple[str, int, bytes]
"""(state name, key group, key)."""
Entries = dict[Place, bytes]
"""What a store holds."""
Broken = str | None
"""What is wrong, to follow the name of a store or of a capability in a sentence; None if nothing is wrong."""
CHECKED_STORE = 9
"""Number of the store that is opened for a check."""


class CandidateCalls(Protocol):
    """Calls to one candidate's process."""

    attempt: int
    """The number of the stores' current life, from 0; a store that is opened for a check gets the next number."""

    def call(self, request: wire.AnyRequest) -> Any:
        """Send a request to the process; raises what a candidate's call raises."""

    def run(self, request: wire.EndingRequest) -> wire.Ran:
        """Run or finish an asynchronous part."""

    def resources(self, settle: bool = True) -> wire.Held:
        """Return what the process holds: descriptors, threads, memory and more."""

    def in_another_process(self) -> AbstractContextManager[CandidateCalls]:
        """Give calls to a process of their own, with another hash seed and empty directories."""
