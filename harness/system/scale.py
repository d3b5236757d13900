"""The scale of a system's world: how plans that are written in virtual milliseconds are stretched for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Scale:
    """How plans of the conformance suite are stretched for a system, and how much of the suite a session can afford.

    The plans are written for a simulator with a heartbeat timeout of 150 virtual milliseconds, a checkpoint every 15
    virtual milliseconds, and a few hundred records.
    """

    time_factor: int = 1
    """The factor by which intervals, pauses and times of faults are multiplied."""
    batches_factor: int = 1
    batch_records: int | None = None
    """Records per batch; None means the plan's value."""
    keys: int | None = None
    records_per_second: int | None = None
    """Rate per source subtask; None means the plan's value."""
    bytes_factor: int = 1
    """The factor by which rates of throttled connections are multiplied, because more bytes pass through them."""
    timeout_ms_min: int = 0
    """The shortest timeout that a checkpoint is given, in milliseconds."""
    executors_min: int = 1
    wall_s: int = 120
    seeds_max: int = 1
    """How often a plan is run at most, each time with another seed; 1 if the seed decides nothing."""
    tries_max: int = 1
    """How often a test is run at most until what it is about has happened; 1 if a plan's trials are all the same."""
    examples_max: int = 10
    """Generated plans per property at most; with up to 5, a failing plan is not shrunk."""
    profiles: tuple[tuple[str, str], ...] = ()
    """Profile that a property asks for -> the profile from which this system's plans are drawn instead."""


@runtime_checkable
class HasScale(Protocol):
    """What a system may add: the scale of its world, if the plans as written are too small or too large for it."""

    @property
    def scale(self) -> Scale:
        """Return the scale."""


def scale_of(system: object) -> Scale:
    """Return a system's scale; for a system that has none, plans run as they are written."""
    return system.scale if isinstance(system, HasScale) else Scale()
