"""What was sent on says whether a record was processed before the barrier; grain: values and literal histories."""

from __future__ import annotations

from collections import Counter

import pytest

from barrier_tck.harness.oracle.evidence.record_places import SeenCut
from barrier_tck.harness.oracle.evidence.sent_on import SentOn, rows_prepared
from barrier_tck.harness.record.history import SnapshotView
from barrier_tck.harness.record.operations import Acknowledged
from barrier_tck.harness.workloads.records import Bag, Record
from tests.harness.oracle.oracle_histories import Book, a_context, a_plan


def record(identifier: int, path: str) -> Record:
    return identifier, "k0", path


def held(identifier: int, path: str) -> Record:
    """Return a record with the number of its input, as a state holds it."""
    return 0, record(identifier, path)


# Records 1 and 2 reach ``keep``, which sends them on to ``last``, and 1 reaches ``out``.
WHOLE: dict[str, Bag] = {
    "keep": Counter({held(1, "read"): 1, held(2, "read"): 1}),
    "last": Counter({held(1, "read>keep"): 1, held(2, "read>keep"): 1}),
    "out": Counter({record(1, "read>keep>last"): 1}),
}
CUT = SeenCut({}, {"keep": {held(1, "read"): [""]}, "last": {}}, {"out": {}})


@pytest.mark.parametrize(
    ("seen", "unseen"),
    [
        (CUT, True),
        (SeenCut({}, {**CUT.held, "last": {held(1, "read>keep"): [""]}}, {"out": {}}), False),
        (SeenCut({}, CUT.held, {"out": {record(1, "read>keep>last"): [""]}}), False),
        (
            SeenCut({}, CUT.held, {"out": {}}, {("keep", "last", 0): Counter({record(1, "read>keep"): 1})}),
            False,
        ),
        # Another record, and the same one before the operator, say nothing of it.
        (SeenCut({}, {**CUT.held, "last": {held(2, "read>keep"): [""]}}, {"out": {}}), True),
        (SeenCut({}, CUT.held, {"out": {}}, {("read", "keep", 0): Counter({record(1, "read"): 1})}), True),
        # Where nothing of it would be seen, nothing is known.
        (SeenCut({}, {"keep": CUT.held["keep"]}, None), False),
    ],
)
def test_a_record_of_which_nothing_was_sent_came_behind_the_barrier(seen: SeenCut, unseen: bool) -> None:
    assert SentOn(WHOLE).is_unseen(held(1, "read"), "keep", seen) is unseen


def test_an_operator_that_sends_nothing_on_shows_nothing() -> None:
    assert not SentOn({"keep": WHOLE["keep"]}).is_unseen(held(1, "read"), "keep", CUT)


def test_what_comes_back_to_the_operator_itself_says_nothing() -> None:
    """In a loop: whether it came back is what is asked."""
    round_again: dict[str, Bag] = {"keep": Counter({held(1, "read"): 1, held(1, "read>keep"): 1})}
    cut = SeenCut({}, {"keep": {held(1, "read"): [""]}}, {})
    assert not SentOn(round_again).is_unseen(held(1, "read"), "keep", cut)


def test_each_cut_is_looked_at_for_itself() -> None:
    sent = SentOn(WHOLE)
    seen = SeenCut({}, {**CUT.held, "last": {held(1, "read>keep"): [""]}}, {"out": {}})
    answers = [sent.is_seen(held(1, "read"), "keep", cut) for cut in (CUT, seen, CUT, seen)]
    assert answers == [False, True, False, True]


def prepared(checkpoint: int, rows: int, attempt: int = 1) -> Acknowledged:
    return Acknowledged(checkpoint, attempt, "sink[0]", prepared=rows)


def test_rows_are_counted_from_the_beginning_of_the_input_up_to_the_checkpoint() -> None:
    book = Book().attempt(1).tell(prepared(1, 4)).tell(prepared(2, 3)).tell(prepared(3, 9))
    context = a_context(a_plan(), book)
    assert [rows_prepared(context, SnapshotView(number, 1, {})) for number in (1, 2)] == [4, 7]


def test_rows_are_not_counted_after_a_restore_an_abort_or_without_reports() -> None:
    restored = Book().attempt(1).attempt_failed(1).attempt(2, 1).tell(prepared(2, 4, attempt=2))
    aborted = Book().attempt(1).tell(prepared(1, 4)).aborted(1).tell(prepared(2, 3))
    silent = Book().attempt(1).tell(prepared(2, 0))
    for book, attempt in ((restored, 2), (aborted, 1), (silent, 1)):
        assert rows_prepared(a_context(a_plan(), book), SnapshotView(2, attempt, {})) is None
