"""What the fields of a fault mean, declared with the fields: whom they name, and what they count.

Code that checks a schedule, aims a fault at another subtask, stretches it to another world or shrinks it asks the
field, and so knows no fault by name.
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
        """Return the largest sensible number: a day, a tebibyte, or a million times."""
        return {Unit.MILLISECONDS: 86_400_000, Unit.BYTES: 1 << 40, Unit.OCCASIONS: 1_000_000}[self]


@dataclass(frozen=True, slots=True)
class Number:
    """A number of a fault."""

    unit: Unit
    least: int
    smaller_is_simpler: bool = True
    """Whether shrinking tries smaller numbers: not for a rate, which does more harm the smaller it is."""


class Named(Enum):
    """Whom a field names."""

    SUBTASK = "a subtask"
    SUBTASK_OR_COORDINATOR = "a subtask, or the coordinator"


Subtask = Annotated[str, Named.SUBTASK]
"""A subtask, as ``vertex[index]``."""
Receiver = Annotated[str, Named.SUBTASK_OR_COORDINATOR]
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
"""How often, or 0: what the fault says."""


@cache
def meanings(struct: type) -> Mapping[str, Named | Number | type]:
    """Return what each field of a fault means, in their order: just the type if nothing more is declared."""
    hints = get_type_hints(struct, include_extras=True)
    return {name: _meaning(hints[name]) for name in struct.__struct_fields__}  # type: ignore[attr-defined]


def _meaning(hint: Any) -> Any:
    found: list[Any] = [part for part in _parts(hint) if isinstance(part, Named | Number)]
    return found[0] if found else hint


def _parts(hint: Any) -> Iterator[Any]:
    """Yield what a type is made of, also inside a tuple of names."""
    yield from getattr(hint, "__metadata__", ())
    for inner in get_args(hint):
        yield from _parts(inner)


def down_from(value: int, least: int) -> Iterator[int]:
    """Yield the least value, then values closer and closer to the present one."""
    step = value - least
    while step > 0:
        yield value - step
        step //= 2
