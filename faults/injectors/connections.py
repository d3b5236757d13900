"""Injects faults of connections, and partitions built from them: disturbs links, proves it, heals them.

A partition is all or nothing: if one of its connections cannot be disturbed, the others are healed at once and
the fault did not fire.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from barrier_tck.faults.injectors.injection import Heal, Injection, proved, skipped, unproved
from barrier_tck.faults.targets import Direction, Impairment, LinkTarget, Loss, PassingMessage, TargetGone


@dataclass(frozen=True, kw_only=True)
class BlackHole(Impairment):
    """Lets nothing through, and closes nothing before it heals."""

    swallows: ClassVar[bool] = True
    toxic: ClassVar[str] = "timeout"

    def attributes(self) -> dict[str, int]:
        """Return the toxic's attributes: with time 0 it closes nothing until it is removed."""
        return {"timeout": 0}

    def fate(self, message: PassingMessage, draw: Callable[[], float]) -> Loss:
        """Swallow it."""
        return Loss.SWALLOWED


@dataclass(frozen=True, kw_only=True)
class Closure(Impairment):
    """Closes connections, and lets none be opened."""

    closes: ClassVar[bool] = True


def disturb(
    links: Sequence[LinkTarget], impairment: Impairment, wait: Callable[[float], None] = time.sleep
) -> Injection:
    """Disturb all of these links; ``wait`` waits (seconds) between questions for the proof."""
    description = ", ".join(link.description for link in links)
    heal = healing(links)
    try:
        for link in links:
            link.impair(impairment)
    except TargetGone as gone:
        heal()
        return Injection("not_fired", description, f"there was nothing to disturb: {gone}")
    except BaseException:
        heal()
        raise
    if not proved(lambda: all(link.is_impaired() for link in links), wait):
        heal()
        return unproved(description, "the disturbance was not in force")
    return Injection("fired", description, heal=heal)


def partition(
    links: Sequence[LinkTarget] | None,
    what: str,
    direction: Direction,
    wait: Callable[[float], None] = time.sleep,
) -> Injection:
    """Black-hole all connections between two sides; ``what`` says which for the log, ``wait`` is as above."""
    if links is None:
        return skipped(what)
    if not links:
        return Injection("skipped", reason="there is no connection between the two sides")
    return disturb(links, BlackHole(direction=direction), wait)


def healing(links: Sequence[LinkTarget]) -> Heal:
    """Return what heals every link, also if one of them cannot be healed: it then raises an ExceptionGroup."""

    def heal() -> None:
        problems = [problem for link in links if (problem := _problem_of_healing(link)) is not None]
        if problems:
            raise ExceptionGroup(f"{len(problems)} of {len(links)} connections could not be healed", problems)

    return heal


def _problem_of_healing(link: LinkTarget) -> Exception | None:
    try:
        link.heal()
    except Exception as problem:  # noqa: BLE001 - the other links must be healed first; raised by the caller
        return problem
    return None
