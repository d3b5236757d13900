"""Money round a loop: right runs are VALID, and each way to make or lose some is found; grain: simulation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.checkers.conservation import Conservation
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, NetworkPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.history import History, SnapshotView
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.reference.bugs.catalogue import planted_bugs
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import execute, run_trial
from barrier_tck.harness.workloads.money import Money
from barrier_tck.harness.workloads.payments import OPENING, payment, postings
from barrier_tck.harness.workloads.workload_names import filled
from tests.harness.kills import kill

RECORDED = CheckpointPlan(protocol="chandy_lamport", interval_ms=12, max_concurrent=2)
MODES = {
    "aligned": CheckpointPlan(interval_ms=12, max_concurrent=2),
    "unaligned": CheckpointPlan(interval_ms=12, mode="unaligned"),
    "chandy-lamport": RECORDED,
}


def a_plan(shape: str = "exchange", checkpoints: CheckpointPlan = RECORDED, **changes: Any) -> TrialPlan:
    plan = TrialPlan(
        seed=3,
        workload=WorkloadPlan("money", batches=8, records_per_second=300),
        job=JobPlan(shape),
        checkpoints=checkpoints,
        network=NetworkPlan(latency_ms_max=8),
    )
    return filled(msgspec.structs.replace(plan, **changes))


def test_an_order_moves_money_and_makes_none() -> None:
    order = {"id": 1, "account": "a", "carries": 0, "pays": 100, "route": "b>a>c"}
    assert payment(order) == {"id": 1, "account": "b", "carries": 100, "pays": 75, "route": "a>c"}
    assert list(postings(order)) == [("a", -100), ("b", 25), ("a", 18), ("c", 57)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", Money.shapes)
def test_money_is_conserved_through_a_kill(shape: str, mode: str, tmp_path: Path) -> None:
    killed = a_plan(
        shape, MODES[mode], faults=kill(ProtocolPoint.COMPLETION_NOTIFIED, "out[0]", 2, worker=True)
    )
    record = execute(killed, ReferenceSimulated(), tmp_path).record
    assert (record.verdict, record.faults_fired, len(record.attempts)) == (Verdict.VALID, 1, 2), (
        record.findings
    )
    counts = {finding.checker: finding.counts for finding in record.findings}
    assert counts["conservation"]["checkpoints"] >= 3 and counts["conservation"]["balances"] >= 15
    assert counts["conservation"]["in_flight"] > 0, "some money was in channels"
    assert counts["dataflow"]["records"] > 100, "every payment is in the output"


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrialPlan, History]:
    plan = a_plan()
    history = execute(plan, ReferenceSimulated(), tmp_path_factory.mktemp("trial")).history
    assert history is not None
    return plan, history


def judge(plan: TrialPlan, history: History) -> Finding:
    return Conservation(TrialInput(Money(), plan)).check(TrialContext(plan, history))


def with_payments(history: History) -> SnapshotView:
    """Return a checkpoint in whose channels there is money."""
    return next(
        view
        for view in history.checkpoints
        if any(row["carries"] for one in view.in_flight for row in one.rows if one.receiver != "out[0]")
    )


def changed(history: History, change: Callable[[SnapshotView], SnapshotView]) -> History:
    chosen = with_payments(history)
    views = tuple(change(view) if view is chosen else view for view in history.checkpoints)
    return msgspec.structs.replace(history, checkpoints=views)


def without_messages(view: SnapshotView) -> SnapshotView:
    return msgspec.structs.replace(view, in_flight=())


def with_messages_twice(view: SnapshotView) -> SnapshotView:
    return msgspec.structs.replace(
        view, in_flight=tuple(msgspec.structs.replace(one, rows=one.rows * 2) for one in view.in_flight)
    )


def with_balances(view: SnapshotView, amounts: tuple[int, ...]) -> SnapshotView:
    """Add an amount to each of the first balances."""
    state, left = [], list(amounts)
    for part in view.state:
        entries = {
            text: [entry[0] + (left.pop(0) if left else 0)] if part.operator == "bank" else entry
            for text, entry in part.entries.items()
        }
        state.append(msgspec.structs.replace(part, entries=entries))
    return msgspec.structs.replace(view, state=tuple(state))


def without_a_part(view: SnapshotView) -> SnapshotView:
    """Drop the balances of one subtask."""
    lost = max(range(len(view.state)), key=lambda number: len(view.state[number].entries))
    return msgspec.structs.replace(view, state=view.state[:lost] + view.state[lost + 1 :])


def external_storage(view: SnapshotView) -> SnapshotView:
    return msgspec.structs.replace(view, positions=dict.fromkeys(view.positions, 0))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without_messages, "accounts and channels hold"),
        (with_messages_twice, "accounts and channels hold"),
        (lambda view: with_balances(view, (1,)), f"instead of {5 * OPENING}"),
        (lambda view: with_balances(view, (50, -50)), "holds"),
        (without_a_part, "account bank/"),
        (external_storage, "account bank/"),
    ],
)
def test_each_way_to_make_or_lose_money_is_found(
    seen: tuple[TrialPlan, History], change: Callable[[SnapshotView], SnapshotView], words: str
) -> None:
    plan, history = seen
    assert judge(plan, history).verdict is Verdict.VALID
    finding = judge(plan, changed(history, change))
    assert finding.verdict is Verdict.INVALID
    assert any(
        words in example and f"checkpoint {with_payments(history).checkpoint}:" in example
        for example in finding.examples
    ), finding.examples


def test_a_balance_that_two_wrongs_leave_in_total_is_wrong_all_the_same(
    seen: tuple[TrialPlan, History],
) -> None:
    plan, history = seen
    finding = judge(plan, changed(history, lambda view: with_balances(view, (50, -50))))
    assert finding.counts["violations"] == 2, "two accounts, and not the total"


def test_without_a_checkpoint_nothing_is_said(seen: tuple[TrialPlan, History]) -> None:
    plan, history = seen
    finding = judge(plan, msgspec.structs.replace(history, checkpoints=(), operations=()))
    assert (finding.verdict, finding.clauses) == (Verdict.VALID, ())


def test_only_this_checker_sees_a_balance_that_changed_behind_the_cut(tmp_path: Path) -> None:
    """The planted bug CW-01: no message is wrong, and no record is missing."""
    plan = next(planted_bugs()["CW-01"].plans("simulated"))
    record = run_trial(plan, ReferenceSimulated(), tmp_path)
    assert [one.checker for one in record.findings if one.verdict is Verdict.INVALID] == ["conservation"]
