"""Totals that are emitted when they have changed: right runs are VALID, and each way to go wrong is found.

Grain: simulation, with changed histories.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.checkers import changed_totals
from barrier_tck.harness.oracle.checkers.changed_totals import ChangedTotals
from barrier_tck.harness.oracle.evidence import key_totals
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointPlan,
    NetworkPlan,
    SavepointPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.record.history import CheckpointProblem, History, Row, SnapshotView
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.system.job_view import Role
from barrier_tck.harness.trial.trial_run import execute
from barrier_tck.harness.workloads.changed_totals import ChangedTotals as Workload
from barrier_tck.harness.workloads.workload_names import filled

MODES = {
    "aligned": CheckpointPlan(interval_ms=12),
    "unaligned": CheckpointPlan(interval_ms=12, mode="unaligned"),
    "chandy-lamport": CheckpointPlan(interval_ms=12, protocol="chandy_lamport"),
}


def a_plan(shape: str = "line", mode: str = "aligned", **changes: Any) -> TrialPlan:
    plan = TrialPlan(
        seed=3,
        workload=WorkloadPlan("changed-totals", batches=16, keys=9, records_per_second=300),
        job=JobPlan(shape),
        checkpoints=MODES[mode],
        network=NetworkPlan(latency_ms_max=8),
    )
    return filled(msgspec.structs.replace(plan, **changes))


def judged(plan: TrialPlan, history: History) -> Finding:
    return ChangedTotals(TrialInput(Workload(), plan), exact=True).check(TrialContext(plan, history))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", Workload.shapes)
def test_rows_that_were_emitted_ahead_of_barriers_survive_a_restore(
    shape: str, mode: str, tmp_path: Path
) -> None:
    third = After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=3)
    killed = a_plan(shape, mode, faults=(ScheduledFault(KillWorker("totals[1]"), third),))
    record = execute(killed, ReferenceSimulated(), tmp_path).record
    finding = next(entry for entry in record.findings if entry.checker == "changed-totals")
    assert (record.verdict, record.faults_fired, len(record.attempts)) == (Verdict.VALID, 1, 2), finding
    assert record.attempts[1].restored_checkpoint is not None
    assert finding.counts["emitted_before"] > 0 or shape.startswith("final")


def test_a_stop_goes_on_with_what_was_emitted_and_what_was_not(tmp_path: Path) -> None:
    stopped = a_plan("chained", savepoints=(SavepointPlan(after_checkpoints=2, stop=True),))
    record = execute(stopped, ReferenceSimulated(), tmp_path).record
    assert (record.verdict, len(record.attempts)) == (Verdict.VALID, 2), record.findings


def test_a_chained_sink_commits_in_the_subtasks_that_keep_the_totals() -> None:
    view = ReferenceSimulated().job(a_plan("chained"))
    assert view.in_role(Role.SINK) == view.in_role(Role.STATEFUL) == ("totals[0]", "totals[1]")
    with pytest.raises(ValueError, match="is a sink, so no other one can be chained behind it"):
        _with_operators(
            a_plan("chained").job, lambda then: (*then, msgspec.structs.replace(then[0], name="x"))
        )


def _with_operators(job: JobPlan, change: Callable[[Sequence[Any]], Sequence[Any]]) -> JobPlan:
    vertices = tuple(
        msgspec.structs.replace(vertex, then=tuple(change(vertex.then))) if vertex.then else vertex
        for vertex in job.vertices
    )
    return msgspec.structs.replace(job, vertices=vertices)


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrialPlan, History]:
    plan = a_plan()
    history = execute(plan, ReferenceSimulated(), tmp_path_factory.mktemp("right")).history
    assert history is not None
    assert judged(plan, history).verdict is Verdict.VALID
    return plan, history


def _without(rows: Sequence[Row], gone: Callable[[Row], bool]) -> tuple[Row, ...]:
    return tuple(row for row in rows if not gone(row))


def _latest(rows: Sequence[Row], key: str) -> Row:
    return max((row for row in rows if row["key"] == key), key=lambda row: row["count"])


def _without_the_latest(rows: Sequence[Row]) -> tuple[Row, ...]:
    return _without(rows, lambda row: row == _latest(rows, "k0"))


def _without_an_early_one(rows: Sequence[Row]) -> tuple[Row, ...]:
    return _without(rows, lambda row: row == rows[0])


def _with_one_twice(rows: Sequence[Row]) -> tuple[Row, ...]:
    return (*rows, rows[0])


def _with_another_sum(rows: Sequence[Row]) -> tuple[Row, ...]:
    return ({**rows[0], "parts": rows[0]["parts"] + 1_000}, *rows[1:])


def _with_an_unknown_key(rows: Sequence[Row]) -> tuple[Row, ...]:
    return (*rows, {**rows[0], "key": "none"})


def test_rows_are_counted_that_were_not_compared(
    right: tuple[TrialPlan, History], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert judged(*right).counts["rows_not_compared"] == 0
    monkeypatch.setattr(key_totals, "SUMS_MAX", 0)
    finding = judged(*right)
    assert finding.verdict is Verdict.VALID
    assert finding.counts["rows_not_compared"] > 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_without_the_latest, "the latest row of key k0"),
        (_without_the_latest, "the count is one too low"),
        (_without_an_early_one, "no row of the output shows it"),
        (_with_one_twice, "it is emitted twice"),
        (_with_another_sum, "which no records before a barrier give"),
        (_with_an_unknown_key, "a key that the input does not have"),
    ],
)
def test_a_wrong_output_is_found(
    right: tuple[TrialPlan, History], change: Callable[[Sequence[Row]], tuple[Row, ...]], said: str
) -> None:
    plan, history = right
    assert history.output is not None
    finding = judged(plan, msgspec.structs.replace(history, output=change(history.output)))
    assert finding.verdict is Verdict.INVALID
    assert said in f"{finding.summary} {finding.examples}"
    assert finding.clauses[0] == "SNK-1"


@pytest.mark.parametrize(
    ("part", "said", "clause"),
    [
        ("state", "in its state instead of", "ALN-2"),
        ("late rows", "before the barrier shows", "BAR-2"),
        ("rows", "no row was emitted for it before the barrier", "SNK-1"),
        ("subtasks", "has no part in it", "STA-3"),
    ],
)
def test_a_wrong_checkpoint_is_found(
    right: tuple[TrialPlan, History], part: str, said: str, clause: str
) -> None:
    plan, history = right
    view = history.checkpoints[2]
    first = next(state for state in view.state if state.entries)
    changes: dict[str, dict[str, Any]] = {
        "state": {"state": tuple(state for state in view.state if state is not first)},
        "late rows": {"reached_sinks": history.checkpoints[1].reached_sinks},
        "rows": {"reached_sinks": ()},
        "subtasks": {"subtasks": view.subtasks[1:]},
    }
    views = tuple(
        msgspec.structs.replace(entry, **changes[part]) if entry is view else entry
        for entry in history.checkpoints
    )
    context = TrialContext(plan, msgspec.structs.replace(history, checkpoints=views), subtasks=view.subtasks)
    finding = ChangedTotals(TrialInput(Workload(), plan), exact=True).check(context)
    assert finding.verdict is Verdict.INVALID
    assert said in f"{finding.summary} {finding.examples}"
    assert finding.clauses[0] == clause


@pytest.mark.parametrize(("skips", "clause"), [(("k0", "k1"), "SNP-5"), (("k0",), "ALN-2"), ((), "ALN-2")])
def test_an_increment_is_why_only_if_it_is_for_each_key_that_is_wrong(
    right: tuple[TrialPlan, History], monkeypatch: pytest.MonkeyPatch, skips: Sequence[str], clause: str
) -> None:
    def skipped(*arguments: Any, **_: Any) -> str:
        (key,) = arguments[3]
        return "as in checkpoint 1, on which the increment builds" if key in skips else ""

    monkeypatch.setattr(changed_totals, "skipped", skipped)
    plan, history = right
    place, view = next(
        (place, view)
        for place, view in enumerate(history.checkpoints)
        if {'["k0"]', '["k1"]'} <= {key for part in view.state for key in part.entries}
    )
    stale = {'["k0"]': [0, 0, 0, 0.0], '["k1"]': [0, 0, 0, 0.0]}
    state = tuple(
        msgspec.structs.replace(
            part, entries={key: stale.get(key, kept) for key, kept in part.entries.items()}
        )
        for part in view.state
    )
    views = list(history.checkpoints)
    views[place] = msgspec.structs.replace(view, state=state)
    wrong = msgspec.structs.replace(history, checkpoints=tuple(views))
    assert judged(plan, wrong).evidence[0].clause == clause


def test_what_changed_at_the_sinks_shows_the_same_as_all_of_every_checkpoint(
    right: tuple[TrialPlan, History], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, history = right
    number, view = next(
        (place, view) for place, view in enumerate(history.checkpoints) if len(view.reached_sinks or ()) > 6
    )
    rows = view.reached_sinks or ()
    damaged = [
        *((*rows[:place], *rows[place + 1 :]) for place in (0, len(rows) // 2, len(rows) - 1)),
        *((*rows[:place], rows[place - 1], *rows[place + 1 :]) for place in (0, len(rows) // 2)),
        (*rows, rows[0]),
    ]
    follow = changed_totals._Emitted.follow

    def from_the_beginning(emitted: changed_totals._Emitted, view: SnapshotView) -> None:
        emitted.__init__()  # type: ignore[misc]
        follow(emitted, view)

    for other in damaged:
        changed = msgspec.structs.replace(view, reached_sinks=other, reached_by=())
        views = (*history.checkpoints[:number], changed, *history.checkpoints[number + 1 :])
        wrong = msgspec.structs.replace(history, checkpoints=views)
        shown = judged(plan, wrong)
        assert shown.verdict is Verdict.INVALID
        with monkeypatch.context() as patch:
            patch.setattr(changed_totals._Emitted, "follow", from_the_beginning)
            assert judged(plan, wrong) == shown


@pytest.mark.parametrize(
    ("problem", "clause"),
    [
        (CheckpointProblem(3, Reason.MISSING, detail="a pending file is gone"), "SNK-1"),
        (CheckpointProblem(3, Reason.MISSING, "totals-0-a1", "it is gone"), "STA-3"),
    ],
)
def test_a_checkpoint_whose_transaction_is_gone_breaks_the_sinks_clause(
    right: tuple[TrialPlan, History], problem: CheckpointProblem, clause: str
) -> None:
    plan, history = right
    last = msgspec.structs.replace(history.checkpoints[-1], problem=problem)
    views = (*history.checkpoints[:-1], last)
    finding = judged(plan, msgspec.structs.replace(history, checkpoints=views))
    assert (finding.verdict, finding.broken) == (Verdict.INVALID, clause)


def test_at_least_once_may_count_twice_and_may_lose_nothing(right: tuple[TrialPlan, History]) -> None:
    plan, history = right
    assert history.output is not None
    again = ({**row, "count": row["count"] + 1} for row in history.output)
    for output, verdict in (
        ((*history.output, *again), Verdict.VALID),
        (_without_the_latest(history.output), Verdict.INVALID),
    ):
        changed = msgspec.structs.replace(history, output=output)
        finding = ChangedTotals(TrialInput(Workload(), plan), exact=False).check(TrialContext(plan, changed))
        assert (finding.verdict, finding.clauses[0]) == (verdict, "ALO-2")
