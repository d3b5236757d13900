"""Growth is a slope over many snapshots; values that go up and down by themselves do not count."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barrier_tck.harness.certify import candidate_wire as wire
from barrier_tck.harness.certify.leftovers import grown

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
    ("sample", "said"),
    [
        (lambda n: held(descriptors=5 + n), "descriptors"),
        (lambda n: held(descriptors=5 + n // 2), "descriptors"),
        (lambda n: held(threads=1 + n), "threads"),
        (lambda n: held(files=2 + n), "files in the working directory"),
        (lambda n: held(memory=(20 + n) * STATE), "bytes of memory"),
        (lambda n: held(memory=20 * STATE + n * STATE // 2 + n % 3 * STATE), "bytes of memory"),
    ],
)
def test_what_each_snapshot_leaves_is_found(sample: Callable[[int], wire.Held], said: str) -> None:
    (found,) = grown([sample(number) for number in range(ROUNDS)], STATE)
    assert said in found


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
