"""Plays a sequence of steps: while a breach is hunted, while a failure is made smaller, and when it is replayed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

from barrier_tck.harness.certify.engine.stage import Session, Stage
from barrier_tck.harness.certify.engine.steps import StepT
from barrier_tck.harness.certify.engine.violation import Violation

Watch = Callable[[int, StepT], Callable[[bool], None] | None]
"""Called with each step and its number, from 1, before it is played. What it returns is called when the step has
passed, with whether it did anything: one that is about a snapshot that there is not does nothing."""


@dataclass(frozen=True, slots=True)
class Breach(Generic[StepT]):
    """A sequence that fails, up to the step at which it does, and what it violates."""

    steps: tuple[StepT, ...]
    violation: Violation


def breach_of(
    stage: Stage[StepT], steps: tuple[StepT, ...], watch: Watch[StepT] = lambda number, step: None
) -> Breach[StepT] | None:
    """Play steps in a session of their own; return how they fail, or None."""
    return breach_and_effort(stage, steps, watch)[0]


def breach_and_effort(
    stage: Stage[StepT], steps: tuple[StepT, ...], watch: Watch[StepT] = lambda number, step: None
) -> tuple[Breach[StepT] | None, int]:
    """Play steps in a session of their own; return how they fail, or None, and how much effort that took."""
    try:
        session = stage.begin(steps)
    except Violation as violation:
        return Breach((), violation), 1
    try:
        play_all(session, steps, watch)
        session.close()
    except Violation as violation:
        session.end(violation)
        return Breach(tuple(session.played), violation), session.effort
    except BaseException:
        # After Ctrl-C between a request and its reply, the next reply would answer the old request.
        session.abandon()
        raise
    session.end()
    return None, session.effort


def play_all(
    session: Session[StepT], steps: tuple[StepT, ...], watch: Watch[StepT] = lambda number, step: None
) -> None:
    """Play steps; raises Violation."""
    for number, step in enumerate(steps, 1):
        passed, before = watch(number, step), session.calls
        session.apply(step)
        if passed is not None:
            passed(session.calls > before)
