"""Keys of Arrow batches, vectorised: rows to codes, keys to key groups, keys to slots of a table.

*Codes* number the distinct keys of one batch. *Slots* number the keys of a table for as long as it lives. For a
column of integers both are fast: dense values are codes (and, through a lookup array, slots) without hashing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from barrier_tck.reference_impl.operators.arrow_values import Column, array_of, plain
from barrier_tck.reference_impl.operators.encoding import (
    GOLDEN_GAMMA,
    INT64_MAX,
    INT64_MIN,
    INT_KEY_BYTES,
    INT_KEY_TAG,
    MIX_FIRST,
    MIX_SECOND,
    Key,
    decode_key,
    encode_key,
    group_of_encoded,
)
from barrier_tck.reference_impl.operators.functions import missing_column
from barrier_tck.reference_impl.runtime_errors import JobUsageError

Ints = npt.NDArray[np.int64]
_DENSE_FLOOR = 1 << 16
_LOOKUP_MAX = 1 << 23
_INT_KEY_TYPE = np.dtype([("tag", "u1"), ("value", ">i8")])


def columns_of(batch: Any, names: Sequence[str], where: str) -> list[Column]:
    """Return columns by name, dictionaries decoded; raises JobUsageError if one is missing."""
    found = []
    for name in names:
        index = batch.schema.get_field_index(name)
        if index < 0:
            raise missing_column(name, batch.schema.names, where)
        column = batch.column(index)
        found.append(column.dictionary_decode() if pa.types.is_dictionary(column.type) else column)
    return found


def key_columns(batch: Any, names: Sequence[str], where: str) -> list[Column]:
    """Return columns by name, as keys have them; raises JobUsageError if one is missing or ``plain`` refuses it."""
    columns = columns_of(batch, names, where)
    return [_one_zero(plain(column, name)) for column, name in zip(columns, names, strict=True)]


def _one_zero(column: Column) -> Column:
    """Return a column in which -0.0 is 0.0: they are one key, so ``combine`` must not make two rows of them."""
    kind = column.type
    if pa.types.is_float64(kind) or pa.types.is_float32(kind):
        return pc.add(column, pa.scalar(0.0, type=kind))
    return column


def as_int64(column: Column) -> Column | None:
    """Return an integer column as int64, or None if it is not one or does not fit."""
    if column.type == pa.int64():
        return column
    if not pa.types.is_integer(column.type):
        return None
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        return None


def bounds_of(values: Ints) -> tuple[int, int]:
    """Return the least and the greatest of at least one value."""
    return int(values.min()), int(values.max())


def distinct(values: Ints) -> Ints:
    """Return each value once, in the order of first sight."""
    found: Ints = pc.unique(pa.array(values)).to_numpy()
    return found


def encode_int_keys(values: Ints) -> list[bytes]:
    """Return the bytes of keys that are one integer each, as ``encode_key`` gives them."""
    packed = np.empty(len(values), dtype=_INT_KEY_TYPE)
    packed["tag"] = INT_KEY_TAG
    packed["value"] = values
    encoded: list[bytes] = packed.view(f"V{INT_KEY_BYTES}").tolist()
    return encoded


def groups_of_ints(values: Ints, max_parallelism: int) -> Ints:
    """Return the key groups of keys that are one integer each, as ``key_group_of`` gives them."""
    mixed = values.view(np.uint64) + np.uint64(GOLDEN_GAMMA)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(MIX_FIRST)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(MIX_SECOND)
    mixed ^= mixed >> np.uint64(31)
    return (((mixed >> np.uint64(32)) * np.uint64(max_parallelism)) >> np.uint64(32)).view(np.int64)


class _CodedColumn:
    """One column as codes in [0, size), and the values that the codes stand for."""

    def __init__(self, column: Column) -> None:
        self._dictionary: Column | None = None
        self._base = 0
        integers = as_int64(column) if column.null_count == 0 else None
        if integers is not None and len(integers):
            values = integers.to_numpy()
            low, high = bounds_of(values)
            room = max(_DENSE_FLOOR, 4 * len(values))
            if low >= 0 and high < room:
                low = 0  # the values are codes as they are, which saves a copy
            if high - low < room:
                self._base, self._type = low, column.type
                self.size = high - low + 1
                self.codes: Ints = values - low if low else values
                return
        if pa.types.is_null(column.type):
            self._dictionary, self.size = column[:1], 1
            self.codes = np.zeros(len(column), dtype=np.int64)
            return
        encoded = column.dictionary_encode(null_encoding="encode")
        self._dictionary, self.size = encoded.dictionary, max(1, len(encoded.dictionary))
        self.codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)

    def values(self, codes: Ints) -> Column:
        """Return the values that codes stand for."""
        if self._dictionary is None:
            return pa.array(codes + self._base, type=pa.int64()).cast(self._type)
        return self._dictionary.take(pa.array(codes))


class BatchKeys:
    """The distinct keys of one batch: a code for each row, and the key columns of each code."""

    def __init__(self, columns: Sequence[Column]) -> None:
        """Number the keys found in the rows of columns of equal length (at least one row)."""
        self._parts = [_CodedColumn(column) for column in columns]
        codes, size = self._parts[0].codes, self._parts[0].size
        self._original: Ints | None = None
        total = int(np.prod([float(part.size) for part in self._parts]))
        if total > INT64_MAX // 2:
            raise JobUsageError(f"the key columns of one batch have too many combinations: {total:.1e}")
        for part in self._parts[1:]:
            codes, size = codes * part.size + part.codes, size * part.size
        if size > max(_DENSE_FLOOR, 4 * len(codes)):
            compact = pa.array(codes).dictionary_encode()
            self._original = compact.dictionary.to_numpy()
            codes, size = compact.indices.to_numpy().astype(np.int64), len(compact.dictionary)
        self.codes, self.size = codes, size
        """Rows' codes, in [0, size); not every code need occur."""

    def present(self) -> Ints:
        """Return the codes that occur, ascending."""
        occurs = np.zeros(self.size, dtype=np.bool_)
        occurs[self.codes] = True
        return np.flatnonzero(occurs)

    def columns(self, codes: Ints) -> list[Column]:
        rest = codes if self._original is None else self._original[codes]
        found = []
        for part in reversed(self._parts):
            found.append(part.values(rest % part.size if part is not self._parts[0] else rest))
            rest = rest // part.size
        return found[::-1]

    def keys(self, codes: Ints) -> list[Key]:
        """Return the keys of some codes as tuples."""
        return list(zip(*(column.to_pylist() for column in self.columns(codes)), strict=True))


