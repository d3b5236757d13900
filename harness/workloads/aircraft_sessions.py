"""Sessions of an aircraft: its departures that are less than a gap apart, which come when the flights have landed.

A flight that is in the air for long comes behind many that departed later. The bound covers the longest flight, so that
no record is late: which sessions there are depends on late records, and on nothing else of the order.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from barrier_tck.harness.plan.job_graph import SINK, SOURCE, EdgePlan, JobPlan, Spread, VertexPlan
from barrier_tck.harness.plan.shapes import Parts, Shapes
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.history import Row
from barrier_tck.harness.workloads.batch_query import BatchQuery
from barrier_tck.harness.workloads.event_time_parameters import BOUND, IDLE_AFTER
from barrier_tck.harness.workloads.flight_tables import landings
from barrier_tck.harness.workloads.kinds.event_window import LATE
from barrier_tck.harness.workloads.operator_kind import Between
from barrier_tck.harness.workloads.real_event_time import (
    HOUR_MS,
    RealEventTime,
    drawn_source,
    hashed,
    record,
    stretch,
)

LONGEST_MS = 11 * HOUR_MS
"""No flight from New York City was longer in the air in 2013 than 695 minutes, and none came 11 hours behind another
that departed later."""
_AIRCRAFT_PER_KEY = 6
"""So many aircraft are chosen for each key that the plan asks for: of fewer, none would land out of order."""
_FLIGHTS_MIN = 20
"""So many flights in the year has an aircraft that is chosen."""
_SESSIONS = """
SELECT key, MAX(ts) + :gap - 1 AS ts, SUM(id) AS id, SUM(mark) AS mark, SUM(n) AS n
FROM (
    SELECT *, SUM(begins) OVER (PARTITION BY key ORDER BY ts, id) AS session
    FROM (
        SELECT *, CASE WHEN ts - LAG(ts) OVER (PARTITION BY key ORDER BY ts, id) < :gap THEN 0 ELSE 1 END AS begins
        FROM flights
    )
)
GROUP BY key, session
"""


class AircraftSessions(RealEventTime):
    """The departures of an aircraft that follow each other closely."""

    name = "aircraft-sessions"
    description = (
        "Read the flights of some aircraft from New York City in 2013, in the order of their landing; collect the "
        "departures of each `tailnum` that are less than a gap apart in sessions, with the sum of their delays "
        "(minutes); write the sessions to an output that is visible exactly once."
    )

    def shapes_made(self) -> Shapes:
        """Return sessions with a gap of 12 hours."""
        return {"sessions": _sessions}

    def arrivals(self, plan: TrialPlan, wanted: Mapping[str, int]) -> Mapping[str, Sequence[Row]]:
        """Return flights of some aircraft from a drawn moment on; the mark is the delay in minutes."""
        draws = random.Random(f"{plan.seed}/{self.name}")
        flights = landings()
        chosen = draws.sample(_aircraft(), min(_AIRCRAFT_PER_KEY * plan.workload.keys, len(_aircraft())))
        rows = stretch(flights[flights["tailnum"].isin(chosen)], wanted["flights"], draws)
        columns = zip(rows["tailnum"], rows["departed"], rows["id"], rows["delay"], strict=True)
        return {"flights": [record(key, int(ts), int(one), int(mark)) for key, ts, one, mark in columns]}

    def drawn_parameters(self, between: Between, job: JobPlan) -> Mapping[str, Mapping[str, Any]]:
        """Draw the gap."""
        gap_ms = (12, 4, 30, 72)[between(0, 3)] * HOUR_MS
        return {
            "flights": drawn_source(between, (LONGEST_MS,), may_be_idle=False),
            "sessions": {"gap_ms": gap_ms},
        }

    def parameter_problem(self, job: JobPlan) -> str | None:
        """Accept only what makes no record late."""
        source = job.vertex("flights").parameters
        if source[BOUND] < LONGEST_MS or IDLE_AFTER in source:
            return f"records must not be late: {BOUND} must be {LONGEST_MS} or more, without {IDLE_AFTER}"
        windows = job.vertex("sessions").parameters
        return None if set(windows) == {"gap_ms"} else "its windows must be sessions, with a gap_ms alone"

    def batch_query(self, job: JobPlan) -> BatchQuery:
        """Return a sum over each stretch of departures without a gap."""
        return BatchQuery(_SESSIONS, {"gap": job.vertex("sessions").parameters["gap_ms"]})


@lru_cache(maxsize=1)
def _aircraft() -> list[str]:
    numbers: Any = landings()["tailnum"].value_counts()
    return sorted(numbers[numbers >= _FLIGHTS_MIN].index)


def _sessions() -> Parts:
    vertices = (
        VertexPlan("flights", SOURCE, 2, {BOUND: LONGEST_MS}),
        VertexPlan("sessions", "event_window", 2, {"gap_ms": 12 * HOUR_MS}),
        *(VertexPlan("out", SINK, 1), VertexPlan("late", SINK, 1)),
    )
    return vertices, (
        hashed("flights", "sessions"),
        EdgePlan("sessions", "out", Spread.REBALANCE),
        EdgePlan("sessions", "late", Spread.REBALANCE, output=LATE),
    )
