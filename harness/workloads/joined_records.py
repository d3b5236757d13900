"""What the models of joins in event time share: sides of records by key, and the records of pairs and rows alone.

A waiting record is a list: event time (ms), id, mark, n. See ``replayed``; nothing here is shared with a runtime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.record.history import Row

SIDES = ("left", "right")
"""The names of the states with the records of input 0 and of input 1."""
FORMS: Mapping[str, tuple[bool, bool]] = {
    "inner": (False, False),
    "left": (True, False),
    "right": (False, True),
    "full": (True, True),
}
"""The form of a join -> whether records of the left side, and of the right side, appear that have no partner."""
TIME_MAX_MS = 10_000_000_000
"""The longest time in a parameter (ms)."""


def waiting(row: Row) -> list[Any]:
    """Return what is kept of a record."""
    return [row["ts"], row["id"], row["mark"], row["n"]]


def together(
    name: str, key: str, time: int, left: Sequence[Any] | None, right: Sequence[Any] | None, behind: str = ""
) -> Row:
    """Return the record of a pair, or of a row alone: None is the side that is missing."""
    sums = [
        mine + other for mine, other in zip((left or (0,) * 4)[1:4], (right or (0,) * 4)[1:4], strict=True)
    ]
    how = f"{name}({_shown(left)},{_shown(right)}){behind}"
    return {"key": key, "ts": time, "id": sums[0], "mark": sums[1], "n": sums[2], "how": how}


def _shown(side: Sequence[Any] | None) -> str:
    return "-" if side is None else str(side[1])


def form_problem(operator: OperatorPlan) -> str | None:
    """Say what is wrong with the parameter that names the form of a join."""
    form = operator.parameters.get("form", "inner")
    if form not in FORMS:
        return f"the join {operator.name!r} has the form {form!r}; known: {', '.join(FORMS)}"
    return None


def whole_number_problem(
    operator: OperatorPlan, name: str, least: int, most: int = TIME_MAX_MS
) -> str | None:
    """Say what is wrong with a parameter that must be given, and be a whole number in a range."""
    value = operator.parameters.get(name)
    if type(value) is int and least <= value <= most:
        return None
    return f"{operator.name!r} needs {name}, a whole number from {least} to {most}, not {value!r}"


def unknown_problem(operator: OperatorPlan, *known: str) -> str | None:
    """Say which parameter is not known."""
    unknown = [name for name in operator.parameters if name not in known]
    if not unknown:
        return None
    return f"{operator.name!r} has no parameter {unknown[0]!r}; known: {', '.join(known)}"


def windows_problem(operator: OperatorPlan, *, sessions: bool) -> str | None:
    """Say what is wrong with ``size_ms``, ``slide_ms`` and ``offset_ms``, or with ``gap_ms`` of sessions."""
    given = operator.parameters.keys() & {"size_ms", "slide_ms", "offset_ms", "gap_ms"}
    if not ("size_ms" in given and "gap_ms" not in given) and not (sessions and given == {"gap_ms"}):
        others = ", or gap_ms" if sessions else ""
        return f"{operator.name!r} needs size_ms, with slide_ms and offset_ms or without{others}"
    problems = (whole_number_problem(operator, name, int(name != "offset_ms")) for name in sorted(given))
    return next(filter(None, problems), None)


def windows_at(time: int, size: int, slide: int, offset: int = 0) -> list[tuple[int, int]]:
    """Return start and end of every window of a fixed size in which a time lies, the earliest first.

    One of them begins every ``slide`` milliseconds, counted from ``offset``.
    """
    since = time - offset
    starts = [offset + slide * number for number in range((since - size) // slide + 1, since // slide + 1)]
    return [(start, start + size) for start in starts]
