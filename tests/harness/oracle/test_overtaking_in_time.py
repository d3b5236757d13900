"""How long a checkpoint may take whose barriers overtake, on literal histories in virtual time."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from barrier_tck.faults.kinds.pause_worker import PauseWorker
from barrier_tck.faults.vocabulary import At, ScheduledFault
from barrier_tck.harness.oracle.checkers.overtaking_in_time import OvertakingInTime
from barrier_tck.harness.oracle.evidence.checkpoint_obstacles import longest_ms
from barrier_tck.harness.plan.job_graph import EdgePlan, Spread
from barrier_tck.harness.plan.trial_plan import CheckpointingMode, CheckpointPlan, TrialPlan
from barrier_tck.harness.record.history import InFlight, SnapshotView
from barrier_tck.harness.record.operations import InputRead
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability
from tests.harness.oracle.oracle_histories import SUBTASKS, Book, a_context, a_plan

SHORT_MS, LONG_MS = 5, 5_000
"""Less than barriers take that overtake, and much more."""
HURRIED = a_plan(checkpoints=CheckpointPlan(mode="unaligned", async_ms_max=5))
PATIENT = a_plan(checkpoints=CheckpointPlan(mode="aligned_timeout", alignment_timeout_ms=20, async_ms_max=5))
VERY_PATIENT = a_plan(
    checkpoints=CheckpointPlan(mode="aligned_timeout", alignment_timeout_ms=4_000, async_ms_max=5)
)
PAUSED = msgspec.structs.replace(
    HURRIED, faults=(ScheduledFault(PauseWorker("totals[0]", duration_ms=20), At(1)),)
)


def broadcast(plan: TrialPlan) -> TrialPlan:
    edges = tuple(EdgePlan(edge.source, edge.target, by=Spread.BROADCAST, key=()) for edge in plan.job.edges)
    return msgspec.structs.replace(plan, job=msgspec.structs.replace(plan.job, edges=edges))


def looped(plan: TrialPlan) -> TrialPlan:
    back = EdgePlan("totals", "totals", by=Spread.REBALANCE, feedback=True)
    job = msgspec.structs.replace(plan.job, edges=(*plan.job.edges, back))
    assert job.loops
    return msgspec.structs.replace(plan, job=job)


def judged(
    plan: TrialPlan, took_ms: int, last: int = 9, overtook: bool = True, writing_ms: int = 0
) -> Finding:
    """Judge the first of two checkpoints; the input ends at position 9, and ``last`` is that of this one.

    ``writing_ms`` is how long its metadata takes to write.
    """
    sources = [subtask for vertex in plan.job.sources for subtask in vertex.subtasks]
    book = Book().attempt(1)
    for source in sources:
        book.tell(InputRead(source, 1, f"of {source}", 0), "storage")
    book.triggered(1).nothing(took_ms)
    if plan.faults:
        book.fault().healing()
    book.acknowledged(1).nothing(writing_ms).completed(1).checkpoint(2)
    ahead = (InFlight(sources[0], "totals[0]", 0, ()),) if overtook else ()
    views = (
        SnapshotView(1, 1, {f"of {source}": last for source in sources}, in_flight=ahead),
        SnapshotView(2, 1, {f"of {source}": 9 for source in sources}),
    )
    context = a_context(plan, book, views=views)
    virtual = context.capabilities | {Capability.DETERMINISTIC_REPLAY.name}
    return OvertakingInTime().check(replace(context, capabilities=virtual))


@pytest.mark.parametrize(("plan", "clause"), [(HURRIED, "UNA-3"), (PATIENT, "UNA-2")])
def test_a_checkpoint_that_takes_as_long_as_the_queue_is_wrong(plan: TrialPlan, clause: str) -> None:
    right, wrong = judged(plan, SHORT_MS, last=4), judged(plan, LONG_MS, last=4)
    assert (right.verdict, right.clauses, right.counts["judged"]) == (Verdict.VALID, (clause,), 1)
    assert wrong.verdict is Verdict.INVALID and "if its barriers overtake" in wrong.summary
    assert [evidence.clause for evidence in wrong.evidence] == [clause]


def test_nothing_is_shown_by_barriers_that_had_nothing_ahead_of_them() -> None:
    finding = judged(HURRIED, SHORT_MS, last=4, overtook=False)
    assert (finding.verdict, finding.clauses, finding.counts["judged"]) == (Verdict.VALID, (), 1)


def test_each_vertex_may_wait_for_the_timeout() -> None:
    assert judged(VERY_PATIENT, LONG_MS, last=4).verdict is Verdict.VALID
    assert judged(VERY_PATIENT, 3 * LONG_MS, last=4).verdict is Verdict.INVALID


@pytest.mark.parametrize(
    "finding",
    [
        judged(HURRIED, LONG_MS, last=9),
        judged(PAUSED, LONG_MS, last=4),
        judged(broadcast(HURRIED), LONG_MS, last=4),
        judged(looped(HURRIED), LONG_MS, last=4),
    ],
    ids=["the input has ended", "paused", "broadcast", "loop"],
)
def test_nothing_is_said_of_barriers_that_may_wait(finding: Finding) -> None:
    assert (finding.verdict, finding.clauses, finding.counts["judged"]) == (Verdict.VALID, (), 0)


def test_how_long_its_metadata_takes_is_no_matter_of_barriers() -> None:
    finding = judged(HURRIED, SHORT_MS, last=4, writing_ms=LONG_MS)
    assert (finding.verdict, finding.counts["judged"]) == (Verdict.VALID, 1)


@pytest.mark.parametrize("timeout_ms", [1, 20, 250, 4_000])
@pytest.mark.parametrize(("mode", "waits"), [("unaligned", 0), ("aligned_timeout", 3)])
@pytest.mark.parametrize("async_ms_max", [0, 40])
def test_the_timeout_counts_for_each_vertex_in_the_mode_with_one_and_in_no_other(
    mode: CheckpointingMode, waits: int, timeout_ms: int, async_ms_max: int
) -> None:
    plan = a_plan(
        checkpoints=CheckpointPlan(mode=mode, alignment_timeout_ms=timeout_ms, async_ms_max=async_ms_max)
    )
    # Two channels lead into a subtask: a checkpoint sends it two barriers, a trigger and its end.
    most_ms = longest_ms(plan, final=True) + 4 + waits * timeout_ms
    assert most_ms.is_integer() and len(plan.job.vertices) == 3
    before_ms = int(most_ms) - len(SUBTASKS)  # each acknowledgement takes a millisecond
    at_most, above = judged(plan, before_ms, last=4), judged(plan, before_ms + 1, last=4)
    assert (at_most.verdict, at_most.counts["judged"]) == (Verdict.VALID, 1)
    assert (above.verdict, above.counts["violations"]) == (Verdict.INVALID, 1)
    assert f"took {most_ms + 1:g} ms, and needs {most_ms:g} ms at most" in above.summary
