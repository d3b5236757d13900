"""The process of a candidate backend, which obeys the certifier's requests. It is run with ``python -m``, never
imported.

The candidate may print, fork, exit, use too much memory or hang: its output goes to a pipe that the certifier drains,
a forked copy loses the connection, memory and file sizes are limited, and the certifier ends the whole session.
"""

from __future__ import annotations

import ctypes
import hashlib
import inspect
import itertools
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
import traceback
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil

from barrier_tck.harness.certify.backend import wire
from barrier_tck.harness.certify.backend.candidate.faulty_files import FaultyFiles
from barrier_tck.harness.certify.backend.candidate.outside_files import OutsideFiles
from barrier_tck.harness.certify.backend.candidate.process_resources import (
    descriptors,
    files_below,
    give_back_memory,
    settled,
)
from barrier_tck.harness.certify.backend.candidate.second_copies import SecondCopies
from barrier_tck.harness.certify.backend.candidate.taken_snapshot import TakenSnapshot
from barrier_tck.harness.certify.backend.free_writes import free_write
from barrier_tck.harness.plan.backend_targets import SHIPPED_BACKENDS
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.raised_by import is_of_project, places_of
from barrier_tck.harness.support.third_party import imported
from barrier_tck.reference_impl.config import Compression
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.runtime_errors import (
    CorruptStateError,
    JobUsageError,
    SnapshotCancelled,
    StorageError,
)
from barrier_tck.reference_impl.state.backend import (
    KeyedStateStore,
    StateBackend,
    StateCapability,
    StateScope,
    StateWriter,
)
from barrier_tck.reference_impl.state.working_directory import remove_tree
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from barrier_tck.reference_impl.storage.metadata import checksum_text
from barrier_tck.reference_impl.storage.sharing_writer import SharingWriter

JOB, VERTEX, OPERATOR = "certified", "keyed", "operator"
_PR_SET_PDEATHSIG = 1
FREE_WRITES_MIN, FREE_WRITES_MAX = 40, 2_000
"""The smallest and largest number of writes that are made while a snapshot is stored."""
CLOSE_WAITS_S = 0.1
"""A store whose ``close`` takes longer is taken to wait for the asynchronous part that is under way, in seconds."""
_SCANS_AT_ONCE = 8
"""How many scans of one state are read side by side."""
_OFTEN_S = 1e-5
"""Python's thread switch interval during that time, in seconds."""
_ERRORS: tuple[tuple[type[Exception], str], ...] = (
    (SnapshotCancelled, "cancelled"),
    (CorruptStateError, "corrupt"),
    (StorageError, "storage"),
    (JobUsageError, "usage"),
)
_OPEN = ("name", "open", "capabilities")
_STORE = (
    *("get", "put", "delete", "scan", "get_many", "put_many"),
    *("snapshot", "confirm", "abort", "close"),
)


class _Refused(Exception):
    """The target is not what it should be; ``kind`` is the error of the reply."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class _Opened:
    """An open store, and its own directory."""

    store: KeyedStateStore
    scope: StateScope

    def close(self, times: int = 1) -> None:
        """Close the store, then remove its directory, in the same order as the runtime."""
        for _ in range(times):
            self.store.close()
        self.remove_directory()

    def remove_directory(self) -> None:
        """Remove the store's own directory, if it has one."""
        if self.scope.working_directory is not None:
            remove_tree(Path(self.scope.working_directory))


