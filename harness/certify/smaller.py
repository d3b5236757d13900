"""Makes a failing sequence smaller: fewer steps first, in large pieces before small ones, then smaller steps."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec

from barrier_tck.harness.certify import session_steps as steps
from barrier_tck.harness.certify.comparison import Violation
from barrier_tck.harness.certify.machine import Hunt

Sequence = tuple[steps.AnyStep, ...]


def make_smaller(hunt: Hunt, sequence: Sequence, violation: str, seconds_max: float) -> tuple[Sequence, str]:
    """Return the smallest failing sequence found within the time, and what it violates.

    Processes are used again and again, so the caller repeats the result in a new one before it is believed.
    """
    shrinker = _Shrinker(hunt, sequence, violation, time.monotonic() + seconds_max)
    try:
        while shrinker.fewer_steps() or shrinker.smaller_steps():
            pass
    finally:
        hunt.close()
    return shrinker.sequence, shrinker.violation


class _Shrinker:
    def __init__(self, hunt: Hunt, sequence: Sequence, violation: str, deadline: float) -> None:
        self._hunt = hunt
        self._deadline = deadline
        self.sequence = sequence
        self.violation = violation

    def fewer_steps(self) -> bool:
        """Leave out pieces, from half of the sequence down to single steps; tell whether any could go."""
        before = len(self.sequence)
        size = max(1, before // 2)
        while True:
            end = len(self.sequence)
            while end > 0:
                start = max(0, end - size)
                self._take(self.sequence[:start] + self.sequence[end:])
                end = start
            if size == 1:
                return len(self.sequence) < before
            size //= 2

    def smaller_steps(self) -> bool:
        """Replace steps by simpler ones; tell whether any could be."""
        changed = False
        for position in range(len(self.sequence)):
            improving = True
            while improving:
                improving = any(
                    self._take((*self.sequence[:position], simpler, *self.sequence[position + 1 :]))
                    for simpler in list(_simpler(self.sequence[position]))
                )
                changed = changed or improving
        return changed

    def _take(self, sequence: Sequence) -> bool:
        """Go on with this sequence if it fails, too."""
        if time.monotonic() > self._deadline or self._hunt.give_up_shrinking:
            return False
        found = _violated(self._hunt, sequence)
        if found is None:
            return False
        self.sequence, self.violation = sequence, found
        return True


def _violated(hunt: Hunt, sequence: Sequence) -> str | None:
    try:
        session = hunt.begin()
    except Violation as violation:
        return str(violation)
    try:
        for step in sequence:
            session.apply(step)
        session.close()
    except Violation as violation:
        hunt.candidate = session.retire(violation)
        hunt.hung += violation.hung
        return str(violation)
    hunt.candidate = session.end()
    return None


def _simpler(step: steps.AnyStep) -> Iterator[steps.AnyStep]:
    """Yield steps that do less."""
    match step:
        case steps.PutMany(keys=keys) if len(keys) > 1:
            for left_out in range(len(keys)):
                kept = [number for number in range(len(keys)) if number != left_out]
                yield msgspec.structs.replace(
                    step,
                    groups=tuple(step.groups[number] for number in kept),
                    keys=tuple(step.keys[number] for number in kept),
                    values=tuple(step.values[number] for number in kept),
                )
        case steps.PutMany(keys=(key,), values=(value,)):
            yield steps.Put(step.store, step.name, step.groups[0], key, value)
        case steps.Put(value=value) if value:
            yield msgspec.structs.replace(step, value=b"")
        case steps.Promise(keys=keys) if len(keys) > 1:
            for left_out in range(len(keys)):
                yield msgspec.structs.replace(step, keys=keys[:left_out] + keys[left_out + 1 :])
        case _:
            return
