"""Bounds declared on the fields of a struct. They hold whether the struct is decoded or constructed in code."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
from msgspec import inspect

from barrier_tck.harness.support.strict_input import problem_of_value


class Bounded(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A struct whose annotated bounds (``msgspec.Meta``, ``Literal``) are checked when it is made.

    Raises ValueError with the field, the value and the bounds, so that a value out of bounds cannot exist.
    """

    def __post_init__(self) -> None:
        for name, kind in _bounded_fields(type(self)):
            problem = problem_of_value(getattr(self, name), kind, name)
            if problem is not None:
                raise ValueError(problem)


@lru_cache(maxsize=256)
def _bounded_fields(struct: type[msgspec.Struct]) -> tuple[tuple[str, inspect.Type], ...]:
    """Return the fields that hold a number or a word, each with its allowed kinds."""
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    simple = (inspect.IntType, inspect.LiteralType, inspect.StrType)
    return tuple(
        (field.name, kind) for field in info.fields for kind in _kinds(field.type) if isinstance(kind, simple)
    )


def _kinds(kind: Any) -> tuple[inspect.Type, ...]:
    """Return the kinds that a field may have; an optional field has the kind that its value has when it is set."""
    return tuple(kind.types) if isinstance(kind, inspect.UnionType) else (kind,)
