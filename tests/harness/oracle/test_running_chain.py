"""Running totals of one key: a chain of rows that fit one another is found, or the place where it ends is named."""

from __future__ import annotations

import pytest

from barrier_tck.harness.oracle.evidence import running_chain
from barrier_tck.harness.oracle.evidence.recoveries import Cut
from barrier_tck.harness.oracle.evidence.running_chain import (
    ChainTooAmbiguous,
    OutputRow,
    chain_of,
    output_row,
)
from barrier_tck.harness.oracle.evidence.trial_input import InputRecord

ZERO = (0, 0)


def row(offset: int, value: int, total: tuple[int, int]) -> OutputRow:
    record = InputRecord("split", offset, ("k",), [1, value])
    return output_row(offset, record, total, 0)


def cut(position: int) -> Cut:
    return Cut(1, {"split": position}, {}, {})


def test_rows_are_ordered_by_what_they_add() -> None:
    rows = [row(1, 4, (2, 9)), row(0, 5, (1, 5)), row(2, 1, (3, 10))]
    chain, problem = chain_of(rows, ZERO, (3, 10), None, None, 0)
    assert [found.identifier for found in chain] == [0, 1, 2] and not problem


def test_a_wrong_turn_is_taken_back() -> None:
    """Ids 0 and 7 both lead from zero to (1, 5), but there is a row for each record only without 7."""
    rows = [row(7, 5, (1, 5)), row(0, 5, (1, 5)), row(1, 4, (2, 9))]
    chain, problem = chain_of(rows, ZERO, (2, 9), None, cut(2), 0)
    assert [found.identifier for found in chain] == [0, 1] and not problem


def test_no_record_is_counted_twice_in_one_chain() -> None:
    rows = [row(0, 5, (1, 5)), row(0, 5, (2, 10))]
    assert chain_of(rows, ZERO, (2, 10), None, None, 0)[1].startswith("no row goes on from [1, 5]")


def test_records_before_the_restored_checkpoint_do_not_belong_to_the_chain() -> None:
    rows = [row(0, 5, (1, 5)), row(1, 4, (2, 9))]
    assert chain_of(rows, ZERO, (2, 9), cut(1), None, 0)[1]


def test_a_chain_that_leaves_out_a_record_is_refused() -> None:
    rows = [row(9, 5, (1, 5)), row(0, 5, (2, 11))]
    assert "do not belong to the records" in chain_of(rows, ZERO, (1, 5), None, cut(5), 0)[1]


def test_totals_that_go_back_are_refused() -> None:
    assert "go back" in chain_of([], (2, 9), (1, 5), None, None, 0)[1]


def test_a_chain_that_is_not_found_in_time_is_called_ambiguous(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_chain, "STEPS_MAX", 3)
    rows = [row(offset, 0, (offset + 1, 0)) for offset in range(6)]
    with pytest.raises(ChainTooAmbiguous):
        chain_of(rows, ZERO, (6, 0), None, None, 0)
