"""Ids of checkpoints in systems without barriers: what triggers show is judged, and what was damaged is excused."""

from __future__ import annotations

import msgspec
import pytest

from barrier_tck.harness.oracle.checkers import restored_latest
from barrier_tck.harness.oracle.checkers.restored_latest import RestoredLatest
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.verdict import Verdict
from tests.harness.oracle.oracle_histories import Book, a_context, a_plan


def two_checkpoints() -> Book:
    return Book().attempt(1).checkpoint(1).checkpoint(2).attempt_failed(1)


@pytest.mark.parametrize(("damaged", "verdict"), [(1, Verdict.VALID), (0, Verdict.INVALID)])
def test_what_could_not_be_read_is_taken_once_more_under_its_id(
    damaged: int, verdict: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restored_latest, "primaries_damaged", lambda _: damaged)
    plan = msgspec.structs.replace(a_plan(), on_unreadable="older")
    book = two_checkpoints().attempt(2, 1).checkpoint(2, 2).checkpoint(3, 2)
    assert RestoredLatest().check(a_context(plan, book)).verdict is verdict
    again = two_checkpoints().attempt(2, 1).checkpoint(1, 2)
    assert RestoredLatest().check(a_context(plan, again)).verdict is Verdict.INVALID, (
        "the restored one is complete"
    )


@pytest.mark.parametrize("triggers", [True, False])
def test_ids_are_claimed_only_if_triggers_show_when_they_were_given_out(triggers: bool) -> None:
    book = Book().attempt(1)
    for number in (1, 2):
        if triggers:
            book.triggered(number)
        book.tell(ops.CheckpointCompleted(number, 1))
    finding = RestoredLatest().check(a_context(a_plan(), book))
    assert (finding.verdict, "COO-4" in finding.clauses) == (Verdict.VALID, triggers)
