"""Digests of object graphs that are the same for equal graphs, whichever way the objects came about.

A pickle of two equal graphs may differ: it says which of two equal strings are one object, and that depends on the way
that led to a state, and on whether the state was copied. Here what cannot change is written by its value, every time
that it is met. What can change is written once and then by its number, so that two holders of one list differ from two
holders of equal lists.
"""

from __future__ import annotations

import dataclasses
import hashlib
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from typing import Any

import msgspec

Rule = Callable[[Any], Any]
"""Returns what is written for an object: another object, or None for nothing but its type's name."""

_ATOMS = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
_PLAIN = (*_ATOMS, tuple)
_SEQUENCES = (list, deque, bytearray)
_MAPPINGS = (dict, OrderedDict, defaultdict, Counter)


_DECODERS = (msgspec.json.Decoder, msgspec.msgpack.Decoder)
_ENCODERS = (msgspec.json.Encoder, msgspec.msgpack.Encoder)


class StateDigester:
    """Digests parts of a state; rules say of some types what of them counts."""

    def __init__(self, rule_of: Callable[[type], Rule | None], is_shared: Callable[[Any], bool]) -> None:
        """``rule_of`` returns the rule of a type, if it has one. What ``is_shared`` counts by its identity alone."""
        self._rule_of = rule_of
        self._is_shared = is_shared
        self._writers: dict[type, Callable[[Any], None]] = {}
        self._written: list[str] = []
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []

    def digest(self, part: Any) -> bytes:
        """Return 16 bytes."""
        try:
            self._write(part)
            text = "\x00".join(self._written)
            return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        finally:
            self._written, self._numbers, self._kept = [], {}, []

    def _write(self, value: Any) -> None:
        kind = type(value)
        if kind is str:
            self._written += (f"s{len(value)}", value)
            return
        writer = self._writers.get(kind)
        if writer is None:
            writer = self._writers[kind] = self._writer_of(kind)
        writer(value)

    def _writer_of(self, kind: type) -> Callable[[Any], None]:
        rule = self._rule_of(kind)
        if rule is not None:
            return partial(self._by_rule, rule)
        if kind in _ATOMS:
            return self._atom
        if issubclass(kind, Enum):
            return self._enum
        if kind is tuple or (issubclass(kind, tuple) and not hasattr(kind, "__dict__")):
            return self._tuple
        if kind in _SEQUENCES:
            return partial(self._once, self._elements)
        if kind in _MAPPINGS:
            return partial(self._once, self._items)
        if kind is frozenset:
            return self._unordered
        if kind is set:
            return partial(self._once, self._unordered)
        if issubclass(kind, type | types.ModuleType | types.CodeType):
            return self._identity
        if kind in _DECODERS:
            return self._decoder
        if kind in (*_ENCODERS, types.GenericAlias):
            return self._named
        if issubclass(kind, msgspec.Struct):
            names = kind.__struct_fields__
            fields = partial(self._fields, names)
            return fields if kind.__struct_config__.frozen else partial(self._once, fields)
        if dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
            return partial(self._fields, tuple(field.name for field in dataclasses.fields(kind)))
        by_value: dict[type, Callable[[Any], None]] = {
            types.FunctionType: self._function,
            types.CellType: self._cell,
            types.MethodType: self._method,
            types.BuiltinMethodType: self._method,
            types.MappingProxyType: self._items,
            partial: self._partial,
        }
        return by_value.get(kind, partial(self._once, self._reduced))

    def _by_rule(self, rule: Rule, value: Any) -> None:
        if self._is_shared(value):
            self._identity(value)
            return
        self._written.append(type(value).__name__)
        told = rule(value)
        if told is not None:
            self._kept.append(told)
            self._write(told)

    def _atom(self, value: Any) -> None:
        self._written += (type(value).__name__[0], repr(value))

    def _enum(self, value: Enum) -> None:
        self._written += (type(value).__name__, value.name)

    def _decoder(self, value: msgspec.json.Decoder[Any] | msgspec.msgpack.Decoder[Any]) -> None:
        self._written += (type(value).__name__, repr(value.type))

    def _named(self, value: Any) -> None:
        """Write what has no state: its name is all of it."""
        self._written.append(repr(value) if isinstance(value, types.GenericAlias) else type(value).__name__)

    def _identity(self, value: Any) -> None:
        self._kept.append(value)
        self._written += ("is", str(id(value)))

    def _tuple(self, value: tuple[Any, ...]) -> None:
        self._written += (type(value).__name__, str(len(value)))
        for element in value:
            self._write(element)

    def _elements(self, value: Any) -> None:
        self._written.append(str(len(value)))
        for element in value:
            self._write(element)

    def _items(self, value: Mapping[Any, Any]) -> None:
        self._written.append(str(len(value)))
        for key, content in value.items():
            self._write(key)
            self._write(content)

    def _unordered(self, value: Iterable[Any]) -> None:
        """Write elements by their digests, which are sorted; they are hashable, so they are written by value."""
        apart = StateDigester(self._rule_of, self._is_shared)
        self._written += ("set", *sorted(apart.digest(element).hex() for element in value))

    def _fields(self, names: tuple[str, ...], value: Any) -> None:
        if self._is_shared(value):
            self._identity(value)
            return
        self._written.append(type(value).__name__)
        for name in names:
            self._write(getattr(value, name))

    def _once(self, writer: Callable[[Any], None], value: Any) -> None:
        """Write what can change, unless it was written before in this digest."""
        if self._is_shared(value):
            self._identity(value)
            return
        number = self._numbers.get(id(value))
        if number is not None:
            self._written += ("^", str(number))
            return
        self._numbers[id(value)] = len(self._numbers)
        self._kept.append(value)
        self._written.append(type(value).__name__)
        writer(value)

    def _function(self, value: types.FunctionType) -> None:
        """Write a function by its code and what it holds: one may come from a cache, and an equal one from a copy."""
        self._identity(value.__code__)
        self._write((value.__defaults__, value.__kwdefaults__, value.__closure__))

    def _cell(self, value: types.CellType) -> None:
        try:
            content = value.cell_contents
        except ValueError:
            self._written.append("empty")
            return
        if type(content) in _PLAIN:
            self._write(content)
        else:  # it may be a function that calls itself
            self._once(lambda _: self._write(content), value)

    def _method(self, value: types.MethodType) -> None:
        self._written.append(value.__name__)
        self._write(value.__self__)

    def _partial(self, value: partial[Any]) -> None:
        self._write((value.func, value.args, value.keywords))

    def _reduced(self, value: Any) -> None:
        """Write an object as a pickle would: how it is made, and its attributes."""
        made = value.__reduce_ex__(4)
        parts = made if isinstance(made, tuple) else (made,)
        self._kept.append(parts)
        for part in parts[1:3]:
            self._write(part)
        for more in parts[3:5]:
            self._write(None if more is None else list(more))
