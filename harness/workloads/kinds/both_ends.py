"""``both_ends``: turns an edge of a graph into one row for each of its ends; see ``connected_components``."""

from __future__ import annotations

from barrier_tck.harness.workloads.operator_kind import OperatorKind

KIND = OperatorKind(name="both_ends")
