"""Flights joined with the hourly weather of their origin by an interval: every match once, every flight alone once."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from barrier_tck.harness.plan.job_graph import SINK, SOURCE, EdgePlan, JobPlan, Spread, VertexPlan
from barrier_tck.harness.plan.shapes import Parts, Shapes
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.history import Row
from barrier_tck.harness.workloads.batch_query import BatchQuery
from barrier_tck.harness.workloads.flight_tables import departures, hourly_weather
from barrier_tck.harness.workloads.kinds.event_window import LATE
from barrier_tck.harness.workloads.operator_kind import Between
from barrier_tck.harness.workloads.real_event_time import (
    HOUR_MS,
    MINUTE_MS,
    RealEventTime,
    drawn_source,
    hashed,
    record,
    stretch,
)

_OUTER_JOIN = """
SELECT
    flights.key AS key,
    CASE
        WHEN weather.ts IS NULL THEN flights.ts + :alone
        WHEN weather.ts > flights.ts THEN weather.ts
        ELSE flights.ts
    END AS ts,
    flights.id + COALESCE(weather.id, 0) AS id,
    flights.mark + COALESCE(weather.mark, 0) AS mark,
    flights.n + COALESCE(weather.n, 0) AS n
FROM flights LEFT JOIN weather
ON weather.key = flights.key AND weather.ts BETWEEN flights.ts + :lower AND flights.ts + :upper
"""


class FlightsInWeather(RealEventTime):
    """For each flight, the weather of its origin around the scheduled departure, if it is known."""

    name = "flights-in-weather"
    description = (
        "Read the flights that departed from New York City in 2013, in the order of their departure, and the hourly "
        "weather; join each flight with the weather of its `origin` whose hour lies in an interval around the "
        "scheduled departure (left outer join); write pairs, flights alone, and records that came late to outputs that "
        "are visible exactly once."
    )

    def shapes_made(self) -> Shapes:
        """Return a join with the weather of the last hour, and one with that of the half hour before and behind it."""
        return {"last-hour": lambda: _joined(-59, 0), "around": lambda: _joined(-20, 25)}

    def arrivals(self, plan: TrialPlan, wanted: Mapping[str, int]) -> Mapping[str, Sequence[Row]]:
        """Return departures from a drawn moment on, and the weather of their time, some hours more on both sides.

        The key is the origin; the mark is the delay in minutes, or the temperature in hundredths of a degree.
        """
        rows = stretch(departures(), wanted["flights"], random.Random(f"{plan.seed}/{self.name}"))
        columns = zip(rows["origin"], rows["scheduled"], rows["id"], rows["delay"], strict=True)
        flights = [record(key, int(ts), int(one), int(mark)) for key, ts, one, mark in columns]
        times = [row["ts"] for row in flights]
        weather = hourly_weather()
        if times:
            near = weather["hour"].between(min(times) - 3 * HOUR_MS, max(times) + 3 * HOUR_MS)
            weather = weather[near]
        else:
            weather = weather.iloc[:0]
        columns = zip(weather["origin"], weather["hour"], weather["id"], weather["temp"], strict=True)
        hours = [record(key, int(ts), int(one), int(mark)) for key, ts, one, mark in columns]
        return {"flights": flights, "weather": hours}

    def drawn_parameters(self, between: Between, job: JobPlan) -> Mapping[str, Mapping[str, Any]]:
        """Draw the bounds, and the interval."""
        lower = (-59, -29, -119, 5)[between(0, 3)]
        bounds_ms = (15 * MINUTE_MS, 0, 2 * HOUR_MS)
        return {
            "flights": drawn_source(between, bounds_ms, may_be_idle=True),
            "weather": drawn_source(between, (0, HOUR_MS), may_be_idle=True),
            "joined": {
                "lower_ms": lower * MINUTE_MS,
                "upper_ms": (lower + (59, 30, 100)[between(0, 2)]) * MINUTE_MS,
            },
        }

    def parameter_problem(self, job: JobPlan) -> str | None:
        """Accept left outer joins."""
        form = job.vertex("joined").parameters.get("form")
        return None if form == "left" else f"its join must have the form left, not {form}"

    def batch_query(self, job: JobPlan) -> BatchQuery:
        """Return a range join; a flight alone is emitted at the end of its interval, or at its own time."""
        wanted = job.vertex("joined").parameters
        lower, upper = wanted["lower_ms"], wanted["upper_ms"]
        return BatchQuery(_OUTER_JOIN, {"lower": lower, "upper": upper, "alone": max(0, upper)})


def _joined(lower_min: int, upper_min: int) -> Parts:
    interval = {"lower_ms": lower_min * MINUTE_MS, "upper_ms": upper_min * MINUTE_MS, "form": "left"}
    vertices = (
        VertexPlan("flights", SOURCE, 2, {"bound_ms": 15 * MINUTE_MS}),
        VertexPlan("weather", SOURCE, 1, {"bound_ms": 0}),
        VertexPlan("joined", "event_interval_join", 2, interval),
        *(VertexPlan("out", SINK, 1), VertexPlan("late", SINK, 1)),
    )
    return vertices, (
        hashed("flights", "joined"),
        hashed("weather", "joined", 1),
        EdgePlan("joined", "out", Spread.REBALANCE),
        EdgePlan("joined", "late", Spread.REBALANCE, output=LATE),
    )
