"""Backends by name, and working directories; grain: a call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barrier_tck.reference_impl.runtime_errors import JobUsageError, StorageError
from barrier_tck.reference_impl.state.backend_names import SHIPPED, backend_named
from barrier_tck.reference_impl.state.heap import HeapStateBackend
from barrier_tck.reference_impl.state.rocksdb import RocksDBStateBackend
from barrier_tck.reference_impl.state.working_directory import WorkingDirectory, remove_tree

HERE = __name__


class Nameless:
    capabilities: frozenset[Any] = frozenset()

    def open(self) -> None: ...


class Closed:
    name = "closed"
    capabilities: frozenset[Any] = frozenset()


class Undeclared:
    name = "undeclared"

    def open(self) -> None: ...


class Boastful(Undeclared):
    capabilities = frozenset({"fast"})


def broken() -> None:
    raise RuntimeError("no licence")


def test_shipped_backends_are_found_by_their_names() -> None:
    assert backend_named("heap") is HeapStateBackend
    assert {name: backend_named(name)().name for name in SHIPPED} == {name: name for name in SHIPPED}
    assert backend_named("barrier_tck.reference_impl.state.heap:HeapStateBackend") is HeapStateBackend


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("heep", "did you mean 'heap'"),
        ("redis", "known: heap, rocksdb"),
        ("", "is not known"),
        ("a b:c", "is not known"),
        ("no_such_module_anywhere:Backend", "does not import"),
        ("barrier_tck.reference_impl.state.heap:HeapStateBakend", "did you mean 'HeapStateBackend'"),
        ("barrier_tck.reference_impl.state.heap:_VERSION", "no callable"),
        (f"{HERE}:broken", "RuntimeError: no licence"),
        (f"{HERE}:Nameless", "has no name"),
        (f"{HERE}:Closed", "no method open"),
        (f"{HERE}:Undeclared", "capabilities"),
        (f"{HERE}:Boastful", "'fast'"),
    ],
)
def test_what_is_no_backend_is_refused_with_a_reason(name: str, message: str) -> None:
    with pytest.raises(JobUsageError, match=message):
        backend_named(name)


def test_only_a_backend_that_declares_local_files_gets_a_directory(tmp_path: Path) -> None:
    none = WorkingDirectory(HeapStateBackend(), str(tmp_path))
    assert none.of_operator("a") is None
    assert list(tmp_path.iterdir()) == []
    working = WorkingDirectory(RocksDBStateBackend(), str(tmp_path / "made"))
    first, second = working.of_operator("a/../b"), working.of_operator("c")
    assert first is not None and second is not None and first != second
    assert Path(first).is_relative_to(tmp_path / "made") and Path(first).is_dir()
    working.close()
    working.close()
    assert list((tmp_path / "made").iterdir()) == []


def test_a_root_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"):
        WorkingDirectory(RocksDBStateBackend(), str(tmp_path / "file")).of_operator("a")


def test_a_tree_that_is_gone_is_removed_already(tmp_path: Path) -> None:
    remove_tree(tmp_path / "nothing")
