"""Checks a fault schedule against the subtasks and channels that exist, before anything runs.

A schedule that aims at nothing would only show as UNKNOWN after a whole trial; here it is an error at once,
with the key path and the nearest right name.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence

from barrier_tck.faults.fault import Fault
from barrier_tck.faults.fields import Unit
from barrier_tck.faults.targets import COORDINATOR
from barrier_tck.faults.vocabulary import COORDINATOR_POINTS, After, At, ScheduledFault

Channel = tuple[str, str]
"""(sender, receiver), subtasks by name."""


class ScheduleError(ValueError):
    """A schedule that cannot be carried out on the job; the message names the key path and the value."""


def validate(
    schedule: Sequence[ScheduledFault],
    subtasks: Sequence[str],
    channels: Collection[Channel] | None = None,
) -> None:
    """Raise ScheduleError for the first fault that makes no sense for this job.

    Checked: subtasks of faults and triggers exist; sender and receiver are connected, if ``channels`` (those to the
    coordinator among them) are known, and the coordinator is only ever the receiver; points of the coordinator take no
    subtask; times and ``nth`` are within bounds. A fault that would be wrong for any job is refused when it
    is made.
    """
    for index, scheduled in enumerate(schedule):
        path = f"faults[{index}]"
        _check_fault(scheduled.fault, subtasks, channels, f"{path}.fault")
        match scheduled.trigger:
            case At(time_ms=time_ms):
                _require_within(time_ms, 0, Unit.MILLISECONDS, f"{path}.trigger.time_ms")
            case After() as after:
                _check_after(after, subtasks, f"{path}.trigger")


def _check_fault(
    fault: Fault, subtasks: Sequence[str], channels: Collection[Channel] | None, path: str
) -> None:
    if fault.link is not None:
        _check_link(fault.link, subtasks, channels, path)
    else:
        for field, name in fault.named():
            _require_subtask(name, subtasks, f"{path}.{field}")


def _check_link(
    link: Channel, subtasks: Sequence[str], channels: Collection[Channel] | None, path: str
) -> None:
    first, second = link
    if first == COORDINATOR:
        raise ScheduleError(
            f"{path}.sender is {COORDINATOR!r}; name the subtask as sender and the coordinator as receiver, and "
            "choose the way with 'direction'"
        )
    _require_subtask(first, subtasks, f"{path}.sender")
    if second != COORDINATOR:
        _require_subtask(second, subtasks, f"{path}.receiver", also=(COORDINATOR,))
    if channels is not None and link not in channels:
        ends = ", ".join(receiver for sender, receiver in channels if sender == first)
        raise ScheduleError(
            f"{path}.receiver is {second!r}, to which {first!r} has no channel; it has "
            + (f"some to {ends}" if ends else "none at all")
        )


def _check_after(trigger: After, subtasks: Sequence[str], path: str) -> None:
    _require_within(trigger.nth, 1, Unit.OCCASIONS, f"{path}.nth")
    if trigger.subtask is None:
        return
    if trigger.point in COORDINATOR_POINTS:
        raise ScheduleError(
            f"{path}.subtask is {trigger.subtask!r}, but {trigger.point.value} is a point of the "
            "coordinator; leave the subtask out"
        )
    _require_subtask(trigger.subtask, subtasks, f"{path}.subtask")


def _require_within(value: float, least: int, unit: Unit, path: str) -> None:
    if not least <= value <= unit.most:
        raise ScheduleError(f"{path} is {value}; it must be between {least} and {unit.most}")


def _require_subtask(name: str, subtasks: Sequence[str], path: str, also: tuple[str, ...] = ()) -> None:
    if name in subtasks:
        return
    near = difflib.get_close_matches(name, [*subtasks, *also], n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    known = ", ".join([*subtasks, *also])
    raise ScheduleError(f"{path} is {name!r}, which is no subtask of this job{hint} (it has {known})")
