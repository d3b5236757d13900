"""``twice``: emits each row twice, one of them marked; see ``passthrough``."""

from __future__ import annotations

from barrier_tck.harness.workloads.operator_kind import OperatorKind

KIND = OperatorKind(name="twice")
