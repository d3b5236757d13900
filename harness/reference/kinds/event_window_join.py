"""``event_window_join``: the runtime's join by windows, whose rows become records of the workload again."""

from __future__ import annotations

from barrier_tck.harness.reference.event_records import SIDES, joined, of_records, read_waiting
from barrier_tck.harness.reference.operator_kind import KeptState, ReferenceKind, Site
from barrier_tck.harness.workloads.operator_kind import EVENT_TIMERS
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.graph import OperatorSpec
from barrier_tck.reference_impl.operators.join_sides import SIDES as STATES
from barrier_tck.reference_impl.operators.join_sides import JoinForm
from barrier_tck.reference_impl.operators.window_join import window_join
from barrier_tck.reference_impl.operators.windows import Sliding, Tumbling


def _record(name: str, key: str, row: Row) -> Row:
    return joined(name, key, row, "window_time", f"[{row['window_start']},{row['window_end']})")


def _make(site: Site) -> OperatorSpec:
    wanted = site.operator.parameters
    size_ms = wanted["size_ms"]
    slide_ms, offset_ms = wanted.get("slide_ms"), wanted.get("offset_ms", 0)
    assigner = Sliding(size_ms, slide_ms, offset_ms) if slide_ms else Tumbling(size_ms, offset_ms)
    form = JoinForm(wanted.get("form", "inner"))
    return of_records(window_join(site.operator.name, site.keys, assigner, *SIDES, form), _record)


KIND = ReferenceKind(_make, (*(KeptState(name, read_waiting) for name in STATES), KeptState(EVENT_TIMERS)))
