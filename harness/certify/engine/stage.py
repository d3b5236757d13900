"""Where sequences of steps are played: what each kind of certificate brings so that the engine can test it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from typing import Generic, Protocol

from barrier_tck.harness.certify.engine.steps import StepT
from barrier_tck.harness.certify.engine.violation import Violation


class Session(Protocol[StepT]):
    """One example: the candidate and a model of it, side by side."""

    played: list[StepT]
    shown: Counter[str]
    """Clause -> how many comparisons showed it, which could have failed and did not."""
    reached: Counter[str]
    """Situation -> how often something was compared in it."""
    calls: int

    @property
    def effort(self) -> int:
        """How much it took, in calls; one that does much counts as several."""

    def apply(self, step: StepT) -> None:
        """Play one step; raises Violation as soon as the candidate differs from the model."""

    def close(self) -> None:
        """Compare what is left to compare, and close in good order; raises Violation."""

    def end(self, violation: Violation | None = None) -> None:
        """Give back what it used, after a violation or without one; a process that can go on may be used again."""

    def abandon(self) -> None:
        """Give back what it used, in whatever state that is."""


class Stage(ABC, Generic[StepT]):
    """One candidate: a session of it for each example, in processes that are used again while they can be."""

    target: str
    """What a replay file names."""
    layout: str = ""
    """How it is laid out, for a replay file; empty if there is one way only."""
    shrink_effort_max: int = 60_000
    """How much may be played to make a failing sequence smaller. Calls are counted, and not seconds, so that a busy
    machine reports the same sequence."""

    @property
    @abstractmethod
    def remaining_s(self) -> float:
        """How much of the total time is left, in seconds."""

    @property
    @abstractmethod
    def processes(self) -> int:
        """How many processes were used so far."""

    @abstractmethod
    def begin(self, steps: tuple[StepT, ...]) -> Session[StepT]:
        """Open a session in which these steps can be played (none: they are not known yet); raises Violation."""

    @abstractmethod
    def renew(self) -> None:
        """Let the next session begin in a new process."""

    def scale_time_limit(self, share: float) -> bool:
        """Let each call take this share of its usual time limit from now on; tell whether this stage can do so."""
        return False

    def simpler(self, steps: tuple[StepT, ...], position: int) -> Iterable[StepT]:
        """Return steps that do less than the one at a position of a failing sequence, to be tried instead of it."""
        return ()

    def shortcuts(self, steps: tuple[StepT, ...], violation: Violation) -> Iterable[tuple[StepT, ...]]:
        """Return smaller sequences that are likely to fail for the same reason."""
        return ()

    def close(self) -> None:
        """End what is kept for the next session."""
