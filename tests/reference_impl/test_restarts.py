"""The restart strategies: how long they wait, and when they give up.

Grain: pure functions of the failures' times.
"""

from __future__ import annotations

import pytest

from barrier_tck.reference_impl.config import (
    AnyRestart,
    ExponentialDelayRestart,
    FailureRateRestart,
    RestartConfig,
)
from barrier_tck.reference_impl.protocol.restarts import restart_strategy
from barrier_tck.reference_impl.runtime_errors import JobUsageError


def delays(config: AnyRestart, *failures: tuple[float, float]) -> list[float | None]:
    """Return what follows from failures, each a time and how long the attempt had run."""
    strategy = restart_strategy(config)
    return [strategy.next_delay_ms(*failure) for failure in failures]


def test_none_never_restarts_and_a_fixed_delay_restarts_so_often() -> None:
    assert delays(RestartConfig(), (1, 1)) == [None]
    assert delays(RestartConfig(2, 7), (1, 1), (2, 0), (9_000, 8_000)) == [7, 7, None]


def test_a_failure_rate_counts_only_what_lies_within_its_interval() -> None:
    config = FailureRateRestart(failures_max=2, interval_ms=100, delay_ms=5)
    assert delays(config, (0, 0), (50, 0), (99, 0)) == [5, 5, None]
    assert delays(config, (0, 0), (50, 0), (100, 0), (149, 0)) == [5, 5, 5, None]
    assert delays(FailureRateRestart(0, 10), (5, 0)) == [None]


def test_a_delay_grows_up_to_its_bound_and_begins_anew_after_a_long_run() -> None:
    config = ExponentialDelayRestart(initial_ms=10, max_ms=35, factor=2.0, reset_after_ms=50)
    assert delays(config, (0, 0), (1, 49.9), (2, 0), (3, 0), (99, 50), (100, 0)) == [10, 20, 35, 35, 10, 20]


def test_restarts_in_a_row_may_be_bounded() -> None:
    config = ExponentialDelayRestart(initial_ms=1, max_ms=1, reset_after_ms=50, attempts_max=1)
    assert delays(config, (0, 0), (60, 55), (61, 0)) == [1, 1, None]


@pytest.mark.parametrize(
    ("config", "phrase"),
    [
        (RestartConfig(), "the restart strategy is none"),
        (RestartConfig(1), "all 1 restarts are used up"),
        (FailureRateRestart(0, 10), "1 failures within 10 ms are more than the 0 that"),
        (ExponentialDelayRestart(1, 1, attempts_max=0), "all 0 restarts in a row are used up"),
    ],
)
def test_a_strategy_says_why_the_job_is_given_up(config: AnyRestart, phrase: str) -> None:
    strategy = restart_strategy(config)
    while strategy.next_delay_ms(0.0, 0.0) is not None:
        pass
    assert phrase in strategy.describe()


@pytest.mark.parametrize(
    ("make", "phrase"),
    [
        (lambda: FailureRateRestart(-1, 10), "-1 failures"),
        (lambda: FailureRateRestart(1, 0), "counted in 0 ms"),
        (lambda: FailureRateRestart(1, 1, -1), "delay of -1 ms"),
        (lambda: ExponentialDelayRestart(-1, 1), "first restart delay of -1 ms"),
        (lambda: ExponentialDelayRestart(9, 8), "longest restart delay is 8 ms, below the first one, 9 ms"),
        (lambda: ExponentialDelayRestart(1, 8, 0.5), "factor of 0.5"),
        (lambda: ExponentialDelayRestart(1, 8, reset_after_ms=-1), "reset after -1 ms"),
        (lambda: ExponentialDelayRestart(1, 8, attempts_max=-1), "-1 restarts in a row"),
    ],
)
def test_a_strategy_that_cannot_work_is_refused(make: object, phrase: str) -> None:
    assert callable(make)
    with pytest.raises(JobUsageError, match=phrase):
        make()
