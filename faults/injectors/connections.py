"""Injects faults of connections, and partitions built from them: disturbs links, proves it, heals them.

A partition is all or nothing: if one of its connections cannot be disturbed, the others are healed at once and
the fault did not fire.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from barrier_tck.faults.injectors.injection import Heal, Injection, proved, skipped, unproved
from barrier_tck.faults.targets import Impairment, ImpairmentKind, LinkTarget, TargetGone, Targets
from barrier_tck.faults.vocabulary import (
    BlackHoleChannel,
    ChannelFault,
    CutChannel,
    DelayChannel,
    Direction,
    Fault,
    PartitionExecutor,
    PartitionHalves,
    ThrottleChannel,
)


def disturb_channel(fault: Fault, targets: Targets, wait: Callable[[float], None] = time.sleep) -> Injection:
    """Carry out DelayChannel, ThrottleChannel, CutChannel or BlackHoleChannel; ``wait`` as for ``partition``."""
    if not isinstance(fault, ChannelFault):
        raise TypeError(f"{type(fault).__name__} disturbs no channel")
    link = targets.link(fault.sender, fault.receiver)
    if link is None:
        return skipped(f"connection from {fault.sender} to {fault.receiver}")
    return _impair((link,), impairment_of(fault), wait)


def partition(fault: Fault, targets: Targets, wait: Callable[[float], None] = time.sleep) -> Injection:
    """Carry out PartitionExecutor or PartitionHalves; ``wait`` waits (seconds) between questions for the proof."""
    links: Sequence[LinkTarget] | None
    match fault:
        case PartitionExecutor(subtask=subtask, peers=peers, direction=direction):
            links, what = (
                targets.links_of_executor(subtask, peers),
                f"connections of the executor of {subtask}",
            )
            impairment = Impairment(ImpairmentKind.BLACK_HOLE, direction)
        case PartitionHalves(subtasks=subtasks):
            links, what = targets.links_between_halves(subtasks), f"connections around {', '.join(subtasks)}"
            impairment = Impairment(ImpairmentKind.BLACK_HOLE)
        case _:
            raise TypeError(f"{type(fault).__name__} is no partition")
    if links is None:
        return skipped(what)
    if not links:
        return Injection("skipped", reason="there is no connection between the two sides")
    return _impair(tuple(links), impairment, wait)


def impairment_of(fault: ChannelFault) -> Impairment:
    """Return what a fault does to its connection."""
    match fault:
        case DelayChannel(latency_ms=latency_ms, jitter_ms=jitter_ms, direction=direction):
            return Impairment(ImpairmentKind.DELAY, direction, latency_ms=latency_ms, jitter_ms=jitter_ms)
        case ThrottleChannel(bytes_per_second=rate, direction=direction):
            return Impairment(ImpairmentKind.THROTTLE, direction, bytes_per_second=rate)
        case CutChannel():
            return Impairment(ImpairmentKind.CUT, Direction.BOTH)
        case BlackHoleChannel(direction=direction):
            return Impairment(ImpairmentKind.BLACK_HOLE, direction)


def _impair(
    links: tuple[LinkTarget, ...], impairment: Impairment, wait: Callable[[float], None]
) -> Injection:
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
