"""A fault that says that it fired has changed the run: the same run with a fault that does nothing goes otherwise.

The simulator makes this exact. Without the effect of a fault, the same plan gives the same steps, so any fault whose
steps are those of an empty one has done nothing, whatever its proof says.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from barrier_tck.faults.catalogue import KINDS, FaultKind
from barrier_tck.faults.drawing import Aim, Range
from barrier_tck.faults.fault import Fault
from barrier_tck.faults.injectors.injection import Injection
from barrier_tck.faults.kinds.fail_request import FailRequest
from barrier_tck.faults.kinds.kill_object_store import KillObjectStore
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.kinds.lose_host import LoseHost
from barrier_tck.faults.kinds.refuse_deletions import RefuseDeletions
from barrier_tck.faults.targets import COORDINATOR, Damage, TargetKind
from barrier_tck.faults.upload_moment import UploadMoment
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.trial_plan import TrialPlan, WorkloadPlan
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.system.exposed_targets import targets_of
from barrier_tck.harness.trial.nemesis import Nemesis
from barrier_tck.harness.workloads.workload_names import filled

_Option = TypeVar("_Option")

PLAN = TrialPlan(workload=WorkloadPlan(batches=60, records_per_second=600), local_recovery=True)
FIRST = After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=2)
RECOVERIES = (
    ScheduledFault(KillWorker("totals[1]"), FIRST),
    ScheduledFault(LoseHost("totals[0]"), FIRST),
    ScheduledFault(KillWorker("totals[1]"), After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=3)),
)
"""What follows the fault. A damaged copy matters if it is read: a local one, one in durable storage, or a later one."""


class Choices:
    """Makes one given series of choices, and remembers how many options each one had."""

    def __init__(self, series: tuple[int, ...]) -> None:
        self._series = series
        self.options: list[int] = []

    def _next(self, options: int) -> int:
        number = len(self.options)
        self.options.append(options)
        return self._series[number] if number < len(self._series) else 0

    def between(self, bounds: Range) -> int:
        """Return the largest."""
        return bounds[1]

    def one_of(self, options: Sequence[_Option]) -> _Option:
        """Return the one that the series names."""
        return options[self._next(len(options))]

    def chance(self, per_mille: int) -> bool:
        """Return what the series says, no first; a chance of nothing is no choice."""
        return bool(self._next(2)) if per_mille else False


def all_drawn(kind: FaultKind) -> list[Fault]:
    """Return every fault that can be drawn as this kind, apart from numbers."""
    lasts = kind.drawn_as.outlasts_heartbeat
    aim = Aim(
        "totals[0]",
        receivers=("sink[0]", COORDINATOR),
        outlasts_heartbeat=lasts,
        duration_ms=(400, 400),
        latency_ms=(40, 40),
        bytes_per_second=(2_000,),
        lose_unsynced_per_mille=500,
        damages=tuple(Damage),
    )
    drawn: dict[Fault, None] = {}
    waiting: list[tuple[int, ...]] = [()]
    while waiting:
        series = waiting.pop()
        choices = Choices(series)
        # Not every copy can suffer every damage; a fault refuses what it cannot mean.
        with contextlib.suppress(ValueError):
            drawn[kind.fault.drawn(choices, aim)] = None
        for place in range(len(series), len(choices.options)):
            padded = series + (0,) * (place - len(series))
            waiting += [(*padded, option) for option in range(1, choices.options[place])]
    return list(drawn)


def storages_of(fault: Fault) -> tuple[str, ...]:
    """Return the storages on which a fault has an effect.

    If a data node of HDFS dies with a part of a file, the client writes the file to another one, in no virtual time.
    What was lost with it is the business of planted bugs of that client. So is one request that gets no answer: the
    client asks again, in no virtual time. What a refused deletion leaves is deleted later, and a course does not show
    deletions: ``tests/harness/draw/test_rare_moments.py`` looks at what is left.
    """
    if isinstance(fault, FailRequest | RefuseDeletions):
        return ()
    if fault.needs is not TargetKind.OBJECT_STORE:
        return ("files",)
    in_a_part = isinstance(fault, KillObjectStore) and fault.moment is UploadMoment.PART
    return ("s3",) if in_a_part else ("s3", "hdfs")


SIMULATED = [
    pytest.param(
        fault,
        storage,
        id=f"{kind.name}: {fault.description()}" + f" ({storage})" * (storage != "files"),
        marks=pytest.mark.long if number or storage == "hdfs" else (),
    )
    for kind in KINDS.values()
    if kind.fault.needs in targets_of(ReferenceSimulated())
    for number, fault in enumerate(all_drawn(kind))
    for storage in storages_of(fault)
]
"""Each fault, and a storage that it can strike. The first of each kind is shown before every merge, on one storage."""


def course(fault: Fault, recovery: ScheduledFault, storage: str, directory: Path) -> list[Any]:
    """Return every step of a run with these two faults, and what it reported."""
    kept = msgspec.structs.replace(PLAN.checkpoints, storage=storage)
    plan = msgspec.structs.replace(PLAN, checkpoints=kept, faults=(ScheduledFault(fault, FIRST), recovery))
    outcome = ReferenceSimulated().run(filled(plan), Nemesis(plan.faults), directory)
    return [*outcome.trace, *outcome.history.operations]


@pytest.mark.long
@pytest.mark.parametrize(("fault", "storage"), SIMULATED)
def test_a_fault_that_fired_changes_the_run(
    fault: Fault, storage: str, tmp_path: Path, monkeypatch: Any
) -> None:
    def courses(name: str) -> list[list[Any]]:
        return [
            course(fault, recovery, storage, tmp_path / f"{name}-{number}")
            for number, recovery in enumerate(RECOVERIES)
        ]

    with_effect = courses("with")
    kind: type[Fault] = type(fault)
    monkeypatch.setattr(kind, "inject", done_nothing(kind))
    without = courses("without")
    assert any(entry != other for entry, other in zip(with_effect, without, strict=True))


def done_nothing(kind: type[Fault]) -> Callable[..., Injection]:
    """Return an injection that only says that it fired, for one fault of a plan; the recovery stays what it is."""
    inject, nothing_done = kind.inject, Injection("fired", "nothing", heal=lambda: None)
    recoveries = [scheduled.fault for scheduled in RECOVERIES]
    return lambda self, *arguments: (
        inject(self, *arguments) if any(self is fault for fault in recoveries) else nothing_done
    )
