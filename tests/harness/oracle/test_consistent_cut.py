"""What counts as a chance for global snapshots to be inconsistent, and which clause a wrong one breaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from barrier_tck.harness.oracle.checkers.consistent_cut import CROSSING, ConsistentCut
from barrier_tck.harness.plan.job_graph import EdgePlan, Spread
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, TrialPlan
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


def broken(plan: TrialPlan, logs: Mapping[str, tuple[LocalEvent, ...]]) -> tuple[str, ...]:
    """Return the clauses that a snapshot without anything in flight breaks, the first one first."""
    book = Book().attempt(1)
    for process, events in logs.items():
        book.tell(MessagesObserved(process, 1, events))
    view = SnapshotView(1, 1, {}, subtasks=(SENDER, RECEIVER))
    return tuple(
        entry.clause for entry in ConsistentCut().check(a_context(plan, book, views=(view,))).evidence
    )


MARKED = LocalEvent("marked", CHANNEL, checkpoint=1)


@pytest.mark.parametrize(
    ("checkpoints", "clauses"),
    [
        (CheckpointPlan(), ("ALN-1", "CHL-2")),
        (CheckpointPlan(mode="unaligned"), ("CHL-2",)),
        (CheckpointPlan(protocol="chandy_lamport"), ("CHL-2",)),
    ],
)
def test_what_was_taken_behind_a_barrier_that_holds_its_channel_breaks_the_alignment_first(
    checkpoints: CheckpointPlan, clauses: tuple[str, ...]
) -> None:
    plan = a_plan(checkpoints=checkpoints)
    assert broken(plan, {SENDER: (RECORDED, SENT), RECEIVER: (MARKED, TAKEN, RECORDED)}) == clauses
    assert not broken(plan, {SENDER: (SENT, RECORDED), RECEIVER: (TAKEN, MARKED, RECORDED)})
    assert not broken(plan, {SENDER: (RECORDED, SENT), RECEIVER: (MARKED, RECORDED, TAKEN)})


@pytest.mark.parametrize(
    ("checkpoints", "feedback", "clause"),
    [
        (CheckpointPlan(protocol="chandy_lamport"), True, "CHL-2"),
        (CheckpointPlan(mode="unaligned"), True, "CHL-5"),
        (CheckpointPlan(), True, "CHL-5"),
        (CheckpointPlan(mode="unaligned"), False, "UNA-1"),
    ],
)
def test_a_channel_state_that_lacks_a_message_breaks_the_clause_of_its_channel(
    checkpoints: CheckpointPlan, feedback: bool, clause: str
) -> None:
    back = EdgePlan("totals", "source", Spread.REBALANCE, feedback=True)
    plan = a_plan(checkpoints=checkpoints)
    job = msgspec.structs.replace(plan.job, edges=(*plan.job.edges, back))
    plan = msgspec.structs.replace(plan, job=job)
    sender, receiver = (RECEIVER, SENDER) if feedback else (SENDER, RECEIVER)
    channel = f"{sender}->{receiver}"
    sent, taken = LocalEvent("sent", channel, (ROW,)), LocalEvent("taken", channel, (ROW,))
    logs = {sender: (sent, RECORDED), receiver: (RECORDED, taken)}
    assert broken(plan, logs) == (clause,)
