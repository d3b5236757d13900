"""Primaries that cannot be written, in the simulator: the fault waits until something is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from barrier_tck.harness.reference.simulated.hosts import PrimaryDisk, PrimaryFailures
from barrier_tck.reference_impl.runtime_errors import StorageError
from barrier_tck.reference_impl.storage.filesystem import LocalFileSystem


def outcomes(tmp_path: Path, checkpoints: int, spared: int, files: list[int]) -> list[int]:
    """Return how many files of each checkpoint could be written, if it has that many and ends at the first failure."""
    failures = PrimaryFailures(spared)
    disk = failures.wrapped(LocalFileSystem(tmp_path))
    failures.refuse("totals[0]", checkpoints)
    assert isinstance(disk, PrimaryDisk) and failures.refuses("totals[0]")
    written = []
    for checkpoint, count in enumerate(files, 1):
        written.append(0)
        for number in range(count):
            try:
                disk.check(f"job/shared/chk-{checkpoint}/totals-0-a1-state-{number}")
            except StorageError:
                break
            written[-1] += 1
    return written


@pytest.mark.parametrize(
    ("checkpoints", "spared", "files", "written"),
    [
        (1, 0, [2, 2], [0, 2]),
        (1, 1, [2, 2], [1, 2]),
        (2, 1, [2, 2, 2], [1, 1, 2]),
        (1, 1, [1, 1, 1], [1, 0, 1]),
        (1, 1, [0, 1, 0, 2, 2], [0, 1, 0, 0, 2]),
    ],
    ids=["at once", "in the middle", "two", "increments of one file", "nothing to write"],
)
def test_so_many_checkpoints_fail_as_are_meant_to_whatever_they_write(
    tmp_path: Path, checkpoints: int, spared: int, files: list[int], written: list[int]
) -> None:
    assert outcomes(tmp_path, checkpoints, spared, files) == written
