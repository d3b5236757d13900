"""``event_deduplicate``: the runtime's deduplication, which notes in records that they were the first."""

from __future__ import annotations

from barrier_tck.harness.reference.event_records import of_records
from barrier_tck.harness.reference.operator_kind import KeptState, ReferenceKind, Site
from barrier_tck.harness.workloads.operator_kind import EVENT_TIMERS
from barrier_tck.reference_impl.operators.deduplicate import FIRST, deduplicate
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.graph import OperatorSpec


def _record(name: str, _key: str, row: Row) -> Row:
    return {**row, "how": f"{name}:{row['id']}"}


def _make(site: Site) -> OperatorSpec:
    horizon_ms = site.operator.parameters["horizon_ms"]
    return of_records(deduplicate(site.operator.name, site.key, "ts", horizon_ms), _record)


KIND = ReferenceKind(_make, (KeptState(FIRST), KeptState(EVENT_TIMERS)))
