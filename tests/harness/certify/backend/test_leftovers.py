"""What is left after close is reported, whatever it is; growth is a slope over many snapshots.

Values that go up and down by themselves do not count.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from barrier_tck.harness.certify.backend import wire
from barrier_tck.harness.certify.backend.leftovers import grown, left_behind

STATE = 1_000_000
ROUNDS = 45


def held(descriptors: int = 5, threads: int = 1, files: int = 2, memory: int = 20 * STATE) -> wire.Held:
    return wire.Held(
        descriptors=tuple(f"/file/{number}" for number in range(descriptors)),
        threads=threads,
        children=0,
        memory_bytes=memory,
        work_files=tuple(f"{number}.sst" for number in range(files)),
        storage_files=("state",),
    )


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (lambda n: held(descriptors=5 + n), "descriptors"),
        (lambda n: held(descriptors=5 + n // 2), "descriptors"),
        (lambda n: held(threads=1 + n), "threads"),
        (lambda n: held(files=2 + n), "files in the working directory"),
        (lambda n: held(memory=(20 + n) * STATE), "bytes of memory"),
        (lambda n: held(memory=20 * STATE + n * STATE // 2 + n % 3 * STATE), "bytes of memory"),
    ],
)
def test_what_each_snapshot_leaves_is_found(sample: Callable[[int], wire.Held], message: str) -> None:
    (found,) = grown([sample(number) for number in range(ROUNDS)], STATE)
    assert message in found


@pytest.mark.parametrize(
    "sample",
    [
        lambda n: held(),
        lambda n: held(descriptors=5 + 4 * (n % 7), files=2 + 6 * (n % 5)),
        lambda n: held(memory=20 * STATE + (n * 7919 % 13) * STATE),
        lambda n: held(memory=20 * STATE + min(n, 14) * STATE),
        lambda n: held(memory=20 * STATE + n * STATE // 20),
    ],
)
def test_compactions_caches_and_allocators_are_no_growth(sample: Callable[[int], wire.Held]) -> None:
    assert grown([sample(number) for number in range(ROUNDS)], STATE) == []


NOT_COUNTED = ("outside_files",)
"""Files outside its directories are reported of a process that is killed, when it cannot tidy up any more."""
KEPT_BY_ALLOCATORS = ("memory_bytes",)


def with_more(field: str, more: int) -> wire.Held:
    """Return what a process holds that has so many more of one thing."""
    nothing = msgspec.structs.replace(held(files=0), storage_files=())
    value = getattr(nothing, field)
    return msgspec.structs.replace(
        nothing,
        **{
            field: (*value, *(f"more/{number}" for number in range(more)))
            if isinstance(value, tuple)
            else value + more
        },
    )


@pytest.mark.parametrize("field", [one for one in wire.Held.__struct_fields__ if one not in NOT_COUNTED])
def test_one_more_of_anything_after_close_is_told_and_so_is_one_more_after_each_snapshot(field: str) -> None:
    if field not in KEPT_BY_ALLOCATORS:
        assert len(left_behind(with_more(field, 0), with_more(field, 1))) == 1
    assert left_behind(with_more(field, 0), with_more(field, 0)) == []
    each = STATE if field in KEPT_BY_ALLOCATORS else 1
    assert len(grown([with_more(field, each * number) for number in range(ROUNDS)], STATE)) == 1
