"""``list``: keeps every record in a list without keys, which is dealt out when the job is rescaled (RSC-3)."""

from __future__ import annotations

from barrier_tck.harness.workloads.kept_records import KEPT_RECORDS
from barrier_tck.harness.workloads.operator_kind import Keeps, OperatorKind

KIND = OperatorKind(name="list", state=KEPT_RECORDS, keeps=Keeps.IN_LISTS, stands_for=("pass", "merge"))
