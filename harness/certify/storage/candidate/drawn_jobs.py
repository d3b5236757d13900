"""A model of what a job has in a checkpoint storage, and what is done to both at random.

After every act the storage must hold exactly what retained and unfinished checkpoints, unclaimed savepoints and pending
claims need: nothing is lost, and nothing is left. The acts are drawn from seeds that are always the same.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from msgspec.structs import replace

from barrier_tck.harness.certify.storage.candidate.bench import (
    ATTEMPT,
    COUNT,
    DELETED,
    GROUPS,
    SAVEPOINTS,
    Broken,
    StorageBench,
    completed_of,
    content_of,
    handles_of,
    write,
)
from barrier_tck.harness.certify.storage.candidate.observations import read_whole, require_whole
from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint, Savepoint, StateHandle
from barrier_tck.reference_impl.runtime_errors import StorageError

SEQUENCES, ACTS = 5, 20
"""How many jobs there are, and how much is done to each."""
_LOOKS = 5
"""After as many acts everything that is there is listed and read."""
_ORIGINS = ("origin", "other")
"""Jobs that take savepoints. Both count from 1, so different savepoints have the same id."""


@dataclass(slots=True)
class _Unfinished:
    """A checkpoint that was not published."""

    handles: tuple[StateHandle, ...]
    directory: str
    """Where it is kept if it is a savepoint."""


@dataclass(slots=True)
class _Model:
    """What the job must find."""

    reserved: int
    savepoints: dict[str, CompletedCheckpoint] = field(default_factory=dict)
    """By directory: all that are there, of any job."""
    deleted: list[str] = field(default_factory=list)
    """Directories of which nothing may be left."""
    claims: dict[str, int] = field(default_factory=dict)
    """Directory -> id."""
    own: dict[int, CompletedCheckpoint] = field(default_factory=dict)
    unfinished: dict[int, _Unfinished] = field(default_factory=dict)
    shared: dict[str, int] = field(default_factory=dict)
    """Path of a shared file that is needed -> the checkpoint that it was written for."""
    files: dict[int, set[str]] = field(default_factory=dict)
    """What listings show of each checkpoint since it was written."""
    started_from: str = ""
    started_above: int = 0


def what_is_needed_stays_and_nothing_else(bench: StorageBench) -> None:
    """Do this and that to several jobs."""
    for seed in range(SEQUENCES):
        JobWithClaims(bench, seed).play(ACTS)


class JobWithClaims:
    """One job, the other jobs whose savepoints it starts from, and the model of them."""

    def __init__(self, bench: StorageBench, seed: int) -> None:
        self._bench = bench
        self._random = random.Random(seed)
        self._job = f"job-{seed}"
        self._origins = [f"{name}-{seed}" for name in _ORIGINS]
        self._taken = dict.fromkeys(self._origins, 0)
        self._rendered: list[str] = []
        self._storage = bench.open(self._job)
        self._storage.reserve(CheckpointId(1), ATTEMPT)
        self._model = _Model(reserved=1)
        self._listed = set(self._storage.files())
        self._first = set(self._listed)

    def play(self, acts: int) -> None:
        """Do something, compare, and so on; at the end give everything up that is the job's."""
        for number in range(acts):
            self._do_something()
            # Whatever is lost is lost for good, so it is seen a little later, too.
            self._compare(number % _LOOKS == 0)
        for checkpoint in [*self._model.unfinished, *self._model.own, *self._model.claims.values()]:
            self._discard(checkpoint)
        self._compare(True)
        self._files_of_savepoints()
        left = [path for path in self._storage.files() if path not in self._first]
        self._require(DELETED, not left, f"everything was discarded, and {left} are left")

    # --- acts -----------------------------------------------------------------------------------------------

    def _do_something(self) -> None:
        model, drawn = self._model, self._random
        if drawn.random() < 0.4:
            self._log("another instance goes on")
            self._storage = self._bench.open(self._job)
        possible = [(self._other_job_saves, 3), (self._checkpoint, 3), (self._begin, 2)]
        possible += [(self._start, 5)] * bool(model.savepoints)
        possible += [(self._give_up, 1), (self._publish_late, 1)] * bool(model.unfinished)
        possible += [(self._retire, 2)] * bool(model.own)
        possible += [(self._delete_claimed, 2)] * bool(model.claims)
        act = drawn.choices([one for one, _ in possible], [weight for _, weight in possible])[0]
        act()

    def _other_job_saves(self) -> None:
        # In turn, so that both have savepoints with the same id.
        origin = min(self._origins, key=lambda one: self._taken[one])
        self._taken[origin] += 1
        checkpoint, directory = self._taken[origin], f"savepoints/{origin}-{self._taken[origin]}"
        self._log(f"{origin} takes savepoint {checkpoint} in {directory}")
        storage = self._bench.open(origin)
        storage.reserve(CheckpointId(checkpoint), ATTEMPT)
        storage.begin_savepoint(CheckpointId(checkpoint), directory)
        completed = completed_of(
            checkpoint, self._written(storage, checkpoint, directory), savepoint=Savepoint(directory)
        )
        storage.publish(completed)
        self._model.savepoints[directory] = completed
        if self._random.random() < 0.5:
            storage.discard_checkpoint(CheckpointId(checkpoint))

    def _start(self) -> None:
        model = self._model
        ids = model.claims.values()
        like = [
            one for one, of in model.savepoints.items() if of.checkpoint in ids and one not in model.claims
        ]
        likely = like and self._random.random() < 0.5
        directory = self._random.choice(like if likely else list(model.savepoints))
        claim = self._random.random() < 0.7
        self._log(f"the job starts from {directory}{', which it claims' if claim else ''}")
        checkpoint = model.savepoints[directory].checkpoint
        above = self._storage.start_from(self._storage.load_savepoint(directory), claim)
        if model.started_from != directory:
            model.started_from = directory
            model.reserved = model.started_above = max(model.reserved, checkpoint)
            if claim:
                model.claims[directory] = checkpoint
        self._noted(None)
        message = f"checkpoints up to {above} count as older than the start, not up to {model.started_above}"
        self._require(SAVEPOINTS, above == model.started_above, message)

    def _begin(self) -> None:
        """Write files of a checkpoint, or of a savepoint, that is not published."""
        model = self._model
        checkpoint = self._reserve()
        directory = f"savepoints/{self._job}-{checkpoint}" if self._random.random() < 0.3 else ""
        self._log(f"checkpoint {checkpoint} begins{f', a savepoint in {directory}' if directory else ''}")
        if directory:
            self._storage.begin_savepoint(CheckpointId(checkpoint), directory)
        handles = self._written(self._storage, checkpoint, directory)
        if not directory and self._random.random() < 0.6:
            writer = self._storage.shared_writer(CheckpointId(checkpoint), ATTEMPT, COUNT, "aggregate")
            names = ("base", "more")[: self._random.randint(1, 2)]
            new = [writer.write(name, [content_of(20, checkpoint)], GROUPS) for name in names]
            model.shared.update((handle.path, checkpoint) for handle in new)
            handles += new
        if not directory:
            handles += self._reused()
        model.unfinished[checkpoint] = _Unfinished(tuple(handles), directory)
        self._noted(checkpoint)

    def _reused(self) -> list[StateHandle]:
        """Return shared files of retained checkpoints, which a new one uses too."""
        old = {handle.path: handle for one in self._model.own.values() for handle in handles_of(one)}
        return [
            handle
            for path, handle in sorted(old.items())
            if path in self._model.shared and self._random.random() < 0.5
        ]

    def _checkpoint(self) -> None:
        self._begin()
        self._publish(max(self._model.unfinished))

    def _publish_late(self) -> None:
        self._publish(self._random.choice(list(self._model.unfinished)))

    def _publish(self, checkpoint: int) -> None:
        model = self._model
        self._log(f"checkpoint {checkpoint} is published")
        begun = model.unfinished.pop(checkpoint)
        savepoint = Savepoint(begun.directory) if begun.directory else None
        completed = completed_of(checkpoint, begun.handles, savepoint=savepoint)
        self._storage.publish(completed)
        model.own[checkpoint] = completed
        if savepoint is not None:
            model.savepoints[begun.directory] = completed
        self._noted(checkpoint)

    def _give_up(self) -> None:
        self._discard(self._random.choice(list(self._model.unfinished)))

    def _retire(self) -> None:
        self._discard(self._random.choice(list(self._model.own)))

    def _delete_claimed(self) -> None:
        self._discard(self._random.choice(list(self._model.claims.values())))

    def _discard(self, checkpoint: int) -> None:
        """Discard a checkpoint, and then the shared files that are not needed any more."""
        model = self._model
        model.own.pop(checkpoint, None)
        begun = model.unfinished.pop(checkpoint, None)
        if begun is not None and begun.directory:
            model.deleted.append(begun.directory)
        for directory in [one for one, claimed in model.claims.items() if claimed == checkpoint]:
            del model.claims[directory], model.savepoints[directory]
            model.deleted.append(directory)
        parts = [*map(handles_of, model.own.values()), *(one.handles for one in model.unfinished.values())]
        needed = {handle.path for handles in parts for handle in handles}
        unneeded = [path for path in model.shared if path not in needed]
        kept = [path for path in model.shared if path in needed]
        self._log(f"checkpoint {checkpoint} is discarded, and so are the shared files {unneeded}")
        self._storage.discard_checkpoint(CheckpointId(checkpoint), kept)
        self._storage.discard_shared([path for path in unneeded if model.shared[path] != checkpoint])
        for path in unneeded:
            del model.shared[path]
        self._forgotten()

    def _reserve(self) -> int:
        self._model.reserved += 1
        self._storage.reserve(CheckpointId(self._model.reserved), ATTEMPT)
        self._noted(None)
        return self._model.reserved

    def _written(self, storage: object, checkpoint: int, directory: str) -> list[StateHandle]:
        names = ("one", "two")[: self._random.randint(1, 2)]
        return [
            write(storage, checkpoint, content_of(30, checkpoint), name, directory)  # type: ignore[arg-type]
            for name in names
        ]

    # --- comparisons ----------------------------------------------------------------------------------------

    def _noted(self, checkpoint: int | None) -> None:
        """Ascribe what is listed since the last look to a checkpoint, or to the job itself."""
        listed = set(self._storage.files())
        new = listed - self._listed
        if checkpoint is None:
            self._first |= new
        else:
            self._model.files[checkpoint] = self._model.files.get(checkpoint, set()) | new
        self._listed = listed

    def _forgotten(self) -> None:
        """Demand that of every checkpoint that is gone only those shared files are listed that are needed."""
        model, self._listed = self._model, set(self._storage.files())
        for checkpoint, files in model.files.items():
            if checkpoint in model.own or checkpoint in model.unfinished:
                continue
            left = sorted(files & self._listed)
            needed = [path for path, of in model.shared.items() if of == checkpoint]
            message = f"of checkpoint {checkpoint}, which was discarded, {left} are left; needed are {needed}"
            self._require(DELETED, len(left) == len(needed), message)

    def _compare(self, wholly: bool) -> None:
        model = self._model
        other = self._bench.open(self._job)
        for storage in (self._storage, other):
            found = {*storage.claimed()}
            wanted = {*model.claims.values()}
            message = f"claimed and not deleted are {sorted(wanted)}; listed as claimed are {sorted(found)}"
            self._require(SAVEPOINTS, found == wanted, message)
        reserved = other.reserved()[0]
        message = f"{model.reserved} was reserved; found is {reserved}"
        self._require(SAVEPOINTS, reserved == model.reserved, message)
        if not wholly:
            return
        listed = (self._storage.completed(), self._storage.incomplete())
        message = f"{sorted(model.own)} are complete, {sorted(model.unfinished)} are not; listed are {listed}"
        same = listed == (tuple(sorted(model.own)), tuple(sorted(model.unfinished)))
        self._require(DELETED, same, message)
        shared = self._storage.shared_files()
        message = f"the shared files {sorted(model.shared)} are needed; there are {shared}"
        self._require(DELETED, shared == tuple(sorted(model.shared)), message)
        self._require_outgrown()
        for directory in model.deleted:
            free = self._storage.is_free(directory)
            self._require(SAVEPOINTS, free, f"{directory} was deleted, and something of it is left")
        model.deleted.clear()
        for directory in model.savepoints:
            self._require_savepoint(directory)
        for checkpoint in model.own.values():
            require_whole(self._bench, checkpoint, DELETED, self._when, self._storage)

    def _require_outgrown(self) -> None:
        model = self._model
        if not model.started_from:
            return
        outgrown = self._storage.has_outgrown(model.started_from)
        newer = max(model.own, default=0) > model.started_above
        wanted = model.started_above if newer and model.started_from not in model.savepoints else None
        message = f"has_outgrown({model.started_from!r}) is {outgrown}, not {wanted}"
        self._require(SAVEPOINTS, outgrown == wanted, message)

    def _require_savepoint(self, directory: str) -> None:
        try:
            loaded = self._storage.load_savepoint(directory)
        except StorageError as error:
            raise Broken(
                SAVEPOINTS, f"{directory} was not deleted, and cannot be loaded {self._when}: {error}"
            ) from error
        wanted = self._model.savepoints[directory]
        same = replace(loaded, savepoint=None) == replace(wanted, savepoint=None)
        self._require(SAVEPOINTS, same, f"{directory} is loaded as something else")

    def _files_of_savepoints(self) -> None:
        for directory, completed in self._model.savepoints.items():
            for handle in handles_of(completed):
                what = f"a file of {directory}, {self._when},"
                read = read_whole(self._storage, handle, SAVEPOINTS, what)
                self._require(SAVEPOINTS, len(read) == handle.size, f"{what} has {len(read)} bytes")

    def _log(self, what: str) -> None:
        self._rendered.append(what)

    @property
    def _when(self) -> str:
        return f"after: {'; '.join(self._rendered)}"

    def _require(self, clause: str, holds: bool, message: str) -> None:
        self._bench.require(clause, holds, "" if holds else f"{message} ({self._when})")
