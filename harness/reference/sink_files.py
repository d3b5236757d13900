"""What sinks had committed or prepared, and which of them wrote it, read from the files themselves."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from urllib.parse import unquote

from barrier_tck.harness.record.history import Row, Transaction
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint
from barrier_tck.reference_impl.storage.filesystem import FileSystem

ReadRows = Callable[[bytes], Sequence[Row]]
"""Decodes one file of output rows."""

_COMMITTED = re.compile(r".*-chk(\d+)-a(\d+)-")
_WRITTEN = re.compile(r"part-(?P<vertex>.+)-(?P<index>\d+)-chk\d+-a(?P<attempt>\d+)-(?P<number>\d+)(\..*)?")


def transaction_of(path: str) -> Transaction:
    """Return the transaction that a committed file's name stands for."""
    name = path.rpartition("/")[2]
    found = _COMMITTED.match(name)
    if found is None:
        return Transaction(name, None, None)
    return Transaction(name, int(found[1]), int(found[2]))


def is_committed(path: str, output: str) -> bool:
    """Return whether a file of the output directory is visible output."""
    return path.removeprefix(output).lstrip("/").startswith("part-")


def rows_at_sinks(
    completed: CompletedCheckpoint, files: FileSystem, output: str, read: ReadRows
) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """Return every row that was committed up to a checkpoint or is prepared in it, and the sink subtask of each.

    A prepared file may have been committed since; then it has its committed name. Raises StorageError if it has
    neither.
    """
    prepared = {
        file.committed: file.pending
        for part in completed.snapshots
        for operator in part.operators
        for transaction in operator.transactions
        for file in transaction.files
    }
    names = dict.fromkeys(prepared)
    for path in files.list_files(output):
        if is_committed(path, output):
            checkpoint = transaction_of(path).checkpoint
            if checkpoint is None or checkpoint <= completed.checkpoint:
                names[path] = None

    def content(name: str) -> bytes:
        return files.read(prepared[name] if name in prepared and not files.exists(name) else name)

    return rows_by_writer(names, lambda name: read(content(name)))


def rows_by_writer(
    paths: Iterable[str], read: Callable[[str], Sequence[Row]]
) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """Return the rows of committed files and the sink subtask that wrote each, with every subtask's rows in order.

    A file whose name does not say its writer counts as written by a subtask with an empty name.
    """
    rows: list[Row] = []
    writers: list[str] = []
    for path in sorted(paths, key=_order):
        found = read(path)
        rows.extend(found)
        writers.extend([writer_of(path)] * len(found))
    return tuple(rows), tuple(writers)


@lru_cache(maxsize=4_096)
def writer_of(path: str) -> str:
    """Return the sink subtask that wrote a committed file, according to its name; empty if the name does not say."""
    found = _WRITTEN.fullmatch(path.rpartition("/")[2])
    return f"{unquote(found['vertex'])}[{found['index']}]" if found is not None else ""


@lru_cache(maxsize=4_096)
def _order(path: str) -> tuple[str, int, int, str]:
    """Order files by writer, and those of one writer as it wrote them: by attempt and number."""
    found = _WRITTEN.fullmatch(path.rpartition("/")[2])
    return (writer_of(path), int(found["attempt"]), int(found["number"]), path) if found else ("", 0, 0, path)