def groups_of_rows(columns: Sequence[Column], max_parallelism: int) -> Ints:
    """Return each row's key group, as ``key_group_of`` gives it for the row's key (RSC-1)."""
    if len(columns) == 1 and columns[0].null_count == 0:
        integers = as_int64(columns[0])
        if integers is not None:
            return groups_of_ints(integers.to_numpy(), max_parallelism)
    keys = BatchKeys(columns)
    present = keys.present()
    groups = np.zeros(keys.size, dtype=np.int64)
    groups[present] = [group_of_encoded(encode_key(key), max_parallelism) for key in keys.keys(present)]
    return groups[keys.codes]


def stable_order(codes: Ints) -> Ints:
    """Return the permutation that sorts non-negative codes stably: numpy's radix sort for 16 bits, or two."""
    if not len(codes) or int(codes.max()) < 1 << 16:
        return np.argsort(codes.astype(np.uint16), kind="stable")
    if int(codes.max()) >= 1 << 32:
        return np.argsort(codes, kind="stable")
    first = np.argsort((codes & 0xFFFF).astype(np.uint16), kind="stable")
    second = np.argsort((codes[first] >> 16).astype(np.uint16), kind="stable")
    return first[second]


class KeyIndex(Protocol):
    """Gives every key of a table its slot, in order of first sight, and remembers what a slot's key is."""

    def __len__(self) -> int:
        """Return the number of slots."""

    def slots(self, columns: Sequence[Column]) -> Ints | None:
        """Return each row's slot, new keys added; None if this kind of index cannot take such columns."""

    def add(self, keys: Sequence[Key]) -> None:
        """Append slots for keys that are not there yet."""

    def keys(self) -> list[Key]:
        """Return every key, by slot."""

    def columns(self, slots: Ints) -> list[Column]:
        """Return the key columns of some slots."""

    def encoded(self, slots: Ints) -> list[bytes]:
        """Return the bytes of the keys of some slots."""

    def groups(self, slots: Ints, max_parallelism: int) -> list[int]:
        """Return the key groups of the keys of some slots."""

    def emptied(self) -> KeyIndex:
        """Return an empty index of the same kind."""

    def only(self, slots: Ints) -> KeyIndex:
        """Return an index with the keys of some slots, which get new slots in this order."""


