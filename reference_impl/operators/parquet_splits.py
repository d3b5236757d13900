"""Reading Parquet files as splits, from any record on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from barrier_tck.reference_impl.runtime_errors import JobUsageError, StorageError


class ParquetSplits:
    """The ``SplitFormat`` of local Parquet files, memory-mapped, one thread: subtasks share the cores."""

    def __init__(
        self,
        files: dict[str, Path],
        columns: tuple[str, ...] | None,
        batch_rows: int,
        start_offset: int,
        require_within: Callable[[str, int, int, int], None],
    ) -> None:
        self._files = files
        self._columns = list(columns) if columns is not None else None
        self._batch_rows = batch_rows
        self._start_offset = start_offset
        self._require_within = require_within
        self._open: dict[str, Any] = {}
        """Split -> its file, as long as it is read."""

    def batches(self, split: str, offset: int) -> Iterator[tuple[Any, int]]:
        """Read a split from a record on: row groups before it are skipped, the first one read is sliced.

        Raises StorageError if the file cannot be read, JobUsageError if it lacks a column, RestoreError if it
        has fewer records than ``offset``.
        """
        path = self._files[split]
        try:
            file = self._open[split] = pq.ParquetFile(path, memory_map=True)
            self._require_columns(path, file.schema_arrow.names)
            metadata = file.metadata
            self._require_within(split, offset, metadata.num_rows, self._start_offset)
            group, skip = 0, offset
            while group < metadata.num_row_groups and skip >= metadata.row_group(group).num_rows:
                skip -= metadata.row_group(group).num_rows
                group += 1
            groups = list(range(group, metadata.num_row_groups))
            if not groups:
                return
            read = file.iter_batches(
                self._batch_rows, row_groups=groups, columns=self._columns, use_threads=False
            )
            for batch in read:
                if skip >= batch.num_rows:
                    skip -= batch.num_rows
                    continue
                kept = batch.slice(skip) if skip else batch
                skip = 0
                yield kept if self._columns is None else kept.select(self._columns), kept.num_rows
        except (OSError, pa.ArrowInvalid) as error:
            raise StorageError(f"cannot read {path}: {error}") from error
        finally:
            if split in self._open:
                self._open.pop(split).close()

    def close(self) -> None:
        """Close the files that are open."""
        while self._open:
            self._open.popitem()[1].close()

    def _require_columns(self, path: Path, present: list[str]) -> None:
        missing = [column for column in self._columns or [] if column not in present]
        if missing:
            raise JobUsageError(f"{path} has no column {missing[0]!r}; it has {', '.join(present)}")
