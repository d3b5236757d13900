"""Makes a failing sequence smaller: first removes steps, large pieces before small ones, then simplifies steps."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec

from barrier_tck.harness.certify import session_steps as steps
from barrier_tck.harness.certify.machine import Hunt
from barrier_tck.harness.certify.store_models import Violation

Sequence = tuple[steps.AnyStep, ...]


def make_smaller(
    hunt: Hunt, sequence: Sequence, violation: Violation, seconds_max: float
) -> tuple[Sequence, Violation]:
    """Return the smallest sequence found within the time that breaks the same clause, and what it violates.

    Processes are reused, so the caller must repeat the result in a new process to confirm it.
    """
    shrinker = _Shrinker(hunt, sequence, violation, time.monotonic() + seconds_max)
    try:
        while shrinker.fewer_steps() or shrinker.smaller_steps():
            pass
    finally:
        hunt.close()
    return shrinker.sequence, shrinker.violation


class _Shrinker:
    def __init__(self, hunt: Hunt, sequence: Sequence, violation: Violation, deadline: float) -> None:
        self._hunt = hunt
        self._deadline = deadline
        self.sequence = sequence
        self.violation = violation

    def fewer_steps(self) -> bool:
        """Remove pieces, from half of the sequence down to single steps; tell whether any could be removed."""
        before = len(self.sequence)
        layouts = [number for number, step in enumerate(self.sequence) if isinstance(step, steps.Layout)]
        if layouts and layouts[-1]:
            # Nothing from before this step matters any more.
            self._take(self.sequence[layouts[-1] :])
        size = max(1, len(self.sequence) // 2)
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
        """Replace steps by simpler ones; tell whether any could be replaced."""
        if any(isinstance(step, steps.Race) for step in self.sequence):
            # With less to write or to store, the two threads may never overlap.
            return False
        changed = self._name_what_is_read()
        for position in range(len(self.sequence)):
            improving = True
            while improving:
                improving = any(
                    self._take((*self.sequence[:position], simpler, *self.sequence[position + 1 :]))
                    for simpler in list(_simpler(self.sequence[position]))
                )
                changed = changed or improving
        return changed

    def _name_what_is_read(self) -> bool:
        """Replace reading everything by reading the one wrong place."""
        if not self.sequence or self.violation.place is None:
            return False
        last, (name, group, key) = self.sequence[-1], self.violation.place
        if not isinstance(last, steps.ReadAll):
            return False
        narrow: tuple[steps.AnyStep, ...] = (
            steps.Get(last.store, name, group, key),
            steps.GetMany(last.store, name, (group,), (key,)),
            steps.Scan(last.store, name, group),
        )
        return any(self._take((*self.sequence[:-1], read)) for read in narrow)

    def _take(self, sequence: Sequence) -> bool:
        """Continue with this sequence if it also fails, and breaks the same clause."""
        if time.monotonic() > self._deadline or self._hunt.give_up_shrinking:
            return False
        found = _violated(self._hunt, sequence)
        if found is None or found.clause != self.violation.clause:
            return False
        self.sequence, self.violation = sequence, found
        return True


def _violated(hunt: Hunt, sequence: Sequence) -> Violation | None:
    try:
        session = hunt.begin()
    except Violation as violation:
        return violation
    try:
        for step in sequence:
            session.apply(step)
        session.close()
    except Violation as violation:
        hunt.candidate = session.retire(violation)
        hunt.hung += violation.hung
        return violation
    hunt.candidate = session.end()
    return None


def _simpler(step: steps.AnyStep) -> Iterator[steps.AnyStep]:
    """Yield steps that do less."""
    match step:
        case steps.PutMany(keys=keys) if len(keys) > 1:
            for kept in _fewer(len(keys)):
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
        case steps.Fill():
            if step.count > 1:
                yield msgspec.structs.replace(step, count=step.count // 2)
                yield msgspec.structs.replace(step, count=step.count - 1)
            if len(step.groups) > 1:
                yield msgspec.structs.replace(step, groups=step.groups[:1])
            if step.key_bytes > 8:
                yield msgspec.structs.replace(step, key_bytes=step.key_bytes // 2)
            if step.value_bytes:
                yield msgspec.structs.replace(step, value_bytes=step.value_bytes // 2)
        case steps.Restart(checkpoints=(first, second)) if first and second:
            yield msgspec.structs.replace(step, checkpoints=(first, 0))
            yield msgspec.structs.replace(step, checkpoints=(0, second))
        case steps.Rescale(checkpoints=(first, second)) if first and second:
            yield msgspec.structs.replace(step, checkpoints=(first, 0))
            yield msgspec.structs.replace(step, checkpoints=(0, second))
        case steps.Layout(files_wanted=files) if files > 1:
            yield msgspec.structs.replace(step, files_wanted=1)
        case steps.Promise(keys=keys) if len(keys) > 1:
            for left_out in range(len(keys)):
                yield msgspec.structs.replace(step, keys=keys[:left_out] + keys[left_out + 1 :])
        case _:
            return


def _fewer(count: int) -> Iterator[list[int]]:
    """Yield which of ``count`` things to keep: either half of many, or all but one."""
    if count > 3:
        yield list(range(count // 2))
        yield list(range(count // 2, count))
    for left_out in range(count):
        yield [number for number in range(count) if number != left_out]
