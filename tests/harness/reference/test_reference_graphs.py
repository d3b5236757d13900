"""Jobs of many shapes in the simulator, killed at protocol points, commit what a sequential computation gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import Any

import msgspec
import pytest

from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.kill_executor import KillExecutor
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.vocabulary import After, ScheduledFault
from barrier_tck.faults.vocabulary import ProtocolPoint as FaultPoint
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, DeploymentPlan, RestartPlan, TrialPlan
from barrier_tck.harness.reference.jobs import job_config
from barrier_tck.harness.reference.simulated.file_system import SimulatedFileSystem
from barrier_tck.harness.reference.simulated.simulated_targets import SimulatedTargets
from barrier_tck.harness.reference.simulated.world import SimulatedWorld
from barrier_tck.harness.trial.nemesis import Nemesis
from barrier_tck.reference_impl.operators.functions import Count, Emission, PerSubtask, Place, Row, Sum
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.operators.job import StreamJob
from barrier_tck.reference_impl.operators.rows import RowPlane
from barrier_tck.reference_impl.operators.sinks import FileSink
from barrier_tck.reference_impl.operators.sources import CollectionSource
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.job_observer import JobObserver
from barrier_tck.reference_impl.state.keyed import KeyedStates

GROUPS = 16


def source(rows: Sequence[Row], splits: int, rate: float | None = 400) -> CollectionSource:
    """Return a source of the rows, dealt to the splits in turn."""
    return CollectionSource(
        tuple((f"split-{number}", tuple(rows[number::splits])) for number in range(splits)), 3, rate
    )


def numbers(first: int, count: int) -> list[Row]:
    return [{"id": value, "k": value % 7, "j": value % 4} for value in range(first, first + count)]


def out(path: str = "output", uid: str = "sink") -> FileSink:
    return FileSink(path, uid)


# --- the shapes, each with the output that it must commit ----------------------------------------------------


@dataclass
class Shape:
    """A job, its output by directory, and a vertex to hit."""

    graph: JobGraph
    expected: dict[str, list[Row]]
    hit: str


def union_with_an_idle_subtask() -> Shape:
    """Three sources, one of them with more subtasks than splits, counted together."""
    job = StreamJob("union", GROUPS)
    inputs = [numbers(0, 60), numbers(100, 40), numbers(200, 50)]
    streams = [
        job.source(source(rows, splits), width, name)
        for rows, splits, width, name in zip(inputs, (2, 1, 1), (2, 3, 1), ("a", "idle", "c"), strict=True)
    ]
    counted = (
        streams[0]
        .union(streams[1].map(dict), streams[2])
        .key_by("k")
        .aggregate({"n": Count(), "s": Sum("id")}, emit=Emission.FINAL, parallelism=2, name="counted")
    )
    rows = list(chain.from_iterable(inputs))
    return Shape(counted.sink(out(), 1).build(), {"output": totals(rows, "k")}, "counted[1]")


def totals(rows: Iterable[Row], key: str) -> list[Row]:
    found: dict[Any, Row] = {}
    for row in rows:
        total = found.setdefault(row[key], {key: row[key], "n": 0, "s": 0})
        total["n"] += 1
        total["s"] += row["id"]
    return list(found.values())


class Numbered:
    """Numbers the records of each key, and adds the vertex's name."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def open(self, states: KeyedStates) -> None:
        self.count = states.value("count", int)

    def process(self, group: int, key: bytes, row: Row) -> Iterable[Row]:
        cell = self.count.of(group, key)
        count = (cell.get() or 0) + 1
        cell.set(count)
        return [{"id": row["id"], "nth_by_k": count, "by": self.place.subtask.vertex}]


class Meets:
    """Waits for one id on both paths, and passes on what both added to it."""

    def open(self, states: KeyedStates) -> None:
        self.seen = states.map("seen", int, int)

    def process(self, group: int, key: bytes, row: Row, number: int) -> Iterable[Row]:
        cell = self.seen.of(group, key)
        cell.put(number, cell.items().get(number, 0) + 1)
        times = cell.items()
        return [{"id": row["id"], "left": times[0], "right": times[1]}] if len(times) == 2 else []