class GenericKeyIndex:
    """Any keys: one Python dictionary look-up per distinct key of a batch."""

    def __init__(self, width: int, types: Sequence[Any] = ()) -> None:
        self._slot_of: dict[bytes, int] = {}
        self._encoded: list[bytes] = []
        self._keys: list[Key] = []
        self._types: list[Any] = list(types) or [None] * width

    def __len__(self) -> int:
        return len(self._keys)

    def slots(self, columns: Sequence[Column]) -> Ints:
        for position, column in enumerate(columns):
            if not pa.types.is_null(column.type):
                self._types[position] = column.type
        batch = BatchKeys(columns)
        present = batch.present()
        lookup = np.zeros(batch.size, dtype=np.int64)
        lookup[present] = [self._slot(key) for key in batch.keys(present)]
        return lookup[batch.codes]

    def add(self, keys: Sequence[Key]) -> None:
        for key in keys:
            self._slot(key)

    def _slot(self, key: Key) -> int:
        encoded = encode_key(key)
        slot = self._slot_of.get(encoded)
        if slot is None:
            slot = self._slot_of[encoded] = len(self._keys)
            self._encoded.append(encoded)
            self._keys.append(decode_key(encoded))
        return slot

    def keys(self) -> list[Key]:
        return list(self._keys)

    def columns(self, slots: Ints) -> list[Column]:
        """Return the key columns of some slots, with the types last seen (inferred after a restore)."""
        values = zip(*(self._keys[slot] for slot in slots.tolist()), strict=True)
        return [array_of(list(column), kind) for column, kind in zip(values, self._types, strict=True)]

    def encoded(self, slots: Ints) -> list[bytes]:
        return [self._encoded[slot] for slot in slots.tolist()]

    def groups(self, slots: Ints, max_parallelism: int) -> list[int]:
        return [group_of_encoded(encoded, max_parallelism) for encoded in self.encoded(slots)]

    def emptied(self) -> GenericKeyIndex:
        """Return an empty index that knows the types of the columns."""
        return GenericKeyIndex(len(self._types), self._types)

    def only(self, slots: Ints) -> GenericKeyIndex:
        fewer = self.emptied()
        fewer.add([self._keys[slot] for slot in slots.tolist()])
        return fewer


