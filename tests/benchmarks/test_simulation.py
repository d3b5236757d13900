"""The simulation benchmark: every schedule is killed and recovers, or its rate would mean nothing."""

from __future__ import annotations

import pytest

from benchmarks import simulation


@pytest.mark.nightly
def test_every_schedule_of_the_benchmark_is_valid_and_recovers_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "SCHEDULES", 400)
    monkeypatch.setattr(simulation, "TRIALS", 5)
    told: list[float] = []
    result = simulation.run(lambda _, share: told.append(share))
    assert (result["schedules"], len(result["schedules_per_second_by_hundred"])) == (400, 4)
    assert result["recoveries_per_schedule"] == 1
    assert 2 < result["checkpoints_per_schedule"] < 4
    beginnings = len(simulation.PROFILES)
    assert told[:-beginnings] == sorted(told[:-beginnings]) and told[-beginnings:] == [0.0] * beginnings
    rates = result["trials_per_processor_minute"]
    assert list(rates) == list(simulation.PROFILES) and all(rate > 0 for rate in rates.values())