def diamond() -> Shape:
    """One stream splits into two paths, one of them stateful, which meet again by another key."""
    rows = numbers(0, 90)
    common = StreamJob("diamond", GROUPS).source(source(rows, 2), 2, "flights").map(dict)
    left = common.key_by("k").process(PerSubtask(Numbered), parallelism=3, name="numbered")
    met = left.key_by("id").connect(common.filter(lambda row: row["j"]).key_by("id"))
    graph = met.process(Meets, parallelism=2, name="met").sink(out(), 1).build()
    return Shape(
        graph, {"output": [{"id": row["id"], "left": 1, "right": 1} for row in rows if row["j"]]}, "met[0]"
    )


def join() -> Shape:
    """Two streams of different rows, joined by two columns with different names."""
    job = StreamJob("join", GROUPS)
    flights = numbers(0, 60)
    weather = [{"station": k, "at": j, "t": 10 * k + j + 0.5} for k, j in product(range(7), range(4))]
    left = job.source(source(flights, 2), 2, "flights").key_by("k", "j")
    right = job.source(source([*weather, *weather[:5]], 1), 1, "weather").key_by("station", "at")
    joined = left.join(right, ["id"], {"degrees": "t"}, parallelism=3, name="joined")
    expected = [
        {"id": one["id"], "degrees": other["t"]}
        for one in flights
        for other in [*weather, *weather[:5]]
        if (one["k"], one["j"]) == (other["station"], other["at"])
    ]
    return Shape(joined.sink(out(), 2, chain=False).build(), {"output": expected}, "joined[2]")


def broadcast() -> Shape:
    """Every rule reaches every subtask; every record reaches one."""
    job = StreamJob("broadcast", GROUPS)
    rows, rules = numbers(0, 60), [{"rule": number} for number in range(5)]

    def told(place: Place) -> Callable[[Row, int], list[Row]]:
        return lambda row, number: [
            {"id": row["id"]} if number == 0 else {"rule": row["rule"], "at": str(place.subtask)}
        ]

    both = (
        job.source(source(rows, 2), 2, "rows")
        .rebalance()
        .connect(job.source(source(rules, 1), 1, "rules").broadcast())
    )
    graph = both.process(PerSubtask(told), parallelism=3, name="told").sink(out(), chain=False).build()
    expected = [{"id": row["id"]} for row in rows]
    expected += [{"rule": rule["rule"], "at": f"told[{index}]"} for rule in rules for index in range(3)]
    return Shape(graph, {"output": expected}, "told[1]")


def two_shuffles() -> Shape:
    """Three stateful vertices in a row, each after a shuffle by another key."""
    rows = numbers(0, 120)
    job = StreamJob("shuffles", GROUPS)
    first = (
        job.source(source(rows, 3), 3, "source")
        .key_by("k")
        .process(PerSubtask(Numbered), parallelism=3, name="first")
    )
    second = first.key_by("nth_by_k").process(PerSubtask(Numbered), parallelism=2, name="second")
    third = second.key_by("by").aggregate(
        {"n": Count(), "s": Sum("id")}, emit=Emission.FINAL, parallelism=4, name="third"
    )
    graph = job.build(
        third.sink(out("totals", "totals"), 1, name="totals"), second.sink(out("ids", "ids"), name="ids")
    )
    expected = {
        "totals": [{"by": "second", "n": len(rows), "s": sum(row["id"] for row in rows)}],
        "ids": [{"id": row["id"], "by": "second"} for row in rows],
    }
    return Shape(graph, expected, "second[1]")


def twelve_subtasks() -> Shape:
    """More than ten subtasks, more subtasks than splits, and three hash edges."""
    rows = numbers(0, 150)
    stream = StreamJob("wide", GROUPS).source(source(rows, 11), 12, "source")
    counted = stream.key_by("k").aggregate(
        {"n": Count(), "s": Sum("id")}, emit=Emission.FINAL, parallelism=12, name="counted"
    )
    return Shape(counted.sink(out(), 2).build(), {"output": totals(rows, "k")}, "counted[11]")


def parallel_edges() -> Shape:
    """Two edges of one union, and one edge of another input, between the same two vertices."""
    rows = numbers(0, 40)
    stream = StreamJob("parallel", GROUPS).source(source(rows, 2), 2, "source")
    both = stream.union(stream.rebalance()).connect(stream.broadcast())
    marked = both.process(lambda row, number: [{"id": row["id"], "input": number}], name="marked")
    expected = [{"id": row["id"], "input": number} for row in rows for number in (0, 0, 1, 1)]
    return Shape(marked.sink(out(), 1).build(), {"output": expected}, "marked[0]")


