"""How a release of Spark wants its state stores to be called.

Since 4.0 a store has column families and encoders of keys, and commits may have ids. Before, it has one family, in
which keys may begin with some columns by which they are scanned.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from barrier_tck.harness.certify.spark_store.java_process import Raised
from barrier_tck.harness.certify.spark_store.layouts import (
    DEFAULT,
    MANY,
    PREFIXED,
    RANGED,
    Family,
    StoreLayout,
)

_STATE = "org.apache.spark.sql.execution.streaming.state"


class StoreInterface(Protocol):
    """Calls to a provider and its stores, as far as releases differ in them. A call may raise what Py4J raises."""

    has_commit_ids: bool
    """Whether commits have ids, if the settings say so."""

    def opened(
        self, class_name: str, checkpoints: Path, layout: StoreLayout, configuration: Any, hadoop: Any
    ) -> Any:
        """Return a new provider; raises Raised if this release has nothing for a layout."""

    def store(
        self, provider: Any, layout: StoreLayout, version: int, commit_id: str | None, to_write: bool
    ) -> Any:
        """Return the store at a version, in which all families of a layout can be used."""

    def of_family(self, family: Family) -> Sequence[str]:
        """Return what a call to a store says last, to name a family."""


def interface_of(jvm: Any, keys: Any, values: Any) -> StoreInterface:
    """Return that of the release in a JVM; ``keys`` and ``values`` are the schemas of all families."""
    methods = {
        one.getName(): one for one in jvm.java.lang.Class.forName(f"{_STATE}.StateStoreProvider").getMethods()
    }
    if methods["init"].getParameterCount() == len(("id", "keys", "values", "columns", "conf", "hadoop")):
        return _OneFamily(jvm, keys, values)
    return _Families(jvm, keys, values, methods["getStore"].getParameterCount())


class _Common:
    def __init__(self, jvm: Any, keys: Any, values: Any) -> None:
        self._jvm, self._keys, self._values = jvm, keys, values
        self._state = jvm.org.apache.spark.sql.execution.streaming.state
        self._none = getattr(getattr(jvm.scala, "None$"), "MODULE$")

    def _store_id(self, checkpoints: Path) -> Any:
        return self._state.StateStoreId(str(checkpoints), 0, 0, DEFAULT)

    def _conf(self, configuration: Any) -> Any:
        nothing = getattr(getattr(self._jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
        return self._state.StateStoreConf(configuration, nothing)


class _OneFamily(_Common):
    """Spark 3.5."""

    has_commit_ids = False

    def opened(
        self, class_name: str, checkpoints: Path, layout: StoreLayout, configuration: Any, hadoop: Any
    ) -> Any:
        if layout.column_families or layout.families[0].kind == RANGED:
            raise Raised("state stores of this Spark have one column family, and no scans of ranges")
        columns = 1 if layout.families[0].kind == PREFIXED else 0
        provider = self._state.StateStoreProvider.create(class_name)
        provider.init(
            self._store_id(checkpoints), self._keys, self._values, columns, self._conf(configuration), hadoop
        )
        return provider

    def store(
        self, provider: Any, layout: StoreLayout, version: int, commit_id: str | None, to_write: bool
    ) -> Any:
        return provider.getStore(version) if to_write else provider.getReadStore(version)

    def of_family(self, family: Family) -> Sequence[str]:
        return ()


class _Families(_Common):
    """Spark 4.0 and later."""

    has_commit_ids = True

    def __init__(self, jvm: Any, keys: Any, values: Any, parameters: int) -> None:
        super().__init__(jvm, keys, values)
        self._parameters = parameters
        """How many ``getStore`` has: later releases add switches, which are off."""
        stores = jvm.java.lang.Class.forName(f"{_STATE}.ReadStateStore").getMethods()
        self._registers = any(one.getName() == "registerColFamily" for one in stores)

    def opened(
        self, class_name: str, checkpoints: Path, layout: StoreLayout, configuration: Any, hadoop: Any
    ) -> Any:
        provider = self._state.StateStoreProvider.create(class_name)
        provider.init(
            self._store_id(checkpoints),
            self._keys,
            self._values,
            self._encoder(layout.families[0]),
            layout.column_families,
            self._conf(configuration),
            hadoop,
            False,
            self._none,
        )
        return provider

    def store(
        self, provider: Any, layout: StoreLayout, version: int, commit_id: str | None, to_write: bool
    ) -> Any:
        known = self._none if commit_id is None else self._jvm.scala.Some(commit_id)
        others = layout.families[1:]
        # Before 4.3 a store that is opened for reading has those families only that the version has. So it is opened as
        # for writing there, and given up in the end.
        if to_write or (others and not self._registers):
            store = provider.getStore(version, known, *[False] * (self._parameters - 2))
            for family in others:
                store.createColFamilyIfAbsent(*self._described(family))
            return store
        store = provider.getReadStore(version, known)
        for family in others:
            store.registerColFamily(*self._described(family))
        return store

    def of_family(self, family: Family) -> Sequence[str]:
        return (family.name,)

    def _described(self, family: Family) -> tuple[Any, ...]:
        several = family.kind == MANY
        return family.name, self._keys, self._values, self._encoder(family), several, False

    def _encoder(self, family: Family) -> Any:
        if family.kind == PREFIXED:
            return self._state.PrefixKeyScanStateEncoderSpec(self._keys, 1)
        if family.kind == RANGED:
            ordinals = self._jvm.java.util.ArrayList()
            ordinals.add(0)
            sequence = self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(ordinals).toSeq()
            return self._state.RangeKeyScanStateEncoderSpec(self._keys, sequence)
        return self._state.NoPrefixKeyStateEncoderSpec(self._keys)
