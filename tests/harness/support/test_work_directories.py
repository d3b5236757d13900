"""Where temporary directories are made."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from barrier_tck.harness.support import work_directories
from barrier_tck.harness.support.work_directories import remove_orphaned, temporary_work_directory


@pytest.fixture(autouse=True)
def _places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the disk and the file system in memory below the test's directory."""
    for name in ("disk", "memory"):
        (tmp_path / name).mkdir()
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "disk"))
    monkeypatch.setattr(work_directories, "SHARED_MEMORY", tmp_path / "memory")


def parent_of_one(*, in_memory: bool = True) -> str:
    with temporary_work_directory("test", in_memory=in_memory) as name:
        return Path(name).parent.name


def test_small_files_are_in_memory_where_there_is_room_and_the_user_named_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert parent_of_one() == "memory"
    assert parent_of_one(in_memory=False) == "disk"
    monkeypatch.setenv("TMPDIR", str(tmp_path / "disk"))
    assert parent_of_one() == "disk"
    monkeypatch.delenv("TMPDIR")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=64 << 20))
    assert parent_of_one() == "disk"
    (tmp_path / "memory").rmdir()
    assert parent_of_one() == "disk"


def test_what_a_killed_process_left_is_removed_in_both_places(tmp_path: Path) -> None:
    orphans = [tmp_path / place / "barrier-tck-work-test-1-0-x" for place in ("disk", "memory")]
    mine = tmp_path / "memory" / f"{work_directories.work_prefix('test')}x"
    for path in (*orphans, mine):
        path.mkdir()
    assert sorted(remove_orphaned()) == sorted(orphans), f"the process {os.getpid()} runs"
    assert mine.exists()
