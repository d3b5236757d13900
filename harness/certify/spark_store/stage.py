"""Where the steps of a state store are played: sessions in a JVM."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from barrier_tck.harness.certify.engine.certificate import PropertyOutcome
from barrier_tck.harness.certify.engine.check import check as hunt_property
from barrier_tck.harness.certify.engine.failure import Failure
from barrier_tck.harness.certify.engine.property import Property
from barrier_tck.harness.certify.engine.stage import Stage
from barrier_tck.harness.certify.spark_store import steps
from barrier_tck.harness.certify.spark_store.layouts import LAYOUTS
from barrier_tck.harness.certify.spark_store.processes import StoreProcesses
from barrier_tck.harness.certify.spark_store.session import StoreSession

StoreProperty = Property[steps.AnyStep]
StoreFailure = Failure[steps.AnyStep]
_PLAIN_KEY = (0, "a")


class StoreStage(Stage[steps.AnyStep]):
    """A state store with a layout, in one JVM after the other; each session has its own checkpoint directory."""

    shrink_effort_max = 3_000

    def __init__(self, processes: StoreProcesses, layout: str) -> None:
        self.target = processes.target.name
        self.layout = layout
        self._processes = processes

    @property
    def remaining_s(self) -> float:
        return self._processes.remaining_s

    @property
    def processes(self) -> int:
        return self._processes.started

    def begin(self, steps: tuple[steps.AnyStep, ...]) -> StoreSession:
        return session_for(steps, self._processes, self.layout)

    def renew(self) -> None:
        self._processes.replace()

    def simpler(self, played: tuple[steps.AnyStep, ...], position: int) -> Iterable[steps.AnyStep]:
        step = played[position]
        if isinstance(step, steps.StartQuery):
            return [
                steps.StartQuery(tuple(one for one in step.settings if one != left)) for left in step.settings
            ]
        if isinstance(step, (steps.PutRow, steps.MergeRow)):
            plain = msgspec.structs.replace(step, family=0, key=_PLAIN_KEY, value="x")
            return [each for each in (plain, msgspec.structs.replace(step, value="x")) if each != step]
        return ()


def session_for(played: steps.Steps, processes: StoreProcesses, layout: str) -> StoreSession:
    """Return a session in which these steps can be played."""
    disturbed = any(isinstance(step, steps.FailWrites) for step in played)
    return StoreSession(processes, LAYOUTS[layout], processes.new_checkpoints(), disturbed)


def check(
    one: StoreProperty,
    processes: StoreProcesses,
    seed: int,
    scale: float = 1.0,
    shrink: bool = True,
    broken: frozenset[str] = frozenset(),
) -> tuple[PropertyOutcome, StoreFailure | None]:
    """Test one property, as ``engine.check.check`` does."""
    return hunt_property(one, StoreStage(processes, one.layout), seed, scale, shrink, broken)
