"""The job that the source documents draw, whole: two sources, a map, a window over both inputs, a sink.

It reads in event time, so its window holds records and knows when it is due, and late records leave by a side output.
In every mode of barriers it must give what it would have given without a failure, wherever a process crashes: between
any two steps, where the steps of a system repeat, and at every protocol point, in every world.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec
import pytest

from barrier_tck.conformance.crash_moments import crash_at, moments_of, require_crash_at
from barrier_tck.conformance.fitting import fitted
from barrier_tck.conformance.plans import CALM, crash_coordinator, kill_worker
from barrier_tck.conformance.trials import Trial, Trials, happened, require
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.job_graph import SINK, SOURCE, EdgePlan, JobPlan, Spread, VertexPlan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointingMode,
    CheckpointPlan,
    DeploymentPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.record.operations import AttemptStarted
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.barrier_jobs import STEPS_OF_A_START

pytestmark = [
    pytest.mark.needs(
        Capability.EVENT_TIME,
        Capability.CHECKPOINTS,
        Capability.SNAPSHOT_INSPECTION,
        Capability.WORKER_KILL,
        Capability.COORDINATOR_CRASH,
        Capability.ATTEMPTS,
    ),
    pytest.mark.clause("EVT-1", "EVT-2", "EVT-3", "STA-1", "BAR-1", "BAR-3", "ALN-1", "ALN-2", "UNA-1"),
    pytest.mark.clause("ALO-2", "COO-6", "REC-1", "REC-2", "SNK-1"),
]

MODES = pytest.mark.parametrize("mode", ["exactly_once", "unaligned", "at_least_once", "aligned_timeout"])

_KEY = ("key",)
EXAMPLE = JobPlan(
    vertices=(
        VertexPlan("first", SOURCE, 1, {"bound_ms": 60}),
        VertexPlan("second", SOURCE, 1, {"bound_ms": 20}),
        # It gives each record an earlier event time, so more are late.
        VertexPlan("map", "shift", 1, {"by_ms": -50}),
        VertexPlan("window", "event_window", 2, {"size_ms": 100, "lateness_ms": 60}),
        VertexPlan("sink", SINK, 1),
        VertexPlan("late", SINK, 1),
    ),
    edges=(
        EdgePlan("first", "map", Spread.FORWARD),
        EdgePlan("map", "window", Spread.HASH, _KEY),
        EdgePlan("second", "window", Spread.HASH, _KEY),
        EdgePlan("window", "sink", Spread.REBALANCE),
        EdgePlan("window", "late", Spread.REBALANCE, output="late"),
    ),
)
"""Each subtask of the window has the channels I1 and I2, on which barriers must be aligned, and so has each sink."""


def example(mode: CheckpointingMode, batches: int, slow_ms: int) -> TrialPlan:
    """Return the plan of the job without faults.

    ``batches`` says how much input each source has, and ``slow_ms`` for how long the window works at a batch: what
    waits for it is in flight when a barrier overtakes it.
    """
    return msgspec.structs.replace(
        CALM,
        job=EXAMPLE,
        workload=WorkloadPlan("event-time", batches=batches, batch_records=2, keys=3, records_per_second=600),
        checkpoints=CheckpointPlan(mode=mode, interval_ms=10, alignment_timeout_ms=1),
        deployment=DeploymentPlan(max_parallelism=6, slow_vertex="window", slow_batch_ms=slow_ms),
    )


def undisturbed_example(mode: CheckpointingMode) -> TrialPlan:
    """Return the plan between whose steps crashes are tried: it takes about two hundred, and three checkpoints."""
    return msgspec.structs.replace(example(mode, batches=4, slow_ms=4), seed=8)


# --- between every pair of steps ------------------------------------------------------------------------------

FIRST: Mapping[str, tuple[ScheduledFault, ...]] = {
    "running": (),
    # The first checkpoint is complete, and the sinks have not committed what is in it.
    "recovering": (kill_worker("window[0]", After(ProtocolPoint.CHECKPOINT_COMPLETED)),),
}
"""What strikes before. Without it, crashes are tried from when the first attempt runs until the job has ended; with it,
from then until the next attempt runs. What happens before the first attempt runs happens in a recovery, too.
"""


@MODES
@pytest.mark.needs(Capability.DETERMINISTIC_REPLAY)
@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
def test_the_example_is_right_if_a_process_crashes_between_any_two_steps(
    trials: Trials, mode: CheckpointingMode, first: tuple[ScheduledFault, ...]
) -> None:
    """The process that took the step before is the one that crashes, or else the coordinator."""
    _crash_between_all_steps(trials, mode, first, victims_max=1)


@MODES
@pytest.mark.nightly
@pytest.mark.needs(Capability.DETERMINISTIC_REPLAY)
@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
def test_the_example_is_right_if_any_process_crashes_between_any_two_steps(
    trials: Trials, mode: CheckpointingMode, first: tuple[ScheduledFault, ...]
) -> None:
    """As above, and besides each of the other processes, one in each trial: eight times as many."""
    _crash_between_all_steps(trials, mode, first, victims_max=None)


def _crash_between_all_steps(
    trials: Trials, mode: CheckpointingMode, first: tuple[ScheduledFault, ...], victims_max: int | None
) -> None:
    """Let a process crash at each moment, one in each trial; ``first`` strikes before."""
    plan = msgspec.structs.replace(undisturbed_example(mode), faults=first)
    undisturbed = trials.valid(plan)
    struck: Counter[str] = Counter()
    shown: Counter[str] = Counter()
    for moment in moments_of(undisturbed, *_span(undisturbed)):
        for victim in moment.victims[:victims_max]:
            crash = crash_at(moment, victim, undisturbed)
            trial = trials.valid_and_forgotten(msgspec.structs.replace(plan, faults=(*first, crash)))
            require_crash_at(moment, undisturbed, trial)
            struck[victim] += 1
            shown.update(_shown(trial))
    unharmed = {*undisturbed.record.subtasks, "coordinator"} - set(struck)
    happened(not unharmed, f"each process crashed somewhere, but not {sorted(unharmed)}", undisturbed)
    for what in SIGNS:
        happened(shown[what], what, undisturbed)


def _span(undisturbed: Trial) -> tuple[float, float]:
    """Return from when to when crashes strike: in the first attempt, or in the recovery that follows it."""
    attempts = undisturbed.record.attempts
    running_ms = [attempt.running_at_ms for attempt in attempts if attempt.running_at_ms is not None]
    if len(attempts) == 1:
        ended_ms = attempts[0].ended_at_ms
        assert ended_ms is not None
        return running_ms[0], ended_ms
    fired_ms = undisturbed.record.faults[0].fired_at_ms
    assert fired_ms is not None
    return fired_ms, running_ms[1]


SIGNS = (
    "a restored window held records",
    "a firing was committed",
    "a later firing of a window was committed, with a record that was late for the first one",
    "records that came behind the allowed lateness were committed",
)


def _shown(trial: Trial) -> Iterator[str]:
    """Yield what a trial shows of what the example is about."""
    numbers = {line.operation.restored_checkpoint for line in trial.history.of(AttemptStarted)}
    restored = [view for view in trial.history.checkpoints if view.checkpoint in numbers]
    rows = trial.history.output or ()
    found: Mapping[str, bool] = {
        SIGNS[0]: any(part.operator == "window" and part.entries for view in restored for part in view.state),
        SIGNS[1]: any(row["how"] for row in rows),
        SIGNS[2]: any(row["how"] and not row["how"].endswith("#0") for row in rows),
        SIGNS[3]: any(not row["how"] for row in rows),
    }
    yield from (what for what, is_shown in found.items() if is_shown)


# --- at every protocol point ----------------------------------------------------------------------------------


def _window_dies(point: ProtocolPoint, nth: int = 2) -> ScheduledFault:
    return kill_worker("window[0]", After(point, "window[0]", nth))


def _sink_dies(point: ProtocolPoint, nth: int = 1) -> ScheduledFault:
    return kill_worker("sink[0]", After(point, "sink[0]", nth))


LONGER: Mapping[CheckpointingMode, TrialPlan] = {
    mode: example(mode, batches=60, slow_ms=1)
    for mode in ("exactly_once", "unaligned", "at_least_once", "aligned_timeout")
}
"""Enough input for checkpoints behind several crashes."""
AIMS: Mapping[str, tuple[ScheduledFault, ...]] = {
    # The first checkpoint completes, and each attempt after the first kill restores it.
    "arriving": (
        _window_dies(ProtocolPoint.RECORDS_PROCESSED, nth=5),
        # Few alignments begin where barriers soon overtake, so the first one counts, and the next checkpoint completes.
        _window_dies(ProtocolPoint.ALIGNMENT_STARTED, nth=1),
        _window_dies(ProtocolPoint.BARRIER_RECEIVED, nth=4),
        _window_dies(ProtocolPoint.ALIGNMENT_COMPLETED),
    ),
    "storing": (
        _window_dies(ProtocolPoint.SNAPSHOT_TAKEN),
        _window_dies(ProtocolPoint.BARRIER_FORWARDED),
        _window_dies(ProtocolPoint.SNAPSHOT_STORED),
        _window_dies(ProtocolPoint.ACKNOWLEDGED),
    ),
    "committing": (
        _sink_dies(ProtocolPoint.COMPLETION_NOTIFIED),
        _sink_dies(ProtocolPoint.COMMIT_STEP),
        _sink_dies(ProtocolPoint.TRANSACTIONS_COMMITTED),
    ),
    "restoring": (
        _window_dies(ProtocolPoint.COMPLETION_NOTIFIED, nth=1),
        _sink_dies(ProtocolPoint.CLOSING),
        _window_dies(ProtocolPoint.RESTORE_STARTED, nth=1),
        _window_dies(ProtocolPoint.RESTORED, nth=1),
    ),
    "coordinating": tuple(
        crash_coordinator(After(point, nth=nth))
        for point, nth in (
            (ProtocolPoint.CHECKPOINT_TRIGGERED, 2),
            (ProtocolPoint.ALL_ACKNOWLEDGED, 2),
            (ProtocolPoint.PUBLICATION_STEP, 3),
            (ProtocolPoint.CHECKPOINT_COMPLETED, 2),
        )
    ),
    "deploying": (
        _window_dies(ProtocolPoint.SNAPSHOT_TAKEN),
        crash_coordinator(After(ProtocolPoint.ATTEMPT_STARTED, nth=2)),
        crash_coordinator(After(ProtocolPoint.ATTEMPT_RUNNING, nth=2)),
        crash_coordinator(After(ProtocolPoint.COORDINATOR_STARTING, nth=2 * STEPS_OF_A_START + 1)),
    ),
    # Whichever comes first, the second failure has the other one.
    "failing": (
        _window_dies(ProtocolPoint.SNAPSHOT_TAKEN),
        crash_coordinator(After(ProtocolPoint.CHECKPOINT_ABORTED)),
        _window_dies(ProtocolPoint.SNAPSHOT_TAKEN, nth=3),
        crash_coordinator(After(ProtocolPoint.ATTEMPT_FAILED)),
    ),
}
"""What dies where, one point after the other in one trial. Points are counted over all attempts."""

NEVER_PASSED: Mapping[CheckpointingMode, tuple[ProtocolPoint, ...]] = {
    "exactly_once": (ProtocolPoint.WAITING_FOR_SLOTS,),
    # A subtask takes its snapshot with the first barrier, and waits for no other one.
    "unaligned": (ProtocolPoint.WAITING_FOR_SLOTS, ProtocolPoint.ALIGNMENT_STARTED),
    "at_least_once": (ProtocolPoint.WAITING_FOR_SLOTS,),
    "aligned_timeout": (ProtocolPoint.WAITING_FOR_SLOTS,),
}
"""The points that this job never passes. No slot is ever missing."""
ONLY_IN_VIRTUAL_TIME = {
    ProtocolPoint.COORDINATOR_STARTING: "the process of a coordinator that starts is not known yet",
    ProtocolPoint.CLOSING: "the connection by which a process is stopped is closed by then",
}
"""The points at which a process of a cluster cannot be killed, and why."""


def _aimed(
    trials: Trials, mode: CheckpointingMode, faults: Iterable[ScheduledFault]
) -> Iterator[ScheduledFault]:
    """Yield those of the faults whose points this job passes and at which the system can be struck."""
    view = trials.system.job(fitted(LONGER[mode], trials.system))
    for scheduled in faults:
        trigger = scheduled.trigger
        assert isinstance(trigger, After)
        virtual = trigger.point in ONLY_IN_VIRTUAL_TIME and not trials.can(Capability.DETERMINISTIC_REPLAY)
        passed = trigger.point in view.points_of(trigger.subtask) and trigger.point not in NEVER_PASSED[mode]
        if passed and not virtual:
            yield scheduled


def _points(faults: Iterable[ScheduledFault]) -> set[ProtocolPoint]:
    return {fault.trigger.point for fault in faults if isinstance(fault.trigger, After)}


LATER_MODES = pytest.mark.parametrize(
    "mode",
    [
        "exactly_once",
        *(
            pytest.param(mode, marks=pytest.mark.nightly_on_clusters)
            for mode in ("unaligned", "at_least_once", "aligned_timeout")
        ),
    ],
)


@pytest.mark.long_on_clusters
@LATER_MODES
@pytest.mark.parametrize("aim", AIMS)
def test_the_example_is_right_if_a_process_crashes_at_a_protocol_point(
    trials: Trials, aim: str, mode: CheckpointingMode
) -> None:
    faults = tuple(_aimed(trials, mode, AIMS[aim]))
    trial = trials.valid(msgspec.structs.replace(LONGER[mode], faults=faults))
    restored = [line.operation.restored_checkpoint for line in trial.history.of(AttemptStarted)]
    happened([number for number in restored if number is not None], "a checkpoint was restored", trial)
    for what in SIGNS:
        happened(what in _shown(trial), what, trial)


@MODES
def test_the_example_is_struck_at_every_protocol_point_that_it_passes(
    trials: Trials, mode: CheckpointingMode
) -> None:
    """Where a system cannot be struck at a point, this says so."""
    planned = [fault for faults in AIMS.values() for fault in faults]
    assert {*_points(planned), *NEVER_PASSED[mode]} == {*ProtocolPoint}
    left_out = _points(planned) - _points(_aimed(trials, mode, planned)) - {*NEVER_PASSED[mode]}
    if left_out:
        reasons = [
            f"{point.value} ({ONLY_IN_VIRTUAL_TIME.get(point, 'the system shows no such point')})"
            for point in ProtocolPoint
            if point in left_out
        ]
        warnings.warn(f"{trials.system.name} cannot be struck at: {', '.join(reasons)}", stacklevel=1)


@pytest.mark.long_on_clusters
@LATER_MODES
def test_the_points_that_are_left_out_are_never_passed(trials: Trials, mode: CheckpointingMode) -> None:
    faults = tuple(kill_worker("window[0]", After(point)) for point in NEVER_PASSED[mode])
    trial = trials.run(msgspec.structs.replace(LONGER[mode], faults=faults))
    for fault in trial.record.faults:
        require(fault.outcome == "not_fired", f"{fault.point} is never passed", trial)
    others = [found for found in trial.record.findings if found.checker != "faults-fired"]
    require(all(found.verdict is Verdict.VALID for found in others), "nothing else was wrong", trial)
