"""Bounds declared on the fields of a struct. They hold whether the struct is decoded or constructed in code."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
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
        for name, kind, fits in _bounded_fields(type(self)):
            if not fits(getattr(self, name)):
                problem = problem_of_value(getattr(self, name), kind, name)
                if problem is not None:
                    raise ValueError(problem)


@lru_cache(maxsize=256)
def _bounded_fields(
    struct: type[msgspec.Struct],
) -> tuple[tuple[str, inspect.Type, Callable[[Any], bool]], ...]:
    """Return the fields that hold a number or a word, each with its allowed kinds and with what accepts most values."""
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    simple = (inspect.IntType, inspect.LiteralType, inspect.StrType)
    return tuple(
        (field.name, kind, _quick_test(kind))
        for field in info.fields
        for kind in _kinds(field.type)
        if isinstance(kind, simple)
    )


def _quick_test(kind: inspect.Type) -> Callable[[Any], bool]:
    """Return what is True of most right values and of no wrong one, because a plan is made of hundreds of structs."""
    match kind:
        case inspect.IntType(ge=None, le=None) | inspect.StrType(pattern=None):
            return lambda _: True
        case inspect.IntType(ge=least, le=most):
            low, high = (-math.inf if least is None else least), (math.inf if most is None else most)
            return lambda value: type(value) is int and low <= value <= high
        case inspect.LiteralType(values=allowed):
            return lambda value: type(value) is str and value in allowed
        case inspect.StrType(pattern=str() as pattern):
            search = re.compile(pattern).search
            return lambda value: type(value) is str and search(value) is not None
    return lambda _: False


def _kinds(kind: Any) -> tuple[inspect.Type, ...]:
    """Return the kinds that a field may have; an optional field has the kind that its value has when it is set."""
    return tuple(kind.types) if isinstance(kind, inspect.UnionType) else (kind,)
