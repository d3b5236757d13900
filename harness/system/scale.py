"""The scale of a system's world: how plans that are written in virtual milliseconds are stretched for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Scale:
    """How plans of the conformance suite are stretched for a system, and how much of it a session can afford.

    They are written for a simulator with a heartbeat timeout of 150 virtual milliseconds, a checkpoint each 15, and
    some hundred records.
    """

    time_factor: int = 1
    """By what factor intervals, pauses and times of faults are longer."""
    batches_factor: int = 1
    batch_records: int | None = None
    """Records per batch; None: as the plan says."""
    keys: int | None = None
    records_per_second: int | None = None
    """Rate per source subtask; None: as the plan says."""
    bytes_factor: int = 1
    """By what factor rates of throttled connections are higher, since more bytes pass through them."""
    timeout_ms_min: int = 0
    """The shortest timeout that a checkpoint is given."""
    executors_min: int = 1
    wall_s: int = 120
    seeds_max: int = 1
    """How often a plan is run, each time with another seed; 1 where the seed decides nothing."""
    examples_max: int = 10
    """Generated plans per property; of one alone that fails, no smaller one is looked for."""
    profiles: tuple[tuple[str, str], ...] = ()
    """Profile that a property asks for -> profile from which this system draws instead."""


@runtime_checkable
class HasScale(Protocol):
    """What a system may add: the scale of its world, if plans as they are written are too small or too large for it."""

    @property
    def scale(self) -> Scale:
        """Return the scale."""


def scale_of(system: object) -> Scale:
    """Return a system's scale; of one that says nothing, plans run as they are written."""
    return system.scale if isinstance(system, HasScale) else Scale()
