"""What a certificate of Spark's state stores compares; grain: a store in Python, right and with one mistake at a time.

Each mistake is one that a provider could make. Whoever leaves out or weakens a comparison finds it here: a mistake is
then seen by nobody, or laid at the door of another promise.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from barrier_tck.faults.targets import WriteTrouble
from barrier_tck.harness.certify.spark_stores import promises
from barrier_tck.harness.certify.spark_stores import store_steps as steps
from barrier_tck.harness.certify.spark_stores.damaged_files import HOW
from barrier_tck.harness.certify.spark_stores.executor import Pair
from barrier_tck.harness.certify.spark_stores.java_process import Died, Raised
from barrier_tck.harness.certify.spark_stores.layouts import (
    LAYOUTS,
    MANY,
    PLAIN,
    PREFIXED,
    RANGED,
    Family,
    Key,
)
from barrier_tck.harness.certify.spark_stores.session import StoreSession
from barrier_tck.harness.certify.spark_stores.store_hunting import play
from barrier_tck.harness.certify.spark_stores.store_model import Content
from barrier_tck.harness.certify.spark_stores.store_processes import StoreProcesses
from barrier_tck.harness.certify.store_models import Violation
from barrier_tck.harness.streaming.disturbed_writes import DisturbedWrites

A, B, C, OTHER = (0, "a"), (0, "b"), (5, "a"), (-1, "a")


class Store:
    """A right store: a file with everything for each version, of which maintenance keeps those that are retained."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.files = machine.checkpoints
        self.families = machine.families
        self.version, self.content = 0, self.nothing()

    def nothing(self) -> Content:
        return {family.name: {} for family in self.families}

    # --- versions -------------------------------------------------------------------------------------------

    def begin(self, version: int, to_write: bool = True) -> None:
        self.version, self.content = version, self.load(version)

    def load(self, version: int) -> Content:
        if not version:
            return self.nothing()
        try:
            saved = json.loads((self.files / f"{version}.json").read_text())
        except (OSError, ValueError) as error:
            raise Raised(f"version {version}: {error}") from error
        return {
            family: {(number, text): tuple(values) for (number, text), values in entries}
            for family, entries in saved
        }

    def save(self, version: int, content: Content) -> None:
        saved = [[family, list(map(list, entries.items()))] for family, entries in content.items()]
        self.machine.write(self.files / f"{version}.json", json.dumps(saved))

    def commit(self) -> int:
        self.save(self.version + 1, self.content)
        return self.version + 1

    def abort(self) -> None:
        self.content = self.nothing()

    def maintain(self) -> None:
        for file in sorted(self.files.iterdir(), key=lambda one: int(one.stem))[:-2]:
            file.unlink()

    def close(self) -> None: ...

    # --- rows -----------------------------------------------------------------------------------------------

    def put(self, family: Family, key: Key, value: str) -> None:
        self.content[family.name][key] = (value,)

    def merge(self, family: Family, key: Key, value: str) -> None:
        self.content[family.name][key] = (*self.content[family.name].get(key, ()), value)

    def remove(self, family: Family, key: Key) -> None:
        self.content[family.name].pop(key, None)

    def drop(self, family: Family) -> None:
        self.content[family.name].clear()

    def get(self, family: Family, key: Key) -> str | None:
        return self.content[family.name].get(key, (None,))[0]

    def values(self, family: Family, key: Key) -> tuple[str, ...]:
        return self.content[family.name].get(key, ())

    def iterate(self, family: Family) -> list[Pair]:
        return sorted((key, values[0]) for key, values in self.content[family.name].items())

    def scan(self, family: Family, first: int) -> list[Pair]:
        return [pair for pair in self.iterate(family) if pair[0][0] == first]

    def range(self, family: Family, start: Key, end: Key) -> list[Pair]:
        return [pair for pair in self.iterate(family) if start <= pair[0] < end]

    def evict(self, family: Family, every: int) -> list[Pair]:
        given = self.iterate(family)
        for key, _ in given[every - 1 :: every]:
            self.remove(family, key)
        return given


