"""File systems for tests: one in memory that at a crash loses what was not made durable, one that fails, a full one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, SubtaskId
from barrier_tck.reference_impl.protocol.messages import (
    CompletedCheckpoint,
    OperatorSnapshot,
    SplitPosition,
    StateHandle,
    SubtaskSnapshot,
)
from barrier_tck.reference_impl.runtime_errors import StorageError
from barrier_tck.reference_impl.storage.filesystem import FileSystem, LocalFileSystem, OutputStream

ResultT = TypeVar("ResultT")


class _Node:
    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = 0


class _MemoryStream:
    def __init__(self, node: _Node) -> None:
        self._node = node
        self.closed = False

    def write(self, data: bytes) -> int:
        assert not self.closed
        self._node.data += data
        return len(data)

    def flush(self) -> None:
        assert not self.closed

    def sync(self) -> None:
        assert not self.closed
        self._node.synced = len(self._node.data)

    def close(self) -> None:
        self.closed = True


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _ancestors(path: str) -> list[str]:
    found = []
    while path := _parent(path):
        found.append(path)
    return found


class MemoryFileSystem:
    """Exactly the contract of the port: after ``crash`` only files and directories that were made durable are
    left."""

    def __init__(self) -> None:
        self._names: dict[str, _Node] = {}
        self._directories: dict[str, None] = {}
        self._durable_names: dict[str, _Node] = {}
        self._durable_directories: dict[str, None] = {}
        self.synced_directories: list[str] = []

    def _add_parents(self, path: str) -> None:
        self._directories.update(dict.fromkeys(_ancestors(path)))

    def _node(self, path: str) -> _Node:
        if path not in self._names:
            raise StorageError(f"{path} does not exist")
        return self._names[path]

    def create(self, path: str) -> OutputStream:
        self._add_parents(path)
        node = self._names[path] = _Node()
        return _MemoryStream(node)

    def read(self, path: str) -> bytes:
        return bytes(self._node(path).data)

    def rename(self, source: str, target: str) -> None:
        node = self._node(source)
        del self._names[source]
        self._add_parents(target)
        self._names[target] = node

    def sync_directory(self, path: str) -> None:
        if path and path not in self._directories:
            raise StorageError(f"there is no directory {path}")
        self.synced_directories.append(path)
        for name in [name for name in self._durable_names if _parent(name) == path]:
            del self._durable_names[name]
        self._durable_names.update(
            {name: node for name, node in self._names.items() if _parent(name) == path}
        )
        self._durable_directories.update({name: None for name in self._directories if _parent(name) == path})

    def list_files(self, directory: str) -> list[str]:
        return sorted(name for name in self._names if name.startswith(f"{directory}/"))

    def exists(self, path: str) -> bool:
        return path in self._names

    def size(self, path: str) -> int:
        return len(self._node(path).data)

    def delete(self, path: str) -> None:
        self._names.pop(path, None)

    def delete_tree(self, directory: str) -> None:
        for name in self.list_files(directory):
            del self._names[name]

    def crash(self) -> None:
        """Lose everything that is not durable."""
        self._directories = dict(self._durable_directories)
        self._names = {
            name: node
            for name, node in self._durable_names.items()
            if all(above in self._durable_directories for above in _ancestors(name))
        }
        self._durable_names = dict(self._names)
        for node in self._names.values():
            del node.data[node.synced :]

    def damage(self, path: str, content: bytes) -> None:
        """Replace a file's content without anybody noticing."""
        self._node(path).data[:] = content


class FailingFileSystem:
    """Fails once, at the k-th operation (from 1): instead of doing it or, with ``afterwards``, after doing it."""

    def __init__(self, inner: FileSystem, fail_at: int = 0, afterwards: bool = False) -> None:
        self._inner = inner
        self._fail_at = fail_at
        self._afterwards = afterwards
        self.operations = 0

    @property
    def failed(self) -> bool:
        return 0 < self._fail_at <= self.operations

    def step(self, name: str, operation: Callable[[], ResultT]) -> ResultT:
        self.operations += 1
        if self.operations != self._fail_at:
            return operation()
        if self._afterwards:
            operation()
        raise StorageError(f"injected: operation {self.operations}, {name}")

    def create(self, path: str) -> OutputStream:
        return _FailingStream(self, self.step(f"create {path}", lambda: self._inner.create(path)))

    def read(self, path: str) -> bytes:
        return self.step(f"read {path}", lambda: self._inner.read(path))

    def rename(self, source: str, target: str) -> None:
        self.step(f"rename {source} to {target}", lambda: self._inner.rename(source, target))

    def sync_directory(self, path: str) -> None:
        self.step(f"sync_directory {path}", lambda: self._inner.sync_directory(path))

    def list_files(self, directory: str) -> list[str]:
        return self.step(f"list_files {directory}", lambda: self._inner.list_files(directory))

    def exists(self, path: str) -> bool:
        return self.step(f"exists {path}", lambda: self._inner.exists(path))

    def size(self, path: str) -> int:
        return self.step(f"size {path}", lambda: self._inner.size(path))

    def delete(self, path: str) -> None:
        self.step(f"delete {path}", lambda: self._inner.delete(path))

    def delete_tree(self, directory: str) -> None:
        self.step(f"delete_tree {directory}", lambda: self._inner.delete_tree(directory))


class _FailingStream:
    def __init__(self, owner: FailingFileSystem, inner: OutputStream) -> None:
        self._owner = owner
        self._inner = inner

    @property
    def closed(self) -> bool:
        return self._inner.closed

    def write(self, data: bytes) -> int:
        return self._owner.step("write", lambda: self._inner.write(data))

    def flush(self) -> None:
        self._owner.step("flush", self._inner.flush)

    def sync(self) -> None:
        self._owner.step("sync", self._inner.sync)

    def close(self) -> None:
        self._owner.step("close", self._inner.close)


class FullFileSystem(LocalFileSystem):
    """A real directory with room for so many bytes: whoever writes more is refused, and refused again at the close."""

    def __init__(self, root: Path, room: int) -> None:
        super().__init__(root)
        self.room = room

    def create(self, path: str) -> OutputStream:
        return _FullStream(self, super().create(path))


class _FullStream:
    def __init__(self, owner: FullFileSystem, inner: OutputStream) -> None:
        self._owner = owner
        self._inner = inner
        self._unwritten = False

    @property
    def closed(self) -> bool:
        return self._inner.closed

    def write(self, data: bytes) -> int:
        self._unwritten = self._unwritten or len(data) > self._owner.room
        self.flush()
        self._owner.room -= len(data)
        return self._inner.write(data)

    def flush(self) -> None:
        if self._unwritten:
            raise StorageError("no space left on device")

    def sync(self) -> None:
        self.flush()
        self._inner.sync()

    def close(self) -> None:
        self._inner.close()
        self.flush()


def completed_checkpoint(checkpoint: int, handles: Sequence[StateHandle] = ()) -> CompletedCheckpoint:
    """Return a checkpoint of one source and one keyed subtask, which has these state files."""
    source = OperatorSnapshot("source", positions=(SplitPosition("split-0", 3 * checkpoint),))
    keyed = OperatorSnapshot("aggregate", handles=tuple(handles))
    attempt = AttemptNumber(1)
    return CompletedCheckpoint(
        CheckpointId(checkpoint),
        attempt,
        100 * checkpoint,
        100 * checkpoint + 7,
        (
            SubtaskSnapshot(SubtaskId("read", 0), attempt, (source,)),
            SubtaskSnapshot(SubtaskId("count", 0), attempt, (keyed,)),
        ),
    )
