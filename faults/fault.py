"""What a fault is: a frozen value that knows everything that belongs to it.

A fault names its targets by role, never by process id. Its docstring is its contract: what a correct system must
survive, and what it may refuse. Everything else that other code must know about it is a *trait* of its class: nemesis,
strategies, shrinking, oracles and reports ask the fault, and none of them knows one by name.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Self

import msgspec

from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fields import NamedProcess, Number, Unit, down_from, meanings
from barrier_tck.faults.injectors.injection import Injection
from barrier_tck.faults.targets import COORDINATOR, Damage, TargetKind, Targets

Wait = Callable[[float], None]
"""Waits this many seconds before the proof that a fault fired is asked for again."""


class Ends(Enum):
    """What a fault ends at once, without a way back."""

    SUBTASKS = "processes of subtasks"
    COORDINATOR = "the coordinator"


class OnProgress(Enum):
    """What a fault may do to a job's progress; the oracle excuses no more than this (REC-6)."""

    NOTHING = "no attempt fails because of it: the job takes another copy, or completes a later checkpoint"
    FAILS_AN_ATTEMPT = "the attempt that it strikes may fail, and the next one goes on"
    SLOWS = "while it lasts attempts may fail, but the job does not stand still"
    STOPS = "while it lasts the job may stand still, however often it is deployed"


class CopyPlace(Enum):
    """Where copies of state are."""

    LOCAL = "local disks"
    DURABLE = "durable storage"


