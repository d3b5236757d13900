"""``overdue``: as ``window``, but a record waits for a time that has passed when it comes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.reference.kinds.window import KeepInWindow
from barrier_tck.harness.reference.lineage import SEEN
from barrier_tck.harness.reference.operator_kind import KeptState, ReferenceKind
from barrier_tck.harness.workloads.operator_kind import WAITING
from barrier_tck.reference_impl.operators.functions import PerSubtask, Place
from barrier_tck.reference_impl.operators.keyed_process import TIMERS
from barrier_tck.reference_impl.operators.timed_process import TimedProcess


class KeepOverdue(KeepInWindow):
    """It passes records on as soon as their timers go off, which are due when they are set."""

    def __init__(self, name: str, parameters: Mapping[str, int], index: int) -> None:
        super().__init__(name, {**parameters, "size_ms": parameters["behind_ms"]}, index)

    def _end_ms(self, now_ms: int) -> int:
        return now_ms - self._size_ms


@dataclass(frozen=True, slots=True)
class _OverdueAt:
    """Makes the function of one subtask."""

    operator: OperatorPlan

    def __call__(self, place: Place) -> KeepOverdue:
        return KeepOverdue(self.operator.name, self.operator.parameters, place.subtask.index)


KIND = ReferenceKind(
    lambda site: TimedProcess(site.operator.name, site.keys, PerSubtask(_OverdueAt(site.operator))),
    (KeptState(SEEN), KeptState(WAITING), KeptState(TIMERS)),
)