class Worker:
    """Holds the backend and its stores, and answers one request at a time."""

    def __init__(self, outside: OutsideFiles) -> None:
        self._outside = outside
        self._make: Callable[[], StateBackend] | None = None
        self._backend: StateBackend | None = None
        self._storage = ""
        self._work = ""
        self._stores: dict[int, _Opened] = {}
        self._taken: dict[tuple[int, int], TakenSnapshot] = {}

    def answer(self, request: wire.AnyRequest) -> wire.Reply:
        """Fulfil a request; errors of the candidate become replies."""
        try:
            return getattr(self, f"_do_{type(request).__struct_config__.tag}")(request)  # type: ignore[no-any-return]
        except _Refused as error:
            return wire.Reply(error=error.kind, message=str(error))
        except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
            kind = next((name for family, name in _ERRORS if isinstance(error, family)), "other")
            text = _error_text(error)
            if kind == "other":
                text += _where(error)
            return wire.Reply(error=kind, message=text)

    def _do_load(self, request: wire.LoadRequest) -> wire.Reply:
        self._make = _imported(request.target)
        backend = self._make()
        _require(backend, _OPEN, f"{request.target} returns {backend!r}, which is not a state backend")
        self._backend = backend
        return wire.Reply({"name": str(backend.name), "capabilities": _declared(request.target, backend)})

    def _do_reset(self, request: wire.ResetRequest) -> wire.Reply:
        for number in sorted(self._stores):
            self._stores.pop(number).close()
        self._taken.clear()
        self._storage, self._work = request.storage, request.work
        self._outside.allow(request.storage, request.work)
        os.environ["TMPDIR"] = tempfile.tempdir = request.work
        os.chdir(request.work)
        return wire.Reply()

    def _do_open(self, request: wire.OpenRequest) -> wire.Reply:
        assert self._backend is not None
        groups = KeyGroupRange(request.start, request.end)
        names = (request.job or JOB, request.vertex or VERTEX, request.operator or OPERATOR)
        directory = self._working_directory()
        scope = StateScope(
            *(*names, request.subtask, request.attempt, groups),
            directory,
            request.files_wanted,
            Compression(request.compression),
            incremental=request.incremental,
            restored=CheckpointId(request.restored) if request.restored else None,
            own_threads=request.own_threads,
            read_only=request.read_only,
        )
        handles = [msgspec.msgpack.decode(handle.packed, type=StateHandle) for handle in request.restore]
        files = FaultyFiles(request.storage or self._storage)
        try:
            store = self._backend.open(scope, handles, self._checkpoints(files))
        except Exception:
            if directory is not None:
                remove_tree(Path(directory))
            raise
        _require(store, _STORE, f"open() returned {store!r}, which is not a keyed state store")
        self._stores[request.store] = _Opened(store, scope)
        return wire.Reply()

    def _working_directory(self) -> str | None:
        """Make a directory for one store if the backend declares that it keeps files."""
        assert self._backend is not None
        if StateCapability.LOCAL_FILES not in self._backend.capabilities:
            return None
        return tempfile.mkdtemp(prefix=wire.STORE_PREFIX, dir=self._work)

    def _do_get(self, request: wire.GetRequest) -> wire.Reply:
        return wire.Reply(_bytes_or_none(self._store(request).get(request.name, request.group, request.key)))

    def _do_put(self, request: wire.PutRequest) -> wire.Reply:
        self._store(request).put(request.name, request.group, request.key, request.value)
        return wire.Reply()

    def _do_delete(self, request: wire.DeleteRequest) -> wire.Reply:
        self._store(request).delete(request.name, request.group, request.key)
        return wire.Reply()

    def _do_delete_many(self, request: wire.DeleteManyRequest) -> wire.Reply:
        store = self._store(request)
        for group, key in zip(request.groups, request.keys, strict=True):
            store.delete(request.name, group, key)
        return wire.Reply()

    def _do_scan(self, request: wire.ScanRequest) -> wire.Reply:
        entries = self._store(request).scan(request.name, request.group)
        return wire.Reply([[_a_bytes(key), _a_bytes(value)] for key, value in entries])

    def _do_disturbed_scan(self, request: wire.DisturbedScanRequest) -> wire.Reply:
        store, name, group = self._store(request), request.name, request.group
        scans = [iter(store.scan(name, group)) for _ in range(3)]
        found = [list(itertools.islice(scan, number)) for number, scan in enumerate(scans)]
        for beside in request.beside:
            scans.append(iter(store.scan(*beside)))
            found.append(list(itertools.islice(scans[-1], 1)))
        store.put(name, group, request.added, wire.ADDED)
        store.put(name, group, request.changed, wire.CHANGED)
        store.delete(name, group, request.deleted)
        scans.append(iter(store.scan(name, group)))
        found.append([])
        for row in itertools.zip_longest(*scans):
            for entries, entry in zip(found, row, strict=True):
                entries += [] if entry is None else [entry]
        return wire.Reply([[[_a_bytes(key), _a_bytes(value)] for key, value in entries] for entries in found])

    def _do_read_all(self, request: wire.ReadAllRequest) -> wire.Reply:
        store = self._store(request)
        scans = self._scanned(store, request) if request.scan_first else []
        places = list(zip(request.groups, request.keys, strict=True))
        singles = [
            _bytes_or_none(store.get(request.name, *places[number]))
            for number in wire.sampled(len(places), request.singles)
        ]
        many = store.get_many(request.name, list(request.groups), list(request.keys)) if places else []
        readings = wire.Readings(
            scans or self._scanned(store, request), [_bytes_or_none(value) for value in many], singles
        )
        return wire.Reply(readings)

    def _scanned(
        self, store: KeyedStateStore, request: wire.ReadAllRequest
    ) -> list[list[tuple[bytes, bytes]]]:
        """Read the scans of all these groups, some side by side and by turns."""
        read: list[list[tuple[bytes, bytes]]] = []
        for first in range(0, len(request.scanned), _SCANS_AT_ONCE):
            groups = request.scanned[first : first + _SCANS_AT_ONCE]
            scans = [iter(store.scan(request.name, group)) for group in groups]
            found: list[list[tuple[bytes, bytes]]] = [[] for _ in scans]
            for row in itertools.zip_longest(*scans):
                for entries, entry in zip(found, row, strict=True):
                    entries += [] if entry is None else [(_a_bytes(entry[0]), _a_bytes(entry[1]))]
            read += found
        return read

    def _do_get_many(self, request: wire.GetManyRequest) -> wire.Reply:
        found = self._store(request).get_many(request.name, list(request.groups), list(request.keys))
        return wire.Reply([_bytes_or_none(value) for value in found])

    def _do_put_many(self, request: wire.PutManyRequest) -> wire.Reply:
        groups, keys, values = list(request.groups), list(request.keys), list(request.values)
        self._store(request).put_many(request.name, groups, keys, values)
        return wire.Reply()

    def _do_snapshot(self, request: wire.SnapshotRequest) -> wire.Reply:
        opened = self._stores[request.store]
        store, scope = opened.store, opened.scope
        files = FaultyFiles(self._storage, request.fault)
        attempt, subtask = AttemptNumber(scope.attempt), SubtaskId(scope.vertex, scope.subtask_index)
        checkpoint = CheckpointId(request.checkpoint)
        storage = FileCheckpointStorage(files, scope.job)
        place = (checkpoint, attempt, subtask, scope.operator)
        writer: StateWriter = storage.writer(*place)
        if request.reuse_from:
            writer = SharingWriter(writer, storage.shared_writer(*place), request.reuse_from)
        second = SecondCopies(writer, self._storage, Compression(request.second)) if request.second else None
        future = store.snapshot(checkpoint, second or writer)
        self._taken[request.store, request.checkpoint] = TakenSnapshot(future, files, second)
        if not isinstance(future.done, bool):
            raise TypeError(
                f"`done` of a SnapshotFuture is a bool, or a property that returns one, not {future.done!r}"
            )
        return wire.Reply({"done": future.done, "operations": files.operations})

    def _do_run(self, request: wire.RunRequest) -> wire.Reply:
        taken = self._taken[request.store, request.checkpoint]
        if request.here:
            taken.run()
        else:
            taken.start()
        return self._ended(taken)

    def _do_start(self, request: wire.StartRequest) -> wire.Reply:
        taken = self._taken[request.store, request.checkpoint]
        taken.files.stand_still_at(request.stop_at)
        taken.start()
        taken.files.standing.wait()
        return wire.Reply(not taken.ended.is_set())

    def _do_race(self, request: wire.RaceRequest) -> wire.Reply:
        """Threads switch often here, so a call of the candidate may be interrupted between any two of its steps."""
        taken, store = self._taken[request.store, request.checkpoint], self._store(request)
        interval = sys.getswitchinterval()
        sys.setswitchinterval(_OFTEN_S)
        writes = meanwhile = 0
        cancelling = None
        try:
            taken.start()
            while writes < FREE_WRITES_MIN or (writes < FREE_WRITES_MAX and not taken.ended.is_set()):
                if writes == request.cancel_after:
                    cancelling = taken.cancel()
                call, groups, keys = free_write(writes, request.groups, request.checkpoint)
                value = b"%08d" % writes
                if call == "put":
                    store.put(request.name, groups[0], keys[0], value)
                elif call == "delete":
                    store.delete(request.name, groups[0], keys[0])
                else:
                    store.put_many(request.name, list(groups), list(keys), [value] * len(keys))
                writes += 1
                meanwhile += not taken.ended.is_set()
            if cancelling is not None:
                cancelling.ended()
            ended = self._ended(taken)
        finally:
            sys.setswitchinterval(interval)
        if ended.error == "cancelled" and cancelling is not None:
            return wire.Reply(wire.Raced((), writes, meanwhile, cancelled=True))
        if ended.error is not None:
            return ended
        return wire.Reply(wire.Raced(ended.value.handles, writes, meanwhile))

    def _do_damage(self, request: wire.DamageRequest) -> wire.Reply:
        path = Path(request.storage, wire.CHECKPOINTS, request.handle.path)
        return self._replaced(request.handle, path, _damaged(path.read_bytes(), request.damage))

    @staticmethod
    def _replaced(packed: wire.Handle, path: Path, content: bytes) -> wire.Reply:
        """Give a file another content; the reply has a handle that fits it."""
        path.write_bytes(content)
        handle = msgspec.msgpack.decode(packed.packed, type=StateHandle)
        fits = msgspec.structs.replace(handle, size=len(content), checksum=checksum_text(zlib.crc32(content)))
        return wire.Reply(_packed(fits))

    def _do_lengths(self, request: wire.LengthsRequest) -> wire.Reply:
        """Beside lengths all over the file, choose those at which the backend has ended a write: there a file may look
        whole."""
        ends = {
            length
            for path, lengths in self._taken[request.store, request.checkpoint].files.written.items()
            if path.endswith(request.handle.path)
            for length in lengths
        }
        return wire.Reply(wire.lengths_to_cut_to(request.handle.size, sorted(ends), request.at_most))

    def _do_cut(self, request: wire.CutRequest) -> wire.Reply:
        path = Path(request.storage, wire.CHECKPOINTS, request.handle.path)
        return self._replaced(request.handle, path, path.read_bytes()[: request.length])

    def _do_finish(self, request: wire.FinishRequest) -> wire.Reply:
        taken = self._taken[request.store, request.checkpoint]
        taken.files.go_on()
        return self._ended(taken)

    def _ended(self, taken: TakenSnapshot) -> wire.Reply:
        try:
            handles = taken.join()
        except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
            reply = self._failed(error)
            return msgspec.structs.replace(reply, fault_fired=taken.files.fault_fired)
        packed = tuple(_packed(handle) for handle in handles)
        second = taken.second.finish(handles) if taken.second is not None else ()
        copies = tuple(_packed(handle) for handle in second)
        ran = wire.Ran(packed, taken.files.fault_fired, taken.files.operations, copies)
        return wire.Reply(ran)

    def _failed(self, error: Exception) -> wire.Reply:
        kind = next((name for family, name in _ERRORS if isinstance(error, family)), "other")
        return wire.Reply(error=kind, message=_error_text(error) + (_where(error) if kind == "other" else ""))

    def _do_notify(self, request: wire.NotifyRequest) -> wire.Reply:
        checkpoint = CheckpointId(request.checkpoint)
        if request.what == "cancel":
            taken = self._taken[request.store, request.checkpoint]
            if request.elsewhere:
                taken.cancel().ended()
            else:
                taken.future.cancel()
        elif request.what == "confirm":
            self._stores[request.store].store.confirm(checkpoint)
        else:
            self._stores[request.store].store.abort(checkpoint)
        return wire.Reply()

    def _do_digest(self, request: wire.DigestRequest) -> wire.Reply:
        handle = msgspec.msgpack.decode(request.handle.packed, type=StateHandle)
        content = self._checkpoints(FaultyFiles(self._storage)).read(handle)
        return wire.Reply(f"{len(content)} bytes with SHA-256 {hashlib.sha256(content).hexdigest()[:16]}")

    def _do_discard(self, request: wire.DiscardRequest) -> wire.Reply:
        subtask = request.subtask
        if subtask is None:
            subtask = self._stores[request.store].scope.subtask_index
        mine = f"/chk-{request.checkpoint}/{VERTEX}-{subtask}-"
        files = FaultyFiles(self._storage)
        for path in self._checkpoints(files).files():
            if mine in path:
                files.delete(path)
        self._taken.pop((request.store, request.checkpoint), None)
        return wire.Reply()

    def _do_close(self, request: wire.CloseRequest) -> wire.Reply:
        opened = self._stores[request.store]
        if request.keep:
            opened.close(request.times)
            return wire.Reply()
        del self._stores[request.store]
        for key in [key for key in self._taken if key[0] == request.store]:
            del self._taken[key]
        opened.close(request.times)
        return wire.Reply()

    def _do_close_amid(self, request: wire.CloseAmidRequest) -> wire.Reply:
        """Most stores need not wait for the asynchronous part, so it goes on after ``close``; for one that does wait it
        goes on earlier.
        """
        opened = self._stores.pop(request.store)
        taken = self._taken.pop((request.store, request.checkpoint))
        closed = threading.Event()

        def go_on() -> None:
            closed.wait(CLOSE_WAITS_S)
            taken.files.go_on()

        going_on = threading.Thread(target=go_on, name="goes on", daemon=True)
        going_on.start()
        try:
            opened.store.close()
        finally:
            closed.set()
            going_on.join()
            ended = self._ended(taken)
        opened.remove_directory()
        return ended

    def _do_resources(self, request: wire.ResourcesRequest) -> wire.Reply:
        give_back_memory()
        process = psutil.Process()
        ours = threading.active_count()
        threads = settled(process) if request.settle else ours
        memory = process.memory_info()
        held = wire.Held(
            descriptors=descriptors(),
            threads=max(threads, ours),
            children=len(process.children(recursive=True)),
            memory_bytes=memory.rss - memory.shared,
            work_files=files_below(self._work),
            storage_files=tuple(self._checkpoints(FaultyFiles(self._storage)).files()),
            outside_files=self._outside.files(),
        )
        return wire.Reply(held)

    def _do_trial(self, request: wire.TrialRequest) -> wire.Reply:
        from barrier_tck.harness.certify.backend.candidate.trials import judge_trial

        assert self._make is not None
        return wire.Reply(judge_trial(request, self._make))

    def _do_close_systems(self, request: wire.CloseSystemsRequest) -> wire.Reply:
        from barrier_tck.harness.certify.backend.candidate.trials import close_systems

        close_systems()
        return wire.Reply()

    def _store(self, request: Any) -> KeyedStateStore:
        return self._stores[request.store].store

    def _checkpoints(self, files: FaultyFiles) -> FileCheckpointStorage:
        return FileCheckpointStorage(files, JOB)


