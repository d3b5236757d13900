"""What is new at the sinks of a checkpoint, and what is there no more, makes up what it shows; grain: values."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.harness.oracle.evidence.sink_rows import SinkRows
from barrier_tck.harness.record.history import SnapshotView

WROTE = st.lists(st.tuples(st.sampled_from(("out[0]", "out[1]")), st.integers(0, 3)), max_size=6)
"""Rows of a checkpoint, each with who wrote it: in any order, so that a list may change anywhere."""


@given(st.lists(st.tuples(WROTE, st.booleans()), max_size=5))
def test_all_changes_together_are_what_the_last_checkpoint_shows(
    checkpoints: list[tuple[list[tuple[str, int]], bool]],
) -> None:
    sinks, shown = SinkRows(), Counter[tuple[str, int]]()
    for number, (wrote, named) in enumerate(checkpoints):
        view = SnapshotView(
            number,
            1,
            {},
            reached_sinks=tuple({"id": identifier} for _, identifier in wrote),
            reached_by=tuple(writer for writer, _ in wrote) if named else (),
        )
        for writer, times, row in sinks.changes(view):
            shown[writer, row["id"]] += times
        now = Counter((writer if named else "", identifier) for writer, identifier in wrote)
        assert {place: times for place, times in shown.items() if times} == now


def test_of_a_list_that_grows_only_the_end_is_new() -> None:
    sinks = SinkRows()
    rows = tuple({"id": number} for number in range(5))
    for shown in (3, 5):
        view = SnapshotView(shown, 1, {}, reached_sinks=rows[:shown], reached_by=("out[0]",) * shown)
        changes = list(sinks.changes(view))
    assert changes == [("out[0]", 1, {"id": 3}), ("out[0]", 1, {"id": 4})]
