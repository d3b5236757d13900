"""Leave no room for local copies of a subtask's state."""

from __future__ import annotations

import time
from typing import Self

from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import CopiesHit, CopyPlace, Fault, OnProgress, Wait
from barrier_tck.faults.fields import MaybeTimes, Subtask
from barrier_tck.faults.injectors.copies import refuse_writes
from barrier_tck.faults.injectors.injection import Injection
from barrier_tck.faults.targets import RefusesFiles, TargetKind, Targets

_SOME_FILES = (1, 2)


class FailLocalWrites(Fault, frozen=True, tag="fail_local_writes"):
    """Leave no room on the local disks for further copies of a subtask's state.

    Contract (LOC-2): no checkpoint fails because of it. ``files``: room is missing for so many files only, each in the
    midst of its first write; 0: for all that follow. Contract (LOC-4): a copy that lacks a file is not kept.
    """

    subtask: Subtask
    files: MaybeTimes = 0

    label = "local disk full"
    colour = "#4b6b4a"
    needs = TargetKind.STORAGE
    drawn_as = (DrawnAs("fail-local-writes", package="storage", weight=1),)
    on_progress = OnProgress.NOTHING

    @property
    def copies_hit(self) -> CopiesHit:
        """Return the subtask's further copies."""
        return CopiesHit(CopyPlace.LOCAL, self.subtask)

    def description(self) -> str:
        which = "copies" if not self.files else "1 file" if self.files == 1 else f"{self.files} files"
        return f"no local room for {which} of {self.subtask}"

    def inject(self, targets: Targets, wait: Wait = time.sleep) -> Injection:
        """Leave no room, and prove that a write would fail."""
        copies = targets.local_copies_of(self.subtask)
        if copies is not None and self.files:
            refuses = copies.refuse_files(self.files) if isinstance(copies, RefusesFiles) else None
            if refuses is None:
                return Injection("skipped", copies.description, "the system cannot refuse single files")
            return Injection("fired", copies.description, met=refuses)
        return refuse_writes(copies, f"local copies of {self.subtask}", 1, wait)

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Leave no room for the subtask that the aim names, now and then for some files only."""
        some = choose.chance(aim.some_files_per_mille)
        return cls(aim.subtask, choose.between(_SOME_FILES) if some else 0)
