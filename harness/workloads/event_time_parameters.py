"""The parameters of source vertices in event time: how they make watermarks, pause, and wait for each other."""

from __future__ import annotations

from typing import Any

from barrier_tck.harness.plan.job_graph import JobPlan, VertexPlan
from barrier_tck.harness.workloads.joined_records import TIME_MAX_MS

BOUND, IDLE_AFTER, GAPS, SKEW = "bound_ms", "idle_after_ms", "gaps", "skew"
"""Parameters of a source vertex: by how much records of a split come out of order (ms); for how long a split must have
no record to count as idle (ms), if it may; at how many places each split has none for a time; how skewed the keys of
generated records are: the one of rank r comes ``1 / r ** skew`` times as often as the first one.
"""
DRIFT, REPORT, GROUP = "drift_ms", "report_ms", "group"
"""Parameters of a source vertex that is aligned: how far a split may be ahead of the smallest watermark of the group
and still be read (ms of event time); how often its subtasks report theirs (ms); the number of the group, 0 by default.
"""


def source_problem(vertex: VertexPlan) -> str | None:
    """Say what is wrong with the parameters of a source vertex."""
    wanted: dict[str, Any] = vertex.parameters
    known = {BOUND: 0, IDLE_AFTER: 1, GAPS: 0, SKEW: 1, DRIFT: 0, REPORT: 1, GROUP: 0}
    unknown = [name for name in wanted if name not in known]
    if unknown:
        return f"the source {vertex.name!r} has no parameter {unknown[0]!r}; known: {', '.join(known)}"
    if BOUND not in wanted:
        return f"the source {vertex.name!r} needs {BOUND}, by how much its records come out of order (ms)"
    for name, least in known.items():
        value = wanted.get(name, least)
        if not isinstance(value, int) or not least <= value <= TIME_MAX_MS:
            return f"the source {vertex.name!r} needs a whole number from {least} to {TIME_MAX_MS} for {name}"
    if (DRIFT in wanted) != (REPORT in wanted):
        return f"the source {vertex.name!r} needs {DRIFT} and {REPORT}, or neither"
    return None


def groups_problem(job: JobPlan) -> str | None:
    """Say what is wrong with groups of aligned sources: all of a group need the same bound and interval."""
    known: dict[int, tuple[int, int]] = {}
    for vertex in job.sources:
        if DRIFT in vertex.parameters:
            group, wanted = (
                vertex.parameters.get(GROUP, 0),
                (vertex.parameters[DRIFT], vertex.parameters[REPORT]),
            )
            if known.setdefault(group, wanted) != wanted:
                return f"the source {vertex.name!r} needs the {DRIFT} and {REPORT} of the other sources of its group"
    return None
