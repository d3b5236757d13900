"""What counts as a chance for global snapshots to be inconsistent; wrong ones are shown by planted bugs."""

from __future__ import annotations

from typing import Any

import pytest

from barrier_tck.harness.oracle.checkers.consistent_cut import CROSSING, ConsistentCut
from barrier_tck.harness.plan.trial_plan import CheckpointPlan
from barrier_tck.harness.record.history import InFlight, SnapshotView
from barrier_tck.harness.record.operations import LocalEvent, MessagesObserved
from barrier_tck.harness.record.verdict import Verdict
from tests.harness.oracle.oracle_histories import Book, a_context, a_plan

SENDER, RECEIVER = "source[0]", "totals[0]"
CHANNEL, ROW = f"{SENDER}->{RECEIVER}", '{"id":1}'
SENT, TAKEN = LocalEvent("sent", CHANNEL, (ROW,)), LocalEvent("taken", CHANNEL, (ROW,))
RECORDED = LocalEvent("recorded", checkpoint=1)


@pytest.mark.parametrize("protocol", ["chandy_lamport", "barriers"])
@pytest.mark.parametrize(
    ("sends", "takes", "crossing"),
    [
        ((SENT, RECORDED), (TAKEN, RECORDED), 0),
        ((RECORDED, SENT), (RECORDED, TAKEN), 1),
        ((SENT, RECORDED), (RECORDED, TAKEN), 1),
    ],
    ids=["all before", "behind", "in the channel"],
)
def test_a_cut_counts_if_messages_were_taken_behind_it_and_the_algorithm_if_it_was_used(
    sends: tuple[LocalEvent, ...], takes: tuple[LocalEvent, ...], crossing: int, protocol: Any
) -> None:
    book = (
        Book().attempt(1).tell(MessagesObserved(SENDER, 1, sends)).tell(MessagesObserved(RECEIVER, 1, takes))
    )
    flying = (
        (InFlight(SENDER, RECEIVER, 0, ({"id": 1},)),) if sends[0] == SENT and takes[0] == RECORDED else ()
    )
    view = SnapshotView(1, 1, {}, subtasks=(SENDER, RECEIVER), in_flight=flying)
    plan = a_plan(checkpoints=CheckpointPlan(protocol=protocol))
    finding = ConsistentCut().check(a_context(plan, book, views=(view,)))
    assert (finding.verdict, finding.counts[CROSSING]) == (Verdict.VALID, crossing), finding.summary
    used = ("CHL-1",) if protocol == "chandy_lamport" else ()
    assert finding.clauses == (*used, *(("CHL-2",) if crossing else ()))
