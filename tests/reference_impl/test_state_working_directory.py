"""Working directories of backends with local files; grain: a call."""

from __future__ import annotations

from pathlib import Path

import pytest

from barrier_tck.reference_impl.runtime_errors import StorageError
from barrier_tck.reference_impl.state.heap import HeapStateBackend
from barrier_tck.reference_impl.state.rocksdb import RocksDBStateBackend
from barrier_tck.reference_impl.state.working_directory import WorkingDirectory, remove_tree


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