def _error_text(error: BaseException) -> str:
    """Return an error as one text, its type without the module."""
    text = "".join(traceback.format_exception_only(error)).strip()
    kind = type(error)
    return text.removeprefix(f"{kind.__module__}.")


def _where(error: Exception) -> str:
    """Return the innermost line of the candidate's code in the traceback, or of any if none is of its code."""
    places = places_of(error)
    of_candidate = (place for place in places if not is_of_project(place.module))
    place = next(of_candidate, places[0] if places else None)
    return f" ({place})" if place is not None else ""


def _imported(target: str) -> Callable[[], StateBackend]:
    try:
        make = imported(SHIPPED_BACKENDS.get(target, target), "state backend")
    except UsageProblem as problem:
        raise _Refused("import", str(problem)) from problem
    try:
        inspect.signature(make).bind()
    except TypeError as problem:
        message = f"{target} cannot be called without arguments ({problem}), so it makes no state backend"
        raise _Refused("no-backend", message) from problem
    except ValueError:
        pass  # some functions of C modules do not show their parameters
    return make  # type: ignore[return-value]


def _require(value: object, names: tuple[str, ...], sentence: str) -> None:
    missing = [name for name in names if not hasattr(value, name)]
    if missing:
        raise _Refused("no-backend", f"{sentence}: it has no {', '.join(missing)}")


