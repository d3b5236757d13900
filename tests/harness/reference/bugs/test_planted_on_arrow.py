"""A bug that has a plan for Spark is in code that runs there: some operators have other code for batches of Arrow."""

from __future__ import annotations

import pytest

from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.reference.bugs.catalogue import bugs_of_runtime
from barrier_tck.harness.reference.jobs import build_graph, collection_sources
from barrier_tck.harness.workloads.workload_names import filled, workload_named
from barrier_tck.reference_impl.operators.arrow import ArrowPlane
from barrier_tck.reference_impl.operators.event_time_process import EventTimeProcessOperator

BY_RECORD = (
    "operators/event_time_process.py::",
    "operators/interval_join.py::IntervalJoinFunction",
    "operators/windows.py::WindowFunction",
    "operators/windows.py::Sliding",
    "operators/windows.py::Tumbling",
)
"""Code that runs for each record, and not where an operator takes whole batches."""
ON_SPARK = {name: bug for name, bug in bugs_of_runtime().items() if bug.spark_plan is not None}


def goes_by_record(plan: TrialPlan) -> bool:
    """Return whether some operator of a plan's job, in event time, takes records one by one on Spark."""
    plan = filled(plan)
    workload = workload_named(plan.workload.name)
    graph = build_graph(plan, workload, collection_sources(plan, workload.splits(plan)))
    built = [spec.build(ArrowPlane()) for vertex in graph.vertices for spec in vertex.operators]
    return any(isinstance(one, EventTimeProcessOperator) for one in built)


def runs_on_spark(changed: list[str], plan: TrialPlan) -> bool:
    return not all(at.startswith(BY_RECORD) for at in changed) or goes_by_record(plan)


@pytest.mark.parametrize("name", ON_SPARK)
def test_a_bug_that_spark_is_to_show_is_in_code_that_runs_there(name: str) -> None:
    bug = ON_SPARK[name]
    assert bug.spark_plan is not None
    changed = [change.at for change in bug.file.change]
    assert runs_on_spark(changed, bug.spark_plan), "plant it in the code for batches, too"


def test_a_bug_in_the_code_for_single_records_alone_is_found_out() -> None:
    windows, timers = ON_SPARK["ET-47"].spark_plan, ON_SPARK["ET-60"].spark_plan
    assert windows is not None and timers is not None
    for at in (change.at for bug in ON_SPARK.values() for change in bug.file.change):
        if at.startswith(BY_RECORD):
            assert not runs_on_spark([at], windows) and runs_on_spark([at], timers), at


@pytest.mark.parametrize("at", BY_RECORD[:3])
def test_code_for_single_records_is_where_the_list_says(at: str) -> None:
    assert any(change.at.startswith(at) for bug in bugs_of_runtime().values() for change in bug.file.change)
