"""What a subtask reads behind its own terminal barrier and ahead of those of others (COO-5, CHL-5).

A channel that is recorded where it is read must be read up to its barrier, or no savepoint with which the job is
stopped could ever be whole: round a loop the barrier comes back only after it was sent, and under Chandy-Lamport every
channel is like that. What comes until then is in the savepoint as channel state. It is processed here only if the
savepoint fails and the job goes on.
"""

from __future__ import annotations

from barrier_tck.reference_impl.operators.api import Payload

Withheld = tuple[int, Payload | None]
"""The number of a channel, and a batch, or None for the end of its input."""


class WithheldInput:
    """The input that one subtask withholds from its operators."""

    def __init__(self) -> None:
        self.begun = False
        """Whether what is read is withheld now."""
        self._kept: list[Withheld] = []

    def begin(self) -> None:
        """Withhold what is read from now on."""
        self.begun = True

    def add(self, channel: int, payload: Payload | None) -> None:
        """Keep a batch, or that the input of the channel has ended."""
        self._kept.append((channel, payload))

    def take(self) -> list[Withheld]:
        """Withhold no more, and return what was kept, in the order in which it was read."""
        self.begun = False
        kept, self._kept = self._kept, []
        return kept
