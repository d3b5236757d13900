"""Steps that do less, and sequences that are likely to fail as well: tried when a failing sequence is made smaller."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from barrier_tck.harness.certify.backend import steps
from barrier_tck.harness.certify.backend.calls import Place
from barrier_tck.harness.certify.backend.model import NAMES, PLAIN, WrongRead
from barrier_tck.harness.certify.engine.violation import Violation

_PLAIN_KEY = b"a"


_READS = (steps.Get, steps.GetMany, steps.Scan, steps.ReadAll, steps.Verify, steps.Rescale)


def shortcuts(played: tuple[steps.AnyStep, ...], violation: Violation) -> Iterator[tuple[steps.AnyStep, ...]]:
    """Yield much smaller sequences, each of which leaves out one kind of what often does not matter.

    That is what comes before the last layout, what is done with the other store and with other snapshots, all reads but
    the last, and what is written elsewhere than where something wrong was read; and the last step becomes one read.
    """
    layouts = [number for number, step in enumerate(played) if isinstance(step, steps.Layout)]
    if layouts and layouts[-1]:
        # Nothing from before this step matters any more.
        yield played[layouts[-1] :]
    if not played:
        return
    *before, last = played
    place = violation.place if isinstance(violation, WrongRead) else None
    shorter: list[list[steps.AnyStep]] = [
        _of_store(before, getattr(last, "store", None)),
        [step for step in before if not isinstance(step, _READS)],
        _of_snapshot(before, getattr(last, "checkpoint", None)),
    ]
    if place is not None:
        shorter.append([kept for step in before for kept in _at_the_place(step, place)])
    for kept in shorter:
        if len(kept) < len(before):
            yield (*kept, last)
    if isinstance(last, steps.ReadAll) and place is not None:
        name, group, key = place
        for read in (
            steps.Get(last.store, name, group, key),
            steps.GetMany(last.store, name, (group,), (key,)),
            steps.Scan(last.store, name, group),
        ):
            yield (*before, read)


def _of_store(before: list[steps.AnyStep], store: int | None) -> list[steps.AnyStep]:
    return [step for step in before if store is None or getattr(step, "store", store) == store]


def _of_snapshot(before: list[steps.AnyStep], checkpoint: int | None) -> list[steps.AnyStep]:
    return [
        step for step in before if checkpoint is None or getattr(step, "checkpoint", checkpoint) == checkpoint
    ]


def _at_the_place(step: steps.AnyStep, place: Place) -> list[steps.AnyStep]:
    """Return what is left of a step if nothing is written elsewhere: the step, a smaller one, or nothing."""
    name, group, _ = place
    match step:
        case steps.Put() | steps.Delete():
            return [step] if (step.name, step.group, step.key) == place else []
        case steps.PutMany():
            numbers = [
                number
                for number, each in enumerate(zip(step.groups, step.keys, strict=True))
                if (step.name, *each) == place
            ]
            return [_kept(step, numbers)] if numbers else []
        case steps.Fill() | steps.DeleteMany():
            return [step] if step.name == name and group in step.groups else []
    return [step]


def _kept(step: steps.PutMany, numbers: Sequence[int]) -> steps.PutMany:
    return msgspec.structs.replace(
        step,
        groups=tuple(step.groups[number] for number in numbers),
        keys=tuple(step.keys[number] for number in numbers),
        values=tuple(step.values[number] for number in numbers),
    )


def simpler_steps(step: steps.AnyStep) -> Iterator[steps.AnyStep]:
    """Yield steps that do less."""
    yield from _smaller_writes(step)
    match step:
        case steps.Restart() | steps.Rescale():
            first, second = step.checkpoints
            if first and second:
                yield msgspec.structs.replace(step, checkpoints=(first, 0))
                yield msgspec.structs.replace(step, checkpoints=(0, second))
            if isinstance(step, steps.Restart) and step.compression:
                yield msgspec.structs.replace(step, compression="")
        case steps.Layout():
            yield from _with_defaults(step, files_wanted=1, compression=PLAIN, own_threads=True, second="")
        case steps.Verify():
            yield from _with_defaults(step, compression="", read_only=False)
        case steps.Run(here=True):
            yield msgspec.structs.replace(step, here=False)
        case steps.Cancel(elsewhere=True):
            yield msgspec.structs.replace(step, elsewhere=False)
        case steps.Series(rounds=rounds) if rounds > 1:
            yield from _fewer_rounds(step)
            yield msgspec.structs.replace(step, checkpoint=step.checkpoint + 1, rounds=rounds - 1)
        case steps.Failures(rounds=rounds) | steps.Chain(rounds=rounds) | steps.Resources(rounds=rounds) if (
            rounds > 1
        ):
            yield from _fewer_rounds(step)
        case steps.Repeated(rounds=rounds) if rounds > 1:
            yield msgspec.structs.replace(step, rounds=rounds - 1)
        case steps.ManySources():
            yield from _fewer_sources(step)
        case steps.SideBySide(stores=stores) if len(stores) > 1:
            for kept in _fewer(len(stores)):
                yield msgspec.structs.replace(step, stores=tuple(stores[number] for number in kept))
        case steps.CheckCapability(keys=keys) if len(keys) > 1:
            for left_out in range(len(keys)):
                yield msgspec.structs.replace(step, keys=keys[:left_out] + keys[left_out + 1 :])


def _with_defaults(step: steps.AnyStep, **defaults: object) -> Iterator[steps.AnyStep]:
    """Yield it with all these fields as they are by default, and then with each of them."""
    others = {name: value for name, value in defaults.items() if getattr(step, name) != value}
    if len(others) > 1:
        yield msgspec.structs.replace(step, **others)
    for name, value in others.items():
        yield msgspec.structs.replace(step, **{name: value})


def _smaller_writes(step: steps.AnyStep) -> Iterator[steps.AnyStep]:
    match step:
        case steps.PutMany(keys=keys) if len(keys) > 1:
            for kept in _fewer(len(keys)):
                yield _kept(step, kept)
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
            yield from _smaller_fills(step)
        case steps.ManyStates(count=count) if count > 1:
            for kept_count in dict.fromkeys((count // 2, count - count // 4, count - 1)):
                yield msgspec.structs.replace(step, count=kept_count)
        case steps.DeleteMany():
            count = len(range(step.first, step.end, step.apart))
            for kept_count in (count // 2, count - 1):
                if 0 < kept_count < count:
                    yield msgspec.structs.replace(step, end=step.first + kept_count * step.apart)


def _smaller_fills(step: steps.Fill) -> Iterator[steps.Fill]:
    if step.count > 1:
        yield msgspec.structs.replace(step, count=step.count // 2)
        yield msgspec.structs.replace(step, count=step.count - 1)
    if len(step.groups) > 1:
        yield msgspec.structs.replace(step, groups=step.groups[:1])
    if step.key_bytes > 8:
        yield msgspec.structs.replace(step, key_bytes=step.key_bytes // 2)
    if step.value_bytes:
        yield msgspec.structs.replace(step, value_bytes=step.value_bytes // 2)


def _fewer_rounds(
    step: steps.Series | steps.Failures | steps.Chain | steps.Resources,
) -> Iterator[steps.AnyStep]:
    """Yield it with less and less taken from its rounds, down to one of them."""
    taken = step.rounds // 2
    while taken:
        yield msgspec.structs.replace(step, rounds=step.rounds - taken)
        taken //= 2


def _fewer_sources(step: steps.ManySources) -> Iterator[steps.AnyStep]:
    """Yield it with fewer sources, the others as they are or with the key groups of those that are left out; in one
    file each.
    """
    sources = len(step.bounds) - 1
    if sources > 1:
        for kept in _fewer(sources):
            first, last = kept[0], kept[-1]
            if last - first == len(kept) - 1:
                yield msgspec.structs.replace(step, bounds=step.bounds[first : last + 2])
        for left_out in range(1, sources):
            bounds = step.bounds[:left_out] + step.bounds[left_out + 1 :]
            yield msgspec.structs.replace(step, bounds=bounds)
    yield from _with_defaults(step, files_wanted=1)


def _fewer(count: int) -> Iterator[list[int]]:
    """Yield which of ``count`` things to keep: either half of many, or all but one."""
    if count > 3:
        yield list(range(count // 2))
        yield list(range(count // 2, count))
    for left_out in range(count):
        yield [number for number in range(count) if number != left_out]
