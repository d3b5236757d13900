"""Sequences whose shape is chosen: many unfinished snapshots of a store, changes between them, ends in every order.

Steps that are drawn one by one hardly ever make such sequences. Whatever is drawn here, each snapshot is of a filled
store, and something that it holds changes before its asynchronous part ends; all are run, restored and compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from barrier_tck.harness.certify.backend import steps
from barrier_tck.harness.certify.backend.calls import Place
from barrier_tck.harness.certify.backend.capabilities import CONCURRENT, INCREMENTAL
from barrier_tck.harness.certify.backend.model import COMPRESSIONS, NAMES, RANGES
from barrier_tck.harness.certify.backend.stage import BackendProperty, BackendStage
from barrier_tck.harness.certify.backend.wire import ADDED, CHANGED, StorageFault
from barrier_tck.harness.certify.engine.drawing import play_drawn
from barrier_tck.harness.certify.engine.hunt import Hunt

_KEYS = (b"", b"\x00", b"a", b"a\x00", b"b", b"c", b"\xff\xfe", b"k" * 500)
_ORDERS = ("oldest first", "newest first", "any order", "any order")
_CHANGES = (
    *("put", "put", "delete", "delete", "put_many", "new_key", "new_key", "new_group", "new_name"),
    *("again", "gone", "same", "empty", "scan"),
)
_PARTS_MAX = 3
_AT_ONCE = (2, 2, 3, 4, 6, 9, 16)
"""So many snapshots are begun before most of them end."""
_BASE_GONE = 0.05
"""Probability that an increment must not refer to what was confirmed, although nothing newer was."""
_LATE_WORD = 0.3
"""Probability that word of a snapshot comes after that of the next one, where no two are unfinished at once."""
_FILLER = 60
"""Additional entries of a store whose snapshots are increments."""
_FILES_WANTED = (1, 1, 1, 2, 3, 7, 40)
"""Hints of how many files a snapshot should have; there are fewer key groups than the last one."""
_READ_ONLY = 0.3
"""Probability that a store into which a snapshot is restored is told that it will only be read."""
_WITHOUT_THREADS = 0.25
"""Probability that stores must not have threads of their own."""
_OLDER = 0.8
"""Probability that a store goes on from another snapshot than its newest one, if it has several."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How snapshots end: each word is a way, and one that is named twice is twice as frequent."""

    ends: str
    unfinished_max: int = 16
    """How many snapshots of a store are unfinished at once, at most; one if the backend does not declare more."""
    lives: int = 1
    """How many lives the stores have, at most: at the end of each but the last, both are closed, and go on from an
    older snapshot in most cases."""
    lives_min: int = 1
    how: str = "close"

    def run(self, one: BackendProperty, hunt: Hunt[steps.AnyStep], seed: int, examples: int) -> None:
        assert isinstance(hunt.stage, BackendStage)
        several = CONCURRENT in hunt.stage.declared
        incremental = one.capability == INCREMENTAL
        play_drawn(lambda random: self.sequence(random, several, incremental), hunt, seed, examples)

    def sequence(self, random: Random, several: bool, incremental: bool = False) -> tuple[steps.AnyStep, ...]:
        """Draw a sequence; ``several``: more than one snapshot of a store may be unfinished."""
        return _Drawing(random, self, several, incremental).drawn()


