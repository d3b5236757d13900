"""Timers of keyed operators, and what waits for them, are state: they survive failures and move with their keys."""

from __future__ import annotations

import msgspec
import pytest

from barrier_tck.conformance.plans import CALM, kill_worker
from barrier_tck.conformance.trials import Trial, Trials, exactly_one, happened, require
from barrier_tck.faults.vocabulary import After, ProtocolPoint
from barrier_tck.harness.plan.job_graph import (
    JobPlan,
)
from barrier_tck.harness.plan.trial_plan import (
    CheckpointingMode,
    CheckpointPlan,
    DeploymentPlan,
    RescalePlan,
    SavepointPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.record.history import SnapshotView
from barrier_tck.harness.record.operations import AttemptStarted, JobStopped
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.operator_kind import WAITING
from barrier_tck.harness.workloads.workload_names import job_of

pytestmark = pytest.mark.needs(
    Capability.OPERATOR_TIMERS, Capability.CHECKPOINTS, Capability.SNAPSHOT_INSPECTION
)

SIZE_MS = 60
LONG_MS = 60_000
"""A window that is longer than any trial here."""
FIRST_ONLY = 100_000
"""The ids of a split begin with a multiple of this, so only its first record is passed on."""
MODES = pytest.mark.parametrize(
    "mode",
    [
        "exactly_once",
        *(
            pytest.param(mode, marks=pytest.mark.nightly_on_clusters)
            for mode in ("at_least_once", "unaligned")
        ),
    ],
)


def _plan(
    every: int = 1, size_ms: int = SIZE_MS, mode: CheckpointingMode = "exactly_once", windows: int = 2
) -> TrialPlan:
    """Return a plan of a job in which what ``first`` passes on waits in ``windows`` before it comes to ``last``."""
    job = job_of("lineage", JobPlan("windows", {"windows": windows}))
    changed = {"first": {"every": every}, "windows": {"size_ms": size_ms}}
    vertices = tuple(
        msgspec.structs.replace(vertex, parameters=changed.get(vertex.name, vertex.parameters))
        for vertex in job.vertices
    )
    return msgspec.structs.replace(
        CALM,
        job=msgspec.structs.replace(job, vertices=vertices),
        workload=WorkloadPlan("lineage", batches=60, batch_records=2, keys=20, records_per_second=400),
        checkpoints=CheckpointPlan(mode=mode, interval_ms=15),
        deployment=DeploymentPlan(max_parallelism=6),
    )


def _entries(view: SnapshotView, operator: str, state: str) -> dict[str, list[int]]:
    """Return subtask -> the ids of the records that an operator has in one of its states."""
    found: dict[str, list[int]] = {}
    for part in view.state:
        if (part.operator, part.name) == (operator, state):
            found.setdefault(part.subtask, []).extend(
                entry[1] for kept in part.entries.values() for entry in kept
            )
    return {subtask: ids for subtask, ids in found.items() if ids}


def _restored(trial: Trial) -> list[SnapshotView]:
    numbers = [line.operation.restored_checkpoint for line in trial.history.of(AttemptStarted)]
    return [view for view in trial.history.checkpoints if view.checkpoint in numbers]


def _going_on(trial: Trial) -> list[SnapshotView]:
    """Return the checkpoints before whose barriers not all input had been read."""
    views = trial.history.checkpoints
    whole = {
        split: max(view.positions.get(split, 0) for view in views)
        for view in views
        for split in view.positions
    }
    return [view for view in views if any(view.positions.get(split, 0) < end for split, end in whole.items())]


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("STA-1")
def test_timers_go_off_although_no_further_record_comes(trials: Trials) -> None:
    """One record waits. Those behind it do not come to the window, and the input goes on for long."""
    trial = trials.valid(_plan(every=FIRST_ONLY))
    views = _going_on(trial)
    happened(
        any(_entries(view, "windows", WAITING) for view in views), "a record waited in a checkpoint", trial
    )
    require(
        any(_entries(view, "windows", "seen") for view in views),
        "the record was passed on before the input had ended",
        trial,
    )


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("STA-1", "REC-1")
@pytest.mark.needs(Capability.WORKER_KILL, Capability.ATTEMPTS)
@pytest.mark.parametrize(
    "killed", ["windows[0]", pytest.param("read[0]", marks=pytest.mark.nightly_on_clusters)]
)
def test_timers_that_were_restored_go_off_although_no_further_record_comes(
    trials: Trials, killed: str
) -> None:
    plan = _plan(every=FIRST_ONLY, windows=1)
    kill = kill_worker(killed, After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=1))
    trial = trials.valid(msgspec.structs.replace(plan, faults=(kill,)))
    restored = exactly_one(_restored(trial), "one checkpoint was restored", trial)
    happened(_entries(restored, "windows", WAITING), "a record waited in what was restored", trial)
    later = [view for view in _going_on(trial) if view.checkpoint > restored.checkpoint]
    require(
        any(_entries(view, "windows", "seen") for view in later),
        "the record was passed on before the input had ended",
        trial,
    )


