"""``event_top_n``: the runtime's rankings by window, whose rows become records of the workload again."""

from __future__ import annotations

from typing import Any

import msgspec

from barrier_tck.harness.reference.event_records import COLUMNS, of_records, values_of
from barrier_tck.harness.reference.operator_kind import KeptState, ReferenceKind, Site
from barrier_tck.harness.workloads.operator_kind import EVENT_TIMERS
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.graph import OperatorSpec
from barrier_tck.reference_impl.operators.top_n import TOP, Order, Top, top_n
from barrier_tck.reference_impl.operators.windows import Session, Sliding, Tumbling, WindowAssigner


def _record(name: str, key: str, row: Row) -> Row:
    how = f"{name}[{row['window_start']},{row['window_end']})#{row['place']}"
    return {"key": key, "ts": row["window_time"], **{column: row[column] for column in COLUMNS}, "how": how}


def _make(site: Site) -> OperatorSpec:
    name, wanted = site.operator.name, site.operator.parameters
    by = {
        column.removeprefix("-"): Order.DESCENDING if column.startswith("-") else Order.ASCENDING
        for column in wanted["by"]
    }
    assigner: WindowAssigner
    if "gap_ms" in wanted:
        assigner = Session(wanted["gap_ms"])
    elif "slide_ms" in wanted:
        assigner = Sliding(wanted["size_ms"], wanted["slide_ms"], wanted.get("offset_ms", 0))
    else:
        assigner = Tumbling(wanted["size_ms"], wanted.get("offset_ms", 0))
    return of_records(
        top_n(name, site.key, Top(wanted["n"], by, rank="place"), assigner, "ts", COLUMNS), _record
    )


def _read(entry: bytes) -> list[Any]:
    windows = msgspec.msgpack.decode(entry, type=dict[int, Any])
    return [
        [start, [end, [[order, values_of(columns)] for order, columns in rows]]]
        for start, (end, rows) in sorted(windows.items())
    ]


KIND = ReferenceKind(_make, (KeptState(TOP, _read), KeptState(EVENT_TIMERS)))
