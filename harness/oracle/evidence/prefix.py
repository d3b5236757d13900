"""Folds prefixes of the source splits into the state that every operator must hold at a cut (ALN-2).

Folds are computed for one cut after the other. Within a history, the positions of cuts mostly grow, so each fold
continues from the previous one. If a position is lower than before, the fold starts from the beginning again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from barrier_tck.harness.workloads.sequential_model import Contribution, Key, SequentialSpec, Totals
from barrier_tck.harness.workloads.workload import SplitData, split_files, split_name

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Extent:
    """Where a split's input lies: records ``start`` (included) to ``end`` (excluded)."""

    start: int
    end: int


Contributions = Mapping[str, Sequence[Contribution]]
"""Split -> what each of its records contributes, including the records before ``Extent.start``."""


def contributions_of(spec: SequentialSpec, splits: Sequence[SplitData]) -> Contributions:
    """Return what every record of the splits contributes according to the model."""
    return {split.name: list(map(spec.contribution, split.rows)) for split in splits}


class PrefixFold(Protocol):
    """The sequential model over growing prefixes of all splits."""

    @property
    def extents(self) -> Mapping[str, Extent]:
        """Return the extent of each split of the input."""

    def up_to(self, positions: Mapping[str, int]) -> Totals:
        """Return the totals of the records before the positions; the caller must not change the result.

        Every split must have a position: within its extent, or below its start if the split has not been begun.
        """


class RowsPrefix:
    """Folds generated splits row by row."""

    def __init__(self, splits: Sequence[SplitData], contributions: Contributions) -> None:
        self._contributions = contributions
        self.extents: Mapping[str, Extent] = {
            split.name: Extent(split.start_offset, len(split.rows)) for split in splits
        }
        self._begin()

    def _begin(self) -> None:
        self._at = {name: extent.start for name, extent in self.extents.items()}
        self._totals: Totals = {}

    def up_to(self, positions: Mapping[str, int]) -> Totals:
        """Return the totals of the records before the positions."""
        if _goes_back(self._at, positions, self.extents):
            self._begin()
        for name, contributions in self._contributions.items():
            at, position = self._at[name], positions[name]
            if position > at:
                SequentialSpec.add(contributions[at:position], self._totals)
                self._at[name] = position
        return self._totals


class ParquetPrefix:
    """Folds Parquet splits column by column: hundreds of thousands of records in milliseconds."""

    def __init__(self, spec: SequentialSpec, directory: Path, start_offset: int = 0) -> None:
        """Read the key and aggregate columns of all splits; raises FileNotFoundError if there are none."""
        self._keys: dict[Key, int] = {}
        self._codes: dict[str, Integers] = {}
        self._increments: dict[str, list[Integers]] = {}
        extents: dict[str, Extent] = {}
        for file in split_files(directory):
            name = split_name(file.name)
            columns = {item.column for item in spec.aggregates if item.column is not None}
            table = pq.read_table(file, columns=[*spec.key_columns, *sorted(columns)])
            self._codes[name] = self._codes_of(table, spec.key_columns)
            self._increments[name] = [
                np.ones(table.num_rows, dtype=np.int64)
                if item.column is None
                else _integers(table[item.column])
                for item in spec.aggregates
            ]
            extents[name] = Extent(min(start_offset, table.num_rows), table.num_rows)
        self.extents: Mapping[str, Extent] = extents
        self._count_index = spec.count_index
        self._width = len(spec.aggregates)
        self._begin()

    def _codes_of(self, table: pa.Table, key_columns: Sequence[str]) -> Integers:
        """Return for each record the number of its key; a key has the same number in all splits."""
        combined: Integers = np.zeros(table.num_rows, dtype=np.int64)
        dictionaries: list[list[Any]] = []
        for column in key_columns:
            encoded = table[column].combine_chunks().dictionary_encode(null_encoding="encode")
            dictionary = encoded.dictionary.to_pylist()
            combined = combined * max(1, len(dictionary)) + encoded.indices.to_numpy(zero_copy_only=False)
            dictionaries.append(dictionary)
        present, inverse = np.unique(combined, return_inverse=True)
        numbers = [self._number_of(int(code), dictionaries) for code in present]
        codes: Integers = np.asarray(numbers, dtype=np.int64)[inverse]
        return codes

    def _number_of(self, code: int, dictionaries: Sequence[list[Any]]) -> int:
        """Return the number of the key that a combined dictionary code of a split encodes; a new key gets one."""
        values: list[Any] = []
        for dictionary in reversed(dictionaries):
            code, index = divmod(code, max(1, len(dictionary)))
            values.append(dictionary[index])
        return self._keys.setdefault(tuple(reversed(values)), len(self._keys))

    def _begin(self) -> None:
        self._at = {name: extent.start for name, extent in self.extents.items()}
        self._totals: Integers = np.zeros((self._width, len(self._keys)), dtype=np.int64)

    def up_to(self, positions: Mapping[str, int]) -> Totals:
        """Return the totals of the records before the positions."""
        if _goes_back(self._at, positions, self.extents):
            self._begin()
        for name, codes in self._codes.items():
            at, position = self._at[name], positions[name]
            if position > at:
                for i, increments in enumerate(self._increments[name]):
                    # add.at instead of bincount, because then sums stay exact integers.
                    np.add.at(self._totals[i], codes[at:position], increments[at:position])
                self._at[name] = position
        rows = self._totals.T.tolist()
        return {key: rows[i] for key, i in self._keys.items() if rows[i][self._count_index]}


def _integers(column: pa.ChunkedArray) -> Integers:
    """Return a column as integers, nulls as 0."""
    filled = column.cast(pa.int64()).fill_null(0)
    values: Integers = filled.to_numpy()
    return values


def _goes_back(at: Mapping[str, int], positions: Mapping[str, int], extents: Mapping[str, Extent]) -> bool:
    """Return whether a position is lower than the present one in any split."""
    return any(max(positions[name], extents[name].start) < here for name, here in at.items())
