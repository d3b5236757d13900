"""Make the storage service, an object store or HDFS, slow."""

from __future__ import annotations

import time
from typing import Self

from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import Fault, OnProgress, Wait
from barrier_tck.faults.fields import Duration
from barrier_tck.faults.injectors.injection import Injection
from barrier_tck.faults.injectors.object_stores import disturb_connections
from barrier_tck.faults.latency import Latency
from barrier_tck.faults.targets import Direction, TargetKind, Targets


class DelayObjectStore(Fault, frozen=True, tag="delay_object_store"):
    """Make everything late by ``latency_ms`` that the object store or the HDFS answers which holds the checkpoints, for
    a time.

    Contract: processing does not wait for uploads (SNP-2); the output stays as promised.
    """

    latency_ms: Duration
    duration_ms: Duration

    label = "delay storage service"
    colour = "#5f8f6f"
    needs = TargetKind.OBJECT_STORE
    drawn_as = (DrawnAs("delay-object-store", package="object-store"),)
    on_progress = OnProgress.SLOWS
    shown_as = "storage service slow"

    def description(self) -> str:
        return f"storage service late by {self.latency_ms} ms for {self.duration_ms} ms"

    def inject(self, targets: Targets, wait: Wait = time.sleep) -> Injection:
        """Make it slow."""
        late = Latency(latency_ms=self.latency_ms, direction=Direction.BACKWARD)
        return disturb_connections(targets.object_store(), late, wait)

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Draw how late, and for how long."""
        return cls(choose.between(aim.latency_ms), choose.between(aim.duration_ms))
