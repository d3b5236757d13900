"""Checks a fault schedule against the subtasks and channels that exist, before anything runs.

A schedule that aims at nothing would only show as UNKNOWN after a whole trial; here it is an error at once,
with the key path and the nearest right name.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence

from barrier_tck.faults.vocabulary import (
    COORDINATOR,
    COORDINATOR_POINTS,
    After,
    At,
    BlackHoleChannel,
    ChannelFault,
    CrashCoordinator,
    CutChannel,
    Damage,
    DamagePrimary,
    DelayChannel,
    FailPrimaryWrites,
    Fault,
    PartitionHalves,
    ScheduledFault,
    ThrottleChannel,
    duration_of,
)

Channel = tuple[str, str]
"""(sender, receiver), subtasks by name."""


class ScheduleError(ValueError):
    """A schedule that cannot be carried out on the job; the message names the key path and the value."""


def validate(
    schedule: Sequence[ScheduledFault],
    subtasks: Sequence[str],
    channels: Collection[Channel] | None = None,
) -> None:
    """Raise ScheduleError for the first fault that cannot be meant as it stands.

    Checked: subtasks of faults and triggers exist; sender and receiver are connected, if ``channels`` are known,
    and the coordinator is only ever the receiver; points of the coordinator take no subtask; ``nth`` is 1 or
    more; times are not negative, durations and rates positive, and a jitter is not above its latency.
    """
    for index, scheduled in enumerate(schedule):
        path = f"faults[{index}]"
        _check_fault(scheduled.fault, subtasks, channels, f"{path}.fault")
        match scheduled.trigger:
            case At(time_ms=time_ms):
                if time_ms < 0:
                    raise ScheduleError(f"{path}.trigger.time_ms is {time_ms}; it must be 0 or more")
            case After() as after:
                _check_after(after, subtasks, f"{path}.trigger")


def _check_fault(
    fault: Fault, subtasks: Sequence[str], channels: Collection[Channel] | None, path: str
) -> None:
    match fault:
        case CrashCoordinator():
            _require_at_least(0, fault.unreadable_ms, f"{path}.unreadable_ms")
        case DelayChannel() | ThrottleChannel() | CutChannel() | BlackHoleChannel():
            _check_channel(fault, subtasks, channels, path)
        case PartitionHalves(subtasks=half):
            _check_half(half, subtasks, f"{path}.subtasks")
        case DamagePrimary(damage=Damage.OLDER_CHECKPOINT | Damage.OLDER_ATTEMPT):
            raise ScheduleError(
                f"{path}.damage is {fault.damage.value!r}, which only a local copy can be; use 'missing', 'truncated', "
                "'bit_flipped' or 'partial'"
            )
        case _:
            _require_subtask(fault.subtask, subtasks, f"{path}.subtask")
    if isinstance(fault, FailPrimaryWrites):
        _require_at_least(1, fault.checkpoints, f"{path}.checkpoints")
    duration_ms = duration_of(fault)
    if duration_ms is not None:
        _require_at_least(1, duration_ms, f"{path}.duration_ms")


def _check_channel(
    fault: ChannelFault, subtasks: Sequence[str], channels: Collection[Channel] | None, path: str
) -> None:
    if fault.sender == COORDINATOR:
        raise ScheduleError(
            f"{path}.sender is {COORDINATOR!r}; name the subtask as sender and the coordinator as receiver, and "
            "choose the way with 'direction'"
        )
    _require_subtask(fault.sender, subtasks, f"{path}.sender")
    if fault.receiver != COORDINATOR:
        _require_subtask(fault.receiver, subtasks, f"{path}.receiver", also=(COORDINATOR,))
        if channels is not None and (fault.sender, fault.receiver) not in channels:
            ends = [receiver for sender, receiver in channels if sender == fault.sender]
            raise ScheduleError(
                f"{path}.receiver is {fault.receiver!r}, to which {fault.sender!r} has no channel; it has some "
                f"to {', '.join([*ends, COORDINATOR])}"
            )
    if isinstance(fault, DelayChannel):
        _require_at_least(1, fault.latency_ms, f"{path}.latency_ms")
        _require_at_least(0, fault.jitter_ms, f"{path}.jitter_ms")
        if fault.jitter_ms > fault.latency_ms:
            raise ScheduleError(
                f"{path}.jitter_ms is {fault.jitter_ms}, above latency_ms ({fault.latency_ms}): nothing arrives "
                "before it was sent"
            )
    if isinstance(fault, ThrottleChannel):
        _require_at_least(1, fault.bytes_per_second, f"{path}.bytes_per_second")


def _check_half(half: Sequence[str], subtasks: Sequence[str], path: str) -> None:
    if not half:
        raise ScheduleError(f"{path} is empty; name the subtasks whose executors are the first half")
    for position, subtask in enumerate(half):
        _require_subtask(subtask, subtasks, f"{path}[{position}]")
        if subtask in half[:position]:
            raise ScheduleError(f"{path}[{position}] is {subtask!r}, which is named already")


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


def _require_at_least(least: int, value: int, path: str) -> None:
    if value < least:
        raise ScheduleError(f"{path} is {value}; it must be {least} or more")


def _require_subtask(name: str, subtasks: Sequence[str], path: str, also: tuple[str, ...] = ()) -> None:
    if name in subtasks:
        return
    near = difflib.get_close_matches(name, [*subtasks, *also], n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    known = ", ".join([*subtasks, *also])
    raise ScheduleError(f"{path} is {name!r}, which is no subtask of this job{hint} (it has {known})")
