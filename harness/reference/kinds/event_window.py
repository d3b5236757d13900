"""``event_window``: the windows of the runtime, whose rows become records of the workload again."""

from __future__ import annotations

from typing import Any

import msgspec

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.reference.event_records import of_batched_records
from barrier_tck.harness.reference.operator_kind import KeptState, ReferenceKind, Site
from barrier_tck.harness.workloads.kinds.event_window import WINDOWS
from barrier_tck.harness.workloads.operator_kind import EVENT_TIMERS
from barrier_tck.reference_impl.operators.functions import Row, Sum
from barrier_tck.reference_impl.operators.graph import OperatorSpec
from barrier_tck.reference_impl.operators.windows import (
    EveryRecords,
    Session,
    Sliding,
    Tumbling,
    WindowAssigner,
    window_aggregate,
)

_AGGREGATES = {"id": Sum("id"), "mark": Sum("mark"), "n": Sum("n")}


def _record(name: str, key: str, row: Row) -> Row:
    how = f"{name}[{row['window_start']},{row['window_end']})#{row['firing']}"
    sums = {column: row[column] for column in _AGGREGATES}
    return {"key": key, "ts": row["window_time"], **sums, "how": how}


def _assigner(operator: OperatorPlan) -> WindowAssigner:
    wanted = operator.parameters
    if "gap_ms" in wanted:
        return Session(wanted["gap_ms"])
    offset_ms = wanted.get("offset_ms", 0)
    if "slide_ms" in wanted:
        return Sliding(wanted["size_ms"], wanted["slide_ms"], offset_ms)
    return Tumbling(wanted["size_ms"], offset_ms)


def _make(site: Site) -> OperatorSpec:
    name, wanted = site.operator.name, site.operator.parameters
    trigger = EveryRecords(wanted["every"]) if "every" in wanted else None
    lateness_ms = wanted.get("lateness_ms", 0)
    spec = window_aggregate(name, site.key, _assigner(site.operator), "ts", _AGGREGATES, lateness_ms, trigger)
    return of_batched_records(spec, _record)


def read_map(entry: bytes) -> list[Any]:
    """Read a map with whole numbers as keys as a list of pairs, in the order of the keys."""
    return [list(pair) for pair in sorted(msgspec.msgpack.decode(entry, type=dict[int, Any]).items())]


KIND = ReferenceKind(_make, (KeptState(WINDOWS, read_map), KeptState(EVENT_TIMERS)))
