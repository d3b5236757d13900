"""The events of the machine of a loop, frozen: messages of members, and its timer."""

from __future__ import annotations

import msgspec

from barrier_tck.reference_impl.ids import AttemptNumber
from barrier_tck.reference_impl.protocol.messages import LoopCounted, LoopInputEnded, SubtaskRunning


class WaveDue(msgspec.Struct, frozen=True):
    """Outcome of ``RestLoop``: the pause before the next wave is over."""

    attempt: AttemptNumber
    loop: str

    @property
    def name(self) -> str:
        """Return what the timer is called; an older attempt's timer is another one."""
        return f"wave-{self.loop}-{self.attempt}"


LoopEvent = SubtaskRunning | LoopInputEnded | LoopCounted | WaveDue
