"""What sinks had committed or prepared at a checkpoint, read from the files themselves."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from barrier_tck.harness.record.history import Row, Transaction
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint
from barrier_tck.reference_impl.storage.filesystem import FileSystem

ReadRows = Callable[[bytes], Sequence[Row]]
"""Decodes one file of output rows."""

_COMMITTED = re.compile(r".*-chk(\d+)-a(\d+)-")


def transaction_of(path: str) -> Transaction:
    """Return the transaction that a committed file's name stands for."""
    name = path.rpartition("/")[2]
    found = _COMMITTED.match(name)
    if found is None:
        return Transaction(name, None, None)
    return Transaction(name, int(found[1]), int(found[2]))


def is_committed(path: str, output: str) -> bool:
    """Tell whether a file of the output directory is visible output."""
    return path.removeprefix(output).lstrip("/").startswith("part-")


def rows_at_sinks(
    completed: CompletedCheckpoint, files: FileSystem, output: str, read: ReadRows
) -> tuple[Row, ...]:
    """Return every row that was committed up to a checkpoint or is prepared in it.

    A prepared file may have been committed since; then it has its committed name. Raises StorageError if it has
    neither.
    """
    prepared = [
        file
        for part in completed.snapshots
        for operator in part.operators
        for transaction in operator.transactions
        for file in transaction.files
    ]
    names = [file.committed for file in prepared]
    rows: list[Row] = []
    for path in files.list_files(output):
        if not is_committed(path, output) or path in names:
            continue
        checkpoint = transaction_of(path).checkpoint
        if checkpoint is None or checkpoint <= completed.checkpoint:
            rows.extend(read(files.read(path)))
    for file in prepared:
        rows.extend(read(files.read(file.committed if files.exists(file.committed) else file.pending)))
    return tuple(rows)
