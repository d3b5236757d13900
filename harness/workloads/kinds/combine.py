"""``combine``: adds the rows of each batch up, key by key, before they are sent to ``changes``."""

from __future__ import annotations

from barrier_tck.harness.workloads.operator_kind import OperatorKind

COMBINE = "combine"
KIND = OperatorKind(name=COMBINE)
