"""Damage the local copies of a subtask's state."""

from __future__ import annotations

import time
from typing import Self

from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import CopiesHit, CopyPlace, Fault, OnProgress, Wait
from barrier_tck.faults.fields import Subtask
from barrier_tck.faults.injectors.copies import damage_copies
from barrier_tck.faults.injectors.injection import Injection
from barrier_tck.faults.targets import Damage, TargetKind, Targets


class DamageLocalCopy(Fault, frozen=True, tag="damage_local_copy"):
    """Damage every local copy of a subtask's state that exists now, on any host.

    Contract (LOC-4, LOC-6): the restore takes from durable storage what the copy cannot serve, and nothing fails.
    ``damage`` is missing, truncated, bit_flipped, partial, older_checkpoint, older_attempt, other_key_groups,
    other_lineage, consumed or unreadable.
    """

    subtask: Subtask
    damage: Damage

    label = "damage local copy"
    colour = "#6b5b2a"
    needs = TargetKind.STORAGE
    drawn_as = (DrawnAs("damage-local-copy", package="storage", weight=1),)
    on_progress = OnProgress.NOTHING

    @property
    def copies_hit(self) -> CopiesHit:
        """Return the subtask's copies."""
        return CopiesHit(CopyPlace.LOCAL, self.subtask, self.damage)

    def description(self) -> str:
        return f"local copy of {self.subtask} {self.damage.phrase}"

    def inject(self, targets: Targets, wait: Wait = time.sleep) -> Injection:
        """Damage the copies, and prove that none is intact."""
        copies = targets.local_copies_of(self.subtask)
        return damage_copies(copies, f"local copies of {self.subtask}", self.damage, wait)

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Draw what is wrong with the copies."""
        return cls(aim.subtask, choose.one_of(aim.damages))
