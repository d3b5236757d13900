"""Looks at what an adapter reports before anything is concluded from it: numbers that cannot be, and contradictions.

A checker would believe them. What is refused here is a mistake of the adapter, so it says nothing about the system.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any

import msgspec

from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.history import History
from barrier_tck.harness.record.records import attempts_of, checkpoints_of
from barrier_tck.harness.support.errors import OutcomeRefused
from barrier_tck.harness.system.system_under_test import TrialOutcome

_MAY_BE_NEGATIVE = (("ClockCompared", "ahead_ms"),)
"""Fields that say how much something is ahead."""
_ENDS = (
    ("started_at_ms", "running_at_ms"),
    ("started_at_ms", "ended_at_ms"),
    ("triggered_at_ms", "ended_at_ms"),
)
"""Of a record: a time, and another one that is not before it."""


def refuse_what_cannot_be(outcome: TrialOutcome) -> None:
    """Raise OutcomeRefused for what is no TrialOutcome and, naming the field, for a negative time, duration or count,
    and for a contradiction.
    """
    # Whoever writes an adapter without a type checker forgets to return it.
    returned: object = outcome
    if not isinstance(returned, TrialOutcome):
        raise OutcomeRefused(f"run() returned {reprlib.repr(returned)}, and must return a TrialOutcome")
    history: object = returned.history
    if not isinstance(history, History):
        raise OutcomeRefused(f"the history of the outcome is {reprlib.repr(history)}, and must be a History")
    problem = next(_problems(outcome), None)
    if problem is not None:
        raise OutcomeRefused(f"the adapter reported what cannot be: {problem}")


def _problems(outcome: TrialOutcome) -> Iterator[str]:
    yield from _wrong_number("duration_ms", outcome.duration_ms)
    for name, numbers in (
        ("measurements", outcome.measurements),
        ("refused_connections", outcome.refused_connections),
    ):
        for key, number in numbers.items():
            yield from _wrong_number(f"{name}[{key!r}]", number)
    for name, records in (
        ("attempts", outcome.attempts),
        ("checkpoints", outcome.checkpoints),
        ("snapshots", outcome.snapshots),
    ):
        for index, record in enumerate(records):
            yield from _wrong_numbers(f"{name}[{index}]", record)
            yield from _ended_before(f"{name}[{index}]", record)
    for index, line in enumerate(outcome.history.operations):
        where = f"history.operations[{index}]"
        yield from _wrong_number(f"{where}.time_ms", line.time_ms)
        yield from _wrong_numbers(f"{where} ({type(line.operation).__name__})", line.operation)
    for index, view in enumerate(outcome.history.checkpoints):
        for number, part in enumerate(view.state):
            yield from _no_entries(f"history.checkpoints[{index}].state[{number}].entries", part.entries)
    yield from _contradictions(outcome)


def _no_entries(field: str, entries: Mapping[str, object]) -> Iterator[str]:
    """Look at the first entry only: whoever makes one wrong makes all of them wrong."""
    for key, kept in islice(entries.items(), 1):
        if not _is_list_in_json(key):
            yield f"""{field} has the key {key!r}, which is not the JSON text of a list, such as '["k0"]'"""
        if not isinstance(kept, list):
            yield f"{field} holds {kept!r} for the key {key!r}, and must hold a list"


def _is_list_in_json(key: object) -> bool:
    try:
        return isinstance(key, str) and isinstance(msgspec.json.decode(key, type=list[Any]), list)
    except msgspec.DecodeError:
        return False


def _wrong_number(field: str, number: object) -> Iterator[str]:
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        yield f"{field} is {number!r}, which is no number"
    elif math.isnan(number):
        yield f"{field} is not a number (NaN)"
    elif number < 0:
        yield f"{field} is {number:g}, but a time, duration or count is never negative"


def _wrong_numbers(where: str, struct: msgspec.Struct) -> Iterator[str]:
    for field in _numbers_of(type(struct)):
        number = getattr(struct, field)
        if number is not None:
            yield from _wrong_number(f"{where}.{field}", number)


@cache
def _numbers_of(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the fields of a struct that hold a number that is never negative, or None."""
    numbers = ("int", "float", "int | None", "float | None")
    return tuple(
        field
        for base in kind.__mro__
        for field, annotation in vars(base).get("__annotations__", {}).items()
        if str(annotation) in numbers and (kind.__name__, field) not in _MAY_BE_NEGATIVE
    )


def _ended_before(where: str, record: msgspec.Struct) -> Iterator[str]:
    for first, last in _ENDS:
        began, ended = getattr(record, first, None), getattr(record, last, None)
        if began is not None and ended is not None and ended < began:
            yield f"{where}.{last} is {ended:g}, before {first}, which is {began:g}"


def _contradictions(outcome: TrialOutcome) -> Iterator[str]:
    """Yield what attempts and checkpoints say otherwise than the operations of the history, if both were given."""
    history = outcome.history
    if outcome.attempts and any(history.of(ops.AttemptStarted)):
        noted = {each.attempt: each for each in attempts_of(history)}
        yield from _differ(
            "attempts", "AttemptStarted", noted, {each.attempt: each for each in outcome.attempts}
        )
    if outcome.checkpoints and _ended_checkpoints(history):
        ended = {each.checkpoint: each for each in checkpoints_of(history)}
        yield from _differ(
            "checkpoints",
            "CheckpointCompleted and CheckpointAborted",
            ended,
            {each.checkpoint: each for each in outcome.checkpoints},
        )


def _ended_checkpoints(history: History) -> bool:
    return any(history.of(ops.CheckpointCompleted)) or any(history.of(ops.CheckpointAborted))


_COMPARED = {"attempts": ("restored_checkpoint",), "checkpoints": ("status",)}
"""Field of an outcome -> what of its records must be what the history says; times may be taken at other moments."""


def _differ(field: str, operations: str, noted: Mapping[int, Any], given: Mapping[int, Any]) -> Iterator[str]:
    advice = f"leave {field} empty: it is made of the history"
    if sorted(noted) != sorted(given):
        yield (
            f"TrialOutcome.{field} has the numbers {_listed(given)}, the history's {operations} have {_listed(noted)}; "
            f"{advice}"
        )
    for number, record in given.items():
        for name in _COMPARED[field]:
            if number in noted and getattr(noted[number], name) != getattr(record, name):
                yield (
                    f"TrialOutcome.{field} says of {number} that {name} is {getattr(record, name)!r}, the history's "
                    f"operations say {getattr(noted[number], name)!r}; {advice}"
                )


def _listed(numbers: Mapping[int, Any]) -> str:
    shown: Sequence[str] = [str(number) for number in sorted(numbers)]
    return ", ".join(shown[:10]) + (f" and {len(shown) - 10} more" if len(shown) > 10 else "")
