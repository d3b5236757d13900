"""The RocksDB library as we use it: its options, its errors told apart, and iteration that notices damage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rocksdict import (
    AccessType,
    BottommostLevelCompaction,
    CompactOptions,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteOptions,
)

from barrier_tck.reference_impl.runtime_errors import CorruptStateError, JobUsageError, StorageError


class Failures:
    """Turns what rocksdict raises, a plain ``Exception`` for every failure, into StorageError."""

    def __init__(self, action: str) -> None:
        self._action = action

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        """Raise JobUsageError, CorruptStateError or StorageError in place of the library's errors."""
        if isinstance(error, KeyError | TypeError | ValueError):
            raise JobUsageError(f"keys and values are bytes: {error}") from error
        if type(error) is Exception:
            family = CorruptStateError if str(error).startswith("Corruption") else StorageError
            raise family(f"cannot {self._action} the RocksDB database: {error}") from error


_PASSED_OVER_MAX = 1_000
"""So many deleted entries are passed over to find out whether there is another one."""
MERGED_FROM = 4
"""So many table files that overlap are merged: as many as RocksDB waits for by itself."""
LATE_FROM = 2 * MERGED_FROM
"""So many are merged by us although the database has threads that do so: these are late. RocksDB itself slows writers
down only at twenty, and each snapshot would have all of them (SNP-8)."""


def open_database(path: Path, own_threads: bool = True) -> Rdict:
    """Open a database of bytes without a write-ahead log, creating it if need be; raises StorageError.

    With ``own_threads`` it merges its table files whenever it likes, otherwise only in ``merge_tables``, and opens them
    one after the other.
    """
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_disable_auto_compactions(not own_threads)
    options.set_keep_log_file_num(1)
    if not own_threads:
        options.set_max_file_opening_threads(1)
    without_log = WriteOptions()
    # The stub calls this a method; it is an attribute.
    without_log.disable_wal = True  # type: ignore[method-assign, assignment]
    with Failures(f"open {path} as"):
        database = Rdict(str(path), options)
    database.set_write_options(without_log)
    return database


def open_to_read(path: Path) -> Rdict:
    """Open an existing database of bytes that is not written to; raises CorruptStateError or StorageError."""
    options = Options(raw_mode=True)
    options.set_keep_log_file_num(1)
    # By default 16 threads are made to open a handful of files, which takes half of the processor time.
    options.set_max_file_opening_threads(1)
    with Failures(f"open {path} as"):
        return Rdict(str(path), options, access_type=AccessType.read_only())


def merge_tables(database: Rdict, own_threads: bool) -> None:
    """Merge all table files, before it returns, if there are many that overlap."""
    most = LATE_FROM if own_threads else MERGED_FROM
    if int(database.property_value("rocksdb.num-files-at-level0") or 0) >= most:
        options = CompactOptions()
        # By default tables that all have one and the same key are only moved, and there are as many as before.
        options.set_bottommost_level_compaction(BottommostLevelCompaction.force_optimized())
        database.compact_range(None, None, options)


def close_database(database: Rdict) -> None:
    """Close a database; its lock and files are free once no iterator is left."""
    with Failures("close"):
        database.close()


def entries_from(database: Rdict, key: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Return an iterator over the entries as they are now, from a key on."""
    with Failures("read from"):
        position = database.iter()
        position.seek(key)
    return _entries_at(position)


def _entries_at(position: RdictIter) -> Iterator[tuple[bytes, bytes]]:
    """Yield entries to the end. The library's own iterators take damage for the end; this one checks."""
    with Failures("read from"):
        while position.valid():
            yield position.key(), position.value()
            position.next()
        position.status()


def is_surely_empty(database: Rdict) -> bool:
    """Return whether there is no entry; False, too, if many were deleted, over which it takes long to pass."""
    options = ReadOptions()
    options.set_max_skippable_internal_keys(_PASSED_OVER_MAX)
    with Failures("read from"):
        position = database.iter(options)
        position.seek_to_first()
        if position.valid():
            return False
    try:
        position.status()
    except Exception as error:
        if "Too many internal keys skipped" in str(error):
            return False
        with Failures("read from"):
            raise
    return True


def make_directory(path: Path) -> None:
    """Make a directory and those above it; raises StorageError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot create {path}: {error}") from error
