"""The benchmark of proxies: every row arrives on every path, and the numbers are what their names say."""

from __future__ import annotations

import pytest

from benchmarks.proxy import BATCH_ROWS, numbers_of, run


@pytest.mark.nightly
def test_every_way_is_measured_in_one_run() -> None:
    told: list[str] = []
    numbers = run(lambda what, _share: told.append(what), batches=3, rounds=1)
    assert told[0] == "direct"
    assert told[-1] == "embedded"
    assert numbers["megabytes"] == round(3 * BATCH_ROWS * 16 / 1e6)
    for way in told:
        assert numbers[f"{way}_megabytes_per_second"] > 0
        assert numbers[f"{way}_round_trip_us"] > 0


def test_shares_are_of_the_median_direct_rate() -> None:
    rates = {"direct": [100.0, 400.0, 200.0], "embedded": [50.0, 70.0, 60.0]}
    numbers = numbers_of(rates, {"direct": [10.0], "embedded": [30.0]}, 1)
    assert numbers["direct_megabytes_per_second"] == 200
    assert numbers["embedded_of_direct"] == pytest.approx(0.3)
    assert numbers["embedded_round_trip_us"] == 30
    assert "direct_of_direct" not in numbers
