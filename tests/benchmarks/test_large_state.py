"""The benchmark of large state: more keys than fit the limit, restored and compared."""

from __future__ import annotations

import pytest

from barrier_tck.harness.cli.bench_command import BENCHMARKS, run_benchmark
from barrier_tck.harness.support.errors import UsageProblem
from benchmarks.large_state import ENTRY_BYTES, measure


@pytest.mark.long
def test_state_with_few_keys_in_memory_is_measured_and_restored() -> None:
    assert BENCHMARKS["large-state"] == "large_state"
    numbers = measure(3, cached_keys=4_000)
    assert (numbers["keys"], numbers["cached_keys"]) == (3_000_000 // ENTRY_BYTES, 4_000)
    assert numbers["snapshot_mb"] >= 2
    assert all(numbers[name] > 0 for name in ("new_keys_per_second", "restore_seconds", "peak_resident_mb"))


def test_only_benchmarks_with_a_size_of_state_take_one() -> None:
    with pytest.raises(UsageProblem, match="state of fixed size"):
        run_benchmark("simulation", print, state_mb=3)