class Machine:
    """Stands for the JVM in which executors run, and for the storage below them."""

    def __init__(self, store: type[Store], layout: str, directory: Path) -> None:
        self.store, self.families = store, LAYOUTS[layout].families
        self.checkpoints = directory / "checkpoints"
        self.checkpoints.mkdir()
        self.dies = False
        self.memory: dict[str, Content] = {}
        """What executors of one JVM could share, and should not."""
        self.writes = DisturbedWrites(directory / "writes", lambda path: "")

    def session(self) -> StoreSession:
        processes = SimpleNamespace(
            executor=lambda *_: self.store(self),
            disturbed_writes=lambda checkpoints: self.writes,
            kill=self.memory.clear,
            kill_after=self.kill_after,
            replace=lambda: None,
        )
        layout = next(one for one in LAYOUTS.values() if one.families == self.families)
        return StoreSession(cast("StoreProcesses", processes), layout, self.checkpoints, disturbed=True)

    def kill_after(self, delay_s: float) -> SimpleNamespace:
        self.dies = True
        return SimpleNamespace(join=lambda: None)

    def write(self, file: Path, text: str) -> None:
        """Write a file into storage: whole, or not at all."""
        for token in sorted(self.writes.directory.glob("token-*")):
            token.unlink()
            with open(self.writes.directory / "struck", "a") as struck:
                struck.write(f"full {file}\n")
            raise Raised("No space left on device")
        if self.dies:
            self.dies = False
            raise Died("the JVM is gone")
        file.write_text(text)


# --- mistakes ----------------------------------------------------------------------------------------------


class GivesARowTwice(Store):
    def iterate(self, family: Family) -> list[Pair]:
        return [*super().iterate(family), *super().iterate(family)[:1]]


class MissesARow(Store):
    def iterate(self, family: Family) -> list[Pair]:
        return super().iterate(family)[1:]


class GivesAnotherValue(Store):
    def iterate(self, family: Family) -> list[Pair]:
        return [(key, "other") for key, _ in super().iterate(family)]


class GivesWhatWasRemoved(Store):
    def remove(self, family: Family, key: Key) -> None: ...


class GetsNothing(Store):
    def get(self, family: Family, key: Key) -> str | None:
        return None


class GetsWhatIsNotThere(Store):
    def get(self, family: Family, key: Key) -> str | None:
        return super().get(family, key) or "default"


class GetsFromAnotherFamily(Store):
    def get(self, family: Family, key: Key) -> str | None:
        return super().get(family, key) or super().get(self.families[0], key)


class EvictsTwice(Store):
    def evict(self, family: Family, every: int) -> list[Pair]:
        given = super().evict(family, every)
        return [*given, *given[:1]]


class HasNoOrder(Store):
    def iterate(self, family: Family) -> list[Pair]:
        return super().iterate(family)[::-1]


class RangesWithoutOrder(Store):
    def range(self, family: Family, start: Key, end: Key) -> list[Pair]:
        return super().range(family, start, end)[::-1]


class RangesToTheEnd(Store):
    def range(self, family: Family, start: Key, end: Key) -> list[Pair]:
        return [pair for pair in self.iterate(family) if start[0] <= pair[0][0] <= end[0]]


class RangesBehindTheStart(Store):
    def range(self, family: Family, start: Key, end: Key) -> list[Pair]:
        return [pair for pair in super().range(family, start, end) if pair[0][0] != start[0]]


class RangesTwice(Store):
    def range(self, family: Family, start: Key, end: Key) -> list[Pair]:
        found = super().range(family, start, end)
        return sorted([*found, *found[:1]])


class ScansEverything(Store):
    def scan(self, family: Family, first: int) -> list[Pair]:
        return self.iterate(family)


class ScansTwice(Store):
    def scan(self, family: Family, first: int) -> list[Pair]:
        return super().scan(family, first) * 2


class ScansNothing(Store):
    def scan(self, family: Family, first: int) -> list[Pair]:
        return []


class MergesInFront(Store):
    def merge(self, family: Family, key: Key, value: str) -> None:
        self.content[family.name][key] = (value, *self.content[family.name].get(key, ()))


class MergesOnce(Store):
    def merge(self, family: Family, key: Key, value: str) -> None:
        self.content[family.name][key] = tuple(dict.fromkeys((*self.values(family, key), value)))


class KeepsADroppedFamily(Store):
    def drop(self, family: Family) -> None: ...


class CountsWrongly(Store):
    def commit(self) -> int:
        return super().commit() + 1


class OpensTheNewest(Store):
    def load(self, version: int) -> Content:
        numbers = [int(file.stem) for file in self.files.iterdir()]
        return super().load(max(numbers) if version else 0)


