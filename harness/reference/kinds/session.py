"""``session``: as ``window``, but a record may move the end of the last session of its key, whose timer it deletes."""

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
_PATIENT = 3
"""One key group in so many is patient: its sessions end after ``_PATIENCE`` steps, so that timers which are set later
go off earlier, those of other keys and, where a record ends a patient session soon, of the same key."""
_PATIENCE = 1_000


class KeepInSession(KeepInWindow):
    """It passes records on at the ends of sessions. Sessions of a key end one after the other, at whole steps."""

    def __init__(self, name: str, parameters: Mapping[str, int], index: int) -> None:
        super().__init__(name, {**parameters, "size_ms": parameters["gap_ms"]}, index)

    def process(self, group: int, key: bytes, row: Row, number: int) -> Iterable[Row]:
        """Hold a record back, in the last session or in one behind it; who moves the end of that one deletes its
        timer."""
        assert self._waiting is not None and self._timers is not None, "open comes first"
        waiting, identifier = self._waiting.of(group, key), row["id"]
        held = waiting.get()
        ends = sorted({entry[-1] for entry in held})
        last_ms, before_ms = (ends[-1] if ends else 0), (ends[-2] if len(ends) > 1 else 0)
        moves = bool(held) and identifier % _PROLONGS == 0
        patient = group % _PATIENT == 0
        steps = _PATIENCE if patient and not moves else 1 + identifier % _STEPS
        end_ms = (self._timers.now_ms // self._size_ms + steps) * self._size_ms
        # Only a patient session ends sooner than it would have, and never before the one that is ahead of it.
        end_ms = max(before_ms if patient and moves else last_ms, end_ms)
        if moves and end_ms != last_ms:
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
