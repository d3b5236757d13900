"""Copies of a simulated world at a choice, as bytes in memory.

A world is a graph of ordinary objects with functions in it: callbacks that close over objects of the world. A copy has
functions of the same code over cells of its own. What no step changes (the plan, the job, code) is shared.

The bytes are made and read in one process and go nowhere else.
"""

from __future__ import annotations

import io
import pickle
import sys
import types
import weakref
from _thread import LockType, allocate_lock
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from barrier_tck.harness.support.errors import InternalError
from barrier_tck.reference_impl.operators import sources

_BATCHES = sources._RowSplits.batches.__code__

_shared: dict[int, Any] = {}
"""What copies share, by identity."""


def share(objects: Iterable[Any]) -> None:
    """Let all copies have these very objects, which no step changes."""
    for one in objects:
        _shared[id(one)] = one


def is_shared(one: Any) -> bool:
    """Return whether all copies have this very object."""
    return id(one) in _shared


def forget() -> None:
    """Share nothing any more; copies that were made before cannot be restored."""
    _shared.clear()


class Copier(pickle.Pickler):
    """Writes one object graph."""

    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        if id(value) in _shared:
            return _shared_object, (id(value),)
        rule = _RULES.get(kind)
        return NotImplemented if rule is None else rule(value)


def copied(root: Any) -> bytes:
    """Return a copy of everything that is reached from an object."""
    buffer = io.BytesIO()
    Copier(buffer, pickle.HIGHEST_PROTOCOL).dump(root)
    return buffer.getvalue()


def restored(copy: bytes) -> Any:
    """Return a new object graph like the one that was copied."""
    return pickle.loads(copy)


def _shared_object(identity: int) -> Any:
    return _shared[identity]


def _of_function(function: types.FunctionType) -> Any:
    if function.__closure__ is None and "<" not in function.__qualname__:
        return NotImplemented  # it is found by its name
    share((function.__code__,))
    return _function, (
        id(function.__code__),
        function.__module__,
        function.__qualname__,
        function.__defaults__,
        function.__kwdefaults__,
        function.__closure__,
    )


def _function(
    code: int,
    module: str,
    name: str,
    defaults: tuple[Any, ...] | None,
    keywords: dict[str, Any] | None,
    cells: tuple[types.CellType, ...] | None,
) -> types.FunctionType:
    made = types.FunctionType(
        _shared[code], vars(sys.modules[module]), name.rpartition(".")[2], defaults, cells
    )
    made.__qualname__, made.__kwdefaults__ = name, keywords
    return made


def _of_cell(cell: types.CellType) -> Any:
    try:
        content = (cell.cell_contents,)
    except ValueError:
        return _cell, ()
    return _cell, (), content, None, None, _fill


def _cell() -> types.CellType:
    return types.CellType()


def _proxy(content: dict[Any, Any]) -> types.MappingProxyType[Any, Any]:
    return types.MappingProxyType(content)


def _fill(cell: types.CellType, content: tuple[Any]) -> None:
    (cell.cell_contents,) = content


def _of_generator(generator: types.GeneratorType[Any, Any, Any]) -> Any:
    """A source of rows that is being read goes on where it stands; no other generator outlives a step."""
    place = where_it_stands(generator)
    return (iter, ((),)) if place is None else (_batches, place)


def where_it_stands(generator: types.GeneratorType[Any, Any, Any]) -> tuple[Any, str, int] | None:
    """Return a source's reader, the split and the offset at which it goes on; None: it is at its end.

    Raises InternalError for any other generator.
    """
    if generator.gi_code is not _BATCHES:
        raise InternalError(f"a simulated world that is searched holds {generator!r}, which cannot be copied")
    if generator.gi_frame is None:
        return None
    known = generator.gi_frame.f_locals
    reader = known["self"]
    offset = known["first"] + reader._batch_records if "first" in known else known["offset"]
    return reader, known["split"], offset


def _batches(reader: Any, split: str, offset: int) -> Iterator[Any]:
    found: Iterator[Any] = reader.batches(split, offset)
    return found


def _same(value: Any) -> Any:
    """What has no state of its own is shared."""
    share((value,))
    return _shared_object, (id(value),)


_RULES: dict[type, Any] = {
    msgspec.json.Decoder: _same,
    msgspec.json.Encoder: _same,
    msgspec.msgpack.Decoder: _same,
    msgspec.msgpack.Encoder: _same,
    types.FunctionType: _of_function,
    types.CellType: _of_cell,
    types.GeneratorType: _of_generator,
    types.MappingProxyType: lambda proxy: (_proxy, (dict(proxy),)),
    weakref.ReferenceType: lambda reference: (weakref.ref, (reference(),)),
    LockType: lambda _: (allocate_lock, ()),
}
