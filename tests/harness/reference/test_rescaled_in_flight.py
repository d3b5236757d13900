"""Jobs with records in flight that go on at other widths, again and again: every record counts once, in its order."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.vocabulary import After, ScheduledFault
from barrier_tck.faults.vocabulary import ProtocolPoint as FaultPoint
from barrier_tck.harness.plan.trial_plan import (
    CheckpointPlan,
    DeploymentPlan,
    NetworkPlan,
    RestartPlan,
    TrialPlan,
)
from barrier_tck.harness.record.operations import LocalEvent
from barrier_tck.harness.reference.jobs import CHECKPOINTS, job_config
from barrier_tck.harness.reference.observed_messages import KeepEvent, messages_observed
from barrier_tck.harness.reference.simulated.file_system import SimulatedDisk
from barrier_tck.harness.reference.simulated.simulated_targets import SimulatedTargets
from barrier_tck.harness.reference.simulated.world import SimulatedWorld
from barrier_tck.harness.trial.nemesis import Nemesis
from barrier_tck.reference_impl.operators.functions import Count, Emission, Row
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.operators.job import StreamJob
from barrier_tck.reference_impl.operators.rows import RowPlane
from barrier_tck.reference_impl.operators.sinks import FileSink
from barrier_tck.reference_impl.operators.sources import CollectionSource
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.job_observer import JobObserver
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage

KEYS, SPLITS, RECORDS = 12, 4, 288
ROWS = [{"id": number, "k": number % KEYS} for number in range(RECORDS)]
"""All records of a key are in one split, in order."""


def job(sources: int, steps: int, keyed: int, sinks: int) -> JobGraph:
    splits = tuple((f"split-{number}", tuple(ROWS[number::SPLITS])) for number in range(SPLITS))
    return (
        StreamJob("totals", max_parallelism=16)
        .source(CollectionSource(splits, 2, 500), sources, "source")
        .key_by("k")
        .aggregate(
            {"first": Count()}, emit=Emission.EACH_RECORD, carry=("id",), parallelism=steps, name="first"
        )
        .map(dict, name="steps", parallelism=keyed)
        .key_by("k")
        .aggregate(
            {"n": Count()}, emit=Emission.EACH_RECORD, carry=("id", "first"), parallelism=keyed, name="second"
        )
        .sink(FileSink("output", "out"), parallelism=sinks, name="sink", chain=False)
        .build()
    )


def run(
    graph: JobGraph,
    disk: SimulatedDisk,
    seed: int,
    stop_after: int | None,
    log: CommonLog | None = None,
    **checkpoints: Any,
) -> JobState:
    """Run the job from what is on the disk; a failure ends it once ``stop_after`` more checkpoints are complete.

    What the subtasks send and take goes to ``log``.
    """
    kill = ScheduledFault(
        KillWorker("sink[0]"), After(FaultPoint.CHECKPOINT_COMPLETED, None, stop_after or 1)
    )
    plan = TrialPlan(
        seed=seed,
        checkpoints=CheckpointPlan(interval_ms=12, **checkpoints),
        deployment=DeploymentPlan(slow_vertex="second", slow_batch_ms=4),
        network=NetworkPlan(channel_capacity=3, buffer_bytes=16),
        restart=RestartPlan(strategy="none"),
        faults=(kill,) if stop_after is not None else (),
    )
    components = Components() if log is None else messages_observed(Components(), log)
    world = SimulatedWorld(
        plan, graph, job_config(plan), RowPlane(), components, JobObserver(), Nemesis(plan.faults), disk
    )
    try:
        assert world.run(SimulatedTargets(world))
        assert world.coordinator.driver.ended, world.failures
        return world.coordinator.driver.state
    finally:
        world.release()


def committed(disk: SimulatedDisk) -> list[Row]:
    files = disk.host()
    paths = [path for path in files.list_files("output") if path.startswith("output/part-")]
    rows = [msgspec.json.decode(line) for path in paths for line in files.read(path).splitlines()]
    return sorted(rows, key=lambda row: row["id"])


def in_flight(disk: SimulatedDisk) -> int:
    """Return how many batches the latest checkpoint has in flight."""
    storage = FileCheckpointStorage(disk.host(), "totals", CHECKPOINTS)
    latest = storage.load(storage.completed()[-1])
    states = [part.channels for part in latest.snapshots if part.channels is not None]
    return sum(one.buffers for state in states for one in (*state.inputs, *state.outputs))


WIDTHS = [(2, 7, 2, 1), (3, 2, 7, 2), (1, 16, 1, 3), (4, 1, 16, 1), (2, 3, 3, 2)]


@pytest.mark.parametrize("mode", ["unaligned", "aligned_timeout", "exactly_once"])
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 6))]
)
def test_a_chain_of_rescaled_starts_counts_every_record_once_and_in_order(mode: str, seed: int) -> None:
    """Each start falls back to a checkpoint that was taken while records of the one before were replayed (UNA-4)."""
    disk = SimulatedDisk()
    found = []
    for widths in WIDTHS[seed % 2 :]:
        state = run(job(*widths), disk, seed, 2, mode=mode, alignment_timeout_ms=3)
        assert state is JobState.FAILED
        found.append(in_flight(disk))
    assert (sum(found) > 20) is (mode != "exactly_once"), found
    assert run(job(3, 4, 5, 2), disk, seed, None, mode=mode, alignment_timeout_ms=3) is JobState.FINISHED
    rows = committed(disk)
    # Records of a key pass one channel to the first count, in order, and a rebalance on their way to the second.
    assert [(row["id"], row["first"]) for row in rows] == [(row["id"], row["id"] // KEYS + 1) for row in ROWS]
    counted = sorted((row["k"], row["n"]) for row in rows)
    assert counted == [(key, n) for key in range(KEYS) for n in range(1, RECORDS // KEYS + 1)]
    assert not [path for path in disk.host().list_files("output") if "_pending" in path]


class CommonLog:
    """What all subtasks do, in one list: in the simulator nothing happens at the same time."""

    def __init__(self) -> None:
        self.events: list[LocalEvent] = []

    def __call__(self, subtask: str, attempt: int) -> KeepEvent:
        return self.events.append

    @property
    def replayed_late(self) -> int:
        """How many restored records were taken after the first subtask had recorded itself for a checkpoint.

        A record that nobody sent in this run was restored.
        """
        sent = {(event.channel, row) for event in self.events if event.kind == "sent" for row in event.rows}
        begun = [event.kind for event in self.events].index("recorded")
        return sum(
            (event.channel, row) not in sent
            for event in self.events[begun:]
            if event.kind == "taken"
            for row in event.rows
        )


OTHER_WIDTHS = {"as it was": (3, 2, 7, 2), "wider": (2, 3, 7, 1)}


@pytest.mark.long
@pytest.mark.parametrize("widths", OTHER_WIDTHS.values(), ids=OTHER_WIDTHS)
@pytest.mark.parametrize("seed", range(3))
def test_a_job_that_goes_on_with_aligned_barriers_takes_checkpoints_while_records_in_flight_are_replayed(
    widths: tuple[int, int, int, int], seed: int
) -> None:
    """Its first checkpoint begins while they wait, and holds all of them as processed, once (UNA-4)."""
    disk, log = SimulatedDisk(), CommonLog()
    assert run(job(3, 2, 7, 2), disk, seed, 2, mode="unaligned") is JobState.FAILED
    assert in_flight(disk) > 5
    assert run(job(*widths), disk, seed, 1, log, mode="exactly_once") is JobState.FAILED
    assert in_flight(disk) == 0
    assert log.replayed_late > 0
    assert run(job(*widths), disk, seed, None, mode="exactly_once") is JobState.FINISHED
    rows = committed(disk)
    assert [(row["id"], row["first"]) for row in rows] == [(row["id"], row["id"] // KEYS + 1) for row in ROWS]
    counted = sorted((row["k"], row["n"]) for row in rows)
    assert counted == [(key, n) for key in range(KEYS) for n in range(1, RECORDS // KEYS + 1)]


@pytest.mark.parametrize("widths", OTHER_WIDTHS.values(), ids=OTHER_WIDTHS)
@pytest.mark.parametrize("seed", range(3))
def test_a_job_that_goes_on_at_least_once_loses_no_record_in_flight_if_it_fails_after_its_first_checkpoint(
    widths: tuple[int, int, int, int], seed: int
) -> None:
    disk, log = SimulatedDisk(), CommonLog()
    assert run(job(3, 2, 7, 2), disk, seed, 2, mode="unaligned") is JobState.FAILED
    assert in_flight(disk) > 5
    assert run(job(*widths), disk, seed, 1, log, mode="at_least_once") is JobState.FAILED
    assert in_flight(disk) == 0
    assert log.replayed_late > 0
    assert run(job(*widths), disk, seed, None, mode="at_least_once") is JobState.FINISHED
    rows = committed(disk)
    assert {row["id"] for row in rows} == set(range(RECORDS))
    most = Counter({key: max(row["n"] for row in rows if row["k"] == key) for key in range(KEYS)})
    assert all(most[key] >= RECORDS // KEYS for key in range(KEYS)), "every record is counted"
