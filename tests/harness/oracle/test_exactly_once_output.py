"""Exactly-once output: scripted wrong outputs are flagged by kind, and every right interleaving is valid."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.harness.oracle.checkers.exactly_once_output import ExactlyOnceOutput
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import TrialPlan, WorkloadPlan
from barrier_tck.harness.record.history import End, OutputComparison, OutputCounts
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.workloads.keyed_totals import KeyedTotals
from tests.harness.oracle.oracle_histories import (
    KILL,
    Book,
    a_context,
    a_plan,
    input_of,
    restarts,
    right_output,
)

PLAN = a_plan()
Output = list[dict[str, Any]]


def judge(output: Output | None, plan: TrialPlan = PLAN, **changes: Any) -> Finding:
    return ExactlyOnceOutput(input_of(plan)).check(a_context(plan, output=output, **changes))


def last_row_of_a_key(output: Output, key: str) -> dict[str, Any]:
    return max((row for row in output if row["key"] == key), key=lambda row: int(row["count"]))


def lose_one(output: Output) -> None:
    del output[3]


def duplicate_one(output: Output) -> None:
    output.append(dict(output[3]))


def invent_one(output: Output) -> None:
    output.append({"id": 999, "key": "k0", "count": 1, "sum": 4})


def drop_a_column(output: Output) -> None:
    del output[3]["sum"]


def change_a_key(output: Output) -> None:
    output[3]["key"] = next(key for key in ("k0", "k1") if key != output[3]["key"])


def count_twice(output: Output) -> None:
    """Count one record twice: from there on, the rows of its key are one too high."""
    row = output[3]
    for other in output:
        if other["key"] == row["key"] and other["count"] >= row["count"]:
            other["count"] += 1


def repeat_a_count(output: Output) -> None:
    row = last_row_of_a_key(output, output[0]["key"])
    row["count"] -= 1


def add_a_value_twice(output: Output) -> None:
    row = last_row_of_a_key(output, "k1")
    row["sum"] += 7


def show_null_for_a_sum(output: Output) -> None:
    row = last_row_of_a_key(output, "k1")
    assert row["sum"] != 0
    row["sum"] = None


def write_a_sum_as_text(output: Output) -> None:
    output[2]["sum"] = str(output[2]["sum"])


def write_an_id_as_a_list(output: Output) -> None:
    output[2]["id"] = [output[2]["id"]]


def write_a_key_as_a_list(output: Output) -> None:
    output[2]["key"] = [output[2]["key"]]


def swap_sums(output: Output) -> None:
    first, second = [row for row in output if row["key"] == "k0"][:2]
    first["sum"], second["sum"] = second["sum"], first["sum"] + 1


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (lose_one, "lost"),
        (duplicate_one, "duplicated"),
        (invent_one, "unexpected"),
        (drop_a_column, "unexpected"),
        (change_a_key, "wrong_key"),
        (count_twice, "wrong_count"),
        (repeat_a_count, "wrong_count"),
        (add_a_value_twice, "wrong_sum"),
        (show_null_for_a_sum, "wrong_sum"),
        (swap_sums, "wrong_sum"),
        (write_a_sum_as_text, "unexpected"),
        (write_an_id_as_a_list, "unexpected"),
        (write_a_key_as_a_list, "unexpected"),
    ],
)
def test_a_damaged_output_is_invalid_and_the_damage_named(
    damage: Callable[[Output], None], kind: str
) -> None:
    output = right_output(PLAN)
    damage(output)
    finding = judge(output)
    assert finding.verdict is Verdict.INVALID
    assert finding.counts[kind] >= 1
    assert any(example.startswith(kind.replace("_", " ")) for example in finding.examples)


@pytest.mark.parametrize(
    ("damage", "is_low"), [(repeat_a_count, True), (count_twice, False), (duplicate_one, False)]
)
def test_a_count_that_is_one_too_low_from_a_row_on_is_told_as_such(
    damage: Callable[[Output], None], is_low: bool
) -> None:
    output = right_output(PLAN)
    damage(output)
    finding = judge(output)
    assert finding.verdict is Verdict.INVALID and finding.first is not None
    assert finding.first.sentence.endswith("from there on the count is one too low") is is_low
    assert finding.first.place == ("sink, on totals->sink" if damage is duplicate_one else "totals")


def test_the_right_output_is_valid_in_any_order() -> None:
    output = right_output(PLAN)
    random.Random(3).shuffle(output)
    assert judge(output).verdict is Verdict.VALID


def test_null_may_be_shown_for_a_sum_of_nothing() -> None:
    plans = [a_plan(seed=seed) for seed in range(20)]
    plan = next(plan for plan in plans if any(row["sum"] == 0 for row in right_output(plan)))
    output = [row | {"sum": row["sum"] or None} for row in right_output(plan)]
    assert judge(output, plan).verdict is Verdict.VALID


def test_an_example_names_id_split_and_key() -> None:
    output = right_output(PLAN)
    row = output.pop(3)
    [example] = judge(output).examples
    assert f"id {row['id']}" in example
    assert "split-0-0@3" in example
    assert row["key"] in example


def test_many_losses_are_counted_in_full_and_shown_in_part() -> None:
    finding = judge([])
    assert finding.counts["lost"] == 16
    assert len(finding.examples) == 10
    last = KeyedTotals().splits(PLAN)[-1]
    assert f"{last.name}@{len(last.rows) - 1}" in finding.examples[-1], "the last one is among those shown"


def test_records_before_the_start_offset_are_unexpected() -> None:
    plan = a_plan(workload=WorkloadPlan(batches=2, batch_records=2, start_offset=2))
    rows = [row for split in KeyedTotals().splits(plan) for row in split.rows]
    finding = judge(KeyedTotals.spec.running(rows), plan)
    assert finding.verdict is Verdict.INVALID
    assert finding.counts["unexpected"] == 2 * len(KeyedTotals().splits(plan))


def test_an_empty_input_needs_an_empty_output() -> None:
    plan = a_plan(workload=WorkloadPlan(batches=0))
    assert judge([], plan).verdict is Verdict.VALID
    assert judge([{"id": 0, "key": "k0", "count": 1, "sum": 1}], plan).verdict is Verdict.INVALID


def test_an_unread_output_is_unknown() -> None:
    assert judge(None).verdict is Verdict.UNKNOWN


def test_losses_of_a_stuck_job_are_unknown_but_duplicates_are_invalid() -> None:
    output = right_output(PLAN)[:5]
    stuck = judge(output, end=End.STUCK)
    assert stuck.verdict is Verdict.UNKNOWN
    assert stuck.summary.startswith("the job got stuck; ")
    assert judge([*output, output[0]], end=End.STUCK).verdict is Verdict.INVALID


def test_losses_of_a_job_that_declined_as_planned_are_no_violation() -> None:
    plan = a_plan(restart=restarts("none"), faults=(KILL,))
    book = Book().attempt(1).fault().attempt_failed(1)
    assert judge(right_output(plan)[:5], plan, book=book, end=End.FAILED).verdict is Verdict.VALID


def test_losses_of_a_job_that_gave_up_without_reason_are_unknown() -> None:
    book = Book().attempt(1).attempt_failed(1)
    assert judge(right_output(PLAN)[:5], book=book, end=End.FAILED).verdict is Verdict.UNKNOWN


GOOD_QUERY = OutputCounts(16, 16, 0, 0, 0, 0, 0, 0)


def test_a_clean_batch_query_is_valid() -> None:
    assert judge(None, query=OutputComparison(GOOD_QUERY)).verdict is Verdict.VALID


@pytest.mark.parametrize(
    "kind", ["lost", "duplicated", "unexpected", "wrong_key", "wrong_count", "wrong_sum"]
)
def test_each_count_of_a_batch_query_can_fail_the_trial(kind: str) -> None:
    finding = judge(
        None, query=OutputComparison(msgspec.structs.replace(GOOD_QUERY, **{kind: 1}), ("that row",))
    )
    assert finding.verdict is Verdict.INVALID
    assert finding.examples == ("that row",)


def test_a_batch_query_that_could_not_compare_is_invalid_and_no_result_is_unknown() -> None:
    assert judge(None, query=OutputComparison(None, problem="no column sum")).verdict is Verdict.INVALID
    assert judge(None, query=OutputComparison(None)).verdict is Verdict.UNKNOWN


@st.composite
def plans(draw: st.DrawFn) -> TrialPlan:
    workload = WorkloadPlan(
        batches=draw(st.integers(0, 4)),
        batch_records=draw(st.integers(1, 3)),
        keys=draw(st.integers(1, 3)),
        start_offset=draw(st.integers(0, 2)),
    )
    job = JobPlan(widths={"source": draw(st.integers(1, 3))})
    return TrialPlan(seed=draw(st.integers(0, 1000)), workload=workload, job=job)


@given(plan=plans(), order=st.randoms(use_true_random=False))
def test_every_interleaving_of_the_splits_is_valid(plan: TrialPlan, order: random.Random) -> None:
    queues = [list(split.input) for split in KeyedTotals().splits(plan)]
    merged = []
    while any(queues):
        merged.append(order.choice([queue for queue in queues if queue]).pop(0))
    output = KeyedTotals.spec.running(merged)
    order.shuffle(output)
    assert judge(output, plan).verdict is Verdict.VALID


@given(plan=plans(), position=st.integers(min_value=0), wrong=st.sampled_from(["id", "key", "count", "sum"]))
def test_any_single_change_of_a_row_is_invalid(plan: TrialPlan, position: int, wrong: str) -> None:
    output = right_output(plan)
    if not output:
        return
    row = output[position % len(output)]
    row[wrong] = "k99" if wrong == "key" else row[wrong] + 1
    assert judge(output, plan).verdict is Verdict.INVALID


def again_from_the_start(output: Output) -> None:
    """Read the first three rows' records again, with the state that had them: all later counts of their keys grow."""
    for row in output[:3]:
        output.append({**row, "count": last_row_of_a_key(output, row["key"])["count"] + 1})


