"""``relay``: passes rows on as they are; see ``connected_components``."""

from __future__ import annotations

from barrier_tck.harness.workloads.operator_kind import OperatorKind

KIND = OperatorKind(name="relay")
