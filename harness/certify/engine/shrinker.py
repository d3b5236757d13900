"""Makes a failing sequence smaller: first removes steps, large pieces before small ones, then simplifies steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic

from barrier_tck.harness.certify.engine.playing import Breach, breach_and_effort, breach_of
from barrier_tck.harness.certify.engine.stage import Stage
from barrier_tck.harness.certify.engine.steps import StepT


def smallest(stage: Stage[StepT], found: Breach[StepT], share: float = 1.0) -> Breach[StepT]:
    """Return the smallest sequence that was found, which breaks the same clause in a new process too.

    ``share``: this share of the stage's effort may be spent; none if it is 0. A sequence that exceeded a time limit is
    returned as it is: each attempt would cost the limit again.
    """
    if not share or found.violation.hung or found.violation.from_outside:
        return found
    if len(found.steps) < 2 and not any(True for _ in _simpler(stage, found.steps)):
        return found
    shrinker = Shrinker(stage, found, round(share * stage.shrink_effort_max))
    shrinker.shrink()
    stage.renew()
    repeated = breach_of(stage, shrinker.smallest.steps)
    # Processes were used again: what failed may have needed what was left of an earlier sequence.
    # Steps and sentence are of one and the same run, so their numbers agree.
    return repeated or found


def _simpler(stage: Stage[StepT], steps: tuple[StepT, ...]) -> Iterator[StepT]:
    for position in range(len(steps)):
        yield from stage.simpler(steps, position)


class Shrinker(Generic[StepT]):
    """One failing sequence, which becomes smaller."""

    def __init__(self, stage: Stage[StepT], found: Breach[StepT], effort_max: int) -> None:
        self._stage = stage
        self._effort_left = effort_max
        self._hung = False
        self.smallest = found

    def shrink(self) -> None:
        """Do what can be done with so much effort."""
        while self._fewer_steps() or self._simpler_steps():
            pass

    def _fewer_steps(self) -> bool:
        """Remove pieces, from half of the sequence down to single steps; tell whether any could be removed."""
        before = len(self.smallest.steps)
        self._take_shortcuts()
        size = max(1, len(self.smallest.steps) // 2)
        while True:
            end = len(self.smallest.steps)
            while end > 0:
                steps = self.smallest.steps
                start = max(0, end - size)
                self._takes(steps[:start] + steps[end:])
                end = min(start, len(self.smallest.steps))
            if size == 1:
                return len(self.smallest.steps) < before
            size //= 2

    def _simpler_steps(self) -> bool:
        """Replace steps by simpler ones; tell whether any could be replaced."""
        changed = self._take_shortcuts()
        for position in range(len(self.smallest.steps)):
            while position < len(self.smallest.steps) and self._simplifies(position):
                changed = True
        return changed

    def _simplifies(self, position: int) -> bool:
        steps = self.smallest.steps
        return any(
            self._takes((*steps[:position], simpler, *steps[position + 1 :]))
            for simpler in list(self._stage.simpler(steps, position))
        )

    def _take_shortcuts(self) -> bool:
        """Take shortcuts as long as there are some; tell whether there was one."""
        taken = False
        while self._takes_a_shortcut():
            taken = True
        return taken

    def _takes_a_shortcut(self) -> bool:
        found = self.smallest
        return any(self._takes(steps) for steps in self._stage.shortcuts(found.steps, found.violation))

    def _takes(self, steps: tuple[StepT, ...]) -> bool:
        """Continue with this sequence if it also fails, and breaks the same clause."""
        if self._effort_left <= 0 or self._stage.remaining_s < 0 or self._hung:
            return False
        found, effort = breach_and_effort(self._stage, steps)
        self._effort_left -= effort
        if found is None or found.violation.clause != self.smallest.violation.clause:
            return False
        self._hung = found.violation.hung
        self.smallest = found
        return True
