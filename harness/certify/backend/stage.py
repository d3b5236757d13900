"""Where the steps of a state backend are played: sessions in processes of the candidate's."""

from __future__ import annotations

from collections.abc import Iterable

from barrier_tck.harness.certify.backend import simpler_steps
from barrier_tck.harness.certify.backend.pool import Pool
from barrier_tck.harness.certify.backend.session import Session
from barrier_tck.harness.certify.backend.steps import AnyStep, Race
from barrier_tck.harness.certify.engine.certificate import PropertyOutcome
from barrier_tck.harness.certify.engine.check import check as hunt_property
from barrier_tck.harness.certify.engine.check import skipped
from barrier_tck.harness.certify.engine.failure import Failure
from barrier_tck.harness.certify.engine.property import Property
from barrier_tck.harness.certify.engine.stage import Stage
from barrier_tck.harness.certify.engine.violation import Violation

BackendProperty = Property[AnyStep]
BackendFailure = Failure[AnyStep]


class BackendStage(Stage[AnyStep]):
    """A backend of which each session takes a process from a pool, or the one that the session before has left."""

    def __init__(self, pool: Pool, declared: tuple[str, ...] = ()) -> None:
        self.target = pool.target
        self.declared = declared
        """The capabilities that the backend declares."""
        self._pool = pool

    @property
    def remaining_s(self) -> float:
        return self._pool.remaining_s

    @property
    def processes(self) -> int:
        return self._pool.taken

    def begin(self, steps: tuple[AnyStep, ...]) -> Session:
        return Session(self._pool)

    def renew(self) -> None:
        self._pool.drop_idle()

    def scale_time_limit(self, share: float) -> bool:
        self._pool.limit_calls(share)
        return True

    def close(self) -> None:
        self._pool.drop_idle()

    def simpler(self, steps: tuple[AnyStep, ...], position: int) -> Iterable[AnyStep]:
        if any(isinstance(step, Race) for step in steps):
            # With less to write or to store, the two threads may never overlap.
            return ()
        return simpler_steps.simpler_steps(steps[position])

    def shortcuts(self, steps: tuple[AnyStep, ...], violation: Violation) -> Iterable[tuple[AnyStep, ...]]:
        return simpler_steps.shortcuts(steps, violation)


def check(
    one: BackendProperty,
    pool: Pool,
    seed: int,
    scale: float = 1.0,
    shrink: bool = True,
    declared: tuple[str, ...] = (),
    broken: frozenset[str] = frozenset(),
) -> tuple[PropertyOutcome, BackendFailure | None]:
    """Test one property, as ``engine.check.check`` does; what the backend does not declare is not tested."""
    if one.capability and one.capability not in declared:
        return skipped(one, f"the backend does not declare {one.capability}", optional=True), None
    return hunt_property(one, BackendStage(pool, declared), seed, scale, shrink, broken)
