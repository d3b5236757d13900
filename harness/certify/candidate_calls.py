"""What a check may do with a candidate: calls to its process, and the life that its store is in.

``comparison.Session`` implements it; checks that open a store of their own (``declared_capabilities``,
``distinctions``) need no more of a session.
"""

from __future__ import annotations

from typing import Any, Protocol

from barrier_tck.harness.certify import candidate_wire as wire

Entries = dict[tuple[str, int, bytes], bytes]
"""What a store holds, by state name, key group and key."""
Broken = str | None
"""What is wrong, in words that follow the name of a store or of a promise; None if nothing is."""
CHECKED_STORE = 9
"""Number of the store that is opened for a check."""


class CandidateCalls(Protocol):
    """Calls to one candidate's process."""

    attempt: int
    """The life of the stores, counted from 0; a store that is opened for a check has the next one."""

    def call(self, request: wire.AnyRequest) -> Any:
        """Send a request to the process; raises what a candidate's call raises."""

    def run(self, request: wire.RunRequest | wire.FinishRequest) -> wire.Ran:
        """Do or finish an asynchronous part."""

    def resources(self) -> wire.Held:
        """Count what the process holds."""
