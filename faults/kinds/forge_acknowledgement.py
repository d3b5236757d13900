"""Hand the coordinator an acknowledgement that no subtask of the attempt gave."""

from __future__ import annotations

import time
from typing import Self

from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import Fault, OnProgress, Wait
from barrier_tck.faults.fields import Subtask
from barrier_tck.faults.injectors.forgery import forge_acknowledgement
from barrier_tck.faults.injectors.injection import Injection
from barrier_tck.faults.targets import Forgery, TargetKind, Targets


class ForgeAcknowledgement(Fault, frozen=True, tag="forge_acknowledgement"):
    """Hand the coordinator one acknowledgement that cannot be right, with a state file that was written for it.

    What is wrong with it is its `forgery`: its checkpoint was never triggered, its subtask does not exist, or its
    attempt is not the one that runs. The last two name the newest checkpoint, whatever has become of that.

    Contract (COO-3): the acknowledgement is recognised. It completes nothing, it fails nothing, and the file that it
    names is removed.
    """

    subtask: Subtask
    forgery: Forgery

    label = "forge acknowledgement"
    colour = "#4a5d23"
    needs = TargetKind.MESSAGES
    drawn_as = (DrawnAs("forge", package="messages", weight=2),)
    on_progress = OnProgress.NOTHING

    def description(self) -> str:
        return f"forge an acknowledgement {self.forgery.phrase.format(self.subtask)}"

    def inject(self, targets: Targets, wait: Wait = time.sleep) -> Injection:
        """Forge it, and prove that it was handed over together with its file."""
        messages = targets.messages_of(self.subtask)
        return forge_acknowledgement(messages, f"messages of {self.subtask}", self.forgery, wait)

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Draw what is wrong with it."""
        return cls(aim.subtask, choose.one_of(tuple(Forgery)))
