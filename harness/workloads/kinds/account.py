"""``account``: holds the balances of accounts, and sends payments on."""

from __future__ import annotations

from collections.abc import Sequence

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.workloads.operator_kind import Keeps, OperatorKind
from barrier_tck.harness.workloads.payments import payment
from barrier_tck.harness.workloads.records import Record, table_record


def _emits(_: OperatorPlan, record: Record) -> Sequence[Record]:
    paid = payment(dict(record))
    return () if paid is None else (table_record(paid),)


KIND = OperatorKind(name="account", emits=_emits, keeps=Keeps.BY_KEY, ends_loops=True)
