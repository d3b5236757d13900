"""Let the storage service, an object store or HDFS, refuse requests because there are too many."""

from __future__ import annotations

import time
from typing import Self

from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import Fault, OnProgress, Wait
from barrier_tck.faults.fields import Duration
from barrier_tck.faults.injectors.injection import Injection
from barrier_tck.faults.injectors.object_stores import throttle
from barrier_tck.faults.targets import TargetKind, Targets


class ThrottleObjectStore(Fault, frozen=True, tag="throttle_object_store"):
    """Let the service that holds the checkpoints refuse every request for a time: an object store with 503, SlowDown,
    and the name nodes of HDFS because they have too much to do.

    Contract: requests are repeated, later and later, and not for ever. What still fails fails its checkpoint; the job
    goes on, and checkpoints complete afterwards (REC-6).
    """

    duration_ms: Duration

    label = "throttle storage service"
    colour = "#cc8a1f"
    needs = TargetKind.OBJECT_STORE
    drawn_as = (DrawnAs("throttle-object-store", package="object-store"),)
    on_progress = OnProgress.STOPS
    waits_for_upload = True
    shown_as = "storage service throttles"

    def description(self) -> str:
        return f"storage service refuses requests for {self.duration_ms} ms"

    def inject(self, targets: Targets, wait: Wait = time.sleep) -> Injection:
        """Refuse requests, and prove it by one that was refused."""
        return throttle(targets.object_store(), wait)

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Draw for how long."""
        return cls(choose.between(aim.duration_ms))
