"""What a checkpoint storage is worth when one request of its medium fails, before or after it was carried out.

An instance whose request failed goes on: it must find what every other instance finds, and what it does next must come
out as if nothing had failed. Only storage on a medium of this project (``MediumCheckpointStorage``) shows its requests;
nothing is asked of any other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from barrier_tck.harness.certify.storage.candidate.bench import (
    ATTEMPT,
    COMPLETE,
    COUNT,
    COUNTERS,
    DELETED,
    FAILS,
    GROUPS,
    SAVEPOINTS,
    StorageBench,
    complete,
    completed_of,
    handles_of,
    write,
)
from barrier_tck.harness.certify.storage.candidate.observations import is_there, read_whole, require_whole
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId
from barrier_tck.reference_impl.protocol.messages import Savepoint
from barrier_tck.reference_impl.runtime_errors import StorageError
from barrier_tck.reference_impl.storage.checkpoint_storage import CheckpointStorage, MediumCheckpointStorage
from barrier_tck.reference_impl.storage.whole_files import WholeFiles

_READS = ("read", "list_files", "exists")
_REQUESTS_MAX = 40
"""More requests nothing here makes."""


def a_failed_request_leaves_all_with_the_same(bench: StorageBench) -> None:
    """Let each request of each act fail once, in a job of its own."""
    if not isinstance(bench.open(), MediumCheckpointStorage):
        return
    for act in (_Reserves, _Publishes, _WritesShared, _SavesAll, _Starts, _Discards, _DeletesClaimed):
        for afterwards in (False, True):
            number = 1
            while number <= _REQUESTS_MAX and act(bench, number, afterwards).fails():
                number += 1
            message = f"{act.__name__} makes more than {_REQUESTS_MAX} requests"
            bench.require(FAILS, 1 < number <= _REQUESTS_MAX, message)


class _Failing:
    """A medium of which one request fails."""

    def __init__(self, inner: WholeFiles, number: int, afterwards: bool) -> None:
        self.inner = inner
        self._left = number
        self._afterwards = afterwards

    def disarm(self) -> None:
        """Let nothing fail any more; the storage may have handed the medium on."""
        self._left = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        request = getattr(self.inner, name)
        if self._afterwards and name in _READS:
            return request  # type: ignore[no-any-return]  # a read that fails is the same before and after

        def made(*values: Any) -> Any:
            self._left -= 1
            if self._left:
                return request(*values)
            if self._afterwards:
                request(*values)
            raise StorageError(f"the request {name} failed")

        return made


class _Act(ABC):
    """Something that a job does in one go, and what must be there if a request of it has failed."""

    def __init__(self, bench: StorageBench, number: int, afterwards: bool) -> None:
        self.bench = bench
        self._number = number
        self._afterwards = afterwards
        self.job = f"{type(self).__name__.strip('_').lower()}-{number}{'-afterwards' * afterwards}"
        self.directory = f"savepoints/{self.job}"
        self.storage = self._opened()

    @property
    def when(self) -> str:
        """Return the end of a sentence that says what went wrong."""
        how = "after it was carried out" if self._afterwards else "before it was carried out"
        return f"when request {self._number} of {self.job.partition('-')[0]!r} had failed {how}"

    @abstractmethod
    def prepare(self) -> None:
        """Do what comes before."""

    @abstractmethod
    def run(self) -> None:
        """Do it."""

    @abstractmethod
    def judge(self, failed: bool) -> None:
        """Look at what is there, go on, and look at what is there then."""

    def fails(self) -> bool:
        """Do it all; return whether a request failed. None does if there are fewer requests than its number."""
        self.prepare()
        failing = _Failing(self.storage.medium, self._number, self._afterwards)
        self.storage.reach_through(lambda _: failing)
        failed = False
        try:
            self.run()
        except StorageError:
            failed = True
        finally:
            failing.disarm()
            self.storage.reach_through(lambda _: failing.inner)
        self.same()
        self.judge(failed)
        return failed

    def same(self) -> None:
        """Demand that the instance that goes on finds what a new one finds."""
        found = [_all_of(one) for one in (self.storage, self._opened())]
        for (what, clause), here, there in zip(_ASKED, *found, strict=True):
            message = (
                f"{self.when}, {what} were {here} for the instance that went on, and {there} for a new one"
            )
            self.bench.require(clause, here == there, message)

    def require(self, clause: str, holds: bool, what: str) -> None:
        """Demand something of what is there."""
        self.bench.require(clause, holds, f"{self.when}, {what}")

    def save(self, storage: CheckpointStorage, checkpoint: int) -> None:
        """Take a savepoint."""
        storage.begin_savepoint(CheckpointId(checkpoint), self.directory)
        handle = write(storage, checkpoint, savepoint=self.directory)
        storage.publish(completed_of(checkpoint, [handle], savepoint=Savepoint(self.directory)))

    def save_elsewhere(self) -> None:
        """Let another job take savepoint 8."""
        origin = self.bench.open(f"origin-{self.job}")
        origin.reserve(CheckpointId(8), ATTEMPT)
        self.save(origin, 8)

    def _opened(self) -> MediumCheckpointStorage:
        opened = self.bench.open(self.job)
        assert isinstance(opened, MediumCheckpointStorage)
        return opened


_ASKED = (
    ("ids and attempts reserved", COUNTERS),
    ("complete checkpoints", COMPLETE),
    ("claimed savepoints", SAVEPOINTS),
)


def _all_of(storage: CheckpointStorage) -> tuple[object, ...]:
    return storage.reserved(), storage.completed(), storage.claimed()


class _Reserves(_Act):
    def prepare(self) -> None:
        self.storage.reserve(CheckpointId(4), ATTEMPT)

    def run(self) -> None:
        self.storage.reserve(CheckpointId(5), AttemptNumber(2))

    def judge(self, failed: bool) -> None:
        found: tuple[int, int] = self.storage.reserved()
        right = found in ((4, 1), (5, 2)) if failed else found == (5, 2)
        self.require(COUNTERS, right, f"{found} were reserved, after (4, 1), by reserving (5, 2)")
        # What may have been carried out is not taken back by an instance that goes on with less.
        self.storage.reserve(CheckpointId(3), ATTEMPT)
        after: tuple[int, int] = self._opened().reserved()
        self.require(
            COUNTERS, after == found, f"{found} were reserved, and {after} after (3, 1) was reserved"
        )
        self.run()
        after = self.storage.reserved()
        self.require(COUNTERS, after == (5, 2), f"(5, 2) were reserved again, and {after} are")


class _Publishes(_Act):
    def prepare(self) -> None:
        self.kept = complete(self.storage, 1)
        self.storage.reserve(CheckpointId(2), ATTEMPT)
        self.listed = self.storage.files()

    def run(self) -> None:
        self.storage.publish(completed_of(2, [write(self.storage, 2)]))

    def judge(self, failed: bool) -> None:
        found = self.storage.completed()
        wanted = (1,) if failed else (1, 2)
        self.require(COMPLETE, found == wanted, f"{found} were complete, and not {wanted}")
        self.storage.discard_checkpoint(CheckpointId(2))
        left = [path for path in self.storage.files() if path not in self.listed]
        self.require(DELETED, not left, f"checkpoint 2, which was discarded, has left {left}")
        require_whole(self.bench, self.kept, COMPLETE, self.when, self.storage)


class _WritesShared(_Act):
    def prepare(self) -> None:
        self.kept = complete(self.storage, 1)
        self.storage.reserve(CheckpointId(2), ATTEMPT)
        self.listed = self.storage.files()

    def run(self) -> None:
        writer = self.storage.shared_writer(CheckpointId(2), ATTEMPT, COUNT, "aggregate")
        self.needed = writer.write("base", [b"shared"], GROUPS)
        writer.write("more", [b"shared, too"], GROUPS)

    def judge(self, failed: bool) -> None:
        listed = self.storage.shared_files()
        self.require(FAILS, failed or len(listed) == 2, f"{listed} were listed")
        self.storage.discard_checkpoint(CheckpointId(2), listed[:1])
        kept = self.storage.shared_files()
        self.require(DELETED, kept == listed[:1], f"{kept} were kept, and not {listed[:1]}")
        self.storage.discard_shared(kept)
        left = [path for path in self.storage.files() if path not in self.listed]
        self.require(DELETED, not left, f"checkpoint 2, which was discarded, has left {left}")


class _SavesAll(_Act):
    def prepare(self) -> None:
        self.storage.reserve(CheckpointId(8), ATTEMPT)
        self.listed = self.storage.files()

    def run(self) -> None:
        self.save(self.storage, 8)

    def judge(self, failed: bool) -> None:
        there = self._is_there()
        self.require(SAVEPOINTS, there != failed, f"the savepoint {'is' if there else 'is not'} there")
        self.storage.discard_checkpoint(CheckpointId(8))
        free = self.storage.is_free(self.directory)
        message = f"its directory {'is' if free else 'is not'} free after its checkpoint was discarded"
        self.require(
            SAVEPOINTS, free != there, f"the savepoint {'was' if there else 'was not'} there, and {message}"
        )
        left = [path for path in self.storage.files() if path not in self.listed]
        self.require(DELETED, not left, f"checkpoint 8, which was discarded, has left {left}")

    def _is_there(self) -> bool:
        try:
            loaded = self.storage.load_savepoint(self.directory)
        except StorageError:
            return False
        for handle in handles_of(loaded):
            read_whole(self.storage, handle, SAVEPOINTS, f"a file of the savepoint, {self.when},")
        return True


class _Starts(_Act):
    def prepare(self) -> None:
        self.save_elsewhere()
        self.storage.reserve(CheckpointId(2), AttemptNumber(3))
        self.savepoint = self.storage.load_savepoint(self.directory)

    def run(self) -> None:
        self.above = self.storage.start_from(self.savepoint, claim=True)

    def judge(self, failed: bool) -> None:
        found: tuple[int, int] = self.storage.reserved()
        self.require(COUNTERS, found[0] >= 2 and found[1] == 3, f"(2, 3) was reserved, and is {found}")
        self.run()
        found = self._opened().reserved()
        self.require(SAVEPOINTS, found == (8, 3), f"{found} are reserved, and not (8, 3)")
        self.require(SAVEPOINTS, self.above == 8, f"checkpoints up to {self.above} are older than the start")
        claimed = self.storage.claimed()
        self.require(SAVEPOINTS, claimed == (8,), f"{claimed} are claimed, and not (8,)")
        self.storage.discard_checkpoint(CheckpointId(8))
        free = self.storage.is_free(self.directory) and self.storage.claimed() == ()
        self.require(SAVEPOINTS, free, "the claimed savepoint was discarded, and something of it is left")


class _Discards(_Act):
    def prepare(self) -> None:
        self.kept = complete(self.storage, 1)
        self.listed = self.storage.files()
        self.gone = complete(self.storage, 2, files=3)

    def run(self) -> None:
        self.storage.discard_checkpoint(CheckpointId(2))

    def judge(self, failed: bool) -> None:
        if 2 in self.storage.completed():
            require_whole(self.bench, self.gone, DELETED, self.when, self.storage)
        self.run()
        left = [path for path in self.storage.files() if path not in self.listed]
        self.require(DELETED, not left, f"checkpoint 2, which was discarded again, has left {left}")
        require_whole(self.bench, self.kept, DELETED, self.when, self.storage)


class _DeletesClaimed(_Act):
    def prepare(self) -> None:
        self.save_elsewhere()
        self.savepoint = self.storage.load_savepoint(self.directory)
        self.storage.start_from(self.savepoint, claim=True)

    def run(self) -> None:
        self.storage.discard_checkpoint(CheckpointId(8))

    def judge(self, failed: bool) -> None:
        whole = all(is_there(self.storage, handle) for handle in handles_of(self.savepoint))
        complete_still = True
        try:
            self.storage.load_savepoint(self.directory)
        except StorageError:
            complete_still = False
        self.require(DELETED, whole or not complete_still, "the savepoint is complete without all its files")
        self.run()
        free = self.storage.is_free(self.directory) and self.storage.claimed() == ()
        self.require(
            SAVEPOINTS, free, "the claimed savepoint was discarded again, and something of it is left"
        )
