"""A RocksDB database of which a local checkpoint can be taken without waiting for it (SNP-1, SNP-4).

With the write-ahead log off, a checkpoint needs the memtable flushed, which takes as long as the disk does. So the
synchronous part of a snapshot only begins a ``Capture``. The first that needs it makes it: the asynchronous part, or
the store's own thread when it cannot go on without. From the beginning of a capture to its end nothing is written to
the database; writes go to a table in memory, which every read looks into first. The first call after that writes the
table to the database. So the files hold exactly what was there when the capture began.

The table has a limit in bytes. A write beyond it waits for the capture, so slow disks slow writers down instead of
filling the memory. A second capture waits for the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from operator import add
from pathlib import Path
from threading import Lock

from rocksdict import Checkpoint, Rdict, WriteBatch

from barrier_tck.reference_impl.runtime_errors import RuntimeFailure, SnapshotCancelled
from barrier_tck.reference_impl.state.rocksdb_library import (
    Failures,
    close_database,
    entries_from,
    is_surely_empty,
    merge_tables,
)
from barrier_tck.reference_impl.state.working_directory import remove_tree

LATER_BYTES = 32 * 1024 * 1024
"""Most bytes of keys and values that are written while a capture is not made."""


def _nothing(_: Rdict) -> None:
    """Write nothing."""


class Capture:
    """A local checkpoint of what a database holds now. Any thread may ``make`` it or ``drop`` it."""

    def __init__(
        self,
        database: Rdict,
        directory: Path,
        own_threads: bool = True,
        write_first: Callable[[Rdict], object] = _nothing,
    ) -> None:
        """Take the database, which is not written to until ``ended``, and the directory that is to be made.

        ``own_threads``: the database has threads that merge its table files, so it is done here only if they are late.
        ``write_first`` writes what belongs to this checkpoint and is not in the database yet.
        """
        self.directory = directory
        self._write_first = write_first
        self._database = database
        self._own_threads = own_threads
        self._lock = Lock()
        self._failure: RuntimeFailure | None = None
        self.ended = False
        """Whether the database may be written to again."""

    def make(self) -> None:
        """Flush, and link the files into the directory, unless it was done before; failing is for ``require``."""
        with self._lock:
            if self.ended:
                return
            try:
                with Failures("take a local checkpoint of"):
                    self._write_first(self._database)
                    # With the log off, what is not flushed is in no file.
                    self._database.flush(wait=True)
                    merge_tables(self._database, self._own_threads)
                    Checkpoint(self._database).create_checkpoint(str(self.directory))
            except RuntimeFailure as failure:
                self._failure = failure
            finally:
                self.ended = True
                # What it held may be large: it goes in this thread, and not when the next snapshot begins.
                self._write_first = _nothing

    def require(self) -> None:
        """Make it, and raise StorageError or CorruptStateError if that failed, in whichever thread."""
        self.make()
        if self._failure is not None:
            raise self._failure

    def drop(self) -> None:
        """Give the capture up, and remove its directory; waits for one that is being made."""
        with self._lock:
            if not self.ended:
                self.ended = True
                self._failure = SnapshotCancelled("a RocksDB checkpoint was given up before it was taken")
        if self.directory.exists():
            remove_tree(self.directory)


class CapturingDatabase:
    """The open database of one store, and what is written while it is captured. Used by the store's thread only.

    A key is given in two parts: its prefix, which names key group and state, and the rest.
    """

    def __init__(self, database: Rdict, later_bytes: int = LATER_BYTES, own_threads: bool = True) -> None:
        """Take the database, which ``close`` closes, and how much may be written while it is captured.

        ``own_threads``: it has threads that merge its table files; else each capture does so, if there are many.
        """
        self.native = database
        self._later_bytes_max = later_bytes
        self._own_threads = own_threads
        self._capture: Capture | None = None
        self._later: dict[bytes, dict[bytes, bytes | None]] = {}
        """Prefix -> rest of the key -> value, or None if it was deleted."""
        self._later_bytes = 0

    def get(self, prefix: bytes, key: bytes) -> bytes | None:
        """Return the value, or None if there is none."""
        if self._is_captured():
            later = self._later.get(prefix, {})
            if key in later:
                return later[key]
        with Failures("read from"):
            value: bytes | None = self.native.get(prefix + key)
        return value

    def get_many(self, prefixes: Iterable[bytes], keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of many keys, of the database with one multi-get."""
        prefixes = list(prefixes)
        captured = self._is_captured()
        wanted = list(map(add, prefixes, keys))
        with Failures("read from"):
            found: list[bytes | None] = self.native.get(wanted) if wanted else []  # type: ignore[assignment]
        if captured and self._later:
            nothing: dict[bytes, bytes | None] = {}
            for position, (prefix, key) in enumerate(zip(prefixes, keys, strict=True)):
                later = self._later.get(prefix, nothing)
                if key in later:
                    found[position] = later[key]
        return found

    def put(self, prefix: bytes, key: bytes, value: bytes) -> None:
        with Failures("write to"):
            if not self._is_captured():
                self.native.put(prefix + key, value)
                return
        self.put_many([prefix], [key], [value])

    def put_many(self, prefixes: Iterable[bytes], keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Set many values, all or none."""
        batch = WriteBatch(raw_mode=True)
        put = batch.put
        prefixes = list(prefixes)
        with Failures("write to"):
            # The batch also refuses what is no bytes, before anything is written anywhere.
            for prefix, key, value in zip(prefixes, keys, values, strict=True):
                put(prefix + key, value)
            if not self._is_captured():
                self.native.write(batch)
                return
        for prefix, key, value in zip(prefixes, keys, values, strict=True):
            self._note(prefix, key, value)
        self._keep_the_limit()

    def delete(self, prefix: bytes, key: bytes) -> None:
        """Remove a value; a missing one is no error."""
        with Failures("write to"):
            if not self._is_captured():
                self.native.delete(prefix + key)
                return
        self._note(prefix, key, None)
        self._keep_the_limit()

    def entries(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the entries of a prefix as they are now, by the rest of their keys, in ascending order."""
        later = self._later.get(prefix) if self._is_captured() else None
        stored = _entries_of(self.native, prefix)
        return stored if later is None else _merged(stored, sorted(later.items()))

    def begin(
        self,
        directory: Path,
        more: bool = False,
        write_first: Callable[[Rdict], object] = _nothing,
    ) -> Capture | None:
        """Begin a capture of what is there now, once the one before is made; None: there is surely no entry.

        ``more``: there will be entries, since ``write_first`` writes some when the capture is made.
        """
        self.settle()
        if not more and is_surely_empty(self.native):
            return None
        self._capture = Capture(self.native, directory, self._own_threads, write_first)
        return self._capture

    def settle(self) -> None:
        """Wait for the capture, if any, and write to the database what was written since it began."""
        if self._capture is not None:
            self._capture.make()
            self._is_captured()

    def close(self) -> None:
        """Close the database; no thread makes a capture any more."""
        if self._capture is not None:
            self._capture.drop()
        self._later.clear()
        close_database(self.native)

    def _is_captured(self) -> bool:
        """Return whether writes must be kept apart; those kept apart for nothing any more are written first."""
        if self._capture is None:
            return False
        if not self._capture.ended:
            return True
        if self._later:
            batch = WriteBatch(raw_mode=True)
            for prefix, later in self._later.items():
                for key, value in later.items():
                    if value is None:
                        batch.delete(prefix + key)
                    else:
                        batch.put(prefix + key, value)
            with Failures("write to"):
                self.native.write(batch)
            self._later.clear()
            self._later_bytes = 0
        self._capture = None
        return False

    def _note(self, prefix: bytes, key: bytes, value: bytes | None) -> None:
        later = self._later.get(prefix)
        if later is None:
            later = self._later[prefix] = {}
        later[key] = value
        # What is written twice counts twice: an upper bound is enough.
        self._later_bytes += len(prefix) + len(key) + len(value or b"")

    def _keep_the_limit(self) -> None:
        if self._later_bytes > self._later_bytes_max:
            self.settle()


def _entries_of(database: Rdict, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Return an iterator over the stored entries of a prefix; it sees the database as of now."""
    return _without(prefix, entries_from(database, prefix))


def _without(prefix: bytes, entries: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    for key, value in entries:
        if not key.startswith(prefix):
            return
        yield key[len(prefix) :], value


def _merged(
    stored: Iterator[tuple[bytes, bytes]], later: list[tuple[bytes, bytes | None]]
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the entries in ascending order; a later one stands for the stored one of the same key."""
    of_both = merge(((key, 1, value) for key, value in stored), ((key, 0, value) for key, value in later))
    last: bytes | None = None
    for key, _, value in of_both:
        if key != last and value is not None:
            yield key, value
        last = key