def side_by_side() -> Shape:
    """Two pipelines that have nothing in common, and a source vertex with two sinks."""
    job = StreamJob("side", GROUPS)
    rows, others = numbers(0, 60), numbers(500, 40)
    main = job.source(source(rows, 2), 2, "main").map(dict)
    counted = main.key_by("j").aggregate(
        {"n": Count(), "s": Sum("id")}, emit=Emission.FINAL, parallelism=2, name="counted"
    )
    graph = job.build(
        counted.sink(out("counts", "counts"), 1, name="counts"),
        main.map(lambda row: {"id": row["id"]}).sink(out("ids", "ids"), name="ids"),
        job.source(source(others, 1), 1, "other").sink(out("others", "others")),
    )
    expected = {
        "counts": totals(rows, "j"),
        "ids": [{"id": row["id"]} for row in rows],
        "others": others,
    }
    return Shape(graph, expected, "main[1]")


SHAPES = [
    union_with_an_idle_subtask,
    diamond,
    join,
    broadcast,
    two_shuffles,
    twelve_subtasks,
    parallel_edges,
    side_by_side,
]

# --- running them ---------------------------------------------------------------------------------------------


class Attempts(JobObserver):
    """Notes from which checkpoint each attempt starts."""

    def __init__(self) -> None:
        self.restored: list[int | None] = []

    def attempt_started(self, attempt: int, restored_checkpoint: int | None) -> None:
        self.restored.append(restored_checkpoint)


def run(
    graph: JobGraph, fault: ScheduledFault | None, seed: int
) -> tuple[SimulatedFileSystem, list[int | None]]:
    """Run a job to its end; return the files on the disk, and the checkpoints from which attempts started."""
    plan = TrialPlan(
        seed=seed,
        deployment=DeploymentPlan(executors=3),
        checkpoints=CheckpointPlan(interval_ms=25),
        restart=RestartPlan(attempts_max=3, delay_ms=5),
        faults=() if fault is None else (fault,),
    )
    nemesis, attempts = Nemesis(plan.faults), Attempts()
    world = SimulatedWorld(plan, graph, job_config(plan), RowPlane(), Components(), attempts, nemesis)
    try:
        assert world.run(SimulatedTargets(world)), world.coordinator.driver.machine.waiting_for()
        assert world.coordinator.driver.state is JobState.FINISHED, world.coordinator.driver.reason
        return world.read_only_files(), attempts.restored
    finally:
        world.release()


def committed(files: SimulatedFileSystem, directory: str) -> list[Row]:
    paths = [path for path in files.list_files(directory) if path.startswith(f"{directory}/part-")]
    return [
        row
        for path in paths
        for row in msgspec.json.decode(b"[" + b",".join(files.read(path).splitlines()) + b"]")
    ]


def as_bag(rows: Iterable[Row], columns: Sequence[str]) -> list[str]:
    return sorted(repr([(column, row[column]) for column in columns if column in row]) for row in rows)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("strike", [None, "snapshot", "barrier", "commit", "coordinator"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_every_shape_is_exact(shape: Callable[[], Shape], strike: str | None, seed: int) -> None:
    made = shape()
    first = str(made.graph.source_subtasks[0])
    last = str(made.graph.subtasks[-1])
    fault = {
        None: None,
        "snapshot": ScheduledFault(KillExecutor(made.hit), After(FaultPoint.SNAPSHOT_TAKEN, made.hit, 2)),
        "barrier": ScheduledFault(KillWorker(first), After(FaultPoint.BARRIER_FORWARDED, made.hit, 2)),
        "commit": ScheduledFault(KillExecutor(last), After(FaultPoint.COMPLETION_NOTIFIED, last, 2)),
        "coordinator": ScheduledFault(CrashCoordinator(), After(FaultPoint.CHECKPOINT_COMPLETED, None, 2)),
    }[strike]
    files, restored = run(made.graph, fault, seed)
    for directory, rows in made.expected.items():
        columns = list(dict.fromkeys(column for row in rows for column in row))
        assert as_bag(committed(files, directory), columns) == as_bag(rows, columns)
    if strike is not None:
        assert len(restored) == 2 and restored[1] is not None, restored
