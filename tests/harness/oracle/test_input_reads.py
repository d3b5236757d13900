"""The record from which each attempt reads its splits is observed and judged (REC-1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from barrier_tck.harness.oracle.checkers.input_reads import InputReads
from barrier_tck.harness.plan.trial_plan import WorkloadPlan
from barrier_tck.harness.record.operations import InputRead
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.reference.observed_inputs import InputsDirectory, ObservedReader
from barrier_tck.reference_impl.operators.rows import RowPlane
from barrier_tck.reference_impl.operators.sources import CollectionSource
from barrier_tck.reference_impl.protocol.messages import SplitPosition
from barrier_tck.reference_impl.storage.filesystem import LocalFileSystem
from tests.harness.oracle.oracle_histories import Book, a_context, a_plan, positions_at, right_view

SPLITS = tuple((name, tuple({"id": number} for number in range(6))) for name in ("a", "b"))


def observed(directory: Path) -> tuple[ObservedReader, list[tuple[str, int]]]:
    noted: list[tuple[str, int]] = []
    source = CollectionSource(SPLITS, batch_records=2)
    reader = source.open(0, 1, LocalFileSystem(directory), RowPlane())
    return ObservedReader(reader, lambda split, offset: noted.append((split, offset))), noted


def test_the_first_record_of_each_split_is_noted_once(tmp_path: Path) -> None:
    reader, noted = observed(tmp_path)
    while reader.poll() is not None:
        pass
    assert noted == [("a", 0), ("b", 0)]


def test_after_a_restore_it_is_the_restored_one_and_a_split_that_is_over_is_not_read(tmp_path: Path) -> None:
    reader, noted = observed(tmp_path)
    reader.restore((SplitPosition("a", 6), SplitPosition("b", 4)))
    while reader.poll() is not None:
        pass
    assert noted == [("b", 4)]
    assert reader.positions() == (SplitPosition("a", 6), SplitPosition("b", 6))


def test_what_an_executor_saw_reaches_the_driver_by_a_file(tmp_path: Path) -> None:
    inputs = InputsDirectory(str(tmp_path))
    late, early = InputRead("source[0]", 2, "part/0", 4), InputRead("source[0]", 1, "part/0", 0)
    for read in (late, early):
        inputs(read)
    assert inputs.take_all() == (early, late)
    InputsDirectory(str(tmp_path / "nowhere"))(late)  # only the evidence is lost, not the reading


# --- the checker --------------------------------------------------------------------------------------------


def judged(*reads: InputRead, restored: int | None = 1) -> Finding:
    plan = a_plan(workload=WorkloadPlan(batches=4, batch_records=2, keys=3, start_offset=1))
    book = Book().attempt(1).checkpoint(1).attempt_failed(1).attempt(2, restored)
    for read in reads:
        book = book.tell(read, "source")
    view = right_view(plan, 1, positions_at(plan, 0.5))
    return InputReads().check(a_context(plan, book, views=(view,)))


AT = positions_at(a_plan(workload=WorkloadPlan(batches=4, batch_records=2, keys=3, start_offset=1)), 0.5)
SPLIT, POSITION = next(iter(AT.items()))


def test_a_split_that_goes_on_where_its_checkpoint_says_is_right() -> None:
    found = judged(InputRead("source[0]", 1, SPLIT, 1), InputRead("source[0]", 2, SPLIT, POSITION))
    assert found.verdict is Verdict.VALID and found.clauses == ("REC-1", "SRC-1")
    assert found.counts == {"splits_read": 2, "resumed": 1, "violations": 0}


@pytest.mark.parametrize(("offset", "what"), [(1, "read again"), (POSITION + 1, "left out")])
def test_a_split_that_is_read_from_a_wrong_position_is_reported(offset: int, what: str) -> None:
    found = judged(InputRead("source[0]", 2, SPLIT, offset))
    assert found.verdict is Verdict.INVALID and what in found.summary and SPLIT in found.summary


def test_without_a_checkpoint_reading_begins_with_the_input() -> None:
    assert judged(InputRead("source[0]", 2, SPLIT, 1), restored=None).verdict is Verdict.VALID
    assert judged(InputRead("source[0]", 2, SPLIT, 0), restored=None).verdict is Verdict.INVALID
    assert judged(InputRead("source[0]", 2, SPLIT, 1), restored=None).clauses == ()
