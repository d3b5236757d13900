"""``event_interval_join``: the runtime's join by an interval, whose rows become records of the workload again."""

from __future__ import annotations

from barrier_tck.harness.reference.event_records import (
    SIDES_WITH_KEYS,
    joined,
    of_batched_records,
    read_waiting,
)
from barrier_tck.harness.reference.operator_kind import KeptState, ReferenceKind, Site
from barrier_tck.harness.workloads.operator_kind import EVENT_TIMERS
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.graph import OperatorSpec
from barrier_tck.reference_impl.operators.interval_join import Within, interval_join
from barrier_tck.reference_impl.operators.join_sides import SIDES as STATES
from barrier_tck.reference_impl.operators.join_sides import JoinForm


def _record(name: str, key: str, row: Row) -> Row:
    return joined(name, key, row, "at")


def _make(site: Site) -> OperatorSpec:
    wanted = site.operator.parameters
    within = Within(wanted["lower_ms"], wanted["upper_ms"])
    form = JoinForm(wanted.get("form", "inner"))
    spec = interval_join(site.operator.name, site.keys, within, *SIDES_WITH_KEYS, "at", form)
    return of_batched_records(spec, _record)


KIND = ReferenceKind(_make, (*(KeptState(name, read_waiting) for name in STATES), KeptState(EVENT_TIMERS)))
