"""The meaning of operators in event time, as models that replay the order in which records and watermarks came.

They are written from what the documentation promises, and share no code with any runtime. A model keeps what it must
by key, as values that can be copied. A record is a row; see ``event_time`` for its columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.record.history import Row

Emitted = tuple[str, Row]
"""Output (empty: the main one) and row."""

KeyState = dict[str, Any]
"""What a model keeps for one key: JSON values, and dictionaries with numbers as keys."""


class ReplayedOperator(Protocol):
    """A model of one operator. What it keeps of a key is passed to it, and changed by it."""

    def take(self, kept: KeyState, number: int, row: Row, watermark: int) -> Iterable[Emitted]:
        """Take a record of an input, at a watermark (ms) of its key; return what is emitted at once."""

    def due(self, kept: KeyState, key: str, watermark: int) -> Iterable[Emitted]:
        """Return what is emitted because event time has come so far."""

    def entries(self, kept: KeyState) -> Mapping[str, Any]:
        """Return what a snapshot shows for the key: state -> its content, empty ones left out."""


@runtime_checkable
class ReadsClock(Protocol):
    """A model of an operator whose state has a time to live: what it does depends on the time by its clock, too."""

    now_ms: int
    """What the clock shows at a step; it is set ahead of it."""

    def remove_what_is_over(self, kept: KeyState) -> None:
        """Remove what has not been used for too long, as is done ahead of a snapshot."""


class MakesReplayed(Protocol):
    """Makes the model of an operator."""

    def __call__(self, operator: OperatorPlan) -> ReplayedOperator: ...
