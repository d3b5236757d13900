"""Makes a failing sequence smaller: first removes steps, large pieces before small ones, then simplifies steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic

from barrier_tck.harness.certify.engine.playing import Breach, breach_and_effort
from barrier_tck.harness.certify.engine.stage import Stage
from barrier_tck.harness.certify.engine.steps import StepT

_REPEATED_SHARE = 4
"""One part in so many of the effort is there to play again what failed, even if making it smaller has taken all."""


def smallest(stage: Stage[StepT], found: Breach[StepT], share: float = 1.0) -> Breach[StepT]:
    """Return the smallest sequence that was found, which breaks the same clause in a new process too.

    If the smallest one does not, the ones before it are played again, the newest first; if none does, ``found``.

    ``share``: this share of the stage's effort may be spent; none if it is 0. A sequence that exceeded a time limit is
    returned as it is: each attempt would cost the limit again.
    """
    if not share or found.violation.hung or found.violation.from_outside:
        return found
    if len(found.steps) < 2 and not any(True for _ in _simpler(stage, found.steps)):
        return found
    shrinker = Shrinker(stage, found, round(share * stage.shrink_effort_max))
    shrinker.shrink()
    return shrinker.newest_breaking_again() or found


def _simpler(stage: Stage[StepT], steps: tuple[StepT, ...]) -> Iterator[StepT]:
    for position in range(len(steps)):
        yield from stage.simpler(steps, position)


class Shrinker(Generic[StepT]):
    """One failing sequence, which becomes smaller."""

    def __init__(self, stage: Stage[StepT], found: Breach[StepT], effort_max: int) -> None:
        self._stage = stage
        self._effort_left = effort_max
        self._effort_to_repeat = effort_max // _REPEATED_SHARE
        self._hung = False
        self._found = found
        self._accepted: list[Breach[StepT]] = []

    @property
    def smallest(self) -> Breach[StepT]:
        """The smallest sequence that failed, if only once."""
        return self._accepted[-1] if self._accepted else self._found

    def shrink(self) -> None:
        """Do what can be done with so much effort."""
        while self._fewer_steps() or self._simpler_steps():
            pass

    def newest_breaking_again(self) -> Breach[StepT] | None:
        """Play the sequences that failed again, the newest first; return the first that breaks the same clause.

        Processes were used again, so what failed may have needed what was left of an earlier sequence; or two threads
        met by chance. What came after such a sequence was built on it, but what came before it was not.

        Steps and sentence of what is returned are of one and the same run, so their numbers agree.
        """
        effort_left = max(self._effort_left, self._effort_to_repeat)
        for breach in self._accepted[::-1] or [self._found]:
            if breach is not self.smallest and (effort_left <= 0 or self._stage.remaining_s < 0):
                return None
            self._stage.renew()
            repeated, effort = breach_and_effort(self._stage, breach.steps)
            effort_left -= effort
            if repeated is not None and repeated.violation.clause == breach.violation.clause:
                return repeated
        return None

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
        self._accepted.append(found)
        return True
