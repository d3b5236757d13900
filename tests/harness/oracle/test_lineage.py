"""Lineage on any graph: right runs are VALID, and each kind of mistake is found with its record; grain: simulation."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.checkers.dataflow import Dataflow
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.plan.job_graph import JobPlan, Spread
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.history import History, StateView
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.reference.bugs.catalogue import planted_bugs
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.trial.trial_run import execute
from barrier_tck.harness.workloads.barrier_jobs import barrier_view
from barrier_tck.harness.workloads.lineage import Lineage
from barrier_tck.harness.workloads.workload_names import filled, job_of
from tests.harness.kills import kill


def a_plan(job: JobPlan = JobPlan("diamond"), **changes: Any) -> TrialPlan:  # noqa: B008 - frozen
    plan = TrialPlan(
        seed=4,
        workload=WorkloadPlan("lineage", batches=8, records_per_second=300),
        job=job,
        checkpoints=CheckpointPlan(interval_ms=12),
    )
    return filled(msgspec.structs.replace(plan, **changes))


def judge(plan: TrialPlan, history: History, exact: bool = True) -> Finding:
    return Dataflow(TrialInput(Lineage(), plan), exact).check(
        TrialContext(plan, history, job=barrier_view(plan))
    )


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrialPlan, History]:
    plan = a_plan()
    history = execute(plan, ReferenceSimulated(), tmp_path_factory.mktemp("trial")).history
    assert history is not None and len(history.checkpoints) >= 3
    return plan, history


@pytest.mark.parametrize("shape", Lineage.shapes)
def test_every_shape_survives_a_kill_in_the_middle(shape: str, tmp_path: Path) -> None:
    plan = a_plan(JobPlan(shape))
    sink = plan.job.sinks[0].subtasks[0]
    killed = a_plan(JobPlan(shape), faults=kill(ProtocolPoint.COMPLETION_NOTIFIED, sink, worker=True))
    record = execute(killed, ReferenceSimulated(), tmp_path).record
    assert (record.verdict, record.faults_fired, len(record.attempts)) == (Verdict.VALID, 1, 2)
    finding = next(one for one in record.findings if one.checker == "dataflow")
    assert finding.counts["checkpoints"] >= 2 and finding.counts["records"] > 100


def ends_of(job: JobPlan) -> list[tuple[str, str]]:
    return [(edge.source, edge.target) for edge in job.edges]


def test_a_source_that_does_not_mark_its_records_is_refused() -> None:
    """Of a record that came twice, nobody could say by how many edges it left its source."""
    job = job_of("lineage", JobPlan(shape="diamond"))
    bare = tuple(
        msgspec.structs.replace(vertex, then=()) if vertex in job.sources else vertex
        for vertex in job.vertices
    )
    with pytest.raises(UsageProblem, match=r"the source '\w+' does not mark its records.*of kind 'pass'"):
        filled(TrialPlan(workload=WorkloadPlan("lineage"), job=msgspec.structs.replace(job, vertices=bare)))


def test_drawn_graphs_reach_their_corners_often() -> None:
    jobs = [Lineage().draw_job(random.Random(seed).randint) for seed in range(300)]
    assert all(Lineage().problem_of(job) is None for job in jobs)
    corners = {
        "a broadcast edge": lambda job: any(edge.by is Spread.BROADCAST for edge in job.edges),
        "a forward edge": lambda job: any(edge.by is Spread.FORWARD for edge in job.edges),
        "a stateful vertex with two inputs": lambda job: any(
            edge.input == 1 and job.vertex(edge.target).kind == "keep" for edge in job.edges
        ),
        "two stateful operators in one chain": lambda job: any(
            vertex.kind == "keep" and any(one.kind == "keep" for one in vertex.then)
            for vertex in job.vertices
        ),
        "stateless between stateful": lambda job: any(
            job.vertex(edge.target).kind != "keep"
            and job.vertex(edge.source).kind == "keep"
            and any(job.vertex(after.target).kind == "keep" for after in job.outputs_of(edge.target))
            for edge in job.edges
        ),
        "a keyed vertex with numbers of two digits": lambda job: any(
            vertex.kind == "keep" and vertex.parallelism > 10 for vertex in job.vertices
        ),
        "a source with numbers of two digits": lambda job: any(v.parallelism > 10 for v in job.sources),
        "two edges between the same vertices": lambda job: len(ends_of(job)) > len(set(ends_of(job))),
        "two sinks": lambda job: len(job.sinks) == 2,
        "two sinks that read the same vertex": lambda job: any(
            len([edge for edge in job.outputs_of(v.name) if job.vertex(edge.target) in job.sinks]) == 2
            for v in job.vertices
        ),
        "a source read by several": lambda job: any(len(job.outputs_of(v.name)) > 1 for v in job.sources),
    }
    shares = {name: sum(map(reached, jobs)) / len(jobs) for name, reached in corners.items()}
    assert {name: share for name, share in shares.items() if share < 0.02} == {}


def test_splits_may_be_fewer_than_subtasks_and_ids_are_unique() -> None:
    idle = 0
    for seed in range(40):
        plan = a_plan(JobPlan("fan-in", {"read0": 3}), seed=seed)
        splits = Lineage().splits(plan)
        ids = [row["id"] for split in splits for row in split.rows]
        assert len(ids) == len(set(ids))
        idle += len({split.subtask for split in splits if split.vertex == "read0"}) < 3
    assert idle


def changed_state(history: History, operator: str, change: Any) -> History:
    """Return the history with a late checkpoint's first non-empty state of an operator changed."""
    place, view = next(
        (place, view) for place, view in reversed(list(enumerate(history.checkpoints))) if not view.finished
    )
    index, part = next(
        (index, part)
        for index, part in enumerate(view.state)
        if part.operator == operator and any(len(kept) > 1 for kept in part.entries.values())
    )
    state = (*view.state[:index], change(part), *view.state[index + 1 :])
    changed = msgspec.structs.replace(view, state=state)
    views = (*history.checkpoints[:place], changed, *history.checkpoints[place + 1 :])
    return msgspec.structs.replace(history, checkpoints=views)