class IntKeyIndex:
    """Keys of one 64-bit integer or null each.

    While the values lie close together, a lookup array indexed by the value gives the slot. Otherwise a
    sorted copy of the keys is searched, once per distinct key of a batch.
    """

    def __init__(self) -> None:
        self._count = 0
        self._values = np.zeros(1024, dtype=np.int64)
        self._encoded = np.empty(1024, dtype=object)
        self._null_slot = -1
        self._base = 0
        self._lookup: Ints | None = np.empty(0, dtype=np.int64)
        self._sorted: Ints = np.empty(0, dtype=np.int64)
        self._sorted_slots: Ints = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return self._count

    def slots(self, columns: Sequence[Column]) -> Ints | None:
        """Return each row's slot, new keys added; None if the column holds more than integers and nulls."""
        column = columns[0]
        if pa.types.is_null(column.type):
            return np.full(len(column), self._slot_of_null(), dtype=np.int64)
        integers = as_int64(column)
        if integers is None:
            return None
        if integers.null_count == 0:
            return self._slots_of(integers.to_numpy())
        valid = integers.is_valid().to_numpy(zero_copy_only=False)
        found = np.full(len(integers), self._slot_of_null(), dtype=np.int64)
        found[valid] = self._slots_of(integers.drop_null().to_numpy())
        return found

    def add(self, keys: Sequence[Key]) -> None:
        values: list[int] = []
        for (value,) in keys:
            if value is None:
                # Slots are given in order: what came before the null must have its slots first.
                self._slots_of(np.array(values, dtype=np.int64))
                values.clear()
                self._slot_of_null()
            else:
                assert isinstance(value, int), "the index is for integers"
                values.append(value)
        self._slots_of(np.array(values, dtype=np.int64))

    def _slot_of_null(self) -> int:
        if self._null_slot < 0:
            self._null_slot = self._count
            self._append(np.zeros(1, dtype=np.int64))
            self._encoded[self._null_slot] = encode_key((None,))
        return self._null_slot

    def _append(self, values: Ints) -> Ints:
        """Give new values the next slots, in order."""
        slots = np.arange(self._count, self._count + len(values))
        self._count += len(values)
        if self._count > len(self._values):
            capacity = max(self._count, 2 * len(self._values))
            self._values = np.resize(self._values, capacity)
            self._encoded = np.resize(self._encoded, capacity)
        self._values[slots] = values
        self._encoded[slots] = np.array([*encode_int_keys(values), None], dtype=object)[:-1]
        return slots

    def _slots_of(self, values: Ints) -> Ints:
        if not len(values):
            return np.empty(0, dtype=np.int64)
        if self._lookup is not None:
            self._cover(*bounds_of(values))
        return self._search(values) if self._lookup is None else self._look_up(values, self._lookup)

    def _cover(self, low: int, high: int) -> None:
        """Make the lookup array reach from ``low`` to ``high``, or give it up if it would be too large."""
        assert self._lookup is not None
        if len(self._lookup):
            if self._base <= low and high < self._base + len(self._lookup):
                return
            low, high = min(low, self._base), max(high, self._base + len(self._lookup) - 1)
        if high - low >= _LOOKUP_MAX:
            self._lookup = None
            slots = np.arange(self._count)
            slots = slots[slots != self._null_slot]
            order = np.argsort(self._values[slots])
            self._sorted, self._sorted_slots = self._values[slots][order], slots[order]
            return
        # Some room on both sides, so that slowly growing keys do not copy the array at every batch.
        room = (high - low + 1) // 2
        base, end = max(INT64_MIN, low - room), min(INT64_MAX, high + room) + 1
        if low >= 0 and end <= _LOOKUP_MAX:
            base = 0  # the values are offsets as they are, which saves a copy per batch
        lookup = np.full(end - base, -1, dtype=np.int64)
        start = self._base - base
        lookup[start : start + len(self._lookup)] = self._lookup
        self._base, self._lookup = base, lookup

    def _look_up(self, values: Ints, lookup: Ints) -> Ints:
        offsets = values - self._base if self._base else values
        found = lookup.take(offsets)
        if int(found.min()) < 0:
            distinct = pc.unique(pa.array(offsets[found < 0])).to_numpy()
            lookup[distinct] = self._append(distinct + self._base)
            found = lookup.take(offsets)
        return found

    def _search(self, values: Ints) -> Ints:
        coded = pa.array(values).dictionary_encode()
        distinct = coded.dictionary.to_numpy()
        order = np.argsort(distinct)
        needles = distinct[order]
        places = np.searchsorted(self._sorted, needles)
        inside = np.minimum(places, max(len(self._sorted) - 1, 0))
        known = (
            self._sorted[inside] == needles if len(self._sorted) else np.zeros(len(needles), dtype=np.bool_)
        )
        slot_of = np.empty(len(distinct), dtype=np.int64)
        slot_of[order[known]] = self._sorted_slots[inside[known]]
        if not known.all():
            fresh = np.sort(order[~known])
            slot_of[fresh] = self._append(distinct[fresh])
            added = order[~known]
            self._sorted = np.insert(self._sorted, places[~known], distinct[added])
            self._sorted_slots = np.insert(self._sorted_slots, places[~known], slot_of[added])
        found: Ints = slot_of.take(coded.indices.to_numpy())
        return found

    def keys(self) -> list[Key]:
        found: list[Key] = [(value,) for value in self._values[: self._count].tolist()]
        if self._null_slot >= 0:
            found[self._null_slot] = (None,)
        return found

    def columns(self, slots: Ints) -> list[Column]:
        """Return the key column of some slots, as int64."""
        mask = slots == self._null_slot if self._null_slot >= 0 else None
        return [pa.array(self._values[slots], mask=mask)]

    def encoded(self, slots: Ints) -> list[bytes]:
        found: list[bytes] = self._encoded[slots].tolist()
        return found

    def groups(self, slots: Ints, max_parallelism: int) -> list[int]:
        groups = groups_of_ints(self._values[slots], max_parallelism)
        if self._null_slot >= 0:
            groups[slots == self._null_slot] = group_of_encoded(encode_key((None,)), max_parallelism)
        found: list[int] = groups.tolist()
        return found

    def emptied(self) -> IntKeyIndex:
        return IntKeyIndex()

    def only(self, slots: Ints) -> IntKeyIndex:
        fewer = IntKeyIndex()
        fewer.add([(value,) for value in self.columns(slots)[0].to_pylist()])
        return fewer
