"""Unsynced writes are taken back as in the simulator: the same steps on both file systems leave the same files.

Grain: real files, and generated sequences of steps.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barrier_tck.harness.reference.simulated.file_system import SimulatedDisk
from barrier_tck.harness.reference.unsynced_files import JournaledFiles, lose_unsynced
from barrier_tck.reference_impl.storage.filesystem import FileSystem, LocalFileSystem

NAMES = ("a/one", "a/two", "b/one", "a/deep/one")
STEPS = st.one_of(
    st.tuples(
        st.just("write"), st.sampled_from(NAMES), st.sampled_from((b"", b"x", b"longer")), st.booleans()
    ),
    st.tuples(st.just("rename"), st.sampled_from(NAMES), st.sampled_from(NAMES), st.just(False)),
    st.tuples(st.just("sync"), st.sampled_from(("", "", "a", "b", "a/deep")), st.just(""), st.just(False)),
    st.tuples(st.just("delete"), st.sampled_from(NAMES), st.just(""), st.just(False)),
)


def carry_out(files: FileSystem, step: tuple[str, str, str | bytes, bool]) -> None:
    what, name, other, synced = step
    if what == "write":
        assert isinstance(other, bytes)
        stream = files.create(name)
        stream.write(b"begun ")
        if synced:
            stream.sync()
        stream.write(other)
        stream.close()
    elif what == "rename" and name != other and files.exists(name):
        files.rename(name, str(other))
    elif what == "sync":
        if files.list_files(name):
            files.sync_directory(name)
    elif what == "delete":
        files.delete(name)


def content(files: FileSystem) -> dict[str, bytes]:
    return {path: files.read(path) for path in (*files.list_files("a"), *files.list_files("b"))}


def journaled(root: Path, journals: Path, host: str = "host", pid: int | None = None) -> JournaledFiles:
    with patch("os.getpid", return_value=os.getpid() if pid is None else pid):
        return JournaledFiles(LocalFileSystem(root), journals, host)


@pytest.mark.long
@given(st.lists(st.tuples(STEPS, st.sampled_from((0, 0, 1, 2))), max_size=12))
@settings(max_examples=150, deadline=None)
def test_what_is_not_durable_is_lost_as_the_simulator_says(
    steps: list[tuple[tuple[str, str, str | bytes, bool], int]],
) -> None:
    """Two processes of one host, one after the other or side by side, and one of another host."""
    disk = SimulatedDisk()
    first = disk.host()
    simulated = (first, first.of_next_process(), disk.host())
    with TemporaryDirectory() as directory:
        root, journals = Path(directory) / "root", Path(directory) / "journals"
        real = [
            journaled(root, journals, host, pid) for pid, host in enumerate(("host", "host", "another"), 1)
        ]
        for step, process in steps:
            carry_out(simulated[process], step)
            carry_out(real[process], step)
        assert content(real[0]) == content(first)
        lose_unsynced(journals, root, [2])
        first.lose_unsynced()
        assert content(LocalFileSystem(root)) == content(first)


def test_what_a_dead_process_moved_is_lost_with_its_host_unless_anyone_synced_the_directory(
    tmp_path: Path,
) -> None:
    root, journals = tmp_path / "root", tmp_path / "journals"
    dead, successor = journaled(root, journals, pid=1), journaled(root, journals, pid=2)
    other = journaled(root, journals, "another host", pid=3)
    for name in ("kept", "lost"):
        dead.create(f"pending/{name}").sync()
    dead.sync_directory("pending")
    dead.rename("pending/kept", "a/kept")
    other.sync_directory("a")
    other.sync_directory("")
    dead.rename("pending/lost", "a/lost")
    successor.create("b/own").close()
    lose_unsynced(journals, root, [2])
    assert LocalFileSystem(root).list_files("") == ["a/kept", "pending/lost"]


@pytest.mark.parametrize(
    ("synced", "used_by_another", "left"),
    [
        pytest.param(("a/new",), False, [], id="only the names in it are synced"),
        pytest.param(("a/new", ""), False, [], id="one above it is not"),
        pytest.param(("a/new", "a", ""), False, ["a/new/one"], id="all names down to the file"),
        pytest.param(("a/new",), True, ["a/new/one", "a/new/two"], id="another host has put something there"),
    ],
)
def test_a_directory_has_a_name_that_must_be_durable_too(
    tmp_path: Path, synced: tuple[str, ...], used_by_another: bool, left: list[str]
) -> None:
    disk = SimulatedDisk()
    root, journals = tmp_path / "root", tmp_path / "journals"
    real = journaled(root, journals, pid=1), journaled(root, journals, "another host", pid=2)
    for host, another in ((disk.host(), disk.host()), real):
        host.create("a/new/one").sync()
        for directory in synced:
            host.sync_directory(directory)
        if used_by_another:
            another.create("a/new/two").close()
        if isinstance(host, JournaledFiles):
            lose_unsynced(journals, root, [1])
        else:
            host.lose_unsynced()
        assert another.list_files("") == left


def test_only_the_dead_lose_and_only_once(tmp_path: Path) -> None:
    root, journals = tmp_path / "root", tmp_path / "journals"
    files = journaled(root, journals)
    LocalFileSystem(root).create("a/older").close()
    files.create("a/one").close()
    assert lose_unsynced(journals, root, [os.getpid() + 1]) == 0
    assert files.exists("a/one")
    assert lose_unsynced(journals, root, [os.getpid()]) == 1
    assert not files.exists("a/one")
    LocalFileSystem(root).create("a/one").close()
    assert lose_unsynced(journals, root, [os.getpid()]) == 0
    assert files.exists("a/one")
