"""The throughput benchmark's input, its ground truth, and the check of what a side wrote."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.both_on_spark import committed_table

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class InputShape:
    """What the input is made of. The same shape always gives the same files."""

    rows: int = 20_000_000
    keys: int = 100_000
    """Distinct values of the column ``key``, evenly likely."""
    files: int = 20
    spread: int = 1
    """Keys are multiples of this: 1 gives dense keys, a large number gives keys that are far apart."""
    seed: int = 7

    def __post_init__(self) -> None:
        if min(self.rows, self.keys, self.files, self.spread) < 1:
            raise ValueError(f"rows, keys, files and spread must be 1 or more: {self}")
        if self.rows % self.files:
            raise ValueError(f"{self.rows} rows cannot be dealt evenly to {self.files} files")

    @property
    def rows_per_file(self) -> int:
        return self.rows // self.files


@dataclass(frozen=True, slots=True, eq=False)
class Totals:
    """Count and sum per key, by ascending key."""

    keys: Ints
    counts: Ints
    sums: Ints

    def times(self, passes: int) -> Totals:
        """Return the totals of the input when it is read ``passes`` times."""
        return Totals(self.keys, self.counts * passes, self.sums * passes)


def write_input(directory: Path, shape: InputShape) -> Totals:
    """Write the Parquet files into a new directory and return the totals of all rows."""
    directory.mkdir(parents=True)
    random = np.random.default_rng(shape.seed)
    counts = np.zeros(shape.keys, dtype=np.int64)
    sums = np.zeros(shape.keys, dtype=np.int64)
    for number in range(shape.files):
        keys = random.integers(0, shape.keys, shape.rows_per_file)
        values = random.integers(-1_000, 1_000, shape.rows_per_file)
        np.add.at(counts, keys, 1)
        np.add.at(sums, keys, values)
        table = pa.table({"key": keys * shape.spread, "value": values})
        pq.write_table(table, directory / f"part-{number:04d}.parquet", row_group_size=1 << 20)
    present = np.flatnonzero(counts)
    return Totals(present * shape.spread, counts[present], sums[present])


def link_copies(source: Path, target: Path, passes: int) -> None:
    """Fill a new directory with hard links to the files of ``source``, each under ``passes`` names."""
    target.mkdir(parents=True)
    for turn in range(passes):
        for file in sorted(source.glob("*.parquet")):
            (target / f"pass-{turn:03d}-{file.name}").hardlink_to(file)


def read_final_totals(directory: Path) -> Totals:
    """Return each key's last row among all committed files. Counts only grow, so it is the one with the greatest count.

    Raises RuntimeError if nothing was committed, or if a row was committed twice. A key is written again only
    after it changed, so the same count must not occur twice.
    """
    table = committed_table(directory, ("key", "count", "sum"))
    keys, counts, sums = (table[name].to_numpy() for name in ("key", "count", "sum"))
    order = np.lexsort((counts, keys))
    keys, counts, sums = keys[order], counts[order], sums[order]
    twice = np.flatnonzero((keys[1:] == keys[:-1]) & (counts[1:] == counts[:-1]))
    if len(twice):
        raise RuntimeError(f"key {keys[twice[0]]} was committed twice with the count {counts[twice[0]]}")
    last = np.append(keys[1:] != keys[:-1], True)
    return Totals(keys[last], counts[last], sums[last])


def require_equal(found: Totals, expected: Totals, side: str) -> None:
    """Raise RuntimeError, naming the first wrong key, unless both are the same."""
    if len(found.keys) != len(expected.keys) or (found.keys != expected.keys).any():
        odd = np.setxor1d(found.keys, expected.keys)
        raise RuntimeError(f"{side} has other keys than its input: {len(odd)} in all, the first is {odd[0]}")
    wrong = np.flatnonzero((found.counts != expected.counts) | (found.sums != expected.sums))
    if len(wrong):
        first = wrong[0]
        raise RuntimeError(
            f"{side} has {len(wrong)} wrong totals; key {found.keys[first]} has count {found.counts[first]} and "
            f"sum {found.sums[first]}, not {expected.counts[first]} and {expected.sums[first]}"
        )
