"""What all examples of one property share while a breach is hunted."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic

from barrier_tck.harness.certify.engine.playing import Breach
from barrier_tck.harness.certify.engine.stage import Session, Stage
from barrier_tck.harness.certify.engine.steps import StepT
from barrier_tck.harness.certify.engine.violation import Violation
from barrier_tck.harness.support.notices import notice

SILENT_S = 20.0
"""A property that takes longer says how far it is, whenever so many seconds have passed."""


@dataclass(slots=True)
class Hunt(Generic[StepT]):
    """Where examples are played, the counts of them all, and the first that failed."""

    stage: Stage[StepT]
    clauses: tuple[str, ...] = ()
    """What an example must show, any of it, to count as one of the property's examples; empty: all of them count."""
    examples: int = 0
    idle: int = 0
    """Examples that passed and showed nothing."""
    calls: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    """How often each kind of step was played."""
    shown: Counter[str] = field(default_factory=Counter)
    """How often each clause was shown."""
    reached: Counter[str] = field(default_factory=Counter)
    """How often each situation was reached in which something was compared."""
    breach: Breach[StepT] | None = None
    name: str = ""
    """The property's; without one nothing is said about how far it is."""
    clock: Callable[[], float] = time.monotonic
    began: float = field(init=False)
    said: float = field(init=False)
    """When it was last said how far it is."""

    def __post_init__(self) -> None:
        self.began = self.said = self.clock()

    def say_how_far(self, played: str = "") -> None:
        """Say how far the property is, if nothing was said for long; ``played``: how far its present example is."""
        now = self.clock()
        if not self.name or now - self.said < SILENT_S:
            return
        self.said = now
        examples = "" if played else f"{self.examples} examples, "
        notice(
            f"checking {self.name}: {played}{examples}{self.calls:,} calls, after {now - self.began:.0f} s"
        )

    @property
    def over(self) -> bool:
        """Whether no further example is played: one has failed, or the total time is used up."""
        return self.breach is not None or self.stage.remaining_s < 0

    def begin(self, steps: tuple[StepT, ...] = ()) -> Session[StepT]:
        """Open the session of an example; raises Violation."""
        try:
            return self.stage.begin(steps)
        except Violation as violation:
            self.breach = self.breach or Breach((), violation)
            raise

    def passed(self, session: Session[StepT]) -> None:
        """Count an example that passed, if it showed anything."""
        shows = not self.clauses or any(session.shown[clause] for clause in self.clauses)
        self._count(session, shows)
        session.end()

    def failed(self, session: Session[StepT], violation: Violation) -> None:
        """Count an example that failed, and remember it."""
        self._count(session, True)
        self.breach = self.breach or Breach(tuple(session.played), violation)
        session.end(violation)

    def play(self, steps: tuple[StepT, ...]) -> None:
        """Play one example; raises Violation."""
        if self.over:
            return
        session = self.begin(steps)
        try:
            for number, step in enumerate(steps, 1):
                self.say_how_far(f"step {number} of {len(steps)}, ")
                if self.stage.remaining_s < 0:
                    session.abandon()
                    return
                session.apply(step)
            session.close()
        except Violation as violation:
            self.failed(session, violation)
            raise
        except BaseException:
            # After Ctrl-C between a request and its reply, the next reply would answer the old request.
            session.abandon()
            raise
        self.passed(session)

    def _count(self, session: Session[StepT], shows: bool) -> None:
        self.examples += shows
        self.idle += not shows
        self.calls += session.calls
        self.kinds.update(step.kind for step in session.played)
        self.shown.update(session.shown)
        self.reached.update(session.reached)
        self.say_how_far()
