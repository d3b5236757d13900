"""State stores in Python, for tests of the certificate of Spark's: a right one, and one for each mistake."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from barrier_tck.faults.targets import WriteFault
from barrier_tck.harness.certify.engine.playing import play_all
from barrier_tck.harness.certify.engine.violation import Violation
from barrier_tck.harness.certify.spark_store import steps
from barrier_tck.harness.certify.spark_store.executor import Pair
from barrier_tck.harness.certify.spark_store.java_process import Died, Raised
from barrier_tck.harness.certify.spark_store.layouts import LAYOUTS, Family, Key, StoreLayout
from barrier_tck.harness.certify.spark_store.model import Content
from barrier_tck.harness.certify.spark_store.processes import StoreProcesses
from barrier_tck.harness.certify.spark_store.session import StoreSession
from barrier_tck.harness.certify.spark_store.session_settings import FORMAT_VERSION
from barrier_tck.harness.certify.spark_store.targets import CHANGELOG, store_target
from barrier_tck.harness.streaming.disturbed_writes import DisturbedWrites


def play(session: StoreSession, played: steps.Steps) -> None:
    """Play steps and the end of a session; raises Violation."""
    try:
        play_all(session, played)
        session.close()
    except Violation as violation:
        session.end(violation)
        raise


def saved(content: Content) -> str:
    """Return a version as the text of its file."""
    return json.dumps([[family, list(map(list, entries.items()))] for family, entries in content.items()])


def json_content(file: Path) -> Content:
    """Return the version that is in a file; raises Raised."""
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise Raised(f"{file.name}: {error}") from error
    return {
        family: {(number, text): tuple(values) for (number, text), values in entries}
        for family, entries in found
    }


class Store:
    """A right store: a file with everything for each version, of which maintenance keeps those that are retained."""

    may_have_commit_ids = True
    has_commit_ids = False
    commit_id: str | None = None

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.files = machine.checkpoints
        self.families = machine.families
        self.version, self.content = 0, self.nothing()

    def nothing(self) -> Content:
        return {family.name: {} for family in self.families}

    # --- versions -------------------------------------------------------------------------------------------

    def begin(self, version: int, to_write: bool = True, commit_id: str | None = None) -> None:
        self.version, self.content = version, self.load(version)

    def load(self, version: int) -> Content:
        return json_content(self.files / f"{version}.json") if version else self.nothing()

    def save(self, version: int, content: Content) -> None:
        self.machine.write(self.files / f"{version}.json", saved(content))

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
    """Stands for the JVM in which executors run (``StoreProcesses``), and for the storage below them."""

    def __init__(self, store: type[Store], directory: Path) -> None:
        self.store, self.directory = store, directory
        self.started, self.remaining_s = 1, 1_000.0
        self.target = store_target("spark:hdfs")
        self.dies = False
        self.dies_behind = 0
        """After how many more writes everything ends; 0 if it does not."""
        self.families: tuple[Family, ...] = ()
        self.settings: dict[str, str] = {}
        """Those of the executor that was started last."""
        self._numbers = itertools.count()
        self.new_checkpoints()

    def next_id(self) -> int:
        return next(self._numbers)

    def session(self, layout: str) -> StoreSession:
        return StoreSession(self.as_processes(), LAYOUTS[layout], self.checkpoints, disturbed=True)

    def as_processes(self) -> StoreProcesses:
        return cast("StoreProcesses", self)

    def new_checkpoints(self) -> Path:
        shutil.rmtree(self.directory, ignore_errors=True)
        place = self.directory / str(next(self._numbers))
        place.mkdir(parents=True)
        self.checkpoints = place / "checkpoints"
        self.checkpoints.mkdir()
        self.writes = DisturbedWrites(place / "writes", lambda path: "")
        return self.checkpoints

    @property
    def has_commit_ids(self) -> bool:
        return issubclass(self.store, StoreWithIds)

    def executor(
        self, layout: StoreLayout, checkpoints: Path, settings: dict[str, str], storage: object = None
    ) -> Store:
        self.families, self.settings = layout.families, settings
        return self.store(self)

    def disturbed_writes(self, checkpoints: Path) -> DisturbedWrites:
        return self.writes

    def kill(self) -> None:
        self.dies, self.dies_behind = False, 0

    def replace(self) -> None:
        self.kill()

    def kill_after(self, delay_s: float) -> SimpleNamespace:
        """Let the next write be the last thing that is tried, and fail."""
        self.dies = True
        return SimpleNamespace(join=lambda: None)

    def kill_at_file(self, checkpoints: Path, count: int) -> SimpleNamespace:
        """Let as many writes as this succeed, and the last of them be the last thing that is done."""
        self.dies_behind = count
        return SimpleNamespace(join=lambda: None)

    def write(self, file: Path, text: str) -> None:
        """Write a file into storage: whole, or not at all."""
        if self.dies:
            raise Died("the JVM is gone")
        if self.dies_behind:
            self.dies_behind -= 1
            if not self.dies_behind:
                file.write_text(text)
                raise Died("the JVM is gone")
        for token in sorted(self.writes.directory.glob("token-*")):
            token.unlink()
            trouble = token.name.split(".")[1]
            with open(self.writes.directory / "struck", "a") as struck:
                struck.write(f"{trouble} {file}\n")
            if trouble == WriteFault.UNSURE:
                file.write_text(text)
            raise Raised("No space left on device")
        file.write_text(text)


class StoreWithIds(Store):
    """A right store that gives each commit an id if it is asked to: a file for each commit, which is never replaced."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.has_commit_ids = machine.settings.get(FORMAT_VERSION) == "2"

    def begin(self, version: int, to_write: bool = True, commit_id: str | None = None) -> None:
        assert (commit_id is not None) == (self.has_commit_ids and version > 0)
        self.version, self.content = version, self.load_commit(version, commit_id)

    def load_commit(self, version: int, commit_id: str | None) -> Content:
        """Return what a commit made."""
        if commit_id is None:
            return self.load(version)
        return json_content(self.files / f"{version}.{commit_id}.json")

    def commit(self) -> int:
        if not self.has_commit_ids:
            return super().commit()
        self.commit_id = str(self.machine.next_id())
        self.machine.write(self.files / f"{self.version + 1}.{self.commit_id}.json", saved(self.content))
        return self.version + 1

    def maintain(self) -> None:
        numbers = sorted({int(file.name.split(".")[0]) for file in self.files.iterdir()})
        for number in numbers[:-2]:
            for file in self.files.glob(f"{number}.*"):
                file.unlink()


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
        return super().load(max(numbers, default=version) if version else 0)


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

    def begin(self, version: int, to_write: bool = True, commit_id: str | None = None) -> None:
        super().begin(version, to_write, commit_id)
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
            (self.files / f"{self.version}.json").unlink(missing_ok=True)
            raise


