"""Free tables: what a part of a plan may hold if the harness does not know its keys."""

from __future__ import annotations

from collections.abc import Iterator

DEPTH_MAX = 20
"""How deep tables and lists may be nested."""


def problem_of_json(value: object, path: str) -> str | None:
    """Say where a value holds something other than tables, lists, texts, numbers, booleans and nulls, or return None.

    Only these are read back from a file as they were written.
    """
    return next(_problems(value, path, 0), None)


def _problems(value: object, path: str, depth: int) -> Iterator[str]:
    if depth > DEPTH_MAX:
        yield f"{path[:60]}… is nested more than {DEPTH_MAX} deep"
    elif isinstance(value, dict):
        for key, member in value.items():
            if not isinstance(key, str):
                yield f"{path} has the key {key!r}, which is no text"
            yield from _problems(member, f"{path}.{key}", depth + 1)
    elif isinstance(value, list | tuple):
        for index, member in enumerate(value):
            yield from _problems(member, f"{path}[{index}]", depth + 1)
    elif (isinstance(value, float) and value != value) or value in (float("inf"), float("-inf")):
        yield f"{path} is {value}, which JSON has no word for"
    elif value is not None and not isinstance(value, str | int | float | bool):
        yield f"{path} is {value!r}, a {type(value).__name__}; write a text or a number"
