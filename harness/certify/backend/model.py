"""What two stores must hold: their entries, their snapshots, and what was written since each."""

from __future__ import annotations

from dataclasses import dataclass, field

from barrier_tck.harness.certify.backend import reached, wire
from barrier_tck.harness.certify.backend.calls import Entries, Place
from barrier_tck.harness.certify.engine.violation import Violation

RANGES = ((0, 6), (6, 16))
"""Key groups of the two stores, unless a step lays them out otherwise."""
PLAIN, COMPRESSED = "none", "zstd"
"""How the files of a snapshot may be compressed, as a scope asks for it."""
COMPRESSIONS = (PLAIN, COMPRESSED)
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
    operations: int = 0
    """How often the synchronous part called storage."""
    cancelled: bool = False
    confirmed: bool = False
    handles: tuple[wire.Handle, ...] = ()
    second: tuple[wire.Handle, ...] = ()
    """The second copies of its files, if some have another format (LOC-7)."""
    reuse_from: int = 0
    """The oldest checkpoint whose files it may use; 0: none."""
    compression: str = PLAIN
    """The compression that its store was asked for."""
    writes_before: int = 0
    """How many writes its store had seen when it was taken."""
    later: dict[Place, str] = field(default_factory=dict)
    """Where the store held something else while the snapshot was unfinished, and how that came: a `reached` situation.

    Only places that a snapshot of live tables would take over: those that it holds, and new ones beside them.
    """
    met: dict[str, None] = field(default_factory=dict)
    """Situations that it was in while it was unfinished; they count when it is compared."""
    unfinished_max: int = 1
    """The largest number of the store's snapshots that were unfinished at once, itself among them."""
    compared: bool = False
    writes_until_end: int = 0
    """How many it had seen when the snapshot was complete."""
    after_disturbance: bool = False
    """Whether it was taken after a failure, a cancel or a late word about another one."""


@dataclass(slots=True)
class StoreModel:
    """The content that one store must have, and its snapshots by checkpoint."""

    entries: Entries = field(default_factory=dict)
    snapshots: dict[int, SnapshotModel] = field(default_factory=dict)
    restored: int = 0
    """The checkpoint that this life began with, if a store with these key groups wrote it."""
    writes: list[tuple[Place, bytes | None]] = field(default_factory=list)
    """Every write of this life, oldest first; None: a deletion."""
    written: dict[Place, None] = field(default_factory=dict)
    """Every place that was written in this life or held something at its beginning."""
    disturbed: bool = False
    """Whether a snapshot failed or was cancelled, or a word about one came, since the store was read as a whole."""
    disturbances: int = 0
    """How often that has happened in this life."""
    came_from: dict[str, None] = field(default_factory=dict)
    """In which situations this life began; they count when the store is read as a whole before its first write."""
    late_word: bool = False
    """Whether an older snapshot of this life was confirmed after a newer one."""

    def write(self, place: Place, value: bytes | None) -> None:
        """Set or delete a value."""
        if value is None:
            self.entries.pop(place, None)
        else:
            self.entries[place] = value
        self.writes.append((place, value))
        self.written[place] = None

    def disturb(self) -> None:
        """Note that something happened after which the store must still be usable."""
        self.disturbed = True
        self.disturbances += 1

    def start_with(self, entries: Entries, restored: int = 0) -> None:
        """Start a new life with these entries; ``restored`` is this store's checkpoint that they are of, 0 for none."""
        self.entries = dict(entries)
        self.restored = restored
        self.writes = []
        self.written = dict.fromkeys(entries)
        self.disturbed = False
        self.disturbances = 0
        self.came_from = {}
        self.late_word = False

    def ways_back(self, restored: int, attempt: int) -> dict[str, None]:
        """Return the situations in which a restore of this checkpoint is, at the end of a life with this number."""
        newest = max(self.completed(), default=restored)
        if restored == newest or not self.snapshots[restored].content:
            return {}
        own = [one for one in self.snapshots.values() if one.attempt == attempt]
        came_to_nothing = sum(one.phase == "gone" or one.cancelled for one in own)
        many = came_to_nothing >= reached.MANY_FOR_NOTHING
        return dict.fromkeys((reached.OLDER, reached.OLDER_AFTER_MANY) if many else (reached.OLDER,))

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

    def note_differences(self, snapshot: SnapshotModel, under_way: bool) -> None:
        """Note where the store now holds something else than an unfinished snapshot.

        ``under_way``: its asynchronous part has begun, so what it has read by now is read.
        """
        held = {(name, group) for name, group, _ in snapshot.content}
        for place, _ in self.writes[snapshot.writes_before :]:
            before, now = snapshot.content.get(place), self.entries.get(place)
            if before == now or (place[0], place[1]) not in held or place in snapshot.later:
                continue
            kind = reached.ADDED if before is None else reached.DELETED if now is None else reached.CHANGED
            snapshot.later[place] = kind
            snapshot.met[reached.MEANWHILE if under_way else kind] = None

    def note_end(self, ended: int, how: str) -> None:
        """Note that one of several unfinished snapshots has ended, for those that are still unfinished."""
        for number in self.under_way("taken", "started"):
            other = self.snapshots[number]
            if number != ended and not other.cancelled:
                other.met[f"{how}, {reached.THE_OLDER if ended < number else reached.THE_NEWER}"] = None

    def written_later(self, snapshot: SnapshotModel, place: Place, value: bytes | None) -> bool:
        """Return whether this value was written there after the snapshot was taken.

        A deletion counts only until the snapshot's end, and not for an increment: a lost entry looks the same.
        """
        if value is None and snapshot.reuse_from:
            return False
        end = snapshot.writes_until_end if value is None else len(self.writes)
        return (place, value) in self.writes[snapshot.writes_before : end]
