"""``window``: remembers every row by key, and passes it on when a timer says that its window has ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.reference.lineage import SEEN, longer
from barrier_tck.harness.reference.operator_kind import KeptState, ReferenceKind
from barrier_tck.harness.workloads.operator_kind import WAITING
from barrier_tck.reference_impl.operators.encoding import decode_key
from barrier_tck.reference_impl.operators.functions import PerSubtask, Place, Row
from barrier_tck.reference_impl.operators.keyed_process import TIMERS
from barrier_tck.reference_impl.operators.timed_process import KeyedTimers, TimedProcess
from barrier_tck.reference_impl.state.keyed import KeyedStates, ListCell, NamedState


class KeepInWindow:
    """It remembers every record that reached it, but passes it on only when the window has ended.

    The windows of a key lie one behind the other, each ``size_ms`` long. Between arrival and the end, a record lies in
    the state ``WAITING``, with the end; after it in ``SEEN``. Within a key, records leave in the order of arrival.
    """

    def __init__(self, name: str, parameters: Mapping[str, int], index: int) -> None:
        self._step = f"{name}[{index}]"
        self._every, self._size_ms = parameters.get("every", 1), parameters["size_ms"]
        self._seen: NamedState[ListCell[tuple[int, int, str]]] | None = None
        self._waiting: NamedState[ListCell[tuple[int, int, str, int]]] | None = None
        self._timers: KeyedTimers | None = None

    def open(self, states: KeyedStates, timers: KeyedTimers) -> None:
        self._seen = states.list(SEEN, tuple[int, int, str])
        self._waiting = states.list(WAITING, tuple[int, int, str, int])
        self._timers = timers

    def process(self, group: int, key: bytes, row: Row, number: int) -> Iterable[Row]:
        """Hold a record back that came from an input."""
        assert self._waiting is not None and self._timers is not None, "open comes first"
        waiting = self._waiting.of(group, key)
        end_ms = self._end_ms(self._timers.now_ms)
        # The clock of another host may be behind.
        end_ms = max([end_ms, *(last for *_, last in waiting.get()[-1:])])
        waiting.add((number, row["id"], row["path"], end_ms))
        self._timers.set(group, key, end_ms)
        return ()

    def _end_ms(self, now_ms: int) -> int:
        """Return when the window ends of a record that comes now."""
        return now_ms // self._size_ms * self._size_ms + self._size_ms

    def on_timer(self, group: int, key: bytes, at_ms: int) -> Iterable[Row]:
        """Pass on what came in the window that ends now."""
        assert self._waiting is not None and self._seen is not None, "open comes first"
        waiting, kept = self._waiting.of(group, key), self._waiting.of(group, key).get()
        gone = [(number, identifier, path) for number, identifier, path, end_ms in kept if end_ms == at_ms]
        waiting.set([entry for entry in kept if entry[-1] != at_ms])
        self._seen.of(group, key).add(*gone)
        (text,) = decode_key(key)
        return [
            {"id": identifier, "key": text, "path": longer(path, self._step)}
            for _, identifier, path in gone
            if identifier % self._every == 0
        ]


@dataclass(frozen=True, slots=True)
class _WindowAt:
    """Makes the function of one subtask."""

    operator: OperatorPlan

    def __call__(self, place: Place) -> KeepInWindow:
        return KeepInWindow(self.operator.name, self.operator.parameters, place.subtask.index)


KIND = ReferenceKind(
    lambda site: TimedProcess(site.operator.name, site.keys, PerSubtask(_WindowAt(site.operator))),
    (KeptState(SEEN), KeptState(WAITING), KeptState(TIMERS)),
)
