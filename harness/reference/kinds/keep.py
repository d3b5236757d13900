"""``keep``: remembers every row by key, and passes on those whose ids a number divides."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.reference.lineage import SEEN, longer
from barrier_tck.harness.reference.operator_kind import KeptState, ReferenceKind, Site
from barrier_tck.reference_impl.operators.functions import PerSubtask, Place, Row
from barrier_tck.reference_impl.operators.graph import OperatorSpec
from barrier_tck.reference_impl.operators.keyed_process import KeyedCoProcess, KeyedProcess
from barrier_tck.reference_impl.state.keyed import KeyedStates, ListCell, NamedState


class Keep:
    """It remembers every record that reached it, and passes on those whose ids ``every`` divides."""

    def __init__(self, name: str, every: int, index: int) -> None:
        self._step = f"{name}[{index}]"
        self._every = every
        self._seen: NamedState[ListCell[tuple[int, int, str]]] | None = None

    def open(self, states: KeyedStates) -> None:
        self._seen = states.list(SEEN, tuple[int, int, str])

    def process(self, group: int, key: bytes, row: Row, number: int = 0) -> Iterable[Row]:
        """Remember a record that came from an input."""
        assert self._seen is not None, "open comes first"
        self._seen.of(group, key).add((number, row["id"], row["path"]))
        return ({**row, "path": longer(row["path"], self._step)},) if row["id"] % self._every == 0 else ()


@dataclass(frozen=True, slots=True)
class _KeepAt:
    """Makes the function of one subtask."""

    operator: OperatorPlan

    def __call__(self, place: Place) -> Keep:
        return Keep(self.operator.name, self.operator.parameters.get("every", 1), place.subtask.index)


def _make(site: Site) -> OperatorSpec:
    make = PerSubtask(_KeepAt(site.operator))
    if len(site.keys) == 1:
        return KeyedProcess(site.operator.name, site.key, make)
    return KeyedCoProcess(site.operator.name, site.keys, make)


KIND = ReferenceKind(_make, (KeptState(SEEN),))
