"""Timers in checkpoints: what waits in a window has one for the end of the window, and no timer is idle (STA-1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from barrier_tck.harness.record.history import SnapshotView
from barrier_tck.harness.workloads.meaning import TIMERS, WAITING


def timer_problems(view: SnapshotView, windows: Sequence[str]) -> Iterator[str]:
    """Yield what waits without a timer, and the timers for which nothing waits, of the operators that are windows."""
    due: dict[tuple[str, str, str, int], bool] = {}
    """Operator, subtask, key and time -> whether a timer is set."""
    for part in view.state:
        if part.operator in windows and part.name == WAITING:
            for key, entry in part.entries.items():
                for *_, end_ms in entry:
                    due.setdefault((part.operator, part.subtask, key, end_ms), False)
    for part in view.state:
        if part.operator in windows and part.name == TIMERS:
            for key, times in part.entries.items():
                for at_ms in times:
                    place = part.operator, part.subtask, key, at_ms
                    if due.get(place):
                        yield f"key {key} of {part.operator} has two timers for {at_ms} ms in {part.subtask}"
                    elif place not in due:
                        yield (
                            f"key {key} of {part.operator} has a timer for {at_ms} ms in {part.subtask}, and nothing "
                            "waits for it"
                        )
                    due[place] = True
    for (operator, subtask, key, end_ms), has_timer in due.items():
        if not has_timer:
            yield f"records of key {key} wait in {operator} until {end_ms} ms, and {subtask} has no timer for that"