@MODES
@pytest.mark.clause("STA-1", "REC-1")
@pytest.mark.needs(Capability.WORKER_KILL, Capability.ATTEMPTS)
def test_what_waits_for_timers_is_part_of_a_checkpoint_and_comes_out_once(
    trials: Trials, mode: CheckpointingMode
) -> None:
    plan = _plan(mode=mode)
    kill = kill_worker("windows[0]", After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=2))
    trial = trials.valid(msgspec.structs.replace(plan, faults=(kill,)))
    happened(
        any(_entries(view, "windows", WAITING) for view in _restored(trial)),
        "records waited in what was restored",
        trial,
    )


@pytest.mark.clause("STA-1", "RSC-1", "RSC-3")
@pytest.mark.needs(Capability.RESCALING, Capability.SAVEPOINTS)
@pytest.mark.long_on_clusters
@pytest.mark.parametrize(
    ("width", "mode"), [(4, "unaligned"), (1, "exactly_once")], ids=["wider", "narrower"]
)
def test_timers_and_what_waits_for_them_move_with_their_keys(
    trials: Trials, mode: CheckpointingMode, width: int
) -> None:
    """The job is stopped while records wait; each must leave from the subtask that owns its key now, and only once."""
    plan = msgspec.structs.replace(
        _plan(mode=mode, size_ms=2 * SIZE_MS),
        savepoints=(SavepointPlan(after_checkpoints=2, stop=True),),
        rescales=(RescalePlan({"windows": width}),),
    )
    trial = trials.valid(plan)
    stops = [line.operation.checkpoint for line in trial.history.of(JobStopped)]
    stop = exactly_one(
        [view for view in trial.history.checkpoints if view.checkpoint in stops],
        "the job was stopped once",
        trial,
    )
    waited = _entries(stop, "windows", WAITING)
    happened(len(waited) == 2, "records waited in both subtasks when the job was stopped", trial)
    own = [view for view in _going_on(trial) if view.checkpoint > stop.checkpoint]
    happened(own, "the job that went on completed a checkpoint of its own", trial)
    found = len({part.subtask for part in own[0].state if part.operator == "windows"})
    require(found == width, f"{found} subtasks of the job that went on have windows, not {width}", trial)


@pytest.mark.nightly_on_clusters
@MODES
@pytest.mark.clause("STA-1")
def test_at_the_end_of_the_input_all_timers_go_off(trials: Trials, mode: CheckpointingMode) -> None:
    """The windows are longer than the trial. Nothing leaves before the input has ended, and then everything does."""
    trial = trials.valid(_plan(mode=mode, size_ms=LONG_MS))
    views = _going_on(trial)
    happened(views and _entries(views[-1], "windows", WAITING), "records waited in a checkpoint", trial)
    early = [
        view.checkpoint
        for view in views
        if _entries(view, "windows", "seen") or _entries(view, "last", "seen")
    ]
    happened(not early, "no window ended during the trial", trial)
    rows = trial.history.output
    require(bool(rows), "what had waited is in the output", trial)
