"""Damage a subtask's state in durable storage."""

from __future__ import annotations

import time
from typing import Self

from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import CopiesHit, CopyPlace, Fault, Wait
from barrier_tck.faults.fields import Subtask
from barrier_tck.faults.injectors.copies import damage_copies
from barrier_tck.faults.injectors.injection import Injection
from barrier_tck.faults.targets import OF_EVERY_COPY, Damage, TargetKind, Targets


class DamagePrimary(Fault, frozen=True, tag="damage_primary"):
    """Damage a subtask's state files of the latest completed checkpoint in durable storage.

    Contract (LOC-5, REC-4): an intact local copy serves; without one an older checkpoint is restored or the job
    fails with what was tried, as configured. ``damage`` is missing, truncated, bit_flipped or partial.
    """

    subtask: Subtask
    damage: Damage = Damage.BIT_FLIPPED

    label = "damage primary copy"
    colour = "#8f4f1f"
    needs = TargetKind.STORAGE
    drawn_as = (DrawnAs("damage-primary", package="storage", weight=1),)

    @property
    def copies_hit(self) -> CopiesHit:
        """Return the subtask's part of the checkpoint."""
        return CopiesHit(CopyPlace.DURABLE, self.subtask, self.damage)

    def problem(self) -> str | None:
        """Refuse damage that only a local copy can have."""
        if self.damage in OF_EVERY_COPY:
            return None
        *others, last = [repr(damage.value) for damage in OF_EVERY_COPY]
        return f"damage is {self.damage.value!r}, which only a local copy can have; use {', '.join(others)} or {last}"

    def description(self) -> str:
        return f"primary copy of {self.subtask} {self.damage.phrase}"

    def inject(self, targets: Targets, wait: Wait = time.sleep) -> Injection:
        """Damage the files, and prove that none is intact."""
        copies = targets.primary_of(self.subtask)
        return damage_copies(copies, f"durable copy of {self.subtask}", self.damage, wait)

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Draw what is wrong with the part of the subtask that the aim names."""
        return cls(aim.subtask, choose.one_of(aim.damages))
