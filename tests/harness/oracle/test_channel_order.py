"""Order within a split: records out of order are found, order between splits is free, unclear cases are not
judged."""

from __future__ import annotations

import random
from itertools import zip_longest
from typing import Any

import msgspec

from barrier_tck.harness.oracle.applicable import checkers_for
from barrier_tck.harness.oracle.checkers.channel_order import ChannelOrder
from barrier_tck.harness.plan.trial_plan import CheckpointingMode, CheckpointPlan, WorkloadPlan
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.keyed_totals import KeyedTotals
from barrier_tck.harness.workloads.workload_names import filled
from tests.harness.oracle.oracle_histories import a_context, a_plan, input_of, right_output

PLAN = a_plan(workload=WorkloadPlan(batches=4, batch_records=2, keys=1))


def judge(output: list[dict[str, Any]] | None) -> Finding:
    return ChannelOrder(input_of(PLAN)).check(a_context(PLAN, output=output))


def renumbered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the running totals for records that take effect in this order."""
    return KeyedTotals.spec.running(rows)


def test_the_right_output_is_in_order_however_its_rows_lie_and_its_splits_interleave() -> None:
    output = right_output(PLAN)
    random.Random(4).shuffle(output)
    assert judge(output).verdict is Verdict.VALID
    splits = [split.input for split in reversed(KeyedTotals().splits(PLAN))]
    mixed = [row for rows in zip_longest(*splits) for row in rows if row is not None]
    assert mixed != [row for rows in splits for row in rows]
    assert judge(renumbered(mixed)).verdict is Verdict.VALID


def test_two_records_of_one_split_and_key_that_changed_places_are_found() -> None:
    for number, split in enumerate(KeyedTotals().splits(PLAN)):
        rows = [list(part.input) for part in KeyedTotals().splits(PLAN)]
        rows[number] = rows[number][::-1]
        finding = judge(renumbered([row for part in rows for row in part]))
        assert finding.verdict is Verdict.INVALID
        assert finding.counts["out_of_order"] > 0
        assert f"{split.name}@" in finding.examples[0]


def test_rows_that_were_judged_elsewhere_say_nothing_of_their_order() -> None:
    finding = judge(None)
    assert (finding.verdict, finding.clauses) == (Verdict.VALID, ())


def test_records_that_came_twice_have_no_order_and_are_left_to_another_checker() -> None:
    rows = right_output(PLAN)
    finding = judge([*rows, rows[0] | {"count": 99}])
    assert (finding.verdict, finding.clauses) == (Verdict.VALID, ())


def test_rows_of_no_record_are_left_to_another_checker() -> None:
    assert judge([{}, {"id": 99, "count": 1}, {"id": [1], "count": "x"}]).verdict is Verdict.VALID


def test_order_is_judged_only_where_channels_promise_it_and_nothing_comes_twice() -> None:
    def judged(mode: CheckpointingMode, *capabilities: Capability) -> bool:
        plan = msgspec.structs.replace(PLAN, checkpoints=CheckpointPlan(mode=mode))
        return "channel-order" in [checker.name for checker in checkers_for(filled(plan), capabilities)]

    assert judged("exactly_once", Capability.FIFO_CHANNELS)
    assert not judged("exactly_once")
    assert not judged("at_least_once", Capability.FIFO_CHANNELS)
