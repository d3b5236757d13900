"""A job that goes on wider or narrower leaves what one job would have left."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from barrier_tck.conformance.plans import CALM, SINK, STATEFUL, kill_worker
from barrier_tck.conformance.trials import Trial, Trials, exactly_one, happened, require
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.job_graph import SINK as SINK_KIND
from barrier_tck.harness.plan.job_graph import SOURCE, EdgePlan, JobPlan, OperatorPlan, Spread, VertexPlan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointingMode,
    CheckpointPlan,
    DeploymentPlan,
    LimitsPlan,
    NetworkPlan,
    RescalePlan,
    SavepointPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.record.history import SnapshotView
from barrier_tck.harness.record.operations import AttemptStarted, JobFinished, JobStopped
from barrier_tck.harness.system.system_under_test import Capability

pytestmark = pytest.mark.needs(
    Capability.RESCALING, Capability.SAVEPOINTS, Capability.CHECKPOINTS, Capability.SNAPSHOT_INSPECTION
)

WIDE, MOST = 5, 6
"""How wide a vertex becomes, and how many key groups there are; nine subtasks are what a small cluster holds."""
CHAINS: dict[str, tuple[dict[str, int], ...]] = {
    "wider, and back": ({"totals": WIDE, "source": 3}, {"totals": 2, "source": 2}),
    "to one, and to the most that is possible": ({"totals": 1, "source": 1}, {"totals": MOST, "sink": 2}),
}
BEFORE_EVERY_MERGE = "wider, and back"
"""The chain that clusters show before every merge; all else here takes long there."""


def _plan(
    *widths: dict[str, int], mode: CheckpointingMode = "exactly_once", faults: tuple[ScheduledFault, ...] = ()
) -> TrialPlan:
    """Return a plan with one stop for each of the widths; the sink is slow, so that records queue up before it."""
    return msgspec.structs.replace(
        CALM,
        workload=msgspec.structs.replace(CALM.workload, keys=30, batches=60),
        checkpoints=CheckpointPlan(mode=mode, interval_ms=12, async_ms_max=3),
        deployment=DeploymentPlan(max_parallelism=MOST, slow_vertex="sink", slow_batch_ms=2),
        savepoints=tuple(
            SavepointPlan(after_checkpoints=1 + 3 * number, stop=True) for number in range(len(widths))
        ),
        rescales=tuple(map(RescalePlan, widths)),
        faults=faults,
    )


def _stopped_with(trial: Trial) -> list[SnapshotView]:
    """Return the savepoints with which the job was stopped, in order."""
    stops = [line.operation.checkpoint for line in trial.history.of(JobStopped)]
    return [view for number in stops for view in trial.history.checkpoints if view.checkpoint == number]


def _restored(trial: Trial) -> list[int | None]:
    return [line.operation.restored_checkpoint for line in trial.history.of(AttemptStarted)]


def _newest_of_each_job(trial: Trial) -> list[SnapshotView]:
    """Return the newest checkpoint of each job that none of its subtasks had finished before."""
    newest: dict[int, SnapshotView] = {}
    stops = [view.checkpoint for view in _stopped_with(trial)]
    for view in trial.history.checkpoints:
        if not view.finished:
            newest[sum(stop < view.checkpoint for stop in stops)] = view
    return [newest[job] for job in sorted(newest)]


def _width(view: SnapshotView, vertex: str) -> int:
    return sum(subtask.startswith(f"{vertex}[") for subtask in view.subtasks)


@pytest.mark.begun_first
@pytest.mark.clause("RSC-1", "RSC-2", "RSC-3")
@pytest.mark.parametrize(
    "chain",
    [
        pytest.param(
            chain, id=name, marks=() if name == BEFORE_EVERY_MERGE else pytest.mark.nightly_on_clusters
        )
        for name, chain in CHAINS.items()
    ],
)
def test_a_job_that_goes_on_wider_and_narrower_leaves_what_one_job_would_have_left(
    trials: Trials, chain: tuple[dict[str, int], ...]
) -> None:
    trial = trials.valid(_plan(*chain))
    happened(len(_stopped_with(trial)) == len(chain), "the job was stopped and went on, each time", trial)
    require(any(trial.history.of(JobFinished)), "the last job finished", trial)
    views = _newest_of_each_job(trial)
    widths = [_width(view, "totals") for view in views]
    happened(
        len(widths) == len(chain) + 1, "each job completed a checkpoint before any subtask finished", trial
    )
    require(widths == [2, *(rescale["totals"] for rescale in chain)], f"its widths were {widths}", trial)
    for view in views:
        owners = {(group, part.subtask) for part in view.state for group in part.groups.values()}
        twice = [group for group, n in Counter(group for group, _ in owners).items() if n > 1]
        require(owners and not twice, f"each key group has one owner; two have {twice}", trial)


@pytest.mark.clause("RSC-3", "UNA-1")
@pytest.mark.parametrize(
    "mode", ["unaligned", pytest.param("aligned_timeout", marks=pytest.mark.nightly_on_clusters)]
)
@pytest.mark.parametrize("width", [pytest.param(1, marks=pytest.mark.nightly_on_clusters), WIDE])
def test_records_in_flight_at_the_stop_reach_the_subtasks_that_own_them_now(
    trials: Trials, mode: CheckpointingMode, width: int
) -> None:
    trials.valid_until(
        _plan({"totals": width, "sink": 2}, mode=mode),
        lambda trial: [view for view in _stopped_with(trial) if view.in_flight],
        "were records in flight when the job was stopped",
    )


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("RSC-2", "REC-1", "REC-5")
@pytest.mark.needs(Capability.WORKER_KILL, Capability.ATTEMPTS)
@pytest.mark.parametrize("mode", ["exactly_once", "unaligned"])
def test_a_failure_while_the_wider_job_starts_and_one_after_its_first_checkpoint_change_nothing(
    trials: Trials, mode: CheckpointingMode
) -> None:
    faults = (
        kill_worker(STATEFUL, After(ProtocolPoint.RESTORED, STATEFUL, nth=1)),
        kill_worker(SINK, After(ProtocolPoint.COMPLETION_NOTIFIED, SINK, nth=4)),
    )
    trial = trials.valid(_plan({"totals": WIDE}, mode=mode, faults=faults))
    view = exactly_one(_stopped_with(trial), "the job was stopped once", trial)
    restored = _restored(trial)
    started = restored.count(view.checkpoint)
    happened(started >= 2, f"the wider job was started from the savepoint twice, in {restored}", trial)
    own = [number for number in restored if number is not None and number > view.checkpoint]
    happened(own, f"and later from a checkpoint of its own, in {restored}", trial)


@pytest.mark.long_on_clusters
@pytest.mark.clause("RSC-3", "UNA-1")
@pytest.mark.parametrize("width", [pytest.param(1, marks=pytest.mark.nightly_on_clusters), WIDE])
def test_records_of_one_key_and_channel_keep_their_order_at_another_width(trials: Trials, width: int) -> None:
    """Each batch has records of all keys, so batches that wait in a channel hold several of each."""
    plan = _plan({"totals": width, "source": 3}, mode="unaligned")
    plan = msgspec.structs.replace(
        plan,
        workload=msgspec.structs.replace(plan.workload, keys=2),
        deployment=msgspec.structs.replace(plan.deployment, slow_vertex="totals"),
    )
    trials.valid_until(
        plan,
        lambda trial: trial.finding("channel-order").counts["replayed"],
        "were several records of a key in flight on a channel when the job was stopped",
    )


LISTS = msgspec.structs.replace(
    CALM,
    job=JobPlan("lists", {"read": 1}),
    workload=WorkloadPlan("lineage", batches=60, batch_records=2, keys=3, records_per_second=400),
    deployment=DeploymentPlan(max_parallelism=MOST),
)
"""A job of ``lineage`` whose vertices ``dealt`` and ``shared`` keep what reached them in lists without keys."""
DEALT = "dealt[0]"


CHAINED = JobPlan(
    vertices=(
        VertexPlan("read", SOURCE, 1, then=(OperatorPlan("read.mark", "pass"),)),
        VertexPlan(
            "dealt", "list", 3, then=(OperatorPlan("dealt.too", "list"), OperatorPlan("dealt.all", "union"))
        ),
        VertexPlan("shared", "union", 2, then=(OperatorPlan("shared.too", "list"),)),
        VertexPlan("out", SINK_KIND, 1),
    ),
    edges=(
        EdgePlan("read", "dealt", Spread.HASH, key=("key",)),
        EdgePlan("dealt", "shared", Spread.REBALANCE),
        EdgePlan("shared", "out", Spread.REBALANCE),
    ),
)
"""The same job, with operators that keep lists chained behind others that do."""


def _with_entries(view: SnapshotView, vertex: str) -> list[str]:
    """Return the subtasks of a vertex whose lists have entries in a checkpoint."""
    return [state.subtask for state in view.state if state.operator == vertex and any(state.entries.values())]


@pytest.mark.long_on_clusters
@pytest.mark.clause("STA-1", "RSC-3")
@pytest.mark.needs(Capability.OPERATOR_LISTS)
@pytest.mark.parametrize("mode", ["exactly_once", "unaligned"])
@pytest.mark.parametrize(
    "widths", [{"dealt": 4, "shared": 3}, {"dealt": 1, "shared": 1}], ids=["wider", "narrower"]
)
def test_operator_lists_are_split_or_unioned_at_another_parallelism(
    trials: Trials, mode: CheckpointingMode, widths: dict[str, int]
) -> None:
    """The job is stopped when both vertices have entries. None may be lost, and none may have two owners."""
    plan = msgspec.structs.replace(
        LISTS,
        checkpoints=CheckpointPlan(mode=mode, interval_ms=20),
        savepoints=(SavepointPlan(after_checkpoints=2, stop=True),),
        rescales=(RescalePlan(widths),),
    )
    trial = trials.valid(plan)
    stop = exactly_one(_stopped_with(trial), "the job was stopped once", trial)
    for vertex in ("dealt", "shared"):
        happened(_with_entries(stop, vertex), f"{vertex} had entries when the job was stopped", trial)
    own = [
        view for view in trial.history.checkpoints if view.checkpoint > stop.checkpoint and not view.finished
    ]
    happened(own, "the job that went on completed a checkpoint of its own", trial)
    found = {vertex: _width(own[0], vertex) for vertex in widths}
    require(found == widths, f"the widths were {found}", trial)
    dealt = len(_with_entries(own[0], "dealt"))
    require(
        dealt == widths["dealt"],
        f"entries were dealt out to each of {widths['dealt']} subtasks, not {dealt}",
        trial,
    )


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("STA-1", "RSC-3", "REC-1")
@pytest.mark.needs(Capability.OPERATOR_LISTS)
@pytest.mark.parametrize(
    "widths", [{"dealt": 4, "shared": 3}, {"dealt": 1, "shared": 1}], ids=["wider", "narrower"]
)
def test_operator_lists_of_chained_operators_are_split_or_unioned_too(
    trials: Trials, widths: dict[str, int]
) -> None:
    plan = msgspec.structs.replace(
        LISTS,
        job=CHAINED,
        checkpoints=CheckpointPlan(interval_ms=20),
        savepoints=(SavepointPlan(after_checkpoints=2, stop=True),),
        rescales=(RescalePlan(widths),),
    )
    trial = trials.valid(plan)
    stop = exactly_one(_stopped_with(trial), "the job was stopped once", trial)
    for operator in ("dealt.too", "dealt.all", "shared.too"):
        happened(_with_entries(stop, operator), f"{operator} had entries when the job was stopped", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("STA-1", "REC-1")
@pytest.mark.needs(Capability.OPERATOR_LISTS, Capability.WORKER_KILL, Capability.ATTEMPTS)
@pytest.mark.parametrize("mode", ["exactly_once", "unaligned"])
def test_after_a_failure_each_subtask_has_its_own_list_again(trials: Trials, mode: CheckpointingMode) -> None:
    """All records have one key, so one subtask has all the entries, and the lists of the others are empty."""
    plan = msgspec.structs.replace(
        LISTS,
        workload=msgspec.structs.replace(LISTS.workload, keys=1),
        checkpoints=CheckpointPlan(mode=mode, interval_ms=20),
        faults=(kill_worker(DEALT, After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=2)),),
    )
    trial = trials.valid(plan)
    restored = next((number for number in reversed(_restored(trial)) if number is not None), None)
    views = {view.checkpoint: view for view in trial.history.checkpoints}
    happened(
        restored in views and _with_entries(views[restored], "dealt"),
        "a list with entries was restored",
        trial,
    )


def _taken_while_replayed(trial: Trial) -> bool:
    """Return whether a checkpoint of the job that went on was restored, and had records in flight."""
    stop = max(view.checkpoint for view in _stopped_with(trial))
    views = {view.checkpoint: view for view in trial.history.checkpoints}
    restored = [views[number] for number in _restored(trial) if number is not None and number > stop]
    return any(view.in_flight for view in restored)


FULL = {
    "the keyed vertices become narrower": (
        {"first": 2, "last": 2},
        "last",
        NetworkPlan(channel_capacity=3, buffer_bytes=40),
    ),
    "and senders hold most": ({"first": 2, "last": 2}, "last", NetworkPlan(channel_capacity=3)),
    "the vertex between them becomes narrower": (
        {"between": 2},
        "between",
        NetworkPlan(channel_capacity=3, buffer_bytes=40),
    ),
}
"""New widths, the slow vertex, and how little the channels hold."""


@pytest.mark.long
@pytest.mark.long_on_clusters
@pytest.mark.needs(Capability.DETERMINISTIC_REPLAY)
@pytest.mark.clause("RSC-2", "RSC-3", "REC-6", "UNA-4")
@pytest.mark.parametrize("full", FULL.values(), ids=FULL)
def test_full_channels_between_vertices_with_and_without_state_are_redistributed(
    trials: Trials, full: tuple[dict[str, int], str, NetworkPlan]
) -> None:
    """Only in virtual time is it certain that all these channels are full when the job is stopped."""
    widths, slow, network = full
    plan = msgspec.structs.replace(
        CALM,
        workload=WorkloadPlan("lineage", batches=15, records_per_second=600),
        job=JobPlan("between"),
        deployment=DeploymentPlan(slow_vertex=slow, slow_batch_ms=6),
        checkpoints=CheckpointPlan(mode="unaligned", interval_ms=15, retained=2, async_ms_max=4),
        network=network,
        limits=LimitsPlan(virtual_ms=10_000),
        savepoints=(SavepointPlan(after_checkpoints=1, stop=True),),
        rescales=(RescalePlan(widths),),
    )
    trials.valid_until(
        plan,
        lambda trial: trial.finding("dataflow").counts["replayed"],
        "were several records of a key in flight on a channel when the job was stopped",
    )


@pytest.mark.long_on_clusters
@pytest.mark.needs(Capability.DETERMINISTIC_REPLAY, Capability.WORKER_KILL, Capability.ATTEMPTS)
@pytest.mark.clause("RSC-3", "UNA-4", "REC-1")
def test_redistributed_records_come_before_newer_ones_in_the_restore_of_a_later_checkpoint_too(
    trials: Trials,
) -> None:
    """The job that goes on takes its first checkpoint while they are replayed, and then fails.

    Only in virtual time is it certain that they are, since the queues are full when the job is stopped.
    """
    plan = msgspec.structs.replace(
        CALM,
        workload=WorkloadPlan("lineage", batches=15, records_per_second=600),
        job=JobPlan("between"),
        deployment=DeploymentPlan(slow_vertex="first", slow_batch_ms=6),
        checkpoints=CheckpointPlan(mode="unaligned", interval_ms=15, retained=2, async_ms_max=4),
        network=NetworkPlan(channel_capacity=3, buffer_bytes=40),
        limits=LimitsPlan(virtual_ms=10_000),
        savepoints=(SavepointPlan(after_checkpoints=1, stop=True),),
        rescales=(RescalePlan({"read": 2, "first": 2}),),
        faults=(kill_worker(SINK, After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=4)),),
    )
    trials.valid_until(
        plan, _taken_while_replayed, "was a checkpoint with records in flight restored after the stop"
    )


@pytest.mark.long
@pytest.mark.long_on_clusters
@pytest.mark.uses("state_backend")
@pytest.mark.clause("RSC-1", "STA-3")
def test_of_a_file_that_is_restored_each_subtask_keeps_only_its_own_key_groups(trials: Trials) -> None:
    """One file is read by three, so the subtask in the middle leaves out key groups on both sides of its own."""
    plan = msgspec.structs.replace(
        _plan({"source": 3, "totals": 3, "sink": 3}),
        job=JobPlan("line", {"source": 1, "totals": 1, "sink": 1}),
        state_backend="rocksdb",
    )
    for trial in trials.all_valid(plan):
        happened([step for step in _restored(trial) if step is not None], "the wider job restored", trial)
        require(trial.finding("stored-checkpoints").clauses, "what is stored was looked at", trial)
