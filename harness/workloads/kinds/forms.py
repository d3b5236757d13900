"""``forms``: keeps every record and passes it on, as ``keep``, but in states of the other forms: maps and sums."""

from __future__ import annotations

from barrier_tck.harness.workloads.kept_records import KEPT_RECORDS
from barrier_tck.harness.workloads.operator_kind import Keeps, OperatorKind

KIND = OperatorKind(name="forms", state=KEPT_RECORDS, keeps=Keeps.BY_KEY, stands_for=("keep",))
