"""``node``: keeps the least label that each node received, and its neighbours; see ``connected_components``."""

from __future__ import annotations

from barrier_tck.harness.workloads.operator_kind import Keeps, OperatorKind

KIND = OperatorKind(name="node", keeps=Keeps.BY_KEY)
