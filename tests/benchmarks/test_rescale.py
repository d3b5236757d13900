"""The benchmark of rescaling: each parallelism is measured in pairs with the same one, on every backend."""

from __future__ import annotations

import pytest

from barrier_tck.harness.cli.bench_command import BENCHMARKS
from barrier_tck.harness.plan.backend_targets import SHIPPED_BACKENDS
from benchmarks.rescale_times import BEFORE, WIDTHS, page, run, table


@pytest.mark.long
def test_restores_with_another_parallelism_are_measured_beside_those_with_the_same() -> None:
    assert BENCHMARKS["rescale"] == "rescale_times"
    told: list[str] = []
    numbers = run(lambda what, _share: told.append(what), state_mb=1, rounds=1)
    assert len(told) == len(SHIPPED_BACKENDS)
    points = numbers["points"]
    assert [(one["backend"], one["parallelism"]) for one in points] == [
        (name, width) for name in SHIPPED_BACKENDS for width in (BEFORE, *WIDTHS)
    ]
    assert all(0 < one["slowest_seconds"] <= one["seconds"] for one in points)
    read = {(one["backend"], one["parallelism"]): one["bytes_read"] for one in points}
    for name in SHIPPED_BACKENDS:
        assert read[name, 1] == read[name, 2] == read[name, BEFORE], "each file is read once"
        assert read[name, 8] >= read[name, BEFORE], "a file may be read by several"
        assert read[name, BEFORE] > 1_000_000, "no backend has made the state smaller"
    assert "times_same" in table(numbers)
    assert "Restores with another parallelism" in page(numbers)
