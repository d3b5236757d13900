"""Makes a failing sequence smaller: first removes steps, large pieces before small ones, then simplifies steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Generic

from barrier_tck.harness.certify.engine.hunt import SILENT_S
from barrier_tck.harness.certify.engine.playing import Breach, breach_and_effort
from barrier_tck.harness.certify.engine.stage import Stage
from barrier_tck.harness.certify.engine.steps import StepT
from barrier_tck.harness.support.notices import notice

_LONG = 12
"""A sequence with more steps is made smaller once more, in processes that remember nothing."""
_HURRIED_SHARE = 0.1
"""The share of its time limit that a call may take while a sequence that has exceeded it is made smaller."""
_EFFORT_OF_A_HANG = 1_500
"""About what it costs to exceed that share, in calls."""
_EFFORT_OF_A_PROCESS = 250
"""About what a new process costs, in calls."""
_REPEATED_SHARE = 4
"""One part in so many of the effort is there to play again what failed, even if making it smaller has taken all."""


def smallest(
    stage: Stage[StepT],
    found: Breach[StepT],
    share: float = 1.0,
    name: str = "",
    clock: Callable[[], float] = time.monotonic,
) -> Breach[StepT]:
    """Return the smallest sequence that was found, which breaks the same clause in a new process too.

    If the smallest one does not, or is still long, the candidate may remember what was played before: then the newest
    that does is made smaller once more, each time in a new process. If none does, ``found`` is returned as it is.

    ``share``: this share of the stage's effort may be spent; none if it is 0. A sequence that exceeded a time limit is
    made smaller with a shorter one, since each attempt costs it again; what is returned exceeded the usual one. If the
    stage has no shorter one, it is returned as it is.

    ``name``: the property's, to say how far this is; without one nothing is said.
    """
    if not share or found.violation.from_outside:
        return found
    if found.violation.hung and not stage.scale_time_limit(1.0):
        return found
    if len(found.steps) < 2 and not any(True for _ in _simpler(stage, found.steps)):
        return found
    progress = _Progress(name, len(found.steps), clock)
    effort_max = round(share * stage.shrink_effort_max)
    shrinker = Shrinker(stage, found, effort_max, progress)
    shrinker.shrink()
    repeated = shrinker.newest_breaking_again()
    if repeated is None:
        return found
    if repeated.steps == shrinker.smallest.steps and len(repeated.steps) <= _LONG:
        return repeated
    apart = Shrinker(stage, repeated, shrinker.effort_left, progress, apart=True)
    apart.shrink()
    return apart.newest_breaking_again() or repeated


def _simpler(stage: Stage[StepT], steps: tuple[StepT, ...]) -> Iterator[StepT]:
    for position in range(len(steps)):
        yield from stage.simpler(steps, position)


class _Progress:
    """Says at once that a failing sequence is made smaller, and from time to time how far that is."""

    def __init__(self, name: str, steps: int, clock: Callable[[], float]) -> None:
        self._name = name
        self._clock = clock
        self._began = self._said = clock()
        self._runs = 0
        if name:
            notice(f"{name} failed: making the sequence of {_counted(steps, 'step')} smaller")

    def ran(self, steps: int) -> None:
        """Count one more run; ``steps``: how many are left now."""
        self._runs += 1
        now = self._clock()
        if not self._name or now - self._said < SILENT_S:
            return
        self._said = now
        runs, left = _counted(self._runs, "run"), _counted(steps, "step")
        notice(f"{self._name}: {left} left after {runs}, {now - self._began:.0f} s")


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


class Shrinker(Generic[StepT]):
    """One failing sequence, which becomes smaller."""

    def __init__(
        self,
        stage: Stage[StepT],
        found: Breach[StepT],
        effort_max: int,
        progress: _Progress,
        apart: bool = False,
    ) -> None:
        """Take what failed and the effort that may be spent. ``apart``: each run has a new process."""
        self._apart = apart
        self._stage = stage
        self._progress = progress
        self._effort_left = effort_max
        self._effort_to_repeat = effort_max // _REPEATED_SHARE
        self._stopped = False
        self._found = found
        self._accepted: list[Breach[StepT]] = []

    @property
    def smallest(self) -> Breach[StepT]:
        """The smallest sequence that failed, if only once."""
        return self._accepted[-1] if self._accepted else self._found

    @property
    def effort_left(self) -> int:
        """How much effort may still be spent."""
        return max(0, self._effort_left)

    def shrink(self) -> None:
        """Do what can be done with so much effort."""
        hung = self._found.violation.hung
        try:
            if hung:
                self._stage.scale_time_limit(_HURRIED_SHARE)
            while self._fewer_steps() or self._simpler_steps():
                pass
        finally:
            if hung:
                self._stage.scale_time_limit(1.0)

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
            self._progress.ran(len(breach.steps))
            if _is_the_same(repeated, breach):
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
        if self._effort_left <= 0 or self._stage.remaining_s < 0 or self._stopped:
            return False
        if self._apart:
            self._stage.renew()
            self._effort_left -= _EFFORT_OF_A_PROCESS
        found, effort = breach_and_effort(self._stage, steps)
        hung = found is not None and found.violation.hung
        self._effort_left -= effort + _EFFORT_OF_A_HANG * hung
        self._progress.ran(len(self.smallest.steps))
        if found is None or not _is_the_same(found, self.smallest):
            # Whatever hangs without being looked for costs the usual limit: one such attempt is enough.
            self._stopped = hung and not self._found.violation.hung
            return False
        self._accepted.append(found)
        return True


def _is_the_same(found: Breach[StepT] | None, before: Breach[StepT]) -> bool:
    """Return whether a sequence failed for the reason of one before it; whatever another program ended did not."""
    return (
        found is not None
        and not found.violation.from_outside
        and found.violation.hung == before.violation.hung
        and found.violation.clause == before.violation.clause
    )
