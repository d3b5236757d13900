"""Kill the storage service, an object store or HDFS, in the middle of an upload."""

from __future__ import annotations

import time
from typing import Self

from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import Fault, OnProgress, Wait
from barrier_tck.faults.fields import Duration
from barrier_tck.faults.injectors.injection import Injection
from barrier_tck.faults.injectors.object_stores import kill_in_upload
from barrier_tck.faults.targets import TargetKind, Targets
from barrier_tck.faults.upload_moment import UploadMoment


class KillObjectStore(Fault, frozen=True, tag="kill_object_store"):
    """Kill the server that holds the checkpoints (SIGKILL) in the middle of an upload; start it again ``duration_ms``
    later with what it had stored. It is an object store's, and the upload has parts; or it is a node of HDFS.

    ``moment`` says how far the upload had come: a torn part, every part and no object, or an object whose upload was
    not answered. In HDFS that is a data node with half of a file, which is never closed, and a name node before or
    after it has renamed what was written beside. It waits for an upload, so aim it at a time, or at a point at which
    others still upload. Contract (SNP-3): no handle is acknowledged for an object that is not there; a complete
    checkpoint stays complete. No object and no part of an upload is left that nothing refers to.
    """

    duration_ms: Duration
    moment: UploadMoment = UploadMoment.PART

    label = "kill storage service"
    colour = "#8c2d04"
    needs = TargetKind.OBJECT_STORE
    drawn_as = (DrawnAs("kill-object-store", package="object-store"),)
    on_progress = OnProgress.STOPS
    waits_for_upload = True
    shown_as = "storage service down"

    def description(self) -> str:
        return f"kill storage service {self.moment.phrase}, down for {self.duration_ms} ms"

    def inject(self, targets: Targets, wait: Wait = time.sleep) -> Injection:
        """Kill it in the next upload, and prove that it is dead."""
        return kill_in_upload(targets.object_store(), self.moment, wait)

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Draw for how long it is down, and how far the upload has come."""
        return cls(choose.between(aim.duration_ms), choose.one_of(tuple(UploadMoment)))
