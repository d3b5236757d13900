"""Event time: watermarks, windows and timers in event time are right over any number of restores."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from barrier_tck.conformance.plans import CALM, kill_worker
from barrier_tck.conformance.trials import Trial, Trials, happened, require
from barrier_tck.faults.vocabulary import After, ProtocolPoint
from barrier_tck.harness.plan.job_graph import JobPlan, VertexPlan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointingMode,
    CheckpointPlan,
    DeploymentPlan,
    NetworkPlan,
    RescalePlan,
    SavepointPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.record.elements import ReadClock
from barrier_tck.harness.record.history import Row, SnapshotView
from barrier_tck.harness.record.operations import AttemptStarted, JobStopped, SourcesAligned
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.workload_names import job_of

pytestmark = pytest.mark.needs(Capability.EVENT_TIME, Capability.CHECKPOINTS, Capability.SNAPSHOT_INSPECTION)

MODES = pytest.mark.parametrize(
    "mode",
    [
        "exactly_once",
        *(
            pytest.param(mode, marks=pytest.mark.nightly_on_clusters)
            for mode in ("at_least_once", "unaligned", "aligned_timeout")
        ),
    ],
)
CHECKER = "event-time"
DRIFT_MS = 200
"""How far the sources of the shape ``aligned`` may be apart."""


def _plan(shape: str, mode: CheckpointingMode = "exactly_once") -> TrialPlan:
    return msgspec.structs.replace(
        CALM,
        job=job_of("event-time", JobPlan(shape)),
        workload=WorkloadPlan("event-time", batches=30, batch_records=3, keys=4, records_per_second=600),
        checkpoints=CheckpointPlan(mode=mode, interval_ms=15),
        deployment=DeploymentPlan(max_parallelism=6),
    )


def _killing(subtask: str, plan: TrialPlan) -> TrialPlan:
    kill = kill_worker(subtask, After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=2))
    return msgspec.structs.replace(plan, faults=(kill,))


def _restored(trial: Trial) -> list[SnapshotView]:
    numbers = [line.operation.restored_checkpoint for line in trial.history.of(AttemptStarted)]
    return [view for view in trial.history.checkpoints if view.checkpoint in numbers]


def _fired(trial: Trial, operator: str) -> list[Row]:
    """Return the rows of the output that the windows or timers of an operator emitted."""
    rows = trial.history.output or ()
    return [row for row in rows if row["how"].partition("[")[0].partition("@")[0] == operator]


def _require_once(trial: Trial, operator: str) -> None:
    """Require that the output has each firing of each key once."""
    fired = Counter((row["key"], row["how"]) for row in _fired(trial, operator))
    happened(fired, f"{operator} emitted something", trial)
    twice = [firing for firing, times in fired.items() if times > 1]
    require(not twice, f"these firings are in the output more than once: {twice[:3]}", trial)


def _often_idle(source: VertexPlan) -> VertexPlan:
    """Return a source that pauses so often that checkpoints come while it is idle, however fast a world is."""
    return msgspec.structs.replace(source, parameters={**source.parameters, "gaps": 60})


def _holds(view: SnapshotView, operator: str) -> bool:
    return any(part.operator == operator and part.entries for part in view.state)


@MODES
@pytest.mark.clause("EVT-1")
def test_an_idle_source_holds_up_no_watermark_and_no_restore_lets_one_go_back(
    trials: Trials, mode: CheckpointingMode
) -> None:
    plan = _plan("sources", mode)
    vertices = tuple(_often_idle(one) if one.name == "idle" else one for one in plan.job.vertices)
    job = msgspec.structs.replace(plan.job, vertices=vertices)
    trial = trials.valid(_killing("window[0]", msgspec.structs.replace(plan, job=job)))
    happened(len(trial.record.attempts) > 1, "a checkpoint was restored", trial)
    views = [time for view in trial.history.checkpoints for time in view.event_time]
    happened(any(time.idle for time in views), "a subtask was idle in a checkpoint", trial)
    reached: dict[str, int] = {}
    for time in views:
        before = reached.get(time.subtask, time.at_ms)
        require(time.at_ms >= before, f"the watermark of {time.subtask} went back from {before}", trial)
        reached[time.subtask] = time.at_ms


@pytest.mark.clause("EVT-1")
@pytest.mark.needs(Capability.RESCALING, Capability.SAVEPOINTS)
@pytest.mark.parametrize(
    ("shape", "widths"),
    [
        ("tumbling", {"read": 3, "window": 3}),
        ("sessions", {"window": 1}),
        ("chained", {"first": 3, "second": 1}),
    ],
)
@pytest.mark.parametrize(
    "mode", ["exactly_once", pytest.param("unaligned", marks=pytest.mark.nightly_on_clusters)]
)
def test_event_time_goes_back_for_no_key_when_the_parallelism_changes(
    trials: Trials, shape: str, widths: dict[str, int], mode: CheckpointingMode
) -> None:
    plan = msgspec.structs.replace(
        _plan(shape, mode),
        savepoints=(SavepointPlan(after_checkpoints=2, stop=True),),
        rescales=(RescalePlan(widths),),
    )
    trial = trials.valid(plan)
    happened(list(trial.history.of(JobStopped)), "the job was stopped with a savepoint", trial)
    happened(len(trial.record.attempts) > 1, "a job of another parallelism went on", trial)


@MODES
@pytest.mark.clause("EVT-2")
@pytest.mark.parametrize("shape", ["tumbling", "sliding", "sessions", "chained"])
def test_each_firing_of_a_window_happens_once_over_a_restore(
    trials: Trials, mode: CheckpointingMode, shape: str
) -> None:
    operator = "first" if shape == "chained" else "window"
    trial = trials.valid(_killing(f"{operator}[0]", _plan(shape, mode)))
    held = [view for view in _restored(trial) if _holds(view, operator)]
    happened(held, "windows were in the checkpoint that was restored", trial)
    if mode != "at_least_once":
        _require_once(trial, "second" if shape == "chained" else operator)


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("EVT-2")
def test_records_behind_the_allowed_lateness_go_to_the_side_output_once(trials: Trials) -> None:
    trial = trials.valid(_killing("window[0]", _plan("tumbling")))
    late = Counter(row["id"] for row in trial.history.output or () if not row["how"])
    happened(late, "records were late", trial)
    require(max(late.values(), default=0) == 1, "each late record is in the output once", trial)


@pytest.mark.clause("EVT-3")
@pytest.mark.needs(Capability.UNALIGNED_CHECKPOINTS, Capability.WORKER_KILL, Capability.ATTEMPTS)
@pytest.mark.parametrize("shape", ["tumbling", "sessions"])
def test_watermarks_that_a_barrier_overtakes_come_again_in_their_place(trials: Trials, shape: str) -> None:
    plan = msgspec.structs.replace(
        _killing("window[0]", _plan(shape, "unaligned")),
        deployment=DeploymentPlan(max_parallelism=6, slow_vertex="window", slow_batch_ms=6),
        network=NetworkPlan(channel_capacity=8),
    )
    in_flight = 0
    for trial in trials.all_valid(plan):
        happened(len(trial.record.attempts) > 1, "a checkpoint was restored", trial)
        in_flight += trial.finding(CHECKER).counts["in_flight"]
    happened(in_flight, "watermarks were in flight in what was restored")


@MODES
@pytest.mark.clause("EVT-4")
@pytest.mark.parametrize("shape", ["interval", "joined-windows"])
def test_each_pair_of_a_join_and_each_row_alone_comes_once_over_a_restore(
    trials: Trials, mode: CheckpointingMode, shape: str
) -> None:
    trial = trials.valid(_killing("join[0]", _plan(shape, mode)))
    happened(any(_holds(view, "join") for view in _restored(trial)), "rows waited at the restore", trial)
    if shape == "interval" and mode != "at_least_once":
        joined = [row for row in trial.history.output or () if row["how"].startswith("join(")]
        pairs = Counter(row["how"] for row in joined)
        happened([how for how in pairs if "-" in how], "rows came alone", trial)
        happened([how for how in pairs if "-" not in how], "pairs came", trial)
        twice = [how for how, times in pairs.items() if times > 1]
        require(not twice, f"these are in the output more than once: {twice[:3]}", trial)


@MODES
@pytest.mark.clause("EVT-5")
def test_timers_in_event_time_go_off_once_also_those_for_a_time_that_has_passed(
    trials: Trials, mode: CheckpointingMode
) -> None:
    trial = trials.valid(_killing("hold[0]", _plan("timers", mode)))
    happened(any(_holds(view, "hold") for view in _restored(trial)), "timers were restored", trial)
    passed = _fired(trial, "past")
    happened(passed, "timers went off that were set for a time that had passed", trial)


@MODES
@pytest.mark.clause("EVT-5")
def test_state_with_a_time_to_live_that_was_over_is_gone_and_other_state_is_there_behind_a_restore(
    trials: Trials, mode: CheckpointingMode
) -> None:
    plan = _plan("expiring", mode)
    ttl_ms = plan.job.vertex("count").parameters["ttl_ms"]
    trial = trials.valid(_killing("count[0]", plan))
    rows = trial.history.output or ()
    happened(
        [row for row in rows if row["how"] != "count:0 since -"], "state was there when it was used", trial
    )
    clocks = [
        entry.at_ms
        for one in trial.history.elements or ()
        for entry in one.entries
        if isinstance(entry, ReadClock)
    ]
    over = [
        used_ms
        for view in _restored(trial)
        for part in view.state
        if part.operator == "count"
        for used_ms, _ in part.entries.values()
        if used_ms + ttl_ms <= max(clocks)
    ]
    happened(over, "the time of state that was restored was over later on", trial)


@pytest.mark.clause("EVT-5")
@pytest.mark.needs(Capability.RESCALING, Capability.SAVEPOINTS)
@pytest.mark.parametrize("form", ["value", "list", "map"])
def test_state_with_a_time_to_live_ends_when_it_must_although_its_key_has_moved(
    trials: Trials, form: str
) -> None:
    """Reading it is a use, too: then its last use is known only if reads are stored."""
    plan = _plan("expiring")
    parameters = {"ttl_ms": 40, "form": form, "refreshed_by": "reading", "look_every": 2}
    vertices = tuple(
        msgspec.structs.replace(one, parameters=parameters) if one.name == "count" else one
        for one in plan.job.vertices
    )
    plan = msgspec.structs.replace(
        plan,
        job=msgspec.structs.replace(plan.job, vertices=vertices),
        savepoints=(SavepointPlan(after_checkpoints=2, stop=True),),
        rescales=(RescalePlan({"count": 3}),),
    )
    trial = trials.valid(plan)
    happened(list(trial.history.of(JobStopped)), "the job was stopped with a savepoint", trial)
    happened(any(_holds(view, "count") for view in _restored(trial)), "such state was restored", trial)


def _aligned(mode: CheckpointingMode) -> TrialPlan:
    """Return a job of two aligned sources, one of which pauses often and counts as idle then."""
    plan = _plan("aligned", mode)
    vertices = tuple(_often_idle(one) if one.name == "pausing" else one for one in plan.job.vertices)
    return msgspec.structs.replace(plan, job=msgspec.structs.replace(plan.job, vertices=vertices))


def _require_bound(trial: Trial) -> list[SourcesAligned]:
    """Require that the slowest source that is active says what all may read, and return what was said."""
    happened(trial.finding(CHECKER).counts["held_back"], "a split that was ahead was not read", trial)
    announced = [line.operation for line in trial.history.of(SourcesAligned)]
    for one in announced:
        slowest = min(one.active.values(), default=one.largest_ms - DRIFT_MS)
        require(
            one.largest_ms == slowest + DRIFT_MS or not one.active,
            f"{one.largest_ms} was allowed, and the slowest source stood at {slowest}",
            trial,
        )
    return announced


@MODES
@pytest.mark.clause("EVT-6")
def test_a_source_that_is_ahead_waits_for_no_other_that_is_idle_or_has_ended_also_behind_a_restore(
    trials: Trials, mode: CheckpointingMode
) -> None:
    trial = trials.valid(_killing("window[0]", _aligned(mode)))
    happened(len(trial.record.attempts) > 1, "a checkpoint was restored", trial)
    announced = _require_bound(trial)
    happened([one for one in announced if one.idle], "a source was idle while others were read", trial)
    happened([one for one in announced if one.ended and one.active], "a source ended before others", trial)


@pytest.mark.clause("EVT-6")
@pytest.mark.needs(Capability.RESCALING, Capability.SAVEPOINTS)
@pytest.mark.parametrize(
    "widths",
    [{"steady": 3}, pytest.param({"steady": 1, "pausing": 2}, marks=pytest.mark.nightly_on_clusters)],
)
def test_aligned_sources_stop_with_a_savepoint_and_go_on_with_their_splits_elsewhere(
    trials: Trials, widths: dict[str, int]
) -> None:
    plan = msgspec.structs.replace(
        _aligned("exactly_once"),
        savepoints=(SavepointPlan(after_checkpoints=2, stop=True),),
        rescales=(RescalePlan(widths),),
    )
    trial = trials.valid(plan)
    happened(list(trial.history.of(JobStopped)), "the job was stopped with a savepoint", trial)
    announced = _require_bound(trial)
    attempts = {one.attempt for one in announced}
    happened(len(attempts) > 1, "the sources were aligned in both jobs", trial)
