"""What must have happened before a clause of event time could be violated."""

from __future__ import annotations

from collections.abc import Callable

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.precondition import Precondition
from barrier_tck.harness.record.elements import Polled, SentWatermark, TookWatermark
from barrier_tck.harness.record.history import SnapshotView

OF_ONE_INPUT = ("event_window", "event_top_n", "event_deduplicate")
"""The kinds whose rows follow from windows or horizons of one input (EVT-2)."""
JOINS = ("event_interval_join", "event_window_join")
"""The kinds that join two inputs (EVT-4)."""


def _advanced(context: TrialContext) -> bool:
    return any(
        isinstance(entry, SentWatermark) for one in context.history.elements or () for entry in one.entries
    )


def _fired_by(*kinds: str) -> Callable[[TrialContext], bool]:
    """Return whether an operator of some kinds emitted anything that reached a sink, or held anything."""

    def fired(context: TrialContext) -> bool:
        names = tuple(
            operator.name
            for vertex in context.plan.job.vertices
            for operator in vertex.operators
            if operator.kind in kinds
        )
        marks = tuple(f"{name}{mark}" for name in names for mark in "[@(:")
        return any(row.get("how", "").startswith(marks) for row in context.history.output or ()) or any(
            part.operator in names and part.entries
            for view in context.history.checkpoints
            for part in view.state
        )

    return fired


def _overtook(context: TrialContext) -> bool:
    """Return whether a checkpoint that was restored had records in flight, and watermarks went on behind it."""
    restored = {one.restored for one in context.history.elements or () if one.restored is not None}
    views: list[SnapshotView] = [view for view in context.history.checkpoints if view.checkpoint in restored]
    return any(view.in_flight for view in views) and any(
        isinstance(entry, TookWatermark)
        for one in context.history.elements or ()
        if one.restored is not None
        for entry in one.entries
    )


def _held_back(context: TrialContext) -> bool:
    return any(
        isinstance(entry, Polled) and entry.held
        for one in context.history.elements or ()
        for entry in one.entries
    )


ADVANCED = Precondition("a watermark was sent", _advanced)
FIRED = Precondition(
    "a window, a ranking or a deduplication held or emitted something", _fired_by(*OF_ONE_INPUT)
)
JOINED = Precondition("a join held a row, or emitted a pair or a row alone", _fired_by(*JOINS))
IN_TIME = Precondition(
    "a timer in event time was set or went off, or state with a time to live was used",
    _fired_by("event_timer", "expiring"),
)
HELD_BACK = Precondition("a split of an aligned source was ahead, and was not read", _held_back)
OVERTOOK_WATERMARKS = Precondition(
    "a job went on with records in flight, and watermarks came behind them", _overtook
)
