"""Which entries an increment skipped, and that nothing is said of full snapshots and late barriers; grain: values."""

from __future__ import annotations

import msgspec
import pytest

from barrier_tck.harness.oracle.checkers.snapshot_formula import SnapshotFormula
from barrier_tck.harness.plan.trial_plan import CheckpointPlan
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.history import NamedFile, SnapshotView
from barrier_tck.harness.record.verdict import Finding
from tests.harness.oracle.oracle_histories import Book, a_context, a_plan, input_of, positions_at, right_view

PLAN = a_plan(checkpoints=CheckpointPlan(incremental=True))
KEEPER = "totals[0]"
KEY = '["k0"]'


def files(*names: str) -> dict[str, tuple[NamedFile, ...]]:
    return {KEEPER: tuple(NamedFile(name, 1, name, shared=True) for name in names)}


def view(number: int, *names: str) -> SnapshotView:
    """Return a right checkpoint: the first is at a quarter of the input, the next at half of it, and so on."""
    return right_view(PLAN, number, positions_at(PLAN, number / 4), files=files(*names))


def with_key_of(other: SnapshotView, wrong: SnapshotView) -> SnapshotView:
    """Return a checkpoint with the entry of a key as another one has it."""
    (part,), (old,) = wrong.state, other.state
    entries = {text: kept for text, kept in part.entries.items() if text != KEY}
    if KEY in old.entries:
        entries[KEY] = old.entries[KEY]
    return msgspec.structs.replace(wrong, state=(msgspec.structs.replace(part, entries=entries),))


def sent(*views: SnapshotView, fewer: int = 0, attempt: int = 1, restored: int | None = None) -> Book:
    """Write that the sink prepared a row for each record before a checkpoint's barriers, or fewer."""
    book, before = Book().attempt(attempt, restored), 0
    for entry in views:
        rows, number = sum(entry.positions.values()), entry.checkpoint
        last = fewer if entry is views[-1] else 0
        book.triggered(number, attempt)
        book.tell(ops.Acknowledged(number, attempt, "sink[0]", prepared=rows - before - last))
        book.completed(number, attempt)
        before = rows
    return book


def judge(book: Book, *views: SnapshotView) -> Finding:
    return SnapshotFormula(input_of(PLAN)).check(a_context(PLAN, book, views=views))


FIRST = view(1, "full")
STALE = with_key_of(FIRST, view(2, "full", "increment"))


def test_an_entry_that_is_as_in_the_checkpoint_before_although_a_later_row_of_it_was_sent_was_skipped() -> (
    None
):
    finding = judge(sent(FIRST, STALE), FIRST, STALE)
    assert finding.broken == "SNP-5"
    assert finding.first is not None
    assert finding.first.sign.startswith("an increment skips changes")
    assert finding.first.sentence.endswith("as in checkpoint 1, on which the increment of totals[0] builds")
    assert finding.first.place == KEEPER


def test_where_the_row_was_not_sent_either_a_barrier_came_too_early() -> None:
    assert judge(sent(FIRST, STALE, fewer=1), FIRST, STALE).broken == "ALN-2"


def test_a_full_snapshot_skips_nothing_whatever_it_lacks() -> None:
    full = msgspec.structs.replace(STALE, files=files("other full"))
    assert judge(sent(FIRST, full), FIRST, full).broken == "ALN-2"
    of_its_own = {KEEPER: tuple(msgspec.structs.replace(file, shared=False) for file in STALE.files[KEEPER])}
    unshared = msgspec.structs.replace(STALE, files=of_its_own)
    assert judge(sent(FIRST, unshared), FIRST, unshared).broken == "ALN-2"


def test_an_entry_that_is_neither_the_old_nor_the_new_one_was_not_skipped() -> None:
    between = with_key_of(view(2, "full"), view(4, "full", "increment"))
    assert FIRST.state[0].entries[KEY] != between.state[0].entries[KEY]
    assert judge(sent(FIRST, between), FIRST, between).broken == "ALN-2"


def test_one_entry_that_is_wrong_otherwise_says_that_increments_are_not_why() -> None:
    (part,) = STALE.state
    entries = part.entries | {'["k1"]': [0, 0]}
    more = msgspec.structs.replace(STALE, state=(msgspec.structs.replace(part, entries=entries),))
    assert [entry.clause for entry in judge(sent(FIRST, more), FIRST, more).evidence] == ["ALN-2"]


def test_an_entry_that_was_newer_in_a_checkpoint_between_was_skipped_whatever_was_sent() -> None:
    second = view(2, "full", "first increment")
    third = with_key_of(FIRST, view(3, "full", "second increment"))
    assert judge(Book().attempt(1), FIRST, second, third).broken == "SNP-5"


@pytest.mark.parametrize(("names", "clause"), [(("other", "increment"), "SNP-5"), (("increment",), "REC-1")])
def test_what_the_restored_checkpoint_held_is_gone_if_an_increment_leaves_out_the_part_that_held_it(
    names: tuple[str, ...], clause: str
) -> None:
    """Two parts become one, and the increment of that one builds on one of them; a full snapshot builds on neither."""
    restored = view(1, "full")
    held = restored.state[0].entries
    keeps = msgspec.structs.replace(restored.state[0], entries={KEY: held[KEY]})
    rest = {text: kept for text, kept in held.items() if text != KEY}
    other = msgspec.structs.replace(restored.state[0], subtask="totals[1]", entries=rest)
    restored = msgspec.structs.replace(
        restored,
        state=(keeps, other),
        files=files("full") | {"totals[1]": (NamedFile("other", 1, "other", shared=True),)},
    )
    nothing = right_view(PLAN, 0, positions_at(PLAN, 0))
    after = msgspec.structs.replace(with_key_of(nothing, view(2, *names)), attempt=2, files=files(*names))
    book = sent(restored).attempt(2, 1).triggered(2, 2).completed(2, 2)
    assert judge(book, restored, after).broken == clause


def test_a_part_that_names_files_from_before_the_restored_checkpoint_is_no_increment_that_skips() -> None:
    second = view(2, "second")
    old = msgspec.structs.replace(with_key_of(FIRST, view(3, "full")), attempt=2)
    book = sent(FIRST, second).attempt(2, 2).triggered(3, 2).completed(3, 2)
    assert judge(book, FIRST, second, old).broken == "REC-1"
