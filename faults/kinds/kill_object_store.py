"""Kill the server of the object store in the middle of an upload."""

from __future__ import annotations

import time
from typing import Self

from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import Fault, OnProgress, Wait
from barrier_tck.faults.fields import Duration
from barrier_tck.faults.injectors.injection import Injection
from barrier_tck.faults.injectors.object_stores import kill_in_upload
from barrier_tck.faults.targets import TargetKind, Targets, UploadMoment


class KillObjectStore(Fault, frozen=True, tag="kill_object_store"):
    """Kill the server that holds the checkpoints (SIGKILL) in the middle of an upload in parts; start it again
    ``duration_ms`` later with what it had stored.

    ``moment`` says how far the upload had come: a torn part, or every part and no object. It waits for an upload, so
    aim it at a time, or at a point at which others still upload. Contract (SNP-3): no handle is acknowledged for an
    object that is not there; a complete checkpoint stays complete. No object and no part of an upload is left that
    nothing refers to.
    """

    duration_ms: Duration
    moment: UploadMoment = UploadMoment.PART

    label = "kill object store"
    colour = "#8c2d04"
    needs = TargetKind.OBJECT_STORE
    drawn_as = (DrawnAs("kill-object-store", package="object-store"),)
    on_progress = OnProgress.STOPS
    shown_as = "object store down"

    def told(self) -> str:
        """Return the fault as a phrase."""
        told = {
            UploadMoment.PART: "in a part of an upload",
            UploadMoment.COMPLETION: "before an upload is complete",
        }
        return f"kill object store {told[self.moment]}, down for {self.duration_ms} ms"

    def inject(self, targets: Targets, wait: Wait = time.sleep) -> Injection:
        """Kill it in the next upload, and prove that it is dead."""
        return kill_in_upload(targets.object_store(), self.moment, wait)

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Draw for how long it is down, and how far the upload has come."""
        return cls(choose.between(aim.duration_ms), choose.one_of(tuple(UploadMoment)))
