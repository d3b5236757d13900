"""A plan's job graph: what follows from it, what is refused, and plans of version 1; grain: values."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from barrier_tck.faults.targets import COORDINATOR
from barrier_tck.harness.campaign.smaller_jobs import narrower, without_a_vertex, without_an_edge
from barrier_tck.harness.plan.job_graph import EdgePlan, JobPlan, Spread, VertexPlan
from barrier_tck.harness.plan.reading import plan_from
from barrier_tck.harness.plan.trial_plan import DeploymentPlan, TrialPlan
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.system.job_view import Role
from barrier_tck.harness.workloads.barrier_jobs import barrier_view
from barrier_tck.harness.workloads.workload_names import filled, workload_named

DIAMOND = JobPlan(
    vertices=(
        VertexPlan("read", "source", 2),
        VertexPlan("left", "keep", 3),
        VertexPlan("right", "pass", 2),
        VertexPlan("both", "keep", 2),
        VertexPlan("out", "sink", 1),
    ),
    edges=(
        EdgePlan("read", "left", Spread.HASH, ("key",)),
        EdgePlan("read", "right", Spread.FORWARD),
        EdgePlan("left", "both", Spread.HASH, ("key",)),
        EdgePlan("right", "both", Spread.BROADCAST, input=1),
        EdgePlan("both", "out", Spread.REBALANCE),
    ),
)


def test_subtasks_and_channels_follow_from_the_graph() -> None:
    assert DIAMOND.subtasks[:3] == ("read[0]", "read[1]", "left[0]") and len(DIAMOND.subtasks) == 10
    assert len(DIAMOND.channels) == 2 * 3 + 2 + 3 * 2 + 2 * 2 + 2
    assert ("read[1]", "right[1]") in DIAMOND.channels and ("read[0]", "right[1]") not in DIAMOND.channels
    assert [DIAMOND.channels_into(name) for name in ("read", "left", "right", "both", "out")] == [
        0,
        2,
        1,
        5,
        2,
    ]


def changed(**fields: Any) -> dict[str, Any]:
    return {**msgspec.to_builtins(DIAMOND), **fields}


def with_edge(number: int, **fields: Any) -> dict[str, Any]:
    edges = list(msgspec.to_builtins(DIAMOND)["edges"])
    edges[number] = {**edges[number], **fields}
    return changed(edges=edges)


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (with_edge(0, to="lft"), "names a vertex 'lft' that does not exist"),
        (with_edge(2, **{"from": "both", "to": "left"}), "goes backwards"),
        (with_edge(1, feedback=True), "marked as feedback but closes no loop"),
        (with_edge(0, key=[]), "must have key columns if it is a hash edge"),
        (with_edge(4, by="forward"), "needs equal parallelism, not 2 and 1"),
        (with_edge(3, input=2), "number them from 0"),
        (
            changed(edges=msgspec.to_builtins(DIAMOND)["edges"][:4]),
            "'both' must be a sink or have an output edge",
        ),
        (
            changed(edges=msgspec.to_builtins(DIAMOND)["edges"][1:]),
            "'left' must be a source or have an input edge",
        ),
        (changed(widths={"read": 3}), "takes no widths"),
        (
            changed(vertices=[{"name": "read", "kind": "source", "parallelism": 1}] * 2),
            "'read' is used twice",
        ),
    ],
)
def test_a_graph_that_is_no_dataflow_is_refused_by_its_wrong_part(job: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageProblem, match="job: ") as refused:
        plan_from({"job": job}, "a plan")
    assert words in str(refused.value)


def test_a_value_out_of_bounds_cannot_exist() -> None:
    with pytest.raises(ValueError, match="parallelism is 0; it must be 1 or more"):
        VertexPlan("read", "source", 0)
    with pytest.raises(ValueError, match=r"'left' has parallelism 3, above deployment.max_parallelism \(2\)"):
        TrialPlan(job=DIAMOND, deployment=DeploymentPlan(max_parallelism=2))


def test_a_workload_refuses_a_graph_that_is_not_one_of_its_shapes() -> None:
    with pytest.raises(UsageProblem, match=r"cannot run on this job: it has the vertices read \(source\)"):
        filled(TrialPlan(job=DIAMOND))
    with pytest.raises(UsageProblem, match="no vertex 'total'; it has source, totals, sink"):
        filled(TrialPlan(job=JobPlan(widths={"total": 2})))


def test_a_filled_plan_is_spelled_out_and_stays_as_it_is() -> None:
    plan = filled(TrialPlan(job=JobPlan("chained", {"totals": 3})))
    assert [operator.name for operator in plan.job.vertex("totals").operators] == ["totals", "witness"]
    assert filled(plan) is plan and plan.job.widths == {}


def test_plans_of_version_1_are_still_read() -> None:
    old = {
        "version": 1,
        "seed": 4,
        "topology": {"sources": 3, "keyed": 2, "sinks": 2, "executors": 4, "stateful_operators": 2},
    }
    plan = filled(plan_from(old, "old.json"))
    assert {vertex.name: vertex.parallelism for vertex in plan.job.vertices} == {
        "source": 3,
        "totals": 2,
        "sink": 2,
    }
    assert (plan.version, plan.seed, plan.job.shape, plan.deployment.executors) == (2, 4, "chained", 4)
    alone = filled(
        plan_from({"version": 1, "workload": {"name": "passthrough"}, "topology": {"sources": 3}}, "o")
    )
    assert [vertex.parallelism for vertex in alone.job.vertices] == [3, 3, 3]
    with pytest.raises(UsageProblem, match="'topology"):
        plan_from({"version": 1, "topology": {"sorces": 3}}, "old.json")


def test_the_view_tells_roles_and_how_often_points_are_passed() -> None:
    view = barrier_view(TrialPlan(job=JobPlan(widths={"source": 2, "totals": 1, "sink": 2})))
    assert view.in_role(Role.SOURCE) == ("source[0]", "source[1]") and view.in_role(Role.STATEFUL) == (
        "totals[0]",
    )
    assert view.ends_of("totals[0]") == ("sink[0]", "sink[1]", COORDINATOR)


def test_smaller_jobs_are_dataflows_and_join_the_neighbours_of_what_is_gone() -> None:
    names = [[vertex.name for vertex in job.vertices] for job in without_a_vertex(DIAMOND)]
    assert ["read", "right", "both", "out"] in names and ["read", "left", "both", "out"] in names
    without_right = next(j for j in without_a_vertex(DIAMOND) if "right" not in [v.name for v in j.vertices])
    assert [(e.source, e.by, e.input) for e in without_right.inputs_of("both")] == [
        ("left", Spread.HASH, 0),
        ("read", Spread.BROADCAST, 1),
    ]
    assert all(len(job.edges) < len(DIAMOND.edges) for job in without_an_edge(DIAMOND))
    assert {job.vertex("left").parallelism for job in narrower(DIAMOND, {3: (1,)})} == {1}


def test_a_workload_from_outside_is_named_by_its_factory() -> None:
    assert workload_named("barrier_tck.harness.workloads.keyed_totals:KeyedTotals").name == "keyed-totals"
    for wrong in ("keyed-total", "nowhere.at_all:Factory", "barrier_tck.harness.workloads.keyed_totals:Gone"):
        with pytest.raises(UsageProblem):
            workload_named(wrong)