class DiesAndDeletes(Store):
    """If maintenance is ended, the newest version is gone."""

    def maintain(self) -> None:
        if self.machine.dies:
            for file in sorted(self.files.iterdir(), key=lambda one: int(one.stem))[-1:]:
                file.unlink()
        super().maintain()


class LeavesAHalf(Store):
    """If a commit fails, the first of its rows are there."""

    def commit(self) -> int:
        try:
            return super().commit()
        except (Raised, Died):
            half = {name: dict(list(entries.items())[:-1]) for name, entries in self.content.items()}
            (self.files / f"{self.version + 1}.json").write_text(saved(half))
            raise


class PublishesInTwoParts(Store):
    """A version is there with its first rows before it is there with all of them."""

    def commit(self) -> int:
        half = {name: dict(list(entries.items())[:-1]) for name, entries in self.content.items()}
        self.save(self.version + 1, half)
        return super().commit()


class IgnoresTheId(StoreWithIds):
    """A version is what was committed last under its number, whichever commit is asked for."""

    def load_commit(self, version: int, commit_id: str | None) -> Content:
        found = sorted(self.files.glob(f"{version}.*.json"), key=lambda file: int(file.name.split(".")[1]))
        return json_content(found[-1]) if found else super().load_commit(version, commit_id)


class KeepsOneCommitOfAVersion(StoreWithIds):
    """Maintenance takes all commits of a version but the last for given up."""

    def maintain(self) -> None:
        super().maintain()
        for number in {int(file.name.split(".")[0]) for file in self.files.iterdir()}:
            found = sorted(self.files.glob(f"{number}.*.json"), key=lambda file: file.stat().st_mtime_ns)
            for file in found[:-1]:
                file.unlink()


class ReadsInOneFormat(Store):
    """What was committed with other settings cannot be read."""

    @property
    def suffix(self) -> str:
        return "z" if CHANGELOG in self.machine.settings else ""

    def load(self, version: int) -> Content:
        return json_content(self.files / f"{version}.json{self.suffix}") if version else self.nothing()

    def save(self, version: int, content: Content) -> None:
        self.machine.write(self.files / f"{version}.json{self.suffix}", saved(content))


MISTAKES: tuple[type[Store], ...] = (
    GivesARowTwice,
    MissesARow,
    GivesAnotherValue,
    GivesWhatWasRemoved,
    GetsNothing,
    GetsWhatIsNotThere,
    GetsFromAnotherFamily,
    EvictsTwice,
    HasNoOrder,
    RangesWithoutOrder,
    RangesToTheEnd,
    RangesBehindTheStart,
    RangesTwice,
    ScansEverything,
    ScansTwice,
    ScansNothing,
    MergesInFront,
    MergesOnce,
    KeepsADroppedFamily,
    CountsWrongly,
    OpensTheNewest,
    KeepsItToItself,
    AbortsNothing,
    DeletesOneTooMany,
    ServesAnOlderOne,
    GivesUpForGood,
    TakesItForDone,
    SpoilsTheBase,
    DiesAndDeletes,
    LeavesAHalf,
    PublishesInTwoParts,
    IgnoresTheId,
    KeepsOneCommitOfAVersion,
    ReadsInOneFormat,
)
"""All that are wrong."""
