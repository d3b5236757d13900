"""What sinks had in a completed checkpoint stays; if it goes, a transaction was lost. Grain: literal histories."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from barrier_tck.harness.oracle.evidence.sink_losses import lost_at_sinks
from barrier_tck.harness.record.history import End, SnapshotView
from tests.harness.oracle.oracle_histories import Book, a_context, a_plan

ONE, TWO, THREE = (dict[str, Any](id=number, key="k") for number in (1, 2, 3))


def view(checkpoint: int, *rows: dict[str, Any], attempt: int = 1) -> SnapshotView:
    return SnapshotView(checkpoint, attempt, {}, reached_sinks=rows)


def a_book() -> Book:
    return Book().attempt(1).checkpoint(1).attempt_failed(1).attempt(2, 1).checkpoint(2, 2).checkpoint(3, 2)


@pytest.mark.parametrize(
    ("views", "output", "lost"),
    [
        ((view(1, ONE), view(2, ONE, TWO, attempt=2)), [TWO, ONE, THREE], ()),
        ((view(1, ONE), view(2, TWO, attempt=2)), [TWO], (2,)),
        ((view(1, ONE), view(2, ONE, TWO, attempt=2), view(3, TWO, attempt=2)), [TWO], (3,)),
        ((view(1, ONE), view(2, ONE, ONE, attempt=2), view(3, ONE, attempt=2)), [ONE], (3,)),
        ((view(1, ONE), view(2, ONE, TWO, attempt=2)), [ONE], (None,)),
    ],
)
def test_rows_are_lost_where_an_earlier_checkpoint_of_the_stretch_had_them(
    views: tuple[SnapshotView, ...], output: list[dict[str, Any]], lost: tuple[int | None, ...]
) -> None:
    context = a_context(a_plan(), a_book(), output=output, views=views)
    found = [entry.checkpoint for entry in views if lost_at_sinks(context, entry)]
    assert tuple(found) + ((None,) if lost_at_sinks(context, None) and not found else ()) == lost


def test_what_an_attempt_prepared_that_was_given_up_may_be_gone() -> None:
    book = Book().attempt(1).checkpoint(1).checkpoint(2).attempt_failed(1).attempt(2, 1).checkpoint(3, 2)
    views = (view(1, ONE), view(2, ONE, TWO), view(3, ONE, attempt=2))
    context = a_context(a_plan(), book, output=[ONE], views=views)
    assert not any(lost_at_sinks(context, entry) for entry in (*views, None))


def test_a_job_that_did_not_finish_and_rows_that_were_not_read_show_nothing() -> None:
    views = (view(1, ONE), view(2, ONE, TWO, attempt=2))
    stuck = a_context(a_plan(), a_book(), end=End.STUCK, output=[], views=views)
    assert not lost_at_sinks(stuck, None)
    unread = tuple(msgspec.structs.replace(entry, reached_sinks=None) for entry in views)
    assert not any(
        lost_at_sinks(a_context(a_plan(), a_book(), views=unread), entry) for entry in (*unread, None)
    )
