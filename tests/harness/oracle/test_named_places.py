"""Where something was seen, in words; grain: values."""

from __future__ import annotations

import pytest

from barrier_tck.harness.oracle.evidence.named_places import (
    at_sink,
    last_step,
    sinks_of,
    subtasks_named,
    way_to,
)
from barrier_tck.harness.plan.job_graph import EdgePlan, JobPlan, OperatorPlan, Spread, VertexPlan
from tests.harness.oracle.oracle_histories import a_context, a_plan

JOB = JobPlan(
    vertices=(
        VertexPlan("left", "source", 2, then=(OperatorPlan("left.mark", "pass"),)),
        VertexPlan("right", "source", 1),
        VertexPlan("met", "join", parallelism=2, then=(OperatorPlan("kept", "keep"),)),
        VertexPlan("out", "sink", 1),
    ),
    edges=(
        EdgePlan("left", "met", Spread.REBALANCE),
        EdgePlan("right", "met", Spread.REBALANCE),
        EdgePlan("met", "out", Spread.REBALANCE),
    ),
)


@pytest.mark.parametrize(
    ("operator", "sender", "receiver", "way"),
    [
        ("met", "left.mark[1]", "met[0]", "left[1]->met[0]"),
        ("met", "right", "", "right->met"),
        ("met", "", "", ""),
        ("kept", "met[0]", "", ""),
        ("out", "", "out[0]", "met->out[0]"),
        ("out", "kept", "", "met->out"),
        ("out", "left", "", ""),
        ("left", "", "", ""),
        ("no operator", "left", "", ""),
    ],
)
def test_a_way_is_named_if_it_is_known(operator: str, sender: str, receiver: str, way: str) -> None:
    assert way_to(JOB, operator, sender, receiver) == way


@pytest.mark.parametrize(
    ("path", "step"), [("read.mark[1]>met/a[0]", "met[0]"), ("read.mark>met", "met"), ("", "")]
)
def test_the_last_step_of_a_path_is_an_operator_with_its_number(path: str, step: str) -> None:
    assert last_step(path) == step


def test_a_sink_is_named_with_the_edge_that_leads_there() -> None:
    assert sinks_of(JOB) == "out, on met->out"
    assert at_sink(JOB, "out[0]") == "out[0], on met->out[0]"


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        (("job is running", "checkpoint 1 waits for totals[1], sink[0]", "source[0]"), "totals[1], sink[0]"),
        (("subtotals[0] and my.totals[0]", "totals[0]: it failed"), "totals[0]"),
        (("job is running",), ""),
        (
            ("source[0] source[1] totals[0] totals[1] sink[0]",),
            "source[0], source[1], totals[0], totals[1] and 1 more",
        ),
    ],
)
def test_the_first_text_that_names_subtasks_says_where_it_is(texts: tuple[str, ...], named: str) -> None:
    assert subtasks_named(texts, a_context(a_plan())) == named
