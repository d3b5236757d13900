"""One executor's side of a state store: a provider in a JVM, and the store that it has open.

Several executors share a checkpoint directory; each provider keeps its local files in a directory of its own.
"""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from barrier_tck.harness.certify.spark_store.java_process import JavaProcess
from barrier_tck.harness.certify.spark_store.layouts import (
    KEY_TYPES,
    VALUE_TYPES,
    Family,
    Key,
    StoreLayout,
)
from barrier_tck.harness.certify.spark_store.session_settings import FORMAT_VERSION
from barrier_tck.harness.certify.spark_store.store_interface import interface_of
from barrier_tck.harness.certify.spark_store.targets import StoreTarget
from barrier_tck.harness.certify.spark_store.unsafe_rows import row_bytes, row_columns

Pair = tuple[tuple[Any, ...], str]
"""A key and a value that a scan gave."""
_RUN_IDS = itertools.count(1)
_RUN_ID_KEY = "sql.streaming.runId"
_TYPES = {"l": "long", "s": "string"}


class StoreExecutor:
    """A provider for a checkpoint directory; every call may raise what ``JavaProcess.calls`` raises."""

    def __init__(
        self,
        process: JavaProcess,
        target: StoreTarget,
        layout: StoreLayout,
        checkpoints: Path,
        settings: dict[str, str],
        storage: Mapping[str, str],
    ) -> None:
        self.process = process
        self.layout = layout
        jvm = process.jvm
        with process.calls():
            self._none = getattr(getattr(jvm.scala, "None$"), "MODULE$")
            self._interface = interface_of(jvm, _schema(jvm, KEY_TYPES), _schema(jvm, VALUE_TYPES))
            rows = jvm.org.apache.spark.sql.catalyst.expressions.UnsafeRow
            # One row of each form is used again for every call: an implementation has to copy what it keeps.
            self._key_row, self._value_row, self._prefix_row, self._end_row = (
                rows(2),
                rows(1),
                rows(1),
                rows(2),
            )
            configuration = jvm.org.apache.spark.sql.internal.SQLConf()
            wanted = settings | dict(target.settings)
            self.may_have_commit_ids = self._interface.has_commit_ids
            """Whether commits of this Spark have ids, if the settings say so."""
            self.has_commit_ids = self.may_have_commit_ids and wanted.get(FORMAT_VERSION) == "2"
            """Whether each commit has an id."""
            self.commit_id: str | None = None
            """That of the last commit."""
            for name, value in wanted.items():
                configuration.setConfString(name, value)
            hadoop = jvm.org.apache.hadoop.conf.Configuration()
            for name, value in storage.items():
                hadoop.set(name, value)
            # Spark caches encoders by the id of a run.
            hadoop.set(_RUN_ID_KEY, str(uuid.UUID(int=next(_RUN_IDS))))
            self._provider = self._interface.opened(
                target.class_name, checkpoints, layout, configuration, hadoop
            )
        self._store: Any = None

    def begin(self, version: int, to_write: bool = True, commit_id: str | None = None) -> None:
        """Open the store at a version; with ids of commits, at that which a commit made."""
        with self.process.calls():
            self._store = self._interface.store(self._provider, self.layout, version, commit_id, to_write)

    def put(self, family: Family, key: Key, value: str) -> None:
        """Write."""
        with self.process.calls():
            self._store.put(self._key(key), self._value(value), *self._interface.of_family(family))

    def merge(self, family: Family, key: Key, value: str) -> None:
        """Add a value to those of a key."""
        with self.process.calls():
            self._store.merge(self._key(key), self._value(value), *self._interface.of_family(family))

    def remove(self, family: Family, key: Key) -> None:
        with self.process.calls():
            self._store.remove(self._key(key), *self._interface.of_family(family))

    def drop(self, family: Family) -> None:
        """Remove a family with all its keys."""
        with self.process.calls():
            self._store.removeColFamilyIfExists(family.name)

    def get(self, family: Family, key: Key) -> str | None:
        """Return the value of a key, or None."""
        with self.process.calls():
            row = self._store.get(self._key(key), *self._interface.of_family(family))
            return None if row is None else _text(row)

    def values(self, family: Family, key: Key) -> tuple[str, ...]:
        with self.process.calls():
            found = self._store.valuesIterator(self._key(key), *self._interface.of_family(family))
            return tuple(_text(row) for row in _each(found))

    def iterate(self, family: Family) -> list[Pair]:
        """Return all pairs of a family, in the order in which they come."""
        with self.process.calls():
            return _pairs(self._store.iterator(*self._interface.of_family(family)))

    def evict(self, family: Family, every: int) -> list[Pair]:
        """Return all pairs of a family, and remove each ``every``-th of them while the iterator stands at it.

        Spark's operators do so with keys that the watermark has passed.
        """
        given: list[Pair] = []
        with self.process.calls():
            iterator = self._store.iterator(*self._interface.of_family(family))
            while iterator.hasNext():
                pair = iterator.next()
                packed = bytes(pair.key().getBytes())
                given.append((row_columns(packed, KEY_TYPES), _text(pair.value())))
                if len(given) % every == 0:
                    self._key_row.pointTo(packed, len(packed))
                    self._store.remove(self._key_row, *self._interface.of_family(family))
        return given

    def scan(self, family: Family, first: int) -> list[Pair]:
        """Return the pairs whose keys begin with a column."""
        with self.process.calls():
            packed = row_bytes(first)
            self._prefix_row.pointTo(packed, len(packed))
            return _pairs(self._store.prefixScan(self._prefix_row, *self._interface.of_family(family)))

    def range(self, family: Family, start: Key | None, end: Key | None) -> list[Pair]:
        """Return the pairs from a key on and before another."""
        with self.process.calls():
            some = self.process.jvm.scala.Some
            first = self._none if start is None else some(self._key(start))
            if end is None:
                last = self._none
            else:
                packed = row_bytes(*end)
                self._end_row.pointTo(packed, len(packed))
                last = some(self._end_row)
            return _pairs(self._store.rangeScan(first, last, *self._interface.of_family(family)))

    def commit(self) -> int:
        """Commit, and return the new version."""
        with self.process.calls():
            version: int = self._store.commit()
            if self.has_commit_ids:
                made = self._store.getStateStoreCheckpointInfo().stateStoreCkptId()
                self.commit_id = str(made.get()) if made.isDefined() else None
        self._store = None
        return version

    def abort(self) -> None:
        """Give up what was written, or release a store that was read; harmless if none is open."""
        store, self._store = self._store, None
        if store is None:
            return
        with self.process.calls():
            store.abort()

    def maintain(self) -> None:
        """Do what Spark does in the background: upload snapshots, delete what is no longer retained."""
        with self.process.calls():
            self._provider.doMaintenance()

    def close(self) -> None:
        """Unload the provider."""
        with self.process.calls():
            self._provider.close()

    def _key(self, key: Key) -> Any:
        packed = row_bytes(*key)
        self._key_row.pointTo(packed, len(packed))
        return self._key_row

    def _value(self, value: str) -> Any:
        packed = row_bytes(value)
        self._value_row.pointTo(packed, len(packed))
        return self._value_row


def _schema(jvm: Any, types: str) -> Any:
    fields = [
        {"name": f"c{number}", "type": _TYPES[kind], "nullable": True, "metadata": {}}
        for number, kind in enumerate(types)
    ]
    return jvm.org.apache.spark.sql.types.DataType.fromJson(json.dumps({"type": "struct", "fields": fields}))


def _each(iterator: Any) -> Iterator[Any]:
    while iterator.hasNext():
        yield iterator.next()


def _pairs(iterator: Any) -> list[Pair]:
    return [
        (row_columns(bytes(pair.key().getBytes()), KEY_TYPES), _text(pair.value()))
        for pair in _each(iterator)
    ]


def _text(row: Any) -> str:
    value = row_columns(bytes(row.getBytes()), VALUE_TYPES)[0]
    return str(value)
