"""What two stores must hold: their entries, their snapshots, and what was written since each."""

from __future__ import annotations

from dataclasses import dataclass, field

from barrier_tck.harness.certify.backend import wire
from barrier_tck.harness.certify.backend.calls import Entries, Place
from barrier_tck.harness.certify.engine.violation import Violation

RANGES = ((0, 6), (6, 16))
"""Key groups of the two stores, unless a step lays them out otherwise."""
NAMES = ("totals", "a/b c", "größe")
"""Names of states; all are read when a snapshot is compared."""


class WrongRead(Violation):
    """A read gave something else than it must; ``place`` says where."""

    def __init__(self, message: str, clause: str, place: Place | None = None) -> None:
        super().__init__(message, clause)
        self.place = place


@dataclass(slots=True)
class SnapshotModel:
    """One snapshot of one store."""

    content: Entries
    attempt: int = 0
    """The number of the store's life in which it was taken."""
    phase: str = "taken"
    """``taken``, ``started``, ``completed``, or ``gone``."""
    done: bool = False
    """Whether nothing was left for the asynchronous part."""
    cancelled: bool = False
    confirmed: bool = False
    handles: tuple[wire.Handle, ...] = ()
    reuse_from: int = 0
    """The oldest checkpoint whose files it may use; 0: none."""
    writes_before: int = 0
    """How many writes its store had seen when it was taken."""
    writes_until_end: int = 0
    """How many it had seen when the snapshot was complete."""


@dataclass(slots=True)
class StoreModel:
    """The content that one store must have, and its snapshots by checkpoint."""

    entries: Entries = field(default_factory=dict)
    snapshots: dict[int, SnapshotModel] = field(default_factory=dict)
    restored: int = 0
    """The checkpoint that this life began with, if a store with these key groups wrote it."""
    writes: list[tuple[Place, bytes | None]] = field(default_factory=list)
    """Every write of this life, oldest first; None: a deletion."""

    def write(self, place: Place, value: bytes | None) -> None:
        """Set or delete a value."""
        if value is None:
            self.entries.pop(place, None)
        else:
            self.entries[place] = value
        self.writes.append((place, value))

    def start_with(self, entries: Entries, restored: int = 0) -> None:
        """Start a new life with these entries; ``restored`` is this store's checkpoint that they are of, 0 for none."""
        self.entries = dict(entries)
        self.restored = restored
        self.writes = []

    def completed(self) -> list[int]:
        """Return the checkpoints from which it can be restored, in ascending order."""
        return sorted(number for number, one in self.snapshots.items() if one.phase == "completed")

    def reusable(self, attempt: int) -> list[int]:
        """Return the checkpoints whose files a snapshot in this life may reuse, in ascending order."""
        confirmed = [n for n, one in self.snapshots.items() if one.confirmed and one.attempt == attempt]
        own = [self.restored] if self.restored else []
        return sorted(number for number in (*own, *confirmed) if self.snapshots[number].phase == "completed")

    def under_way(self, *phases: str) -> list[int]:
        """Return the checkpoints whose snapshots are in one of these phases, in ascending order."""
        return sorted(number for number, one in self.snapshots.items() if one.phase in phases)

    def written_later(self, snapshot: SnapshotModel, place: Place, value: bytes | None) -> bool:
        """Return whether this value was written there after the snapshot was taken."""
        return (place, value) in self.writes[snapshot.writes_before :]
