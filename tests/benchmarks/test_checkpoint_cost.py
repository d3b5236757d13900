"""What checkpoints cost: how many pairs are run, and how closely their median is known.

Grain: numbers; no run is real.
"""

from __future__ import annotations

import random
import statistics

import pytest

from barrier_tck.harness.cli.bench_command import run_benchmark
from barrier_tck.harness.support.errors import UsageProblem
from benchmarks.checkpoint_cost import (
    PAIRS_MIN,
    SPREAD_MAX,
    WITHOUT_CHECKPOINTS,
    checkpoint_costs,
    costs_as_json,
    interval_of_median,
    measured_costs,
)
from benchmarks.measured_runs import Run
from benchmarks.throughput import cost_of_checkpoints


class NoisySide:
    """Runs at a rate that a busy machine disturbs."""

    def __init__(self, name: str, rate: float, noise: float, seed: int = 1) -> None:
        self.name = name
        self._rate, self._noise, self._random = rate, noise, random.Random(seed)
        self.runs = 0

    def run(self, passes: int) -> Run:
        self.runs += 1
        rate = self._rate * (1.0 + self._random.uniform(-self._noise, self._noise))
        return Run(self.name, round(10.0 * rate), 10.0, passes, 9)


def a_pair(cost: float, noise: float) -> tuple[NoisySide, NoisySide]:
    return (
        NoisySide("reference", 1e6 * (1.0 - cost), noise, 1),
        NoisySide("reference" + WITHOUT_CHECKPOINTS, 1e6, noise, 2),
    )


def measured(cost: float, noise: float, pairs_max: int) -> list[Run]:
    return measured_costs(a_pair(cost, noise), lambda side: side.run(1), pairs_max, lambda *_: None)


def test_too_few_values_have_no_interval() -> None:
    values = [float(n) for n in range(PAIRS_MIN)]
    assert interval_of_median(values[:-1]) is None
    assert interval_of_median(values) == (0.0, 5.0)


@pytest.mark.parametrize(("count", "rank"), [(10, 2), (20, 6), (40, 14)])
def test_the_interval_is_that_of_the_sign_test(count: int, rank: int) -> None:
    # Ranks as in tables of the sign test, 95 %.
    assert interval_of_median([float(n + 1) for n in reversed(range(count))]) == (rank, count - rank + 1)


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    source, held = random.Random(5), 0
    for _ in range(400):
        interval = interval_of_median([source.expovariate(1.0) for _ in range(15)])
        assert interval is not None
        held += interval[0] <= 0.6931 <= interval[1]
    assert 0.93 * 400 <= held < 400


def test_pairs_are_run_until_the_interval_is_narrow() -> None:
    quiet, noisy = measured(0.04, 0.0, 40), measured(0.04, 0.05, 200)
    assert len(quiet) == 2 * PAIRS_MIN
    assert 2 * PAIRS_MIN < len(noisy) < 400
    interval = costs_as_json(checkpoint_costs(noisy))["checkpoint_cost_percent_interval"]
    assert interval[0] < 4.0 < interval[1] and interval[1] - interval[0] < SPREAD_MAX
    before = interval_of_median(checkpoint_costs(noisy[:-2]))
    assert before is None or before[1] - before[0] >= SPREAD_MAX


def test_no_more_pairs_are_run_than_were_asked_for() -> None:
    assert len(measured(0.04, 0.5, 7)) == 14
    assert len(measured(0.04, 0.5, 1)) == 2


def test_the_order_within_a_pair_alternates() -> None:
    names = [run.side for run in measured(0.0, 0.5, 3)]
    assert names[:4] == [names[0], names[1], names[1], names[0]]


def test_the_result_tells_the_median_and_how_closely_it_is_known() -> None:
    result = cost_of_checkpoints(a_pair(0.04, 0.02), 9, (0, 1), lambda *_: None)
    costs = result["checkpoint_cost_percent_of_pairs"]
    assert result["pairs"] == len(costs)
    assert result["checkpoint_cost_percent"] == pytest.approx(statistics.median(costs), abs=0.01)
    low, high = result["checkpoint_cost_percent_quartiles"]
    assert min(costs) <= low <= result["checkpoint_cost_percent"] <= high <= max(costs)
    assert result["reference_rows_per_second"] < result["reference_without_checkpoints_rows_per_second"]
    assert result["checkpoints_per_run"] == 9


def test_a_benchmark_without_pairs_refuses_them() -> None:
    with pytest.raises(UsageProblem, match="'simulation' has no pairs of runs; leave --pairs out"):
        run_benchmark("simulation", print, pairs=3)