class KeepsItToItself(Store):
    """Commits are in the memory of the executor that made them."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.own: dict[int, Content] = {}

    def load(self, version: int) -> Content:
        return self.own.get(version) or {family: {} for family in super().load(version)}

    def commit(self) -> int:
        self.own[self.version + 1] = self.content
        return super().commit()


class AbortsNothing(Store):
    """What was aborted is in the next batch of the executor."""

    left: Content | None = None

    def begin(self, version: int, to_write: bool = True) -> None:
        super().begin(version, to_write)
        for family, entries in (self.left or {}).items():
            self.content[family].update(entries)
        self.left = None

    def put(self, family: Family, key: Key, value: str) -> None:
        super().put(family, key, value)
        self.left = self.left or self.nothing()
        self.left[family.name][key] = (value,)

    def commit(self) -> int:
        self.left = None
        return super().commit()


class DeletesOneTooMany(Store):
    def maintain(self) -> None:
        for file in sorted(self.files.iterdir(), key=lambda one: int(one.stem))[:-1]:
            file.unlink()


class ServesAnOlderOne(Store):
    def load(self, version: int) -> Content:
        try:
            return super().load(version)
        except Raised:
            return self.load(version - 1)


class GivesUpForGood(Store):
    """What could not be loaded once is refused for ever."""

    def load(self, version: int) -> Content:
        refused = self.files.with_name("refused")
        if refused.exists():
            raise Raised("it could not be loaded before")
        try:
            return super().load(version)
        except Raised:
            refused.touch()
            raise


class TakesItForDone(Store):
    def commit(self) -> int:
        try:
            return super().commit()
        except Raised:
            return self.version + 1


class SpoilsTheBase(Store):
    """If a commit fails, the version on which it is based is gone."""

    def commit(self) -> int:
        try:
            return super().commit()
        except (Raised, Died):
            (self.files / f"{self.version}.json").unlink()
            raise


class DiesAndDeletes(Store):
    """If maintenance is ended, the newest version is gone."""

    def maintain(self) -> None:
        if self.machine.dies:
            max(self.files.iterdir(), key=lambda one: int(one.stem)).unlink()
        super().maintain()


class LeavesAHalf(Store):
    """If a commit fails, the first of its rows are there."""

    def commit(self) -> int:
        try:
            return super().commit()
        except (Raised, Died):
            half = {name: dict(list(entries.items())[:-1]) for name, entries in self.content.items()}
            super().save(self.version + 1, half)
            raise


WRITES = (steps.PutRow(0, 0, A, "x"), steps.PutRow(0, 0, B, "y"), steps.PutRow(0, 0, C, "z"))
BATCH = (*WRITES, steps.CommitBatch(0))
NEXT = (steps.PutRow(0, 0, OTHER, "v"), steps.RemoveRow(0, 0, A), steps.CommitBatch(0))
SCAN = steps.ScanFamily(0, 0, 0, 5)
MERGES = tuple(steps.MergeRow(0, 1, A, value) for value in ("x", "y", "z", "x"))
LAST = steps.CompareVersion(steps.FRESH, 0)
DAMAGE = tuple(steps.DamageFile(how, file) for how in HOW for file in (0, 1))
TROUBLE = steps.TroubleWrites(0, "commit", WriteTrouble.FULL, 1)
KILL = steps.KillJvm(0, "commit", 500)

CASES: list[tuple[type[Store], str, steps.Steps, str]] = [
    (GivesARowTwice, PLAIN, (*WRITES, SCAN), promises.READS),
    (MissesARow, PLAIN, (*WRITES, SCAN), promises.READS),
    (GivesAnotherValue, PLAIN, (*WRITES, SCAN), promises.READS),
    (GivesWhatWasRemoved, PLAIN, (*WRITES, steps.RemoveRow(0, 0, A), steps.ReadRow(0, 0, A)), promises.READS),
    (GetsNothing, PLAIN, (*WRITES, steps.ReadRow(0, 0, A)), promises.READS),
    (GetsWhatIsNotThere, PLAIN, (*WRITES, steps.ReadRow(0, 0, OTHER)), promises.READS),
    (GetsWhatIsNotThere, "families", (*BATCH, LAST), promises.VERSIONS),
    (GetsFromAnotherFamily, "families", (*WRITES, steps.ReadRow(0, 1, A)), promises.FAMILIES),
    (GetsFromAnotherFamily, "families", (*BATCH, LAST), promises.FAMILIES),
    (EvictsTwice, PLAIN, (*WRITES, steps.EvictRows(0, 0, 2)), promises.READS),
    (HasNoOrder, RANGED, (*WRITES, SCAN), promises.SCANS),
    (HasNoOrder, RANGED, (*BATCH, LAST), promises.SCANS),
    (RangesWithoutOrder, RANGED, (*WRITES, steps.ScanFamily(0, 0, 0, 6)), promises.SCANS),
    (RangesToTheEnd, RANGED, (*WRITES, SCAN), promises.SCANS),
    (RangesBehindTheStart, RANGED, (*WRITES, SCAN), promises.SCANS),
    (RangesTwice, RANGED, (*WRITES, SCAN), promises.SCANS),
    (ScansEverything, PREFIXED, (*WRITES, SCAN), promises.SCANS),
    (ScansTwice, PREFIXED, (*WRITES, SCAN), promises.SCANS),
    (ScansNothing, PREFIXED, (*WRITES, SCAN), promises.SCANS),
    (MergesInFront, MANY, (*MERGES, steps.ReadRow(0, 1, A)), promises.VALUES),
    (MergesInFront, MANY, (*MERGES, steps.CommitBatch(0), LAST), promises.VALUES),
    (MergesOnce, MANY, (*MERGES, steps.ReadRow(0, 1, A)), promises.VALUES),
    (
        KeepsADroppedFamily,
        "families",
        (
            steps.PutRow(0, 1, A, "x"),
            steps.CommitBatch(0),
            steps.DropFamily(0, 1),
            steps.CommitBatch(0),
            LAST,
        ),
        promises.VERSIONS,
    ),
    (CountsWrongly, PLAIN, BATCH, promises.VERSIONS),
    (OpensTheNewest, PLAIN, (*BATCH, *NEXT, steps.CompareVersion(steps.FRESH, 1)), promises.VERSIONS),
    (KeepsItToItself, PLAIN, (*BATCH, LAST), promises.VERSIONS),
    (KeepsItToItself, PLAIN, (*BATCH, steps.CompareVersion(1, 0)), promises.VERSIONS),
    (
        AbortsNothing,
        PLAIN,
        (*BATCH, steps.PutRow(0, 0, OTHER, "never"), steps.AbortBatch(0), steps.CommitBatch(0), LAST),
        promises.ABORTS,
    ),
    (
        DeletesOneTooMany,
        PLAIN,
        (*BATCH, *NEXT, *BATCH, steps.MaintainStore(0), steps.CompareVersion(steps.FRESH, 1)),
        promises.MAINTENANCE,
    ),
    (ServesAnOlderOne, PLAIN, (*BATCH, *NEXT, *DAMAGE), promises.DAMAGE),
    (GivesUpForGood, PLAIN, (*BATCH, *NEXT, *DAMAGE), promises.VERSIONS),
    (TakesItForDone, PLAIN, (*BATCH, TROUBLE), promises.WRITES),
    (SpoilsTheBase, PLAIN, (*BATCH, TROUBLE), promises.WRITES),
    (LeavesAHalf, PLAIN, (*BATCH, TROUBLE), promises.WRITES),
    (SpoilsTheBase, PLAIN, (*BATCH, KILL), promises.KILLS),
    (LeavesAHalf, PLAIN, (*BATCH, KILL), promises.KILLS),
    (DiesAndDeletes, PLAIN, (*BATCH, *NEXT, steps.KillJvm(0, "maintenance", 500)), promises.KILLS),
]
"""A store with a mistake, its layout, the steps that show it, and the promise that it breaks."""


def apply_all(session: StoreSession, played: steps.Steps) -> None:
    """Play steps, without the end of a session, where all that is retained is compared once more."""
    for step in played:
        session.apply(step)


@pytest.mark.parametrize(
    ("store", "layout", "played", "promise"),
    [pytest.param(*case, id=f"{case[0].__name__}-{case[1]}-{number}") for number, case in enumerate(CASES)],
)
def test_a_mistake_of_a_store_is_seen_and_a_right_store_plays_the_same_steps(
    store: type[Store], layout: str, played: steps.Steps, promise: str, tmp_path: Path
) -> None:
    places = [tmp_path / name for name in ("right", "wrong")]
    for place in places:
        place.mkdir()
    right = Machine(Store, layout, places[0]).session()
    play(right, played)
    assert right.shown.total() > 0, "nothing was compared"
    wrong = Machine(store, layout, places[1]).session()
    with pytest.raises(Violation) as found:
        apply_all(wrong, played)
    assert found.value.clause == promise, found.value
