"""What ``changes`` keeps: sums alone, or twice, by aggregates that fold, of which the judge sees either."""

from __future__ import annotations

from typing import Any

import pytest

from barrier_tck.harness.reference.kinds.changes import KIND, totals_of
from barrier_tck.harness.workloads.changed_totals import ChangedTotals
from barrier_tck.reference_impl.operators.functions import Aggregate, all_additive, merging_aggregates
from barrier_tck.reference_impl.operators.rows import RowPlane

ROWS = RowPlane()
RECORDS = [
    {"id": 7, "key": "k", "value": 3, "mark": True, "part": 0.25},
    {"id": 8, "key": "k", "value": None, "mark": False, "part": 1.0},
    {"id": 12, "key": "k", "value": -5, "mark": True, "part": 0.5},
]


def kept(shape: str) -> dict[str, Aggregate]:
    return totals_of(ChangedTotals().job(shape, {}))


def entry(totals: dict[str, Aggregate], records: list[dict[str, Any]]) -> bytes:
    table = ROWS.accumulators(("key",), totals, (), 8)
    table.update(records, emit_each=False)
    return bytes(table.take_dirty()[2][0])


@pytest.mark.parametrize("shape", ChangedTotals.shapes)
def test_chained_shapes_keep_every_total_twice(shape: str) -> None:
    assert all_additive(kept(shape)) == ("chained" not in shape)


@pytest.mark.parametrize("shape", ["line", "chained"])
@pytest.mark.parametrize("first", [6, 7], ids=["of sums", "of aggregates that fold"])
@pytest.mark.parametrize("last", [12, 13])
def test_the_judge_sees_the_same_totals_whichever_are_read(shape: str, first: int, last: int) -> None:
    records = [{**RECORDS[0], "id": first}, RECORDS[1], {**RECORDS[2], "id": last}]
    shown = KIND.states[0].read(entry(kept(shape), records))
    assert shown[:4] == [3, -2, 2, 1.75]
    assert shown[5:] == ([] if shape == "line" else ["-2", 2, 1.75, 3, first, last])


def test_totals_that_were_combined_before_are_the_same() -> None:
    totals = kept("final-chained")
    partial = ROWS.combine(RECORDS, ("key",), totals, 8)
    assert partial is not None
    assert KIND.states[0].read(entry(merging_aggregates(totals), partial))[:4] == [3, -2, 2, 1.75]


def test_what_an_aggregate_that_folds_has_lost_is_seen() -> None:
    """The sums are whole; a key whose first id is odd shows the others."""
    totals = kept("chained")
    table = ROWS.accumulators(("key",), totals, (), 8)
    table.update(RECORDS, emit_each=False)
    (whole,) = table._entries.values()
    position = list(totals).index("exact")
    whole.values[position] = totals["exact"].create()  # type: ignore[union-attr]
    assert KIND.states[0].read(bytes(table.take_dirty()[2][0]))[:4] == [3, 0, 2, 1.75]
