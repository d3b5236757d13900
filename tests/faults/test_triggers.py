"""Table tests of triggers: phrases and counting."""

from __future__ import annotations

import pytest

from barrier_tck.faults.triggers import OccurrenceCounter, describe, matches, ordinal
from barrier_tck.faults.vocabulary import After, At, ProtocolPoint

TAKEN = ProtocolPoint.SNAPSHOT_TAKEN


@pytest.mark.parametrize(
    ("number", "text"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (13, "13th"), (21, "21st")],
)
def test_ordinals_end_as_in_english(number: int, text: str) -> None:
    assert ordinal(number) == text


def test_a_trigger_reads_as_a_phrase() -> None:
    assert describe(At(120)) == "at 120 ms"
    assert describe(At(7.25)) == "at 7.25 ms"
    assert describe(After(TAKEN, "totals[0]", 2)) == "after snapshot_taken of totals[0], 2nd time"
    assert describe(After(ProtocolPoint.ALL_ACKNOWLEDGED)) == "after all_acknowledged, 1st time"


def test_a_trigger_without_subtask_matches_any_of_them() -> None:
    assert matches(After(TAKEN), TAKEN, "a[0]") and matches(After(TAKEN), TAKEN, None)
    assert not matches(After(TAKEN, "a[0]"), TAKEN, "a[1]")
    assert not matches(After(TAKEN), ProtocolPoint.RESTORED, "a[0]")


def test_only_matching_occurrences_count_and_the_nth_and_later_are_due() -> None:
    counter = OccurrenceCounter(After(TAKEN, "a[0]", nth=2))
    passed = [counter.passed(TAKEN, name) for name in ("a[0]", "a[1]", "a[0]", "a[0]")]
    assert passed == [False, False, True, True]
    assert counter.count == 3
