"""Let one request to the storage service, an object store or HDFS, get no answer."""

from __future__ import annotations

import time
from typing import Self

from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import Fault, OnProgress, Wait
from barrier_tck.faults.fields import Times
from barrier_tck.faults.injectors.injection import Injection
from barrier_tck.faults.injectors.object_stores import fail_request
from barrier_tck.faults.targets import TargetKind, Targets


class FailRequest(Fault, frozen=True, tag="fail_request"):
    """Let one request to the service that holds the checkpoints get no answer: the ``nth`` from now on that changes
    something there. It is lost on its way, or it is carried out and its answer is lost. All others are answered.

    It waits for that request, so it strikes a little after its trigger. Contract (STA-2): the client asks again, and
    that succeeds; no checkpoint and no attempt fails. Who asks again must know its own work: an object that is there
    already, or a file that was moved already, is its own, and counts once. What can be sent only once, as a file that
    HDFS takes in chunks, is not counted.
    """

    nth: Times = 1
    carried_out: bool = False

    label = "fail one request"
    colour = "#b08d2e"
    needs = TargetKind.OBJECT_STORE
    drawn_as = (DrawnAs("fail-request", package="object-store"),)
    on_progress = OnProgress.NOTHING
    waits_for_request = True

    def description(self) -> str:
        how = "is carried out, and its answer is lost" if self.carried_out else "is lost"
        which = "the next request" if self.nth == 1 else f"request {self.nth}"
        return f"{which} to the storage service {how}"

    def inject(self, targets: Targets, wait: Wait = time.sleep) -> Injection:
        """Wait for the request, which is proved at the end of the run."""
        return fail_request(targets.object_store(), self.nth, self.carried_out)

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Draw which part of the request is lost. Which request it is depends on the trigger."""
        return cls(choose.between(aim.requests), choose.chance(_CARRIED_OUT_PER_MILLE))


_CARRIED_OUT_PER_MILLE = 650
"""Of 1,000 such faults, in how many the request is carried out: only then does the repeated request find a change."""
