"""``output_row``: gives each row the columns of running totals; see ``passthrough``."""

from __future__ import annotations

from barrier_tck.harness.workloads.operator_kind import OperatorKind

KIND = OperatorKind(name="output_row")
