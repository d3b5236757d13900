"""``keep``: keeps every record by key and input, and passes on those whose ids ``every`` divides; by default all."""

from __future__ import annotations

from barrier_tck.harness.workloads.kept_records import KEPT_RECORDS
from barrier_tck.harness.workloads.operator_kind import Drawn, Keeps, OperatorKind, Place, no_parameters

KIND = OperatorKind(
    name="keep",
    state=KEPT_RECORDS,
    keeps=Keeps.BY_KEY,
    drawn=Drawn(Place.BY_KEY, lambda between: {"every": between(1, 3)}, chained=no_parameters, rank=0),
)
