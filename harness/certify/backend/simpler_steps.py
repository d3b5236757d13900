"""Steps that do less, and sequences that are likely to fail as well: tried when a failing sequence is made smaller."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from barrier_tck.harness.certify.backend import steps
from barrier_tck.harness.certify.backend.model import NAMES, WrongRead
from barrier_tck.harness.certify.engine.violation import Violation

_PLAIN_KEY = b"a"


def shortcuts(played: tuple[steps.AnyStep, ...], violation: Violation) -> Iterator[tuple[steps.AnyStep, ...]]:
    """Yield a sequence from its last layout on, and one that reads the wrong place instead of everything."""
    layouts = [number for number, step in enumerate(played) if isinstance(step, steps.Layout)]
    if layouts and layouts[-1]:
        # Nothing from before this step matters any more.
        yield played[layouts[-1] :]
    last = played[-1] if played else None
    if isinstance(last, steps.ReadAll) and isinstance(violation, WrongRead) and violation.place is not None:
        name, group, key = violation.place
        for read in (
            steps.Get(last.store, name, group, key),
            steps.GetMany(last.store, name, (group,), (key,)),
            steps.Scan(last.store, name, group),
        ):
            yield (*played[:-1], read)


def simpler_steps(step: steps.AnyStep) -> Iterator[steps.AnyStep]:
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
        case steps.Put(name=name, key=key, value=value):
            if value:
                yield msgspec.structs.replace(step, value=b"")
            if key != _PLAIN_KEY:
                yield msgspec.structs.replace(step, key=_PLAIN_KEY)
            if name != NAMES[0]:
                yield msgspec.structs.replace(step, name=NAMES[0])
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
        case steps.CheckCapability(keys=keys) if len(keys) > 1:
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