@dataclass(frozen=True, slots=True)
class CopiesHit:
    """What a fault does to copies of state."""

    place: CopyPlace
    subtask: str
    damage: Damage | None = None
    """None: the copies that are there stay as they are, and no further ones can be written."""
    whole_host: bool = False
    """Whether it hits the copies of all subtasks on the host, and not only the subtask's."""
    certain: bool = True
    """False: a copy may or may not have survived."""


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base of every fault. A fault sets the first four traits, and any other whose default does not fit it."""

    label: ClassVar[str]
    """What the kind is called, as opposed to a single fault, for instance ``kill executor``."""
    colour: ClassVar[str]
    """Its colour in reports, ``#rrggbb``."""
    needs: ClassVar[TargetKind]
    """What a system must expose to suffer this fault."""
    drawn_as: ClassVar[tuple[DrawnAs, ...]]
    """The names under which campaigns draw it."""
    ends: ClassVar[Ends | None] = None
    on_progress: ClassVar[OnProgress] = OnProgress.FAILS_AN_ATTEMPT
    plain_failure: ClassVar[bool] = False
    """Whether it only ends the one subtask that it names, or its host: shrinking replaces other faults by it."""
    waits_for_upload: ClassVar[bool] = False
    """Whether it strikes in what is stored afterwards; so it is drawn where something is sure to be stored."""
    waits_for_request: ClassVar[bool] = False
    """Whether it waits for a request to the storage service; so it is drawn where one is sure to follow."""
    shown_as: ClassVar[str] = ""
    """What a report calls the process that is hit while the fault lasts, for instance ``paused``; for faults that
    last."""

    def __post_init__(self) -> None:
        for field, value, number in self.numbers():
            if value < number.least:
                raise ValueError(f"{field} is {value}; it must be {number.least} or more")
            if value > number.unit.most:
                raise ValueError(f"{field} is {value}; it must be {number.unit.most} or less")
        problem = self.problem()
        if problem is not None:
            raise ValueError(problem)

    # --- what each fault says for itself --------------------------------------------------------------------

    def description(self) -> str:
        """Return the fault as a short phrase for reports, for instance ``kill executor of count[0]``."""
        raise NotImplementedError

    def inject(self, targets: Targets, wait: Wait = time.sleep) -> Injection:
        """Carry it out once, prove it, and say how it heals.

        Never raises for a missing or dead target, which is an outcome.
        """
        raise NotImplementedError

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Draw one for an aim."""
        raise NotImplementedError

    # --- what some faults say otherwise ---------------------------------------------------------------------

    @property
    def heals_after_ms(self) -> int | None:
        """Return after how many milliseconds it heals; None if nothing of it can heal."""
        duration: int | None = getattr(self, "duration_ms", None)
        return duration

    @property
    def lingers_ms(self) -> float:
        """Return for how many milliseconds after it has healed something may still come late because of it."""
        return 0.0

    @property
    def silences(self) -> tuple[str, ...]:
        """Return the subtasks of which nothing is heard while it lasts, although they may still run."""
        return ()

    @property
    def loses_unsynced(self) -> bool:
        """Whether it takes a host's unsynced writes with it."""
        return False

    @property
    def copies_hit(self) -> CopiesHit | None:
        """Return what it does to copies of state."""
        return None

    @property
    def fails_metadata(self) -> bool:
        """Whether it lets writes fail that make a checkpoint complete."""
        return False

    @property
    def link(self) -> tuple[str, str] | None:
        """Return the ends of the connection that it disturbs, if it names one."""
        return None

    def problem(self) -> str | None:
        """Say which of its values contradict each other, whatever the job; a fault with such values cannot be made.

        The bounds of each number are declared by its field.
        """
        return None

    # --- what follows from the fields -----------------------------------------------------------------------

    @property
    def subtasks(self) -> tuple[str, ...]:
        """Return the subtasks that it names, the coordinator left out, in the order of its fields."""
        names = [name for _, name in self.named()]
        return tuple(name for name in names if name != COORDINATOR)

    def named(self) -> Iterator[tuple[str, str]]:
        """Yield (path, name) of each subtask that it names, or the coordinator, for instance ``subtasks[1]``."""
        for field, meaning in meanings(type(self)).items():
            if not isinstance(meaning, NamedProcess):
                continue
            value = getattr(self, field)
            if isinstance(value, str):
                yield field, value
            else:
                yield from ((f"{field}[{position}]", name) for position, name in enumerate(value))

    def numbers(self) -> Iterator[tuple[str, int, Number]]:
        """Yield (field, value, meaning) of each number."""
        for field, meaning in meanings(type(self)).items():
            if isinstance(meaning, Number):
                yield field, getattr(self, field), meaning

    def renamed(self, rename: Callable[[str], str]) -> Self:
        """Return the fault with every subtask that it names replaced; the coordinator stays what it is."""
        changed: dict[str, object] = {}
        for field, meaning in meanings(type(self)).items():
            if isinstance(meaning, NamedProcess):
                value = getattr(self, field)
                if isinstance(value, str):
                    changed[field] = value if value == COORDINATOR else rename(value)
                else:
                    changed[field] = tuple(dict.fromkeys(map(rename, value)))
        return msgspec.structs.replace(self, **changed)

    def scaled(self, time_factor: int, bytes_factor: int) -> Self:
        """Return the fault for a world in which everything takes longer, and is bigger, by these factors."""
        factors = {Unit.MILLISECONDS: time_factor, Unit.BYTES: bytes_factor, Unit.OCCASIONS: 1}
        return msgspec.structs.replace(
            self, **{field: value * factors[number.unit] for field, value, number in self.numbers()}
        )

    def magnitudes(self) -> tuple[int, ...]:
        """Return how much it does of everything; of two faults of one kind the smaller is simpler."""
        flags = [int(getattr(self, field)) for field, kind in meanings(type(self)).items() if kind is bool]
        return (*flags, *(value for _, value, number in self.numbers() if number.smaller_is_simpler))

    def simpler(self) -> Iterator[Self]:
        """Yield simpler variants of the fault: one thing left out, or one number smaller."""
        for field, kind in meanings(type(self)).items():
            if kind is bool and getattr(self, field):
                yield msgspec.structs.replace(self, **{field: False})
        for field, value, number in self.numbers():
            if number.smaller_is_simpler:
                for less in down_from(value, number.least):
                    with contextlib.suppress(ValueError):  # it may have to be as large as another one
                        yield msgspec.structs.replace(self, **{field: less})


def tag_of(fault: Fault | type[Fault]) -> str:
    """Return the fault's tag in plans, for instance ``kill_executor``."""
    tag = fault.__struct_config__.tag
    assert isinstance(tag, str), f"{fault!r} has no tag"
    return tag
