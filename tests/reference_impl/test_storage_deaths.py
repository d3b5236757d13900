"""A process that uses checkpoint storage may die before any of its requests: what it promised holds (STO-4 to STO-7).

A job lives through everything that it asks of its storage: checkpoints, shared files, a savepoint, a second job that
claims it, deletions. Before each request the medium is kept as it is then. From each of these states another process
must find what was promised, nothing that looks complete and is not, and be able to remove whatever was left.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint, Savepoint, StateHandle
from barrier_tck.reference_impl.runtime_errors import StorageError
from barrier_tck.reference_impl.storage.checkpoint_storage import (
    FileCheckpointStorage,
    MediumCheckpointStorage,
)
from barrier_tck.reference_impl.storage.hdfs import HdfsCheckpointStorage, HdfsFiles
from barrier_tck.reference_impl.storage.object_files import ObjectCheckpointStorage
from barrier_tck.reference_impl.storage.savepoints import SavepointDirectory
from barrier_tck.reference_impl.storage.webhdfs import Patience, WebHdfs
from tests.reference_impl.hdfs_model import ModelHdfs
from tests.reference_impl.object_stores import ModelStore
from tests.reference_impl.storage_fakes import MemoryFileSystem, completed_checkpoint

GROUPS = KeyGroupRange(0, 8)
COUNT = SubtaskId("count", 0)
PLACE = "savepoints/a"
SAVED = CheckpointId(3)


class Watched:
    """Passes calls on, and lets somebody look before each of them; what has further calls is watched too."""

    def __init__(self, inner: Any, look: Callable[[], None]) -> None:
        self._inner = inner
        self._look = look

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*values: Any, **named: Any) -> Any:
            self._look()
            answer = found(*values, **named)
            goes_on = hasattr(answer, "write") or hasattr(answer, "send")
            return Watched(answer, self._look) if goes_on else answer

        return call


class Medium:
    """What storage is kept on, and how to put it back into an earlier state."""

    def storage(self, job: str, look: Callable[[], None] | None = None) -> MediumCheckpointStorage:
        raise NotImplementedError

    def state(self) -> Any:
        """Return all that is there, so that equal states are equal."""
        raise NotImplementedError

    def put_back(self, state: Any) -> None:
        raise NotImplementedError


class Files(Medium):
    def __init__(self) -> None:
        self._files = MemoryFileSystem()

    def storage(self, job: str, look: Callable[[], None] | None = None) -> MediumCheckpointStorage:
        return FileCheckpointStorage(Watched(self._files, look) if look else self._files, job)

    def state(self) -> Any:
        paths = [*self._files.list_files("checkpoints"), *self._files.list_files("savepoints")]
        return {path: self._files.read(path) for path in paths}

    def put_back(self, state: Any) -> None:
        self._files = MemoryFileSystem()
        for path, content in state.items():
            self._files.create(path).write(content)


class Objects(Medium):
    def __init__(self) -> None:
        self._store = ModelStore()

    def storage(self, job: str, look: Callable[[], None] | None = None) -> MediumCheckpointStorage:
        store: Any = Watched(self._store, look) if look else self._store
        return ObjectCheckpointStorage(store, job, part_bytes=2)

    def state(self) -> Any:
        return copy.deepcopy((self._store.objects, self._store.parts))

    def put_back(self, state: Any) -> None:
        self._store.objects, self._store.parts = copy.deepcopy(state)


class Hdfs(Medium):
    def __init__(self, model: ModelHdfs) -> None:
        self._model = model
        self._client = WebHdfs([model.url], "tck", Patience(repeat_s=300, pause_s=0))

    def storage(self, job: str, look: Callable[[], None] | None = None) -> MediumCheckpointStorage:
        client: Any = Watched(self._client, look) if look else self._client
        return HdfsCheckpointStorage(client, "tck", job)

    def state(self) -> Any:
        return dict(self._model.files), dict(self._model.directories)

    def put_back(self, state: Any) -> None:
        self._model.files, self._model.directories = dict(state[0]), dict(state[1])


@dataclass
class Promised:
    """What the storage of one job has promised by returning."""

    reserved: tuple[int, int] = (0, 0)
    complete: list[int] = field(default_factory=list)
    """Checkpoints that were published, and whose deletion was not asked for."""
    claimed: list[int] = field(default_factory=list)
    savepoint: bool = False
    """Whether the savepoint must be there."""


class Process:
    """A coordinator and the subtasks of a job, for as long as they live."""

    def __init__(self, storage: MediumCheckpointStorage, promised: Promised) -> None:
        self.storage = storage
        self.promised = promised

    def reserve(self, checkpoint: int, attempt: int) -> None:
        self.storage.reserve(CheckpointId(checkpoint), AttemptNumber(attempt))
        self.promised.reserved = checkpoint, attempt

    def write(self, checkpoint: int, savepoint: str = "") -> StateHandle:
        place = CheckpointId(checkpoint), AttemptNumber(1), COUNT, "aggregate"
        return self.storage.writer(*place, savepoint).write("state", [b"sta", b"te"], GROUPS)

    def write_shared(self, checkpoint: int) -> StateHandle:
        place = CheckpointId(checkpoint), AttemptNumber(1), COUNT, "aggregate"
        return self.storage.shared_writer(*place).write("part", [b"shared"], GROUPS)

    def publish(self, checkpoint: int, *handles: StateHandle, savepoint: Savepoint | None = None) -> None:
        completed = completed_checkpoint(checkpoint, handles)
        self.storage.publish(replace(completed, savepoint=savepoint) if savepoint else completed)
        self.promised.complete.append(checkpoint)

    def discard(self, checkpoint: int, *kept: StateHandle) -> None:
        if checkpoint in self.promised.complete:
            self.promised.complete.remove(checkpoint)
        self.storage.discard_checkpoint(CheckpointId(checkpoint), [one.path for one in kept])


def live(start: Callable[[str], Process]) -> None:
    """Do all that jobs do with their storage."""
    one = start("one")
    one.reserve(1, 1)
    first = one.write_shared(1)
    one.publish(1, one.write(1), first)
    one.reserve(2, 1)
    second = one.write_shared(2)
    one.publish(2, first, second)
    one.discard(1, first)
    one = start("one")
    one.reserve(3, 2)
    one.storage.begin_savepoint(SAVED, PLACE)
    one.publish(3, one.write(3, PLACE), savepoint=Savepoint(PLACE))
    one.promised.savepoint = True
    one.reserve(4, 2)
    one.publish(4, one.write(4))
    one.discard(3)
    one.discard(2)
    one.storage.discard_shared([first.path])
    two = start("two")
    two.storage.start_from(two.storage.load_savepoint(PLACE), claim=True)
    two.promised.reserved, two.promised.claimed = (3, 1), [3]
    two = start("two")
    two.reserve(5, 2)
    two.publish(5, two.write(5))
    one.promised.savepoint = False
    two.discard(3)
    two.promised.claimed = []
    two.reserve(6, 2)


def states_of(medium: Medium) -> list[tuple[Any, dict[str, Promised]]]:
    """Return each state before a request, with what had been promised by then."""
    promised: dict[str, Promised] = {}
    found: list[tuple[Any, dict[str, Promised]]] = []

    def look() -> None:
        seen = medium.state(), copy.deepcopy(promised)
        if not found or found[-1] != seen:
            found.append(seen)

    live(lambda job: Process(medium.storage(job, look), promised.setdefault(job, Promised())))
    look()
    return found


def check(medium: Medium, promised: dict[str, Promised]) -> None:
    """Look at a state as a process does that knows nothing of the one before, and then tidy up."""
    for job, of in promised.items():
        storage = medium.storage(job)
        assert storage.reserved() >= of.reserved, f"{job} may use ids and attempts again"
        assert set(of.complete) <= set(storage.completed()), "a checkpoint that was complete is lost"
        removed = not storage.medium.list_files("savepoints")
        assert removed or set(of.claimed) <= set(storage.claimed()), "a claim is forgotten"
        for checkpoint in storage.completed():
            require_whole(storage, storage.load(checkpoint))
    saved = any(of.savepoint for of in promised.values())
    require_whole_savepoint(medium, saved)
    for job in promised:
        tidy(medium.storage(job))
    require_whole_savepoint(medium, saved and not any(of.claimed for of in promised.values()))
    files = medium.storage("another").medium
    rest = [] if SavepointDirectory(files, PLACE).is_complete else files.list_files("savepoints")
    assert rest == [], "a savepoint that is not complete has left something"


def require_whole(storage: MediumCheckpointStorage, completed: CompletedCheckpoint) -> None:
    for handle in handles_of(completed):
        storage.read(handle)


def require_whole_savepoint(medium: Medium, wanted: bool) -> None:
    storage = medium.storage("another")
    try:
        require_whole(storage, storage.load_savepoint(PLACE))
    except StorageError:
        complete = SavepointDirectory(storage.medium, PLACE).is_complete
        assert not wanted and not complete, "a savepoint looks complete and is not"


def tidy(storage: MediumCheckpointStorage) -> None:
    """Keep the newest checkpoint, as a coordinator does that starts; nothing else may be left."""
    last, _ = storage.reserved()
    storage.reserve(CheckpointId(9), AttemptNumber(9))
    *older, newest = (CheckpointId(0), *storage.completed())
    needed = handles_of(storage.load(newest)) if newest else []
    shared = [one.path for one in needed if one.shared]
    begun = map(CheckpointId, range(max(newest, *storage.claimed(), 0) + 1, last + 1))
    for checkpoint in (*storage.incomplete(), *begun, *filter(None, older)):
        storage.discard_checkpoint(checkpoint, shared)
    storage.discard_shared([path for path in storage.shared_files() if path not in shared])
    for checkpoint in storage.claimed() if newest else ():
        storage.discard_checkpoint(checkpoint)
    if newest:
        require_whole(storage, storage.load(newest))
    own = [one.path for one in needed if not one.savepoint]
    kept = ["counters", *own, *([f"chk-{newest}/_metadata"] if newest else ())]
    left = [path for path in storage.files() if not path.endswith(tuple(kept))]
    assert left == ([f"checkpoints/one/chk-{SAVED}/_savepoint"] if newest == SAVED else [])


def handles_of(completed: CompletedCheckpoint) -> list[StateHandle]:
    return [handle for part in completed.snapshots for handle in part.handles()]


@contextlib.contextmanager
def medium_named(name: str) -> Iterator[Medium]:
    if name == "hdfs":
        with ModelHdfs() as model:
            yield Hdfs(model)
    else:
        yield Files() if name == "files" else Objects()


def check_every_death(name: str) -> int:
    """Return how many different states there were."""
    with medium_named(name) as medium:
        states = states_of(medium)
        for state, promised in states:
            medium.put_back(state)
            check(medium, promised)
        return len(states)


MEDIA = ["files", "objects", pytest.param("hdfs", marks=pytest.mark.nightly)]


@pytest.mark.parametrize("name", MEDIA)
def test_whenever_a_process_dies_what_its_storage_promised_holds_and_the_rest_can_be_removed(
    name: str,
) -> None:
    assert check_every_death(name) > 40


def _metadata_last(self: SavepointDirectory, state_files: Iterable[str]) -> None:
    files = self._files
    for path in state_files:
        files.delete(f"{self.directory}/{path}")
    files.delete(self.metadata_path)


def _all_that_begins_so(self: HdfsFiles, path: str) -> None:
    directory = path.rpartition("/")[0]
    for beside in self.list_files(directory):
        if beside.startswith(path):
            self.delete(beside)


@pytest.mark.parametrize("name", MEDIA)
def test_a_claimed_savepoint_that_loses_its_files_first_is_noticed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SavepointDirectory, "remove", _metadata_last)
    with pytest.raises(AssertionError, match="a savepoint looks complete and is not"):
        check_every_death(name)


@pytest.mark.long
def test_counters_that_are_deleted_before_they_are_put_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HdfsFiles, "_remove_temporaries", _all_that_begins_so)
    with pytest.raises(AssertionError, match="may use ids and attempts again"):
        check_every_death("hdfs")
