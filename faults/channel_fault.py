"""What all faults of one connection have in common: its ends, and how it is disturbed, proved and healed."""

from __future__ import annotations

import time
from typing import ClassVar

from barrier_tck.faults.fault import Fault, Wait
from barrier_tck.faults.fields import Receiver, Subtask
from barrier_tck.faults.injectors.connections import disturb
from barrier_tck.faults.injectors.injection import Injection, skipped
from barrier_tck.faults.targets import Direction, Impairment, TargetKind, Targets

_ARROWS = {Direction.FORWARD: "→", Direction.BACKWARD: "←", Direction.BOTH: "↔"}


class ChannelFault(Fault, frozen=True):
    """Disturbs the connection between two subtasks, or a subtask's to the coordinator."""

    sender: Subtask
    receiver: Receiver

    needs: ClassVar[TargetKind] = TargetKind.CHANNEL
    shown_as: ClassVar[str] = "connection disturbed"

    def impairment(self) -> Impairment:
        """Return what is done to the connection."""
        raise NotImplementedError

    @property
    def link(self) -> tuple[str, str]:
        return self.sender, self.receiver

    def inject(self, targets: Targets, wait: Wait = time.sleep) -> Injection:
        """Disturb the connection, and those that are opened later between the same ends."""
        link = targets.link(self.sender, self.receiver)
        if link is None:
            return skipped(f"connection from {self.sender} to {self.receiver}")
        return disturb((link,), self.impairment(), wait)

    def connection(self, direction: Direction) -> str:
        """Return the connection as a phrase, for instance ``source[0] → totals[1]``."""
        return f"{self.sender} {_ARROWS[direction]} {self.receiver}"
