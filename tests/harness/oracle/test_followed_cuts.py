"""Checkpoints are judged by what changed since the one before, with the same findings; grain: simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.strategies import draw_plans
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.checkers.dataflow import Dataflow
from barrier_tck.harness.oracle.evidence.followed_cuts import FollowedCuts, differing
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import execute
from barrier_tck.harness.workloads.record_forms import LineageForm

Judged = list[tuple[Dataflow, TrialContext, Finding]]


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> Judged:
    """Return what the checker ``dataflow`` was given and has found, to judge it again."""
    found: Judged = []
    check = Dataflow.check

    def noted(checker: Dataflow, context: TrialContext) -> Finding:
        finding = check(checker, context)
        found.append((checker, context, finding))
        return finding

    monkeypatch.setattr(Dataflow, "check", noted)
    return found


def run(plan: TrialPlan, directory: Path) -> None:
    directory.mkdir()
    execute(plan, ReferenceSimulated(), directory)


def from_the_beginning(checker: Dataflow, context: TrialContext, monkeypatch: pytest.MonkeyPatch) -> Finding:
    with monkeypatch.context() as patch:
        patch.setattr(FollowedCuts, "agrees", lambda *_: None)
        return checker.check(context)


def test_what_is_gone_and_what_has_come_make_the_one_list_the_other() -> None:
    """For all pairs of short lists, also of one length and for the very same list."""
    lists = [[*entries] for length in range(4) for entries in product("ab", repeat=length)]
    for before, now in product(lists, repeat=2):
        gone, come = differing(before, now)
        assert Counter(before) - Counter(gone) + Counter(come) == Counter(now), (before, now)
        assert before != now or not (gone or come)


@pytest.mark.long
@pytest.mark.parametrize(
    ("profile", "number"),
    [
        ("graphs", 3),
        ("rescale", 3),
        pytest.param("rescale", 40, marks=pytest.mark.nightly),
        pytest.param("graphs", 40, marks=pytest.mark.nightly),
        pytest.param("loops", 20, marks=pytest.mark.nightly),
        pytest.param("chandy-lamport", 20, marks=pytest.mark.nightly),
    ],
)
def test_what_changed_shows_the_same_as_all_of_every_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, judged: Judged, profile: str, number: int
) -> None:
    for place, plan in enumerate(draw_plans(17, number, profile_named(profile))):
        run(plan, tmp_path / str(place))
    for checker, context, finding in list(judged):
        assert from_the_beginning(checker, context, monkeypatch) == finding
        wrong = without_an_entry(context)
        if wrong is not None:
            shown = checker.check(wrong)
            assert shown.verdict is Verdict.INVALID
            assert from_the_beginning(checker, wrong, monkeypatch) == shown
        for damaged in with_other_rows(context):
            assert from_the_beginning(checker, damaged, monkeypatch) == checker.check(damaged)


def with_other_rows(context: TrialContext) -> Iterator[TrialContext]:
    """Yield histories in which a checkpoint shows other rows at the sinks, or in flight, or other positions."""
    history = context.history
    for number, view in enumerate(history.checkpoints):
        rows = view.reached_sinks or ()
        if len(rows) < 4 or view.problem is not None:
            continue
        for place in (0, len(rows) // 2, len(rows) - 1):
            gone: dict[str, Any] = {"reached_sinks": (*rows[:place], *rows[place + 1 :])}
            if view.reached_by:
                gone["reached_by"] = (*view.reached_by[:place], *view.reached_by[place + 1 :])
            yield _with_view(context, number, gone)
            other = rows[place - 1]
            yield _with_view(context, number, {"reached_sinks": (*rows[:place], other, *rows[place + 1 :])})
        split, position = next((name, at) for name, at in view.positions.items() if at)
        yield _with_view(context, number, {"positions": {**view.positions, split: position - 1}})
        for place, channel in enumerate(view.in_flight[:1]):
            fewer = msgspec.structs.replace(channel, rows=channel.rows[1:])
            channels = (*view.in_flight[:place], fewer, *view.in_flight[place + 1 :])
            yield _with_view(context, number, {"in_flight": channels})
        return


def _with_view(context: TrialContext, number: int, changes: dict[str, Any]) -> TrialContext:
    views = list(context.history.checkpoints)
    views[number] = msgspec.structs.replace(views[number], **changes)
    return replace(context, history=msgspec.structs.replace(context.history, checkpoints=tuple(views)))


def without_an_entry(context: TrialContext) -> TrialContext | None:
    """Return a history in which the first checkpoint with state lacks the last record of one key."""
    history = context.history
    for number, view in enumerate(history.checkpoints):
        for place, part in enumerate(view.state):
            for key, kept in part.entries.items():
                if len(kept) > 1 and view.problem is None:
                    less = msgspec.structs.replace(part, entries={**part.entries, key: kept[:-1]})
                    state = (*view.state[:place], less, *view.state[place + 1 :])
                    wrong = msgspec.structs.replace(view, state=state)
                    views = (*history.checkpoints[:number], wrong, *history.checkpoints[number + 1 :])
                    changed = msgspec.structs.replace(history, checkpoints=views)
                    return replace(context, history=changed)
    return None


@pytest.mark.parametrize("mode", ["exactly_once", "unaligned"])
def test_twice_the_records_and_checkpoints_cost_about_twice_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    """What is counted is how often a record is read; records times checkpoints would be four times as much."""
    counted = Counter[int]()
    read = LineageForm.read
    batches = 0

    def counting(form: LineageForm, row: Any) -> Any:
        counted[batches] += 1
        return read(form, row)

    monkeypatch.setattr(LineageForm, "read", counting)
    checkpoints = Counter[int]()
    for batches in (30, 60):
        plan = TrialPlan(
            workload=WorkloadPlan("lineage", batches=batches, batch_records=2, records_per_second=300),
            job=JobPlan(shape="line"),
            checkpoints=CheckpointPlan(mode=mode, interval_ms=12),
        )
        directory = tmp_path / str(batches)
        directory.mkdir()
        record = execute(plan, ReferenceSimulated(), directory).record
        assert record.verdict is Verdict.VALID
        checkpoints[batches] = record.checkpoints_completed
    assert checkpoints[60] > 1.7 * checkpoints[30]
    assert counted[60] < 2.6 * counted[30], (counted, checkpoints)
