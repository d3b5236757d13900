"""Packages bind faults to all that belongs to them: how they look, what they need, who injects, who draws.

A report asks a package for label and colour, the harness asks which targets must exist, the generator of
plans asks it to build a fault, and the nemesis asks it for the injector.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from faults.injectors.processes import Injection, Injector, kill_process
from faults.targets import Targets
from faults.vocabulary import CrashCoordinator, Fault, KillExecutor, KillWorker


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One kind of fault and what belongs to it."""

    name: str
    """Short name within its package, used as a key of weights in campaign files."""
    tag: str
    """The fault's tag in plans, for instance ``kill_executor``."""
    label: str
    colour: str
    """Colour in timelines, ``#rrggbb``."""
    needs: str
    """Kind of target that a system must expose: ``executor``, ``worker`` or ``coordinator``."""
    build: Callable[[str, bool], Fault]
    """Generator hook: (subtask, lose_unsynced) -> fault. What the kind does not have, it ignores."""
    can_lose_unsynced: bool
    inject: Injector


@dataclass(frozen=True, slots=True)
class FaultPackage:
    """Faults that belong together."""

    name: str
    label: str
    colour: str
    kinds: tuple[FaultKind, ...]

    @property
    def targets(self) -> tuple[str, ...]:
        """Return the kinds of target that its faults need."""
        return tuple(dict.fromkeys(kind.needs for kind in self.kinds))


KILL = FaultPackage(
    name="kill",
    label="process kills",
    colour="#b3261e",
    kinds=(
        FaultKind(
            name="executor",
            tag="kill_executor",
            label="kill executor",
            colour="#b3261e",
            needs="executor",
            build=lambda subtask, lose: KillExecutor(subtask=subtask, lose_unsynced=lose),
            can_lose_unsynced=True,
            inject=kill_process,
        ),
        FaultKind(
            name="worker",
            tag="kill_worker",
            label="kill worker",
            colour="#d9730d",
            needs="worker",
            build=lambda subtask, _lose: KillWorker(subtask=subtask),
            can_lose_unsynced=False,
            inject=kill_process,
        ),
        FaultKind(
            name="coordinator",
            tag="crash_coordinator",
            label="crash coordinator",
            colour="#7b3fa0",
            needs="coordinator",
            build=lambda _subtask, lose: CrashCoordinator(lose_unsynced=lose),
            can_lose_unsynced=True,
            inject=kill_process,
        ),
    ),
)

PACKAGES: tuple[FaultPackage, ...] = (KILL,)
"""Every package there is."""


def tag_of(fault: Fault) -> str:
    """Return the fault's tag, for instance ``kill_executor``."""
    tag = type(fault).__struct_config__.tag
    assert isinstance(tag, str), f"{type(fault).__name__} has no tag"
    return tag


def kind_of(fault: Fault) -> FaultKind:
    """Return the kind that a fault belongs to; raises LookupError if no package knows it."""
    tag = tag_of(fault)
    for package in PACKAGES:
        for kind in package.kinds:
            if kind.tag == tag:
                return kind
    raise LookupError(f"no package in faults.packages has a kind for {tag!r}")


def inject(fault: Fault, targets: Targets) -> Injection:
    """Carry out a fault with the injector of its kind."""
    return kind_of(fault).inject(fault, targets)
