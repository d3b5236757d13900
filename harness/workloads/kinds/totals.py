"""``totals``: keeps a count and sums for each key, and emits them for each record; see ``sequential_model``."""

from __future__ import annotations

from barrier_tck.harness.workloads.operator_kind import Keeps, OperatorKind

KIND = OperatorKind(name="totals", keeps=Keeps.BY_KEY)
