"""The simulation benchmark: every schedule is killed and recovers, or its rate would mean nothing."""

from __future__ import annotations

import pytest

from benchmarks import simulation


@pytest.mark.nightly
def test_every_schedule_of_the_benchmark_is_valid_and_recovers_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "SCHEDULES", 400)
    told: list[float] = []
    result = simulation.run(lambda _, share: told.append(share))
    assert (result["schedules"], len(result["schedules_per_second_by_hundred"])) == (400, 4)
    assert result["recoveries_per_schedule"] == 1
    assert 2 < result["checkpoints_per_schedule"] < 4
    assert told == sorted(told)
