"""``unmarked``: keeps the rows that ``twice`` has not marked; see ``passthrough``."""

from __future__ import annotations

from barrier_tck.harness.workloads.operator_kind import OperatorKind

KIND = OperatorKind(name="unmarked")
