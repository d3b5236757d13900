"""Strict reading of what a person wrote: JSON or TOML in, frozen values out, every mistake named.

A wrong key is reported with its path and the nearest known key, a wrong value with its path and what was
expected. Nothing is guessed, and nothing is ignored.
"""

from __future__ import annotations

import difflib
import functools
import json
import re
import tomllib
from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
from msgspec import inspect

from barrier_tck.harness.support.errors import UsageProblem

_Value = TypeVar("_Value")

_SHOWN_MAX = 100
"""Most characters of a repeated key that a message shows."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the nearest known name, or the list of them if none is near.

    Nearest is one that differs in upper and lower case only, then one with the same characters in another order.
    """
    names = list(known)
    folded = {each.casefold(): each for each in reversed(names)}
    near = difflib.get_close_matches(name.casefold(), list(reversed(folded)), n=5, cutoff=0.5)
    if near:
        swapped = (each for each in near if sorted(each) == sorted(name.casefold()))
        return f"; did you mean {folded[next(swapped, near[0])]!r}?"
    return f"; known: {', '.join(names)}" if names else ""


class _Repeated(ValueError):
    """An object has a key twice; readers differ in which value they take."""


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _Repeated(key)
        found[key] = value
    return found


def read_json(path: Path) -> Any:
    """Read a JSON file; raises UsageProblem, with the position, if it is missing or is not JSON."""
    return parse_json(read_text(path), str(path))


def parse_json(text: str, source: str) -> Any:
    """Read JSON that came from ``source``; raises UsageProblem, with the position, if it is none."""
    try:
        return json.loads(text, object_pairs_hook=_once_each)
    except _Repeated as error:
        raise UsageProblem(
            f"{source}: the key {str(error)[:_SHOWN_MAX]!r} comes twice in one object; keep one of them"
        ) from error
    except json.JSONDecodeError as error:
        raise UsageProblem(f"{source} is not valid JSON: line {error.lineno}, {error.msg}") from error
    except RecursionError as error:
        raise UsageProblem(f"{source} cannot be read: it is nested too deeply") from error
    except ValueError as error:  # of Python's bound on the digits of a number
        raise UsageProblem(f"{source} cannot be read: it holds a number that is too long") from error


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; raises UsageProblem, with the position, if it is missing or is not TOML."""
    return parse_toml(read_text(path), str(path))


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """Read TOML that came from ``source``; raises UsageProblem, with the position, if it is none."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageProblem(f"{source} is not valid TOML: {error}") from error
    except RecursionError as error:
        raise UsageProblem(f"{source} cannot be read: it is nested too deeply") from error
    except ValueError as error:  # of Python's bound on the digits of a number
        raise UsageProblem(f"{source} cannot be read: it holds a number that is too long") from error


