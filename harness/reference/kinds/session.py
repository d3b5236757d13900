"""``session``: as ``window``, but a record may prolong the last session of its key, whose timer it deletes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.reference.kinds.window import KeepInWindow
from barrier_tck.harness.reference.lineage import SEEN
from barrier_tck.harness.reference.operator_kind import KeptState, ReferenceKind
from barrier_tck.harness.workloads.operator_kind import WAITING
from barrier_tck.reference_impl.operators.functions import PerSubtask, Place, Row
from barrier_tck.reference_impl.operators.keyed_process import TIMERS
from barrier_tck.reference_impl.operators.timed_process import TimedProcess

_STEPS = 3
"""A record waits one step of time, or more, up to so many: then a key has several timers at once."""
_PROLONGS = 2
"""One record in so many prolongs the session before it, if it waits longer than that."""


class KeepInSession(KeepInWindow):
    """It passes records on at the ends of sessions. Sessions of a key end one after the other, at whole steps."""

    def __init__(self, name: str, parameters: Mapping[str, int], index: int) -> None:
        super().__init__(name, {**parameters, "size_ms": parameters["gap_ms"]}, index)

    def process(self, group: int, key: bytes, row: Row, number: int) -> Iterable[Row]:
        """Hold a record back, in the last session or in one behind it; who prolongs that one deletes its timer."""
        assert self._waiting is not None and self._timers is not None, "open comes first"
        waiting, identifier = self._waiting.of(group, key), row["id"]
        held = waiting.get()
        last_ms = held[-1][-1] if held else 0
        steps = 1 + identifier % _STEPS
        end_ms = max(last_ms, (self._timers.now_ms // self._size_ms + steps) * self._size_ms)
        if end_ms > last_ms and held and identifier % _PROLONGS == 0:
            self._timers.delete(group, key, last_ms)
            held = [
                (came_on, one, path, end_ms if ends_ms == last_ms else ends_ms)
                for came_on, one, path, ends_ms in held
            ]
        waiting.set([*held, (number, identifier, row["path"], end_ms)])
        self._timers.set(group, key, end_ms)
        return ()


@dataclass(frozen=True, slots=True)
class _SessionAt:
    """Makes the function of one subtask."""

    operator: OperatorPlan

    def __call__(self, place: Place) -> KeepInSession:
        return KeepInSession(self.operator.name, self.operator.parameters, place.subtask.index)


KIND = ReferenceKind(
    lambda site: TimedProcess(site.operator.name, site.keys, PerSubtask(_SessionAt(site.operator))),
    (KeptState(SEEN), KeptState(WAITING), KeptState(TIMERS)),
)
