"""A job that does not fit its stored state is refused with the names of what differs, and nothing stored is touched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.vocabulary import After, ScheduledFault
from barrier_tck.faults.vocabulary import ProtocolPoint as FaultPoint
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, RestartPlan, TrialPlan
from barrier_tck.harness.reference.jobs import CHECKPOINTS, job_config
from barrier_tck.harness.reference.simulated.file_system import SimulatedDisk
from barrier_tck.harness.reference.simulated.simulated_targets import SimulatedTargets
from barrier_tck.harness.reference.simulated.world import SimulatedWorld
from barrier_tck.harness.trial.nemesis import Nemesis
from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.operators.functions import Count, Emission, Row, Sum
from barrier_tck.reference_impl.operators.graph import Edge, JobGraph, Partitioning, Vertex
from barrier_tck.reference_impl.operators.job import StreamJob
from barrier_tck.reference_impl.operators.rows import RowPlane
from barrier_tck.reference_impl.operators.sinks import FileSink
from barrier_tck.reference_impl.operators.sources import CollectionSource
from barrier_tck.reference_impl.operators.stateless import Map
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.runtime import coordinator_driver
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.job_observer import JobObserver
from barrier_tck.reference_impl.runtime_errors import IncompatibleState, JobUsageError
from barrier_tck.reference_impl.storage import metadata
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage

KEYS = 8
"""An even number, so that all records of a key are in the same one of two splits, in order."""
PRODUCT = Components()
ROWS = [{"id": number, "k": number % KEYS} for number in range(120)]


def job(sources: int = 2, steps: int = 2, keyed: int = 2, sinks: int = 1, groups: int = 16) -> JobGraph:
    splits = tuple((f"split-{number}", tuple(ROWS[number::2])) for number in range(2))
    return (
        StreamJob("totals", max_parallelism=groups)
        .source(CollectionSource(splits, 3, 300), sources, "source")
        .map(dict, name="steps", parallelism=steps)
        .key_by("k")
        .aggregate(
            {"n": Count(), "s": Sum("id")},
            emit=Emission.EACH_RECORD,
            carry=("id",),
            parallelism=keyed,
            name="totals",
        )
        .sink(FileSink("output", "out"), parallelism=sinks, name="sink", chain=False)
        .build()
    )


def expected() -> list[Row]:
    """Return, for every record in the order of ids, the running count of its key."""
    return [{**row, "n": row["id"] // KEYS + 1} for row in ROWS]


def run(
    graph: JobGraph, disk: SimulatedDisk, stop_after: int | None = None, components: Components = PRODUCT
) -> JobState:
    """Run the job from what is on the disk; a failure stops it once ``stop_after`` checkpoints are complete."""
    kill = ScheduledFault(
        KillWorker("source[0]"), After(FaultPoint.CHECKPOINT_COMPLETED, None, stop_after or 1)
    )
    plan = TrialPlan(
        checkpoints=CheckpointPlan(interval_ms=25),
        restart=RestartPlan(strategy="none"),
        faults=(kill,) if stop_after is not None else (),
    )
    nemesis = Nemesis(plan.faults)
    world = SimulatedWorld(
        plan, graph, job_config(plan), RowPlane(), components, JobObserver(), nemesis, disk
    )
    try:
        assert world.run(SimulatedTargets(world))
        return world.coordinator.driver.state
    except Exception as crash:  # the simulator says of which process it was the end
        if isinstance(crash.__cause__, IncompatibleState):
            raise crash.__cause__ from None
        raise
    finally:
        world.release()


def everything_on(disk: SimulatedDisk) -> dict[str, bytes]:
    files = disk.host()
    return {path: files.read(path) for path in files.list_files("")}


def committed(disk: SimulatedDisk) -> list[Row]:
    files = disk.host()
    paths = [path for path in files.list_files("output") if path.startswith("output/part-")]
    rows = [msgspec.json.decode(line) for path in paths for line in files.read(path).splitlines()]
    return sorted(rows, key=lambda row: row["id"])


@pytest.fixture(name="stopped")
def _stopped() -> SimulatedDisk:
    """Return the disk of a job with two keyed subtasks that stopped after its third checkpoint."""
    disk = SimulatedDisk()
    assert run(job(), disk, stop_after=3) is JobState.FAILED
    storage = FileCheckpointStorage(disk.host(), "totals", CHECKPOINTS)
    assert storage.completed()[-1] == 3
    assert 0 < len(committed(disk)) < len(ROWS)
    return disk


MISFITS = [
    (job(groups=32), "maximum parallelism is 32, and checkpoint 3 has keyed state in 16 key groups"),
]


@pytest.mark.parametrize(
    ("graph", "match"), MISFITS, ids=lambda value: "" if isinstance(value, str) else None
)
def test_another_maximum_parallelism_is_refused_and_nothing_is_changed(
    stopped: SimulatedDisk, graph: JobGraph, match: str
) -> None:
    before = everything_on(stopped)
    with pytest.raises(IncompatibleState, match=match):
        run(graph, stopped)
    assert everything_on(stopped) == before
    assert run(job(), stopped) is JobState.FINISHED, "and the job as it was goes on from there"
    assert [{column: row[column] for column in ("id", "k", "n")} for row in committed(stopped)] == expected()


@pytest.mark.parametrize(
    "graph",
    [
        job(keyed=3),
        job(keyed=1),
        job(sources=1),
        job(sources=3, keyed=4),
        job(sources=1, keyed=16, sinks=3),
        job(sources=2, keyed=2, sinks=2),
    ],
    ids=lambda graph: "-".join(str(vertex.parallelism) for vertex in graph.vertices),
)
def test_another_parallelism_gives_the_same_result(stopped: SimulatedDisk, graph: JobGraph) -> None:
    assert run(graph, stopped) is JobState.FINISHED
    found = [{column: row[column] for column in ("id", "k", "n")} for row in committed(stopped)]
    assert found == expected()


def test_what_is_not_redistributed_is_lost_and_nobody_else_would_notice(
    stopped: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each subtask gets the part of the subtask of its name, and a third one of what used to be two gets none."""
    monkeypatch.setattr(coordinator_driver, "redistributed", lambda completed, _: completed)
    assert run(job(keyed=3), stopped) is JobState.FINISHED
    found = [{column: row[column] for column in ("id", "k", "n")} for row in committed(stopped)]
    assert len(found) == len(ROWS)
    assert found != expected()


