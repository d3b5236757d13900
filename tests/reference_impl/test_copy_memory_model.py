"""Files in memory against a model: which there are, what is in them, and how many bytes they have together (LOC-7)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from barrier_tck.reference_impl.runtime_errors import StorageError
from barrier_tck.reference_impl.storage.copy_memory import (
    CopyMemory,
    MemoryFileSystem,
    OwnMemory,
    SharedMemory,
)
from barrier_tck.reference_impl.storage.filesystem import OutputStream

LIMIT = 20
PATHS = st.sampled_from(["a", "c/x", "c/y"])
DATA = st.sampled_from([b"1234567", b"twelve bytes"])


class _File:
    """A file of the model, whatever its name is."""

    def __init__(self) -> None:
        self.content = b""


class _Open:
    """A stream that is being written, and the file that it belongs to."""

    def __init__(self, stream: OutputStream, file: _File) -> None:
        self.stream = stream
        self.file = file
        self.waiting = b""


class FilesInMemory(RuleBasedStateMachine):
    """One job's files; those of another job beside them do not count."""

    memory: Callable[[], CopyMemory] = OwnMemory
    streams = Bundle("streams")

    def __init__(self) -> None:
        super().__init__()
        memory = self.memory()
        others = MemoryFileSystem(memory, "jobs", 1_000)
        stream = others.create("a")
        stream.write(b"x" * LIMIT)
        stream.close()
        self.files = MemoryFileSystem(memory, "job", LIMIT)
        self.there: dict[str, _File] = {}

    @initialize(target=streams)
    def create_one(self) -> _Open:
        return self.create("a")

    @rule(target=streams, path=PATHS)
    def create_any(self, path: str) -> _Open:
        return self.create(path)

    def create(self, path: str) -> _Open:
        self.there[path] = _File()
        return _Open(self.files.create(path), self.there[path])

    @rule(open_=streams, data=DATA, flushed=st.booleans())
    def write(self, open_: _Open, data: bytes, flushed: bool) -> None:
        assert open_.stream.write(data) == len(data)
        open_.waiting += data
        if flushed:
            self._ends(open_, open_.stream.flush)

    @rule(open_=consumes(streams))
    def close(self, open_: _Open) -> None:
        self._ends(open_, open_.stream.close)
        assert open_.stream.closed

    def _ends(self, open_: _Open, act: Callable[[], None]) -> None:
        """Do what makes waiting bytes part of the file, if it is there still and there is room for all of them."""
        data, open_.waiting = open_.waiting, b""
        room = LIMIT - sum(len(file.content) for file in self.there.values())
        if data and (open_.file not in self.there.values() or len(data) > room):
            with pytest.raises(StorageError):
                act()
        else:
            act()
            open_.file.content += data

    @rule(path=PATHS)
    def delete(self, path: str) -> None:
        self.files.delete(path)
        self.there.pop(path, None)

    @rule()
    def delete_tree(self) -> None:
        self.files.delete_tree("c")
        self.there = {path: file for path, file in self.there.items() if not path.startswith("c/")}

    @rule(old=PATHS, new=PATHS)
    def rename(self, old: str, new: str) -> None:
        if old not in self.there:
            with pytest.raises(StorageError):
                self.files.rename(old, new)
            return
        self.files.rename(old, new)
        self.there[new] = self.there.pop(old)

    @invariant()
    def holds_what_was_written(self) -> None:
        assert self.files.list_files("") == sorted(self.there)
        for path, file in self.there.items():
            assert self.files.read(path) == file.content
            assert self.files.size(path) == len(file.content)
        assert sum(len(file.content) for file in self.there.values()) <= LIMIT


class SharedFilesInMemory(FilesInMemory):
    """The same in memory that forked processes share."""

    memory = SharedMemory.create


_SETTINGS = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestFilesInMemory = FilesInMemory.TestCase
TestFilesInMemory.settings = _SETTINGS
TestSharedFilesInMemory = SharedFilesInMemory.TestCase
TestSharedFilesInMemory.settings = settings(_SETTINGS, max_examples=20)


@pytest.mark.parametrize("memory", [OwnMemory, SharedMemory.create], ids=["own", "shared"])
def test_what_a_file_has_already_counts_while_it_is_written(memory: Callable[[], CopyMemory]) -> None:
    files = MemoryFileSystem(memory(), "job", LIMIT)
    stream = files.create("a")
    stream.write(b"twelve bytes")
    stream.flush()
    stream.write(b"twelve bytes")
    with pytest.raises(StorageError, match="12 of 20 bytes are used, and it needs 12 more"):
        stream.flush()
    assert files.read("a") == b"twelve bytes"
