"""The benchmark of spread trials: rates over all rounds, and no number if the sides differ."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.spread_trials import compared, table


def point(number: int, side: str, seconds: float, digest: str = "a") -> dict[str, Any]:
    memory = {f"{what}_mb_{half}_half": 1 for what in ("own", "jvm") for half in ("first", "second")}
    return {"round": number, "side": side, "trials": 100, "seconds": seconds, "digest": digest, **memory} | {
        "second_half_per_second": 100 / seconds
    }


def test_rates_are_those_of_all_rounds() -> None:
    points = [point(0, "jobs", 10), point(0, "spark", 20), point(1, "spark", 20), point(1, "jobs", 30)]
    numbers = compared(points)
    assert (numbers["trials_per_second_jobs"], numbers["trials_per_second_spark"]) == (5.0, 5.0)
    assert numbers["spark_to_jobs"] == numbers["spark_to_jobs_second_half"] == 1.0
    assert len(table(numbers).splitlines()) == 5


def test_other_trials_on_spark_are_no_result() -> None:
    with pytest.raises(RuntimeError, match="round 0 shows other trials on Spark"):
        compared([point(0, "jobs", 10), point(0, "spark", 20, "b")])
