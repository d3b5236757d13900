"""The benchmark of increments: both sides are measured on every backend, and increments are much smaller."""

from __future__ import annotations

from barrier_tck.harness.cli.bench_command import BENCHMARKS
from barrier_tck.harness.plan.backend_targets import SHIPPED_BACKENDS
from benchmarks.incremental import run


def test_increments_and_full_snapshots_are_measured_side_by_side() -> None:
    assert BENCHMARKS["incremental"] == "incremental"
    told: list[str] = []
    numbers = run(lambda what, _share: told.append(what), keys=20_000, rounds=2)
    assert len(told) == len(SHIPPED_BACKENDS)
    assert (numbers["keys"], numbers["changed"]) == (20_000, 200)
    for name in SHIPPED_BACKENDS:
        full, few = numbers[f"{name}_full_bytes_of_rounds"], numbers[f"{name}_incremental_bytes_of_rounds"]
        assert (len(full), len(few)) == (2, 2)
        assert min(full) > 3 * max(few)
        assert numbers[f"{name}_times_fewer_bytes"] > 3
        assert numbers[f"{name}_full_seconds"] > 0
