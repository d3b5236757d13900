"""Checks a fault schedule against the subtasks that exist, before anything runs.

A schedule that aims at nothing would only show as UNKNOWN after a whole trial; here it is an error at once,
with the key path and the nearest right name.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from faults.vocabulary import COORDINATOR_POINTS, After, At, CrashCoordinator, ScheduledFault


class ScheduleError(ValueError):
    """A schedule that cannot be carried out on the job; the message names the key path and the value."""


def validate(schedule: Sequence[ScheduledFault], subtasks: Sequence[str]) -> None:
    """Raise ScheduleError for the first fault that cannot be meant as it stands.

    Checked: subtasks of faults and triggers exist; points of the coordinator take no subtask; ``nth`` is 1 or
    more; times are not negative.
    """
    for index, scheduled in enumerate(schedule):
        path = f"faults[{index}]"
        if not isinstance(scheduled.fault, CrashCoordinator):
            _require_subtask(scheduled.fault.subtask, subtasks, f"{path}.fault.subtask")
        match scheduled.trigger:
            case At(time_ms=time_ms):
                if time_ms < 0:
                    raise ScheduleError(f"{path}.trigger.time_ms is {time_ms}; it must be 0 or more")
            case After() as after:
                _check_after(after, subtasks, f"{path}.trigger")


def _check_after(trigger: After, subtasks: Sequence[str], path: str) -> None:
    if trigger.nth < 1:
        raise ScheduleError(f"{path}.nth is {trigger.nth}; occurrences are counted from 1")
    if trigger.subtask is None:
        return
    if trigger.point in COORDINATOR_POINTS:
        raise ScheduleError(
            f"{path}.subtask is {trigger.subtask!r}, but {trigger.point.value} is a point of the "
            "coordinator; leave the subtask out"
        )
    _require_subtask(trigger.subtask, subtasks, f"{path}.subtask")


def _require_subtask(name: str, subtasks: Sequence[str], path: str) -> None:
    if name in subtasks:
        return
    near = difflib.get_close_matches(name, subtasks, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    known = ", ".join(subtasks)
    raise ScheduleError(f"{path} is {name!r}, which is no subtask of this job{hint} (it has {known})")
