"""Make the control messages of one subtask arrive twice for a time."""

from __future__ import annotations

import time
from typing import Self

from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import Fault, OnProgress, Wait
from barrier_tck.faults.fields import Duration, MaybeDuration, Subtask
from barrier_tck.faults.injectors.injection import Injection
from barrier_tck.faults.injectors.repetition import repeat_messages
from barrier_tck.faults.targets import Direction, TargetKind, Targets


class RepeatMessages(Fault, frozen=True, tag="repeat_messages"):
    """Make every message about a checkpoint between a subtask and the coordinator arrive twice for a time.

    Acknowledgements, declines, and reports of aborts and commits come twice to the coordinator; triggers, completions
    and aborts come twice to the subtask. The
    second copy comes ``late_ms`` after the first. Other messages may have come in between, and the checkpoint, or
    even the attempt, may be over. What else a subtask reports, for instance that it runs or has consumed its input,
    comes again only if its attempt is over by then, and only in a system whose connections outlive an attempt.

    Contract (COO-3): a repeated message is recognised. It completes nothing, deletes nothing that is in use, and
    fails nothing.
    """

    subtask: Subtask
    late_ms: MaybeDuration
    duration_ms: Duration
    direction: Direction = Direction.BOTH

    label = "repeat messages"
    colour = "#7a6a2f"
    needs = TargetKind.MESSAGES
    drawn_as = (DrawnAs("repeat", package="messages", weight=3),)
    on_progress = OnProgress.NOTHING
    shown_as = "messages repeated"

    def description(self) -> str:
        whose = {Direction.FORWARD: "from", Direction.BACKWARD: "to", Direction.BOTH: "from and to"}
        late = f"{self.late_ms} ms later" if self.late_ms else "at once"
        return f"repeat messages {whose[self.direction]} {self.subtask} {late} for {self.duration_ms} ms"

    def inject(self, targets: Targets, wait: Wait = time.sleep) -> Injection:
        """Begin to repeat, and prove that it is in force."""
        messages = targets.messages_of(self.subtask)
        return repeat_messages(
            messages, f"messages of {self.subtask}", self.direction, float(self.late_ms), wait
        )

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Draw how late the second one comes (every other time: at once), for how long, and which way."""
        late_ms = choose.between(aim.latency_ms) if choose.chance(290) else 0
        return cls(aim.subtask, late_ms, choose.between(aim.duration_ms), choose.one_of(tuple(Direction)))
