"""The snapshot formula: right snapshots at any positions are valid, and each planted error is flagged."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.harness.oracle.checkers.snapshot_formula import SnapshotFormula
from barrier_tck.harness.plan.trial_plan import TrialPlan, WorkloadPlan
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.history import CheckpointProblem, SnapshotView, StateView
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.workloads.keyed_totals import KeyedTotals
from tests.harness.oracle.oracle_histories import (
    SUBTASKS,
    Book,
    a_context,
    a_plan,
    input_of,
    positions_at,
    right_view,
)

PLAN = a_plan()
HALF = positions_at(PLAN, 0.5)


def judge(*views: SnapshotView, plan: TrialPlan = PLAN, book: Book | None = None) -> Finding:
    return SnapshotFormula(input_of(plan)).check(a_context(plan, book, views=views))


def with_state(change: Any) -> SnapshotView:
    view = right_view(PLAN, 1, HALF)
    change(view.state[0].entries)
    return view


def test_right_snapshots_are_valid() -> None:
    views = [right_view(PLAN, n, positions_at(PLAN, n / 4)) for n in range(5)]
    finding = judge(*views)
    assert finding.verdict is Verdict.VALID
    assert finding.counts["checkpoints"] == 5
    assert finding.summary == "all 5 checkpoints hold what the records before their barriers give"
    assert judge(views[1]).summary == "the only checkpoint holds what the records before its barriers give"


def test_a_snapshot_before_the_first_record_has_no_keys() -> None:
    empty = right_view(PLAN, 1, positions_at(PLAN, 0))
    assert empty.state_by_operator() == {}
    assert judge(empty).verdict is Verdict.VALID
    assert judge(msgspec.structs.replace(empty, state=())).verdict is Verdict.VALID


def one_record_too_many(state: dict[str, list[Any]]) -> None:
    state['["k0"]'][0] += 1


def one_key_missing(state: dict[str, list[Any]]) -> None:
    del state['["k0"]']


def one_key_too_many(state: dict[str, list[Any]]) -> None:
    state['["k9"]'] = [1, 1]


def accumulators_swapped(state: dict[str, list[Any]]) -> None:
    state['["k0"]'].reverse()


def an_accumulator_missing(state: dict[str, list[Any]]) -> None:
    state['["k0"]'].pop()


@pytest.mark.parametrize(
    "change",
    [one_record_too_many, one_key_missing, one_key_too_many, accumulators_swapped, an_accumulator_missing],
)
def test_a_state_that_is_not_the_fold_is_invalid(change: Any) -> None:
    finding = judge(with_state(change))
    assert finding.verdict is Verdict.INVALID
    assert finding.examples[0].startswith("checkpoint 1: key")


@pytest.mark.parametrize(
    ("more", "said"),
    [(1, "the count is one too high"), (-1, "the count is one too low"), (2, None), (-2, None), (0, None)],
)
def test_a_count_that_is_wrong_by_one_is_told_as_such(more: int, said: str | None) -> None:
    def change(state: dict[str, list[Any]]) -> None:
        state['["k0"]'][0] += more
        state['["k0"]'][1] += 10

    finding = judge(with_state(change))
    assert finding.verdict is Verdict.INVALID and finding.first is not None
    for text in (finding.examples[0], finding.first.sentence):
        assert text.endswith(said) if said is not None else "one too" not in text


@pytest.mark.parametrize(("more", "clause"), [(0, "SNP-1"), (1, "ALN-2")])
def test_what_is_too_much_was_processed_behind_the_barrier_if_no_row_of_it_was_sent_before(
    more: int, clause: str
) -> None:
    rows = sum(HALF.values()) + more
    book = Book().attempt(1).triggered(1).tell(ops.Acknowledged(1, 1, "sink[0]", prepared=rows)).completed(1)
    assert judge(with_state(one_record_too_many), book=book).broken == clause
    assert judge(with_state(one_key_missing), book=book).broken == "ALN-2"


@pytest.mark.parametrize("delta", [-1, 1])
def test_a_position_off_by_one_is_invalid(delta: int) -> None:
    split = next(iter(HALF))
    view = msgspec.structs.replace(right_view(PLAN, 1, HALF), positions=HALF | {split: HALF[split] + delta})
    assert judge(view).verdict is Verdict.INVALID


def test_a_missing_subtask_is_invalid() -> None:
    finding = judge(right_view(PLAN, 1, HALF, subtasks=SUBTASKS[:-1]))
    assert finding.verdict is Verdict.INVALID
    assert "sink[0]" in finding.examples[0]


def test_a_missing_split_is_invalid() -> None:
    positions = dict(HALF)
    positions.popitem()
    finding = judge(right_view(PLAN, 1, HALF, positions=positions))
    assert finding.verdict is Verdict.INVALID
    assert "has no position" in finding.examples[0]


@pytest.mark.parametrize("positions", [{"split-9-0": 1}, {"split-0-0": 1_000}])
def test_a_position_outside_the_input_is_invalid(positions: dict[str, int]) -> None:
    assert judge(right_view(PLAN, 1, HALF, positions=HALF | positions)).verdict is Verdict.INVALID


def test_a_position_before_the_start_of_a_split_is_invalid_unless_it_is_zero() -> None:
    plan = a_plan(workload=WorkloadPlan(batches=2, batch_records=2, start_offset=3))
    begin = positions_at(plan, 0)
    assert judge(right_view(plan, 1, begin), plan=plan).verdict is Verdict.VALID
    zero = right_view(plan, 1, begin, positions=dict.fromkeys(begin, 0))
    assert judge(zero, plan=plan).verdict is Verdict.VALID
    one = right_view(plan, 1, begin, positions=dict.fromkeys(begin, 1))
    assert judge(one, plan=plan).verdict is Verdict.INVALID


def test_a_checkpoint_that_cannot_be_opened_is_invalid() -> None:
    finding = judge(right_view(PLAN, 1, HALF, problem=CheckpointProblem(1, Reason.MISSING, "file-7")))
    assert finding.verdict is Verdict.INVALID
    assert finding.examples[0] == "checkpoint 1: it could not be opened: file-7: missing"


def test_one_wrong_checkpoint_among_right_ones_is_found() -> None:
    wrong = msgspec.structs.replace(with_state(one_record_too_many), checkpoint=2)
    finding = judge(right_view(PLAN, 1, HALF), wrong, right_view(PLAN, 3, HALF))
    assert finding.verdict is Verdict.INVALID
    assert finding.counts["wrong"] == 1
    assert finding.examples[0].startswith("checkpoint 2")


def test_a_completed_checkpoint_that_nobody_opened_is_unknown() -> None:
    book = Book().attempt(1).checkpoint(1).checkpoint(2)
    finding = judge(right_view(PLAN, 1, HALF), book=book)
    assert finding.verdict is Verdict.UNKNOWN
    assert finding.counts["not_opened"] == 1


def test_no_checkpoint_at_all_leaves_nothing_to_judge() -> None:
    assert judge(book=Book().attempt(1)).verdict is Verdict.VALID


def test_two_stateful_operators_cannot_be_told_apart_and_are_invalid() -> None:
    view = right_view(PLAN, 1, HALF)
    other = StateView("other", "totals[0]", "totals", {'["k0"]': [1, 1]})
    finding = judge(msgspec.structs.replace(view, state=(*view.state, other)))
    assert finding.verdict is Verdict.INVALID and "totals-1, other" in finding.examples[0]


def test_a_key_in_the_parts_of_two_subtasks_is_invalid() -> None:
    view = right_view(PLAN, 1, HALF)
    again = msgspec.structs.replace(view.state[0], subtask="totals[1]")
    finding = judge(msgspec.structs.replace(view, state=(*view.state, again)))
    assert (
        finding.verdict is Verdict.INVALID
        and "in the parts of totals[0] and totals[1]" in finding.examples[0]
    )
    halves = [
        msgspec.structs.replace(
            view.state[0],
            subtask=subtask,
            entries={key: view.state[0].entries[key] for key in list(view.state[0].entries)[half]},
        )
        for subtask, half in (("totals[0]", slice(1)), ("totals[1]", slice(1, None)))
    ]
    assert judge(msgspec.structs.replace(view, state=tuple(halves))).verdict is Verdict.VALID


def test_splits_may_be_shown_by_file_name() -> None:
    positions = {f"input/{name}.parquet": position for name, position in HALF.items()}
    assert judge(right_view(PLAN, 1, HALF, positions=positions)).verdict is Verdict.VALID


def test_positions_that_go_back_within_an_attempt_are_invalid() -> None:
    back = right_view(PLAN, 2, positions_at(PLAN, 0.25))
    finding = judge(right_view(PLAN, 1, HALF), back)
    assert finding.verdict is Verdict.INVALID
    assert "one barrier overtook the other" in finding.examples[0]
    assert judge(right_view(PLAN, 1, HALF), msgspec.structs.replace(back, attempt=2)).verdict is Verdict.VALID


@given(data=st.data())
def test_snapshots_at_any_positions_in_any_order_are_valid(data: st.DataObject) -> None:
    workload = WorkloadPlan(batches=3, batch_records=2, keys=2, start_offset=data.draw(st.integers(0, 2)))
    plan = a_plan(seed=data.draw(st.integers(0, 50)), workload=workload)
    splits = KeyedTotals().splits(plan)
    views = [
        right_view(
            plan,
            number,
            {s.name: data.draw(st.integers(s.start_offset, len(s.rows)), label=s.name) for s in splits},
            attempt=number,  # positions never go back within one attempt
        )
        for number in range(1, data.draw(st.integers(1, 4)) + 1)
    ]
    assert judge(*views, plan=plan).verdict is Verdict.VALID