def first_long(part: StateView) -> str:
    return next(text for text, kept in part.entries.items() if len(kept) > 1)


def with_kept(part: StateView, kept: Any) -> StateView:
    text = first_long(part)
    return msgspec.structs.replace(part, entries={**part.entries, text: kept(part.entries[text])})


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        (lambda records: records[1:], "is missing from the state of both"),
        (lambda records: [*records, records[0]], "twice instead of once"),
        (
            lambda records: [(1 - records[0][0], *records[0][1:]), *records[1:]],
            "is missing from the state of both",
        ),
        (lambda records: [[*records[0][:2], "read.mark[0]>all[0]>out[0]"], *records[1:]], "there is no edge"),
        (
            lambda records: [[*records[0][:2], "read.mark[1]>some[0]"], *records[1:]],
            "the edge only leads to some[1]",
        ),
        (lambda records: list(reversed(records)), "one overtook the other"),
    ],
    ids=["lost", "doubled", "on the wrong input", "by the wrong way", "beside a forward edge", "reordered"],
)
def test_a_mistake_in_a_state_is_reported_with_record_and_vertex(
    seen: tuple[TrialPlan, History], kept: Any, words: str
) -> None:
    plan, history = seen
    assert judge(plan, history).verdict is Verdict.VALID
    broken = changed_state(history, "both", lambda part: with_kept(part, kept))
    finding = judge(plan, broken)
    assert finding.verdict is Verdict.INVALID
    assert any(words in example for example in finding.examples), finding.examples


def moved_to_the_other(part: StateView) -> StateView:
    return msgspec.structs.replace(part, subtask="both[0]" if "1" in part.subtask else "both[1]")


def test_state_in_a_subtask_that_does_not_own_its_key_group_is_reported(
    seen: tuple[TrialPlan, History],
) -> None:
    plan, history = seen
    moved = changed_state(
        history,
        "both",
        lambda part: moved_to_the_other(part),
    )
    assert any("which owns the key groups" in example for example in judge(plan, moved).examples)


def test_output_and_prepared_transactions_are_judged_too(seen: tuple[TrialPlan, History]) -> None:
    plan, history = seen
    assert history.output
    output, by = history.output, history.output_by
    for rows, writers in ((output[1:], by[1:]), ((*output, output[0]), (*by, by[0]))):
        finding = judge(plan, msgspec.structs.replace(history, output=rows, output_by=writers))
        assert finding.verdict is Verdict.INVALID and any(
            "what out committed" in one for one in finding.examples
        )
    view = next(view for view in history.checkpoints if view.reached_sinks)
    assert view.reached_sinks is not None
    others = tuple(one for one in history.checkpoints if one is not view)
    lost = msgspec.structs.replace(view, reached_sinks=view.reached_sinks[1:], reached_by=view.reached_by[1:])
    finding = judge(plan, msgspec.structs.replace(history, checkpoints=(*others, lost)))
    assert any("missing from what out committed or prepared" in one for one in finding.examples)


def test_at_least_once_mode_allows_records_that_came_early_or_again_and_nothing_else(
    seen: tuple[TrialPlan, History],
) -> None:
    plan, history = seen
    doubled = changed_state(history, "both", lambda part: with_kept(part, lambda kept: [*kept, kept[0]]))
    assert judge(plan, doubled, exact=False).verdict is Verdict.INVALID, "nothing was restored"
    lost = changed_state(history, "both", lambda part: with_kept(part, lambda kept: kept[1:]))
    assert judge(plan, lost, exact=False).verdict is Verdict.INVALID


@pytest.mark.long
@pytest.mark.parametrize("bug", ["AL-01", "SO-02"])
def test_planted_bugs_of_the_protocol_are_caught_on_a_graph_as_well(bug: str, tmp_path: Path) -> None:
    """Those whose plan does not name a graph are run on a diamond, judged by lineage alone."""
    caught = 0
    for seed in range(12):
        base = next(planted_bugs()[bug].plans("simulated"))
        job = JobPlan("diamond")
        workload = msgspec.structs.replace(base.workload, name="lineage", records_per_second=300)
        plan = filled(msgspec.structs.replace(base, seed=seed, workload=workload, job=job, faults=()))
        sink = kill(ProtocolPoint.COMPLETION_NOTIFIED, "out[0]", worker=True)
        record = execute(msgspec.structs.replace(plan, faults=sink), ReferenceSimulated(), tmp_path).record
        caught += any(f.checker == "dataflow" and f.verdict is Verdict.INVALID for f in record.findings)
    assert caught, planted_bugs()[bug].description