@dataclass(slots=True)
class _Drawing:
    """One sequence while it is drawn, with what the store then holds."""

    random: Random
    shape: Shape
    several: bool
    incremental: bool
    played: list[steps.AnyStep] = field(default_factory=list)
    entries: dict[Place, bytes] = field(default_factory=dict)
    unfinished: list[int] = field(default_factory=list)
    """Snapshots that are taken and neither ended nor given up, oldest first."""
    started: int = 0
    """The one of them whose asynchronous part is in its middle; 0: none."""
    failing: dict[int, None] = field(default_factory=dict)
    """Those whose storage fails."""
    completed: dict[int, dict[Place, bytes]] = field(default_factory=dict)
    """Snapshots that can be restored, and what they hold."""
    contents: dict[int, dict[Place, bytes]] = field(default_factory=dict)
    confirmed: list[int] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    """Completed ones of which the store has not heard yet."""
    newest: int = 0
    reuse_from: int = 1
    """The oldest checkpoint whose files are kept for increments."""
    values: int = 0
    store: int = 0

    def drawn(self) -> tuple[steps.AnyStep, ...]:
        """Draw a sequence."""
        self.store = self.random.randrange(2)
        layout = steps.Layout(
            *(RANGES, self.random.choice(_FILES_WANTED), self.incremental),
            compression=self.random.choice(COMPRESSIONS),
            own_threads=self.random.random() >= _WITHOUT_THREADS,
        )
        if layout != steps.Layout(RANGES):
            self._play(layout)
        self._fill()
        lives = self.random.randint(self.shape.lives_min, self.shape.lives)
        for life in range(lives):
            for _ in range(self.random.randint(1, _PARTS_MAX)):
                self._many_at_once()
            self._compare_all()
            if life < lives - 1:
                self._go_on_from_an_older_one()
        return tuple(self.played)

    # --- snapshots ------------------------------------------------------------------------------------------

    def _many_at_once(self) -> None:
        """Take snapshots with changes between them; end some meanwhile, and then the others, but not always all."""
        count = min(self.random.choice(_AT_ONCE), self.shape.unfinished_max)
        for _ in range(count):
            self._take()
            self._change_something()
            if not self.several:
                self._end(self.unfinished[0])
                self._end_started()
            elif len(self.unfinished) > 1 and self.random.random() < 0.2:
                self._end(self.random.choice(self.unfinished))
            if self.random.random() < 0.2:
                self._play(steps.ReadAll(self.store))
        self._end_many(keep=self.random.choice((0, 0, 1, 2)) if self.several else 0)

    def _end_many(self, keep: int) -> None:
        order = self.random.choice(_ORDERS)
        while len(self.unfinished) > keep:
            position = {"oldest first": 0, "newest first": -1}.get(order)
            if position is None:
                position = self.random.randrange(len(self.unfinished))
            self._end(self.unfinished[position])
            if self.random.random() < 0.3:
                self._change_something()
            if self.completed and self.random.random() < 0.15:
                self._verify(self.random.choice(list(self.completed)))
        if not keep:
            self._end_started()

    def _take(self) -> None:
        if not self.entries:
            self._fill()
        self.newest += self.random.choice((1, 1, 1, 2, 9))
        number, fault, reuse = self.newest, None, 0
        if "fail" in self._ways() and self.random.random() < self._share("fail"):
            fault = StorageFault(self.random.randint(1, 4), self.random.choice(("error", "short", "close")))
            self.failing[number] = None
        if self.incremental and self.random.random() < 0.85:
            newest = max(self.confirmed, default=number)
            if newest + 1 < number and self.random.random() < _BASE_GONE:
                # A newer one completed, of which the store has not heard yet, and the older ones were deleted.
                self.reuse_from = newest + 1
            kept = [each for each in self.confirmed[-3:] if each >= self.reuse_from]
            reuse = self.random.choice(kept) if kept else self.reuse_from
        self._play(steps.Snapshot(self.store, number, fault, reuse))
        self.unfinished.append(number)
        self.contents[number] = dict(self.entries)

    def _ways(self) -> list[str]:
        return self.shape.ends.split()

    def _share(self, way: str) -> float:
        return self._ways().count(way) / len(self._ways())

    def _end(self, number: int) -> None:
        """End one of the unfinished snapshots in a way of the shape."""
        ways = [way for way in self._ways() if way != "fail"]
        way = self.random.choice(ways)
        if number in self.failing or (way == "start" and self.started):
            way = "run"
        if way == "start":
            # It stays among the unfinished ones, and goes on to its end later.
            self._play(steps.Start(self.store, number, self.random.randint(1, 4)))
            self.unfinished.remove(number)
            self.started = number
            self._change_something()
            if self.random.random() < 0.5:
                self._end_started()
            return
        if way in ("cancel", "abort"):
            self._call_off(way, number)
            if self.random.random() < 0.7:
                self._run(number)
            self.unfinished.remove(number)
            return
        self._run(number)
        self.unfinished.remove(number)
        self._after(number)

    def _run(self, number: int) -> None:
        """Run an asynchronous part, now and then on the thread that writes."""
        self._play(steps.Run(self.store, number, here=self.random.random() < 0.1))

    def _call_off(self, way: str, number: int) -> None:
        off: steps.AnyStep = steps.AbortSnapshot(self.store, number)
        if way == "cancel":
            off = steps.Cancel(self.store, number, elsewhere=self.random.random() < 0.5)
        self._play(*[off] * self.random.choice((1, 1, 2)))

    def _end_started(self) -> None:
        if not self.started:
            return
        number, self.started = self.started, 0
        called_off = self.random.random() < self._share("cancel") + self._share("abort")
        if called_off:
            self._call_off(self.random.choice(("cancel", "abort")), number)
        self._play(steps.Finish(self.store, number))
        if not called_off:
            self._after(number)

    def _after(self, number: int) -> None:
        """Send word of the checkpoint: confirm it, abort it, or nothing."""
        content = self.contents.pop(number)
        if number in self.failing:
            # Whether storage has failed depends on how often the backend calls it.
            self._play(steps.AbortSnapshot(self.store, number))
            return
        word = self.random.choice(("confirm", "confirm", "confirm", "", "", "abort"))
        if word == "abort" and "abort" in self._ways():
            self._play(steps.AbortSnapshot(self.store, number))
            return
        self.completed[number] = content
        if self.incremental and not self.several and self.random.random() < _LATE_WORD:
            # Snapshots that end one after another give words out of order only if one is held back.
            self.late.append(number)
        elif word == "confirm" or self.incremental:
            self._confirm(number)
            while self.late:
                self._confirm(self.late.pop())
        if "cancel" in self._ways() and self.random.random() < 0.2:
            self._play(steps.Cancel(self.store, number))

    def _confirm(self, number: int) -> None:
        self._play(*[steps.Confirm(self.store, number)] * self.random.choice((1, 1, 2)))
        self.confirmed.append(number)

    def _compare_all(self) -> None:
        """Run all that is unfinished, and restore and compare everything, in any order."""
        self._end_started()
        for number in self.random.sample(self.unfinished, len(self.unfinished)):
            self._play(steps.Run(self.store, number))
            self.unfinished.remove(number)
            self._after(number)
        self._play(steps.ReadAll(self.store))
        for number in self.random.sample(list(self.completed), len(self.completed)):
            self._verify(number)
        self._play(steps.ReadAll(self.store))

    def _verify(self, number: int) -> None:
        """Restore a snapshot into a store of its own, perhaps with another compression, perhaps only to read it."""
        compression = self.random.choice(("", *COMPRESSIONS))
        read_only = self.random.random() < _READ_ONLY
        self._play(steps.Verify(self.store, number, compression=compression, read_only=read_only))

    def _go_on_from_an_older_one(self) -> None:
        """Close both stores; restore this one from any of its snapshots, and read it before it is written."""
        if not self.completed:
            return
        *older, number = sorted(self.completed)
        if older and self.random.random() < _OLDER:
            number = self.random.choice(older)
        chosen = (number, 0) if self.store == 0 else (0, number)
        compression = self.random.choice(("", *COMPRESSIONS))
        self._play(steps.Restart(chosen, self.shape.how, compression), steps.ReadAll(self.store))
        self.entries = dict(self.completed[number])
        self.confirmed, self.reuse_from = [number], 1
        self.contents.clear()
        self.late.clear()

    # --- writes ---------------------------------------------------------------------------------------------

    def _value(self) -> bytes:
        self.values += 1
        text = b"%05d" % self.values
        return text * 14_000 if self.values % 40 == 0 else text * self.random.choice((1, 1, 1, 3))

    def _groups(self) -> tuple[int, ...]:
        start, end = RANGES[self.store]
        return start, start + 1, end - 1

    def _fill(self) -> None:
        """Write something into several states and key groups."""
        for name in self.random.sample(NAMES, self.random.randint(1, len(NAMES))):
            for group in self.random.sample(self._groups(), self.random.randint(1, 3)):
                keys = self.random.sample(_KEYS, self.random.randint(2, 5))
                self._put_many([(name, group, key) for key in keys])
        if self.incremental:
            # Of a small state, an increment is no smaller than a full snapshot.
            group = self._groups()[0]
            self._put_many([(NAMES[0], group, b"filler %02d" % number) for number in range(_FILLER)])

    def _put_many(self, places: list[Place]) -> None:
        values = tuple(self._value() for _ in places)
        groups, keys = tuple(place[1] for place in places), tuple(place[2] for place in places)
        self._play(steps.PutMany(self.store, places[0][0], groups, keys, values))
        self.entries.update(zip(places, values, strict=True))

    def _put(self, place: Place, value: bytes | None = None) -> None:
        value = self._value() if value is None else value
        self._play(steps.Put(self.store, *place, value))
        self.entries[place] = value

    def _delete(self, place: Place) -> None:
        self._play(steps.Delete(self.store, *place))
        self.entries.pop(place, None)

    def _change_something(self) -> None:
        for _ in range(self.random.randint(1, 3)):
            if self.entries:
                self._changed(self.random.choice(_CHANGES), self.random.choice(list(self.entries)))
            else:
                self._fill()

    def _changed(self, change: str, held: Place) -> None:
        """Change an entry that the store holds, or add some beside it."""
        name, group, key = held
        match change:
            case "put":
                self._put(held)
            case "delete":
                self._delete(held)
            case "put_many":
                near = [place for place in self.entries if place[0] == name]
                chosen = self.random.sample(near, min(len(near), 3))
                self._put_many([*chosen, (name, group, self.random.choice(_KEYS)), held])
            case "new_key":
                self._put((name, group, b"new %d" % self.values))
            case "new_group":
                self._put((name, self.random.choice(self._groups()), key))
            case "new_name":
                self._put((self.random.choice(NAMES), group, key))
            case "again":
                self._delete(held)
                self._put(held)
            case "gone":
                place = (name, group, b"gone %d" % self.values)
                self._put(place)
                self._delete(place)
            case "same":
                self._put(held, self.entries[held])
            case "scan":
                self._scan_meanwhile(held)
            case _:
                for place in [each for each in self.entries if each[:2] == (name, group)]:
                    self._delete(place)

    def _scan_meanwhile(self, held: Place) -> None:
        """Read scans of a key group while one of its entries changes, and one is added and deleted again."""
        name, group, key = held
        self._play(steps.DisturbedScan(self.store, name, group, b"scan %d" % self.values, key, b"scanned"))
        self.entries[name, group, b"scan %d" % self.values] = ADDED
        self.entries[held] = CHANGED
        self.entries.pop((name, group, b"scanned"), None)

    def _play(self, *played: steps.AnyStep) -> None:
        self.played += played
