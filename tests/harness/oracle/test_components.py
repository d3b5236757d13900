"""Connected components round a loop: right runs are VALID, and each way to be wrong is found; grain: simulation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.checkers.labels import Labels
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, NetworkPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.history import End, History, InFlight, Row, SnapshotView
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.reference.bugs.catalogue import planted_bugs
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import execute, run_trial
from barrier_tck.harness.workloads.connected_components import (
    LABEL,
    NEIGHBOURS,
    ConnectedComponents,
    least_names,
    networks,
)
from barrier_tck.harness.workloads.workload_names import filled
from tests.harness.kills import kill

MODES = {
    "aligned": CheckpointPlan(interval_ms=12, max_concurrent=2),
    "unaligned": CheckpointPlan(interval_ms=12, mode="unaligned"),
    "chandy-lamport": CheckpointPlan(protocol="chandy_lamport", interval_ms=12, max_concurrent=2),
}


def a_plan(shape: str = "labels", mode: str = "unaligned", **changes: Any) -> TrialPlan:
    plan = TrialPlan(
        seed=3,
        workload=WorkloadPlan("components", batches=8, batch_records=3, keys=3, records_per_second=300),
        job=JobPlan(shape),
        checkpoints=MODES[mode],
        network=NetworkPlan(latency_ms_max=8),
    )
    return filled(msgspec.structs.replace(plan, **changes))


def test_the_graph_is_that_of_the_flights() -> None:
    assert len(networks()) == 185
    edges = [edge for network in networks().values() for edge in network]
    assert len(edges) == len(set(edges)) == 3869
    assert all(start < end for start, end in edges), "each pair is there in one direction only"
    assert networks()["YV-05"] == (("YV-05:CLT", "YV-05:LGA"), ("YV-05:IAD", "YV-05:LGA"))


def reached_from(node: str, edges: list[tuple[str, str]]) -> list[str]:
    """Return what a search finds, which knows nothing of unions of sets."""
    found = [node]
    for one in found:  # grows while it is walked
        for start, end in (*edges, *((end, start) for start, end in edges)):
            if start == one and end not in found:
                found.append(end)
    return found


def test_a_union_of_sets_and_a_search_find_the_same_components() -> None:
    edges = [edge for network in list(networks().values())[::11] for edge in network][::2]
    least = least_names(edges)
    assert len(set(least.values())) > 4
    assert least == {node: min(reached_from(node, edges)) for edge in edges for node in edge}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", ConnectedComponents.shapes)
def test_labels_are_right_through_a_kill(shape: str, mode: str, tmp_path: Path) -> None:
    killed = a_plan(shape, mode, faults=kill(ProtocolPoint.COMPLETION_NOTIFIED, "out[0]", 2, worker=True))
    record = execute(killed, ReferenceSimulated(), tmp_path).record
    assert (record.verdict, record.faults_fired, len(record.attempts)) == (Verdict.VALID, 1, 2), (
        record.findings
    )
    counts = {finding.checker: finding.counts for finding in record.findings}["labels"]
    assert counts["checkpoints"] >= 3 and counts["labels"] >= 60
    assert counts["in_flight"] > 0, "some messages were under way"


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrialPlan, History]:
    plan = a_plan()
    history = execute(plan, ReferenceSimulated(), tmp_path_factory.mktemp("trial")).history
    assert history is not None
    return plan, history


def judge(plan: TrialPlan, history: History) -> Finding:
    return Labels(TrialInput(ConnectedComponents(), plan)).check(TrialContext(plan, history))


# --- wrong checkpoints --------------------------------------------------------------------------------------


def of_loop(one: InFlight) -> bool:
    return one.sender.startswith("nodes") and one.receiver.startswith("nodes")


def with_messages(history: History) -> SnapshotView:
    """Return a checkpoint in whose feedback channels there are messages."""
    return next(
        view for view in history.checkpoints if any(of_loop(one) and one.rows for one in view.in_flight)
    )


def with_rows(view: SnapshotView, change: Callable[[tuple[Row, ...]], tuple[Row, ...]]) -> SnapshotView:
    """Change what is in the channels of the loop."""
    in_flight = tuple(
        msgspec.structs.replace(one, rows=change(one.rows)) if of_loop(one) else one for one in view.in_flight
    )
    return msgspec.structs.replace(view, in_flight=in_flight)


def with_entries(view: SnapshotView, name: str, change: Callable[[Any], Any]) -> SnapshotView:
    """Change what the first subtask keeps under a name."""
    first = next(part for part in view.state if part.name == name and part.entries)
    changed = msgspec.structs.replace(
        first, entries={text: change(entry) for text, entry in first.entries.items()}
    )
    state = tuple(changed if part is first else part for part in view.state)
    return msgspec.structs.replace(view, state=state)


def told_late(view: SnapshotView) -> SnapshotView:
    """Take back all that reached the sinks, but for what is still under way to them."""
    return msgspec.structs.replace(view, reached_sinks=())


def told_twice(view: SnapshotView) -> SnapshotView:
    assert view.reached_sinks is not None
    return msgspec.structs.replace(view, reached_sinks=(*view.reached_sinks, view.reached_sinks[0]))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda view: with_rows(view, lambda rows: ()), "the least that it received"),
        (lambda view: with_rows(view, lambda rows: rows * 2), "was never sent"),
        (lambda view: with_entries(view, LABEL, lambda entry: ["ZZ:ZZZ"]), "no edge before the cut"),
        (lambda view: with_entries(view, NEIGHBOURS, lambda entry: entry[1:]), "in its state or under way"),
        (lambda view: with_entries(view, NEIGHBOURS, lambda entry: entry * 2), "in its state or under way"),
        (
            lambda view: msgspec.structs.replace(view, positions=dict.fromkeys(view.positions, 0)),
            "in its state or under way",
        ),
        (told_late, "but sent"),
        (told_twice, "2 times up to the cut"),
    ],
)
def test_each_way_in_which_a_checkpoint_may_be_wrong_is_found(
    seen: tuple[TrialPlan, History], change: Callable[[SnapshotView], SnapshotView], words: str
) -> None:
    plan, history = seen
    assert judge(plan, history).verdict is Verdict.VALID
    chosen = with_messages(history)
    views = tuple(change(view) if view is chosen else view for view in history.checkpoints)
    finding = judge(plan, msgspec.structs.replace(history, checkpoints=views))
    assert finding.verdict is Verdict.INVALID
    assert any(
        words in example and f"checkpoint {chosen.checkpoint}:" in example for example in finding.examples
    ), finding.examples


# --- wrong outputs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: (), "the output lacks"),
        (lambda rows: rows[:-1], "the output lacks"),
        (lambda rows: (*rows, rows[0]), "2 times in the output"),
        (lambda rows: (*rows, {**rows[0], "label": "ZZ:ZZZ"}), "no edges connect the three"),
    ],
)
def test_each_way_in_which_the_output_may_be_wrong_is_found(
    seen: tuple[TrialPlan, History], change: Callable[[tuple[Row, ...]], tuple[Row, ...]], words: str
) -> None:
    plan, history = seen
    assert history.output is not None
    wrong = msgspec.structs.replace(history, output=change(tuple(history.output)))
    finding = judge(plan, wrong)
    assert finding.verdict is Verdict.INVALID
    assert any(words in example for example in finding.examples), finding.examples


def test_the_output_of_a_job_that_did_not_finish_may_lack_something(seen: tuple[TrialPlan, History]) -> None:
    plan, history = seen
    assert history.output is not None
    failed = msgspec.structs.replace(history, end=End.FAILED, output=tuple(history.output)[:3])
    assert judge(plan, failed).verdict is Verdict.VALID


def test_where_nothing_can_be_read_nothing_is_said(seen: tuple[TrialPlan, History]) -> None:
    plan, history = seen
    unread = msgspec.structs.replace(history, checkpoints=(), operations=(), output=None)
    assert judge(plan, unread).verdict is Verdict.UNKNOWN


def test_only_this_checker_sees_a_second_state_that_changed_behind_the_cut(tmp_path: Path) -> None:
    """The planted bug CW-02: no message is wrong, and no record is missing."""
    plan = next(planted_bugs()["CW-02"].plans("simulated"))
    record = run_trial(plan, ReferenceSimulated(), tmp_path)
    assert [one.checker for one in record.findings if one.verdict is Verdict.INVALID] == ["labels"]