def start_with_no_state(output: Output) -> None:
    """Count the second half from zero, as if the state had been lost and the positions had not."""
    half = len(output) // 2
    counted: dict[str, int] = {}
    for row in output[half:]:
        row["count"] = counted[row["key"]] = counted.get(row["key"], 0) + 1


def lose_the_last_of_a_key(output: Output) -> None:
    """Lose the row with a key's highest count: the sink lost it, and the count that is left is too low for that."""
    output.remove(last_row_of_a_key(output, "k1"))


def write_the_last_again(output: Output) -> None:
    """Write rows twice, the second time as another attempt made them, in another order."""
    output += [dict(row) for row in output[-4:]]


@pytest.mark.parametrize(
    ("damage", "clause"),
    [
        (again_from_the_start, "REC-1"),
        (start_with_no_state, "REC-1"),
        (write_the_last_again, "SNK-1"),
        (lose_the_last_of_a_key, "SNK-1"),
        (duplicate_one, "SNK-1"),
        (lose_one, "SNK-1"),
    ],
)
def test_where_no_checkpoint_can_be_opened_a_count_tells_a_wrong_restore_from_a_wrong_sink(
    damage: Callable[[Output], None], clause: str
) -> None:
    output = right_output(PLAN)
    damage(output)
    finding = judge(output, book=Book().attempt(1).attempt(2))
    assert finding.verdict is Verdict.INVALID
    assert finding.clauses[0] == clause, finding
    assert judge(output).clauses[0] == "SNK-1", "nothing was restored"
