"""``witness``: counts the records of each key behind ``totals``, and fails if it counts otherwise."""

from __future__ import annotations

from barrier_tck.harness.workloads.operator_kind import Keeps, OperatorKind

KIND = OperatorKind(name="witness", keeps=Keeps.BY_KEY)
