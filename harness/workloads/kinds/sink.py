"""``sink``: commits the output of a job. What a plan's graph makes of it is in ``plan/job_graph.py``."""

from __future__ import annotations

from barrier_tck.harness.plan.job_graph import SINK
from barrier_tck.harness.workloads.operator_kind import OperatorKind

KIND = OperatorKind(name=SINK)
