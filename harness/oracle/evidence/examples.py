"""Chooses examples for a finding: at most ten, always including the first and the last."""

from __future__ import annotations

from collections.abc import Sequence

EXAMPLES_MAX = 10


def chosen(examples: Sequence[str], worst: str | None = None) -> tuple[str, ...]:
    """Return the first examples, the worst if one is named, and the last."""
    if len(examples) <= EXAMPLES_MAX:
        return tuple(examples)
    tail = [examples[-1]] if worst is None or worst == examples[-1] else [worst, examples[-1]]
    head = [example for example in examples[: EXAMPLES_MAX - len(tail)] if example != worst]
    return (*head, *tail)