def test_a_parallelism_above_the_maximum_is_refused_with_both_numbers() -> None:
    with pytest.raises(JobUsageError, match=r"'totals' has parallelism 17; .* between 1 and .* 16"):
        job(keyed=17)


def test_a_vertex_without_state_may_have_another_width(stopped: SimulatedDisk) -> None:
    assert run(job(steps=3), stopped) is JobState.FINISHED
    assert sorted(row["id"] for row in committed(stopped)) == list(range(len(ROWS)))


def with_operators(vertex: str, *specs: Any) -> JobGraph:
    graph = job()
    vertices = [replace(one, operators=tuple(specs)) if one.name == vertex else one for one in graph.vertices]
    return replace(graph, vertices=tuple(vertices))


def test_a_stateful_operator_that_is_gone_or_elsewhere_is_refused(stopped: SimulatedDisk) -> None:
    before = everything_on(stopped)
    with pytest.raises(
        IncompatibleState, match="state of operator 'totals' in vertex 'totals', and the job has no"
    ):
        run(with_operators("totals", Map("totals", dict)), stopped)
    graph = job()
    moved = JobGraph(
        graph.name,
        tuple(replace(one, name=_moved(one.name)) for one in graph.vertices),
        tuple(replace(one, source=_moved(one.source), target=_moved(one.target)) for one in graph.edges),
        graph.max_parallelism,
    )
    with pytest.raises(
        IncompatibleState, match="'totals' in vertex 'totals', and the operator is in vertex 'counts'"
    ):
        run(moved, stopped)
    assert everything_on(stopped) == before


def _moved(vertex: str) -> str:
    return "counts" if vertex == "totals" else vertex


def test_an_operator_that_is_new_begins_empty(stopped: SimulatedDisk) -> None:
    graph = job()
    more = JobGraph(
        graph.name,
        (*graph.vertices, Vertex("also", 3, None, (FileSink("also", "also"),))),
        (*graph.edges, Edge("totals", "also", Partitioning.REBALANCE)),
        graph.max_parallelism,
    )
    assert run(more, stopped) is JobState.FINISHED
    assert [row["id"] for row in committed(stopped)] == list(range(len(ROWS)))


def test_metadata_of_an_older_release_can_be_read_but_no_job_starts_from_it(stopped: SimulatedDisk) -> None:
    files = stopped.host()
    for checkpoint in FileCheckpointStorage(files, "totals", CHECKPOINTS).completed():
        path = f"{CHECKPOINTS}/totals/chk-{checkpoint}/_metadata"
        body = msgspec.json.decode(
            metadata.unframe(metadata.FORMAT, metadata.VERSION, files.read(path), path)
        )
        assert body.pop("job")["max_parallelism"] == 16
        _write(files, path, metadata.frame(metadata.FORMAT, 1, msgspec.json.encode(body)))
    old = FileCheckpointStorage(files, "totals", CHECKPOINTS).load(CheckpointId(3))
    assert old.job is None and len(old.snapshots) == len(job().subtasks)
    before = everything_on(stopped)
    with pytest.raises(IncompatibleState, match="checkpoint 3 was written by an older release"):
        run(job(), stopped)
    assert everything_on(stopped) == before


def _write(files: Any, path: str, content: bytes) -> None:
    files.delete(path)
    stream = files.create(path)
    stream.write(content)
    stream.sync()
    stream.close()


def test_a_checkpoint_says_of_every_vertex_how_parallel_it_was_and_what_keeps_state(
    stopped: SimulatedDisk,
) -> None:
    shape = FileCheckpointStorage(stopped.host(), "totals", CHECKPOINTS).load(CheckpointId(3)).job
    assert shape is not None and shape.max_parallelism == 16
    assert [(vertex.name, vertex.parallelism, vertex.stateful) for vertex in shape.vertices] == [
        ("source", 2, ("source.source",)),
        ("steps", 2, ()),
        ("totals", 2, ("totals",)),
        ("sink", 1, ("out",)),
    ]
