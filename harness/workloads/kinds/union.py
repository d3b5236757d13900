"""``union``: keeps every record in a list without keys that all subtasks get whole when they restore (RSC-3)."""

from __future__ import annotations

from barrier_tck.harness.workloads.kept_records import KEPT_RECORDS
from barrier_tck.harness.workloads.operator_kind import Keeps, OperatorKind

KIND = OperatorKind(name="union", state=KEPT_RECORDS, keeps=Keeps.IN_LISTS, stands_for=("pass", "merge"))
