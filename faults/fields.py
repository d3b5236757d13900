"""The meaning of a fault's fields, declared as their types: which process a field names, or what its number counts.

Code that checks a schedule, replaces the subtasks of a fault, scales its times and sizes for another system, or shrinks
it asks the fields. So it needs to know no fault by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Annotated, Any, get_args, get_type_hints


class Unit(Enum):
    """What a number counts."""

    MILLISECONDS = "milliseconds"
    BYTES = "bytes"
    """Bytes, or bytes a second."""
    OCCASIONS = "occasions"

    @property
    def most(self) -> int:
        """Return the largest number that is accepted: a day, a tebibyte, or a million times."""
        return {Unit.MILLISECONDS: 86_400_000, Unit.BYTES: 1 << 40, Unit.OCCASIONS: 1_000_000}[self]


@dataclass(frozen=True, slots=True)
class Number:
    """The meaning of a field that holds a number."""

    unit: Unit
    least: int
    smaller_is_simpler: bool = True
    """Whether a smaller number makes the fault milder: not for a rate, which does more harm the lower it is."""


class NamedProcess(Enum):
    """The meaning of a field that holds a name, or several names: which processes it may name."""

    SUBTASK = "a subtask"
    SUBTASK_OR_COORDINATOR = "a subtask, or the coordinator"


Subtask = Annotated[str, NamedProcess.SUBTASK]
"""A subtask, as ``vertex[index]``."""
Receiver = Annotated[str, NamedProcess.SUBTASK_OR_COORDINATOR]
"""The other end of a connection: a subtask, or ``COORDINATOR``."""
Duration = Annotated[int, Number(Unit.MILLISECONDS, least=1)]
"""Milliseconds, at least one."""
MaybeDuration = Annotated[int, Number(Unit.MILLISECONDS, least=0)]
"""Milliseconds, or 0: not at all."""
Bytes = Annotated[int, Number(Unit.BYTES, least=1, smaller_is_simpler=False)]
"""A number of bytes, or of bytes per second; at least one."""
Times = Annotated[int, Number(Unit.OCCASIONS, least=1)]
"""How often, at least once."""
MaybeTimes = Annotated[int, Number(Unit.OCCASIONS, least=0)]
"""How often. What 0 means, each fault says itself."""


@cache
def meanings(struct: type) -> Mapping[str, NamedProcess | Number | type]:
    """Return field of a fault -> its meaning, in the order of declaration; its type if no meaning is declared."""
    hints = get_type_hints(struct, include_extras=True)
    return {name: _meaning(hints[name]) for name in struct.__struct_fields__}  # type: ignore[attr-defined]


def _meaning(hint: Any) -> Any:
    found: list[Any] = [part for part in _parts(hint) if isinstance(part, NamedProcess | Number)]
    return found[0] if found else hint


def _parts(hint: Any) -> Iterator[Any]:
    """Yield the annotations of a type, and those of its type arguments: a tuple of names has them inside."""
    yield from getattr(hint, "__metadata__", ())
    for inner in get_args(hint):
        yield from _parts(inner)


def down_from(value: int, least: int) -> Iterator[int]:
    """Yield smaller values for shrinking: the least one first, then values closer and closer to ``value``."""
    step = value - least
    while step > 0:
        yield value - step
        step //= 2
