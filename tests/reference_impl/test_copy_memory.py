"""Files in memory: what a process and those that it forked share, its limit, and what outlives whom."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from barrier_tck.reference_impl.runtime_errors import StorageCause, StorageError
from barrier_tck.reference_impl.spark import executor_memory
from barrier_tck.reference_impl.storage.copy_memory import (
    CopyMemory,
    MemoryFileSystem,
    OwnMemory,
    SharedMemory,
)

FORKING = multiprocessing.get_context("fork")
MEMORIES: list[Callable[[], CopyMemory]] = [OwnMemory, SharedMemory.create]


@pytest.fixture(params=MEMORIES, ids=["own", "shared"])
def memory(request: pytest.FixtureRequest) -> CopyMemory:
    made: CopyMemory = request.param()
    return made


def write(files: MemoryFileSystem, path: str, content: bytes) -> None:
    stream = files.create(path)
    stream.write(content[:3])
    stream.write(content[3:])
    stream.close()
    assert stream.closed


def test_files_are_written_read_renamed_listed_and_deleted(memory: CopyMemory) -> None:
    files = MemoryFileSystem(memory, "local/job", 10_000)
    write(files, "a/one", b"first content")
    write(files, "a/b/two", b"second")
    assert (files.read("a/one"), files.size("a/b/two"), files.exists("a")) == (b"first content", 6, False)
    write(files, "a/one", b"again")
    files.rename("a/b/two", "c/three")
    assert files.list_files("") == ["a/one", "c/three"]
    assert files.list_files("a") == ["a/one"]
    assert (files.read("a/one"), files.read("c/three")) == (b"again", b"second")
    files.delete("a/one")
    files.delete("a/one")
    files.delete_tree("c")
    assert files.list_files("") == []
    with pytest.raises(StorageError, match="not in memory") as caught:
        files.read("a/one")
    assert caught.value.cause is StorageCause.MISSING
    for path in ("/a", "../a"):
        with pytest.raises(StorageError, match="leaves the root"):
            files.create(path)


def test_a_file_is_no_directory(memory: CopyMemory) -> None:
    files = MemoryFileSystem(memory, "job", 10_000)
    write(files, "a", b"x")
    write(files, "b", b"y")
    with pytest.raises(StorageError, match="not a directory"):
        files.create("a/one")
    with pytest.raises(StorageError, match="not a directory"):
        files.rename("b", "a/one")
    assert files.list_files("") == ["a", "b"]


def test_the_limit_counts_all_files_of_the_job_and_only_those(memory: CopyMemory) -> None:
    files, others = MemoryFileSystem(memory, "job", 10), MemoryFileSystem(memory, "jobs", 10)
    write(others, "a", b"123456789")
    write(files, "a", b"123456")
    stream = files.create("b")
    stream.write(b"12345")
    with pytest.raises(StorageError, match="copy b: 6 of 10 bytes are used, and it needs 5 more"):
        stream.close()
    stream.close()
    files.delete("b")
    write(files, "b", b"1234")
    assert (files.read("a"), files.read("b"), others.read("a")) == (b"123456", b"1234", b"123456789")


def test_a_deleted_file_that_is_still_written_does_not_come_back(memory: CopyMemory) -> None:
    files = MemoryFileSystem(memory, "job", 100)
    stream = files.create("a")
    stream.write(b"x")
    files.delete("a")
    with pytest.raises(StorageError, match="deleted while it was written"):
        stream.flush()
    assert files.list_files("") == []


def test_deleting_gives_memory_back() -> None:
    memory = SharedMemory.create()
    files = MemoryFileSystem(memory, "job", 1 << 24)
    write(files, "a", b"x" * (1 << 22))
    taken = os.fstat(memory.descriptor).st_blocks
    files.delete("a")
    assert taken * 512 >= 1 << 22
    assert os.fstat(memory.descriptor).st_blocks * 512 < 1 << 20


def _write_and_die(memory: SharedMemory, path: str) -> None:
    write(MemoryFileSystem(memory, "job", 1_000), path, f"content of {path}".encode())
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_forked_processes_write_outlives_them_and_others_read_it() -> None:
    memory = SharedMemory.create()
    for path in ("one", "two"):
        child = FORKING.Process(target=_write_and_die, args=(memory, path))
        child.start()
        child.join()
        assert child.exitcode == -signal.SIGKILL
    files = MemoryFileSystem(memory, "job", 1_000)
    assert [files.read(path) for path in files.list_files("")] == [b"content of one", b"content of two"]


def test_a_change_that_was_cut_off_is_not_there_and_the_one_before_is() -> None:
    memory = SharedMemory.create()
    files = MemoryFileSystem(memory, "job", 1_000)
    write(files, "one", b"first")
    written = set(files.list_files(""))
    for place in (0, 1):
        before = os.pread(memory.descriptor, 4096, place << 24)
        os.pwrite(memory.descriptor, b"\xff" * 40, (place << 24) + 20)
        assert set(files.list_files("")) <= written
        os.pwrite(memory.descriptor, before, place << 24)
    assert files.read("one") == b"first"


PAGES = 3 * 4096
"""Bytes of a file: enough that memory of it that stays is seen."""


class _DyingMemory(SharedMemory):
    """Its process is killed at one of the steps between which it may be: before, inside or after each change."""

    def __init__(self, descriptor: int, last_step: int) -> None:
        super().__init__(descriptor)
        self._left = last_step

    def _step(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def extend(self, region: int, size: int) -> None:
        self._step()
        super().extend(region, size)
        self._step()

    def free(self, region: int, size: int) -> None:
        self._step()
        super().free(region, size)
        self._step()

    def _write_at(self, position: int, data: bytes) -> None:
        half = len(data) // 2
        for start, part in ((0, data[:half]), (half, data[half:])):
            self._step()
            super()._write_at(position + start, part)
        self._step()


def _use_all(descriptor: int, last_step: int) -> None:
    files = MemoryFileSystem(_DyingMemory(descriptor, last_step), "job", 2 * PAGES)
    write(files, "a/one", b"1" * PAGES)
    stream = files.create("b/two")
    for _ in range(2):
        stream.write(b"2" * (PAGES // 2))
        stream.flush()
    stream.close()
    files.rename("b/two", "a/one")
    write(files, "a/one", b"3")
    files.delete("a/one")
    write(files, "c/three", b"4")
    files.delete_tree("c")


@pytest.mark.nightly
def test_whenever_a_process_is_killed_each_file_can_be_read_and_deleted_and_no_memory_is_lost() -> None:
    steps = 0
    while True:
        steps += 1
        memory = SharedMemory.create()
        child = FORKING.Process(target=_use_all, args=(memory.descriptor, steps))
        child.start()
        child.join()
        files = MemoryFileSystem(memory, "job", 2 * PAGES)
        for path in files.list_files(""):
            content = files.read(path)
            assert len(content) == files.size(path), f"{path} after {steps} steps"
            assert set(content) <= set(b"\0001234"), f"{path} after {steps} steps"
        files.delete_tree("")
        assert files.list_files("") == []
        # What is left are the two places of the catalogue.
        assert os.fstat(memory.descriptor).st_blocks * 512 <= 2 * 4096, f"memory stays after {steps} steps"
        write(files, "b", b"5" * 2 * PAGES)
        assert files.read("b") == b"5" * 2 * PAGES, f"no room after {steps} steps"
        os.close(memory.descriptor)
        if child.exitcode == 0:
            break
        assert child.exitcode == -signal.SIGKILL
    assert steps > 40, "the files are used in more steps than this"


def _hold(memory: SharedMemory, told: Any) -> None:
    with memory.changing():
        told.send("held")
        told.recv()


@pytest.mark.long
def test_nobody_waits_for_ever_for_a_process_that_stands_still() -> None:
    memory = SharedMemory.create()
    here, there = FORKING.Pipe()
    child = FORKING.Process(target=_hold, args=(memory, there))
    child.start()
    assert here.recv() == "held"
    files = MemoryFileSystem(memory, "job", 1_000)
    try:
        with pytest.raises(StorageError, match="was not free"):
            files.create("one")
    finally:
        here.send("go on")
        child.join()
    write(files, "one", b"x")


def _executors_memory(told: Any) -> None:
    own = executor_memory.executor_memory()
    assert own is not None
    files = MemoryFileSystem(own.memory, "job", 1_000)
    write(files, "from-a-worker", b"x")
    told.send(own.place("10.0.0.1"))


def test_the_workers_of_a_daemon_share_its_memory_and_know_it_by_one_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(executor_memory, "_OWN", [])
    assert executor_memory.executor_memory() is None
    executor_memory.reserve()
    own = executor_memory.executor_memory()
    assert own is not None
    here, there = FORKING.Pipe()
    child = FORKING.Process(target=_executors_memory, args=(there,))
    child.start()
    assert here.recv() == own.place("10.0.0.1") == f"10.0.0.1/daemon-{os.getpid()}"
    child.join()
    assert MemoryFileSystem(own.memory, "job", 1_000).list_files("") == ["from-a-worker"]