def _declared(target: str, backend: StateBackend) -> list[str]:
    """Return the names of the declared capabilities, in order; refuse anything that is not a capability."""
    declared: object = backend.capabilities
    if not isinstance(declared, frozenset | set):
        raise _Refused(
            "no-backend", f"the capabilities of {target} are {declared!r}, not a frozenset of StateCapability"
        )
    names = []
    for capability in declared:
        if not isinstance(capability, StateCapability):
            known = ", ".join(known.name for known in StateCapability)
            raise _Refused(
                "no-backend",
                f"{target} declares {capability!r}, which is not a StateCapability; known: {known}",
            )
        names.append(capability.value)
    return sorted(names)


def _packed(handle: StateHandle) -> wire.Handle:
    if not isinstance(handle, StateHandle):
        raise TypeError(f"a snapshot consists of the handles that the writer gave, not of {handle!r}")
    groups = handle.key_groups
    packed = msgspec.msgpack.encode(handle)
    return wire.Handle(handle.path, handle.size, groups.start, groups.end, packed)


def _damaged(content: bytes, damage: str) -> bytes:
    """Return the damaged content that replaces a file's content."""
    if damage == "empty":
        return b""
    if damage == "half":
        return content[: len(content) // 2]
    if damage == "last_byte":
        return content[:-1]
    if damage == "noise":
        return hashlib.shake_128(b"noise").digest(len(content))
    return b'{"format": "of another kind", "entries": []}\n'


def _a_bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"keys and values are bytes, not {type(value).__name__}: {value!r}")
    return value


def _bytes_or_none(value: object) -> bytes | None:
    return None if value is None else _a_bytes(value)


def _die_with_parent() -> None:
    """Die with the certifier, so that a hanging candidate does not outlive it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _limit(memory_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_bytes:
        # Data instead of address space, because a backend may map a large file and use little of it.
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 * memory_bytes, 2 * memory_bytes))


def main(arguments: list[str]) -> None:
    """Serve the socket whose descriptor is the first argument; the second argument limits memory, in bytes."""
    link = socket.socket(fileno=int(arguments[0]))
    link.set_inheritable(False)
    _die_with_parent()
    _limit(int(arguments[1]))
    # A forked copy of this process must neither answer nor receive requests.
    os.register_at_fork(after_in_child=link.close)
    worker = Worker(OutsideFiles())
    while True:
        try:
            body = wire.receive(link)
        except wire.Disconnected:
            os._exit(0)
        reply = worker.answer(wire.decode_request(body))
        try:
            wire.send(link, reply)
        except wire.Disconnected:
            os._exit(0)  # a forked copy gets here, too


if __name__ == "__main__":
    main(sys.argv[1:])
