"""Flights by hour and carrier, with real disorder: they come when they depart, and count when they were to."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from barrier_tck.harness.plan.job_graph import (
    SINK,
    SOURCE,
    EdgePlan,
    JobPlan,
    OperatorPlan,
    Spread,
    VertexPlan,
)
from barrier_tck.harness.plan.shapes import Parts, Shapes
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.history import Row
from barrier_tck.harness.workloads.batch_query import BatchQuery
from barrier_tck.harness.workloads.flight_tables import departures
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

_OF_WINDOWS = """
SELECT key, start + :size - 1 AS ts, SUM(id) AS id, SUM(mark) AS mark, SUM(n) AS n
FROM (SELECT *, ts - ts % :size AS start FROM flights)
GROUP BY key, start
"""
_OF_WINDOWS_OF_WINDOWS = f"""
SELECT key, start + :outer - 1 AS ts, SUM(id) AS id, SUM(mark) AS mark, SUM(n) AS n
FROM (SELECT *, ts - ts % :outer AS start FROM ({_OF_WINDOWS}))
GROUP BY key, start
"""
_WINDOW = {"size_ms", "lateness_ms"}


class HourlyFlights(RealEventTime):
    """Number and delay of the flights of each hour and carrier."""

    name = "hourly-flights"
    description = (
        "Read the flights that departed from New York City in 2013, in the order of their departure; count them by "
        "`carrier` and hour of the scheduled departure, with the sum of their delays (minutes); write the windows, and "
        "the flights that came late for theirs, to outputs that are visible exactly once."
    )

    def shapes_made(self) -> Shapes:
        """Return windows of an hour, and windows of a day behind them."""
        return {"hourly": _hourly, "daily": _daily}

    def arrivals(self, plan: TrialPlan, wanted: Mapping[str, int]) -> Mapping[str, Sequence[Row]]:
        """Return departures from a drawn moment on; the key is the carrier, the mark the delay in minutes."""
        rows = stretch(departures(), wanted["flights"], random.Random(f"{plan.seed}/{self.name}"))
        columns = zip(rows["carrier"], rows["scheduled"], rows["id"], rows["delay"], strict=True)
        return {"flights": [record(key, int(ts), int(one), int(mark)) for key, ts, one, mark in columns]}

    def drawn_parameters(self, between: Between, job: JobPlan) -> Mapping[str, Mapping[str, Any]]:
        """Draw the bound, the size of the windows, and the allowed lateness."""
        bounds_ms = (15 * MINUTE_MS, 0, HOUR_MS, 5 * HOUR_MS)
        window: dict[str, Any] = {"size_ms": (HOUR_MS, 15 * MINUTE_MS, 10 * MINUTE_MS)[between(0, 2)]}
        if job.shape == "hourly" and between(0, 1):
            window["lateness_ms"] = (30 * MINUTE_MS, 2 * HOUR_MS)[between(0, 1)]
        return {"flights": drawn_source(between, bounds_ms, may_be_idle=True), "hourly": window}

    def parameter_problem(self, job: JobPlan) -> str | None:
        """Accept windows that follow each other; those behind which others stand must not be updated."""
        operators = [one for one in job.vertex("hourly").operators if one.kind == "event_window"]
        for number, operator in enumerate(operators):
            known = _WINDOW if len(operators) == 1 else _WINDOW - {"lateness_ms"}
            unknown = [name for name in operator.parameters if name not in known]
            if unknown:
                return (
                    f"its batch query knows no {unknown[0]} of the windows {operators[number].name!r} there"
                )
        return None

    def batch_query(self, job: JobPlan) -> BatchQuery:
        """Return a sum over each window of each carrier, or a sum of such sums."""
        sizes = [one.parameters["size_ms"] for one in job.vertex("hourly").operators]
        if len(sizes) == 1:
            return BatchQuery(_OF_WINDOWS, {"size": sizes[0]})
        return BatchQuery(_OF_WINDOWS_OF_WINDOWS, {"size": sizes[0], "outer": sizes[1]})


def _hourly(*then: OperatorPlan) -> Parts:
    vertices = (
        VertexPlan("flights", SOURCE, 2, {"bound_ms": 15 * MINUTE_MS}),
        VertexPlan("hourly", "event_window", 2, {"size_ms": HOUR_MS}, then),
        *(VertexPlan("out", SINK, 1), VertexPlan("late", SINK, 1)),
    )
    return vertices, (
        hashed("flights", "hourly"),
        EdgePlan("hourly", "out", Spread.REBALANCE),
        EdgePlan("hourly", "late", Spread.REBALANCE, output=LATE),
    )


def _daily() -> Parts:
    return _hourly(OperatorPlan("hourly.daily", "event_window", {"size_ms": 24 * HOUR_MS}))