def read_text(path: Path) -> str:
    """Read a text in UTF-8; raises UsageProblem if it is missing or is none."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UsageProblem(f"{path} does not exist; check the path") from error
    except UnicodeDecodeError as error:
        raise UsageProblem(f"{path} is not a text in UTF-8: see its byte {error.start}") from error
    except OSError as error:
        raise UsageProblem(f"{path} cannot be read: {error}") from error


@functools.cache
def _structure_of(kind: Hashable) -> inspect.Type:
    """Return what msgspec knows of a type; it works this out anew whenever it is asked, which takes milliseconds."""
    return inspect.type_info(kind)


def convert(value: object, kind: type[_Value], source: str, path: str = "") -> _Value:
    """Turn plain dictionaries and lists into ``kind``.

    ``source`` is where they came from, for messages; ``path`` is the key path at which they were found there.
    Raises UsageProblem for the first unknown key, wrong tag or wrong value.
    """
    for problem in _problems(value, _structure_of(cast("Hashable", kind)), path):
        raise UsageProblem(f"{source}: {problem}")
    try:
        return msgspec.convert(value, kind)
    except RecursionError as error:
        raise UsageProblem(f"{source}: {path or 'a value'} is nested too deeply") from error
    except msgspec.ValidationError as error:
        sentence, _, where = str(error).partition(" - at ")
        key = where.strip("`").removeprefix("$").removeprefix(".")
        full = ".".join(part for part in (path, key) if part) or "the top level"
        raise UsageProblem(f"{source}: {full}: {sentence[0].lower()}{sentence[1:]}") from error


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _problems(value: object, kind: inspect.Type, path: str) -> Iterator[str]:
    """Find the mistakes that msgspec's own messages describe badly: unknown keys, tags and enum values."""
    match kind:
        case inspect.StructType():
            if isinstance(value, dict):
                yield from _struct_problems(value, kind, path)
        case inspect.UnionType():
            yield from _union_problems(value, kind, path)
        case inspect.EnumType():
            allowed = [str(member.value) for member in kind.cls]
            if isinstance(value, str) and value not in allowed:
                yield f"{path} is {value!r}{nearest(value, allowed)}"
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            if isinstance(value, list):
                for index, member in enumerate(value):
                    yield from _problems(member, item, f"{path}[{index}]")
        case inspect.TupleType(item_types=items):
            if isinstance(value, list):
                for index, (member, item) in enumerate(zip(value, items, strict=False)):
                    yield from _problems(member, item, f"{path}[{index}]")
        case inspect.DictType(value_type=member_kind):
            if isinstance(value, dict):
                for key, member in value.items():
                    yield from _problems(member, member_kind, _join(path, str(key)))
        case _:
            problem = problem_of_value(value, kind, path)
            if problem is not None:
                yield problem


def problem_of_value(value: object, kind: inspect.Type, path: str) -> str | None:
    """Say what is wrong with one number or word, in the terms of its bounds; None if it is right.

    A value of the wrong type is skipped: msgspec's own message for it is clear.
    """
    match kind:
        case inspect.IntType(ge=least, le=most) if isinstance(value, int) and not isinstance(value, bool):
            if least is not None and value < least:
                return f"{path} is {value}; it must be {least} or more"
            if most is not None and value > most:
                return f"{path} is {value}; it must be {most} or less"
        case inspect.LiteralType(values=allowed) if isinstance(value, str) and value not in allowed:
            return f"{path} is {value!r}{nearest(value, [str(one) for one in allowed])}"
        case inspect.StrType(pattern=pattern) if isinstance(value, str) and pattern is not None:
            if re.search(pattern, value) is None:
                shown = value if len(value) <= 60 else f"{value[:60]}…"
                return f"{path} is {shown!r}; it must match {pattern}"
    return None


def _struct_problems(value: dict[str, Any], kind: inspect.StructType, path: str) -> Iterator[str]:
    fields = {field.encode_name: field for field in kind.fields}
    for key, member in value.items():
        if key == kind.tag_field:
            continue
        if key not in fields:
            yield f"unknown key {_join(path, key)!r}{nearest(key, fields)}"
            return
        yield from _problems(member, fields[key].type, _join(path, key))
    for name, field in fields.items():
        if field.required and name not in value:
            yield f"the key {_join(path, name)!r} is missing"


def _union_problems(value: object, kind: inspect.UnionType, path: str) -> Iterator[str]:
    tagged = [member for member in kind.types if isinstance(member, inspect.StructType) and member.tag_field]
    if tagged and isinstance(value, dict):
        yield from _tagged_problems(value, tagged, path)
    elif len(kind.types) == 2:  # an optional value: check it against its kind if it is set
        for member in kind.types:
            if not isinstance(member, inspect.NoneType) and value is not None:
                yield from _problems(value, member, path)


def _tagged_problems(value: dict[str, Any], tagged: Sequence[inspect.StructType], path: str) -> Iterator[str]:
    tag_field = tagged[0].tag_field or "type"
    by_tag = {str(member.tag): member for member in tagged}
    tag = value.get(tag_field)
    if not isinstance(tag, str):
        yield f"the key {_join(path, tag_field)!r} is missing; it is one of {', '.join(by_tag)}"
    elif tag not in by_tag:
        yield f"{_join(path, tag_field)} is {tag!r}{nearest(tag, by_tag)}"
    else:
        yield from _struct_problems(value, by_tag[tag], path)
