"""Loops in the simulator: every record goes round as often as it must, and the job ends when nothing is under way.

Grain: whole trials, judged by lineage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barrier_tck.harness.oracle.checkers.dataflow import Dataflow
from barrier_tck.harness.plan.job_graph import SINK, EdgePlan, JobPlan, OperatorPlan, Spread, VertexPlan
from barrier_tck.harness.plan.reading import plan_from
from barrier_tck.harness.plan.trial_plan import (
    CheckpointingMode,
    CheckpointPlan,
    DeploymentPlan,
    NetworkPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.record.operations import CheckpointTriggered
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.trial.trial_run import execute, run_trial
from barrier_tck.harness.workloads import dataflow_model
from barrier_tck.harness.workloads.dataflow_model import DataflowModel, changed
from barrier_tck.harness.workloads.lineage import hashed, source
from barrier_tck.harness.workloads.records import Bag, Record
from barrier_tck.harness.workloads.rounds import Rounds
from barrier_tck.harness.workloads.workload_names import filled
from barrier_tck.reference_impl.config import CheckpointConfig, CheckpointMode, JobConfig
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.operators.job import Stream, StreamJob
from barrier_tck.reference_impl.operators.sinks import FileSink
from barrier_tck.reference_impl.operators.sources import CollectionSource
from barrier_tck.reference_impl.runtime.compatibility import require_possible
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.coordinator_driver import CoordinatorDriver
from barrier_tck.reference_impl.runtime_errors import JobUsageError

WITHOUT = CheckpointPlan(enabled=False)


@pytest.mark.parametrize("capacity", [1, 8])
@pytest.mark.parametrize("shape", Rounds.shapes)
def test_a_loop_ends_when_nothing_is_under_way_however_full_its_channels_are(
    shape: str, capacity: int, tmp_path: Path
) -> None:
    plan = TrialPlan(
        seed=1,
        workload=WorkloadPlan("rounds", batches=12),
        job=JobPlan(shape=shape),
        checkpoints=WITHOUT,
        network=NetworkPlan(channel_capacity=capacity),
    )
    record = run_trial(plan, ReferenceSimulated(), tmp_path)
    assert record.verdict is Verdict.VALID, record.findings
    judged = next(finding for finding in record.findings if finding.checker == Dataflow.name)
    assert judged.counts["records"] > 100, "turns are counted"


@pytest.mark.parametrize("mode", ["exactly_once", "unaligned"])
def test_a_broadcast_round_a_loop_reaches_some_before_the_cut_and_some_behind_it(
    mode: CheckpointingMode, tmp_path: Path
) -> None:
    """Recorded channels are not aligned with each other, so UNA-5 is no promise of theirs; nothing is lost."""
    job = JobPlan(
        vertices=(
            source("read"),
            VertexPlan("head", "pass", 2),
            VertexPlan("again", "again", 1, {"turns": 2}),
            VertexPlan("out", SINK, 1),
        ),
        edges=(
            hashed("read", "head"),
            EdgePlan("head", "again", Spread.REBALANCE),
            EdgePlan("again", "head", Spread.BROADCAST, feedback=True),
            EdgePlan("head", "out", Spread.REBALANCE),
        ),
    )
    plan = TrialPlan(
        seed=1,
        workload=WorkloadPlan("rounds", batches=6, records_per_second=300),
        job=job,
        checkpoints=CheckpointPlan(mode=mode, interval_ms=12),
    )
    result = execute(plan, ReferenceSimulated(), tmp_path)
    assert result.record.verdict is Verdict.VALID, result.record.findings
    assert result.history is not None
    under_way = [
        {one.receiver: len(one.rows) for one in view.in_flight if one.sender == "again[0]"}
        for view in result.history.checkpoints
    ]
    assert any(found.get("head[0]", 0) != found.get("head[1]", 0) for found in under_way)


@pytest.mark.parametrize("beside", [True, False], ids=["beside-a-sink", "alone"])
def test_a_loop_that_leads_nowhere_is_waited_for(beside: bool, tmp_path: Path) -> None:
    """The last checkpoint follows the end of all records, also of those that go round where no sink is."""
    out = ((VertexPlan("out", SINK, 1),), (EdgePlan("read", "out", Spread.REBALANCE),))
    job = JobPlan(
        vertices=(
            source("read"),
            VertexPlan("keep", "keep", 2),
            VertexPlan("again", "again", 1, {"turns": 4}),
            *(out[0] if beside else ()),
        ),
        edges=(
            hashed("read", "keep"),
            EdgePlan("keep", "again", Spread.REBALANCE),
            msgspec.structs.replace(hashed("again", "keep"), feedback=True),
            *(out[1] if beside else ()),
        ),
    )
    plan = TrialPlan(
        seed=2,
        workload=WorkloadPlan("rounds", batches=8, batch_records=4, records_per_second=600),
        job=job,
        deployment=DeploymentPlan(slow_vertex="again", slow_batch_ms=5),
        checkpoints=CheckpointPlan(interval_ms=60),
    )
    result = execute(plan, ReferenceSimulated(), tmp_path)
    assert result.record.verdict is Verdict.VALID, result.record.findings
    assert result.history is not None
    triggered = [
        one.operation for one in result.history.operations if isinstance(one.operation, CheckpointTriggered)
    ]
    last = result.history.checkpoints[-1]
    assert [one.checkpoint for one in triggered if one.final] == [last.checkpoint]
    assert not last.in_flight, "nothing is under way any more"
    kept = sum(len(rows) for rows in last.state_by_operator()["keep"].values())
    assert kept > 2 * sum(last.positions.values()), "every record went round, most of them several times"


def test_what_a_loop_holds_is_found_turn_by_turn() -> None:
    job = filled(TrialPlan(workload=WorkloadPlan("rounds"), job=JobPlan(shape="loop"))).job
    content = DataflowModel(job).at({"read": {(2, "k", ""): 1, (4, "k", ""): 1}})  # type: ignore[dict-item]
    kept = sorted(record for _, record in content.kept["head"])
    start, turn = "read.mark", ">head>again"
    assert kept == [
        *((2, "k", start + turn * turns) for turns in (0, 1, 2)),
        (4, "k", start),
    ], "the record 2 makes two turns of up to three, the record 4 none"
    assert content.reached_sinks["out"] == {(*record[:2], f"{record[2]}>head"): 1 for record in kept}


def test_the_model_of_a_long_ring_handles_each_record_once_per_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    job = filled(TrialPlan(workload=WorkloadPlan("rounds"), job=JobPlan(shape="ring"))).job
    met: Counter[tuple[str, Record]] = Counter()

    def counted(operator: OperatorPlan, inputs: Sequence[Bag]) -> Bag:
        met.update((operator.name, record) for bag in inputs for record in bag)
        return changed(operator, inputs)

    monkeypatch.setattr(dataflow_model, "changed", counted)
    DataflowModel(job).at({"read": Counter({(23, "k", ""): 1})})
    assert sum(name == "last" for name, _ in met) == 24, "it comes there once, and after each of its 23 turns"
    assert set(met.values()) == {1}, "what came there before is not handled again when more comes"


def test_loops_without_end_and_loops_in_at_least_once_mode_are_refused() -> None:
    endless = {
        "vertices": [
            {"name": "read", "kind": "source", "parallelism": 1},
            {"name": "head", "kind": "pass", "parallelism": 1},
            {"name": "out", "kind": "sink", "parallelism": 1},
        ],
        "edges": [
            {"from": "read", "to": "head", "by": "forward"},
            {"from": "head", "to": "head", "by": "forward", "feedback": True},
            {"from": "head", "to": "out", "by": "forward"},
        ],
    }
    with pytest.raises(UsageProblem, match="round for ever"):
        filled(plan_from({"workload": {"name": "rounds"}, "job": endless}, "a plan"))
    once_or_more = {"job": endless, "checkpoints": {"mode": "at_least_once"}}
    with pytest.raises(UsageProblem, match="wait for ever for its own barrier"):
        plan_from(once_or_more, "a plan")


# --- what a user writes -------------------------------------------------------------------------------------


def begin() -> Stream:
    return StreamJob("loops", 16).source(CollectionSource((), 1), 2, "read")


def lower(row: dict[str, int]) -> dict[str, int]:
    return {"n": row["n"] - 1}


def is_left(row: dict[str, int]) -> bool:
    return row["n"] > 0


def body(records: Stream) -> tuple[Stream, Stream]:
    lowered = records.map(lower, name="lower")
    return lowered.filter(is_left, name="left"), lowered


def edges(graph: JobGraph) -> list[str]:
    return [f"{edge}{' back' if edge.feedback else ''}" for edge in graph.edges]


def test_iterate_leads_records_back_to_the_vertices_that_the_stream_enters() -> None:
    graph = begin().iterate(body).sink(FileSink("out"), parallelism=1).build()
    assert edges(graph) == ["read -> lower", "lower -> sink", "lower -> left", "left -> lower back"]
    assert [loop.vertices for loop in graph.loops] == [("lower", "left")]


def test_a_loop_may_lie_in_another_one() -> None:
    def outer(records: Stream) -> tuple[Stream, Stream]:
        done = records.map(lower, name="first").iterate(body)
        return done.filter(is_left, name="again"), done

    graph = begin().iterate(outer).sink(FileSink("out"), parallelism=1).build()
    assert sorted(edges(graph)) == [
        *("again -> first back", "first -> lower", "left -> lower back"),
        *("lower -> again", "lower -> left", "lower -> sink", "read -> first"),
    ]
    (loop,) = graph.loops
    assert sorted(loop.vertices) == ["again", "first", "left", "lower"]


@pytest.mark.parametrize(
    ("mode", "is_refused"),
    [(mode, mode is CheckpointMode.AT_LEAST_ONCE) for mode in CheckpointMode] + [(None, False)],
)
def test_a_coordinator_refuses_a_loop_in_at_least_once_mode_only(
    mode: CheckpointMode | None, is_refused: bool
) -> None:
    """Not only plans are refused: whoever builds a job by hand learns it before anything is deployed."""
    graph = begin().iterate(body).sink(FileSink("out"), parallelism=1).build()
    config = JobConfig(checkpoints=CheckpointConfig(100, mode) if mode is not None else None)
    ports: Any = None  # not used before the start
    expected = pytest.raises(JobUsageError, match=r"loop \(lower, left\).*wait for ever for its own barrier")
    with expected if is_refused else nullcontext():
        CoordinatorDriver(graph, config, ports, Components())


def test_without_a_loop_at_least_once_mode_is_possible() -> None:
    graph = begin().map(lower).sink(FileSink("out"), parallelism=1).build()
    require_possible(graph, JobConfig(checkpoints=CheckpointConfig(100, CheckpointMode.AT_LEAST_ONCE)))


def test_a_loop_that_passes_no_operator_is_refused() -> None:
    with pytest.raises(JobUsageError, match="must pass an operator first"):
        begin().iterate(lambda records: (records, records.map(lower)))
