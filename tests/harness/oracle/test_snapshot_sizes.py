"""The checker of how large full snapshots are (SNP-8)."""

from __future__ import annotations

import msgspec
import pytest

from barrier_tck.harness.oracle.applicable import checkers_for
from barrier_tck.harness.oracle.checkers.snapshot_sizes import SnapshotSizes
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, TrialPlan
from barrier_tck.harness.record.history import InFlight, NamedFile, SnapshotView, StateView
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.workload_names import filled
from tests.harness.oracle.oracle_histories import Book, a_context, a_plan

WHO = "totals[0]"
TEXT = 40 * len(repr(('["k10"]', [1])))
"""Characters of the entries below."""
GROUPS = 4
MOST = 64 + GROUPS * (32 + len("aggregate")) + TEXT * 3 // 2
"""What one file with all of them may take."""


def view(*sizes: int, keyed: bool = True, in_flight: bool = False) -> SnapshotView:
    """Return a checkpoint in which one subtask has files of these sizes, and the same 40 entries whatever these are."""
    entries = {f'["k{number}"]': [1] for number in range(10, 50)}
    groups = {key: number % GROUPS for number, key in enumerate(entries)}
    state = StateView("totals", WHO, "aggregate", entries, groups, keyed)
    files = tuple(NamedFile(f"f{number}", size, "crc32:0") for number, size in enumerate(sizes))
    channels = (InFlight("source[0]", WHO, 0, ({"value": 1},)),) if in_flight else ()
    return SnapshotView(1, 1, {}, (state,), (WHO,), files={WHO: files}, in_flight=channels)


def judged(shown: SnapshotView) -> Finding:
    context = a_context(a_plan(), Book().attempt(1).checkpoint(1))
    history = msgspec.structs.replace(context.history, checkpoints=(shown,))
    return SnapshotSizes().check(type(context)(context.plan, history, context.faults))


def test_files_may_be_as_large_as_entries_key_groups_and_their_number_explain() -> None:
    for shown in (view(MOST), view(MOST, 64)):
        finding = judged(shown)
        assert (finding.verdict, finding.clauses) == (Verdict.VALID, ("SNP-8",))
    assert finding.counts == {"snapshots": 1, "bytes": MOST + 64, "too_large": 0}


@pytest.mark.parametrize("sizes", [(MOST + 1,), (MOST, 65)])
def test_a_byte_more_is_found(sizes: tuple[int, ...]) -> None:
    finding = judged(view(*sizes))
    assert finding.verdict is Verdict.INVALID and "its 40 entries explain" in finding.summary
    (evidence,) = finding.evidence
    assert (evidence.clause, evidence.place, evidence.checkpoint) == ("SNP-8", WHO, 1)
    assert evidence.operation is not None


@pytest.mark.parametrize("shown", [view(10**6, keyed=False), view(10**6, in_flight=True)])
def test_nothing_is_said_of_files_that_hold_something_else_too(shown: SnapshotView) -> None:
    finding = judged(shown)
    assert (finding.verdict, finding.clauses) == (Verdict.VALID, ())


def beside(change: str) -> SnapshotView:
    """Return a checkpoint of two subtasks with a byte too many each, of which the first holds something else too."""
    shown, other = view(MOST + 1), "totals[1]"
    (part,) = shown.state
    files = {WHO: shown.files[WHO], other: shown.files[WHO]}
    theirs = msgspec.structs.replace(part, subtask=other)
    parts, channels = [part], list[InFlight]()
    if change == "foreign keys":
        parts = [msgspec.structs.replace(part, foreign={'["k99"]': 7})]
    elif change == "foreign keys under another name":
        parts.append(StateView("totals", WHO, "more", {}, foreign={'["k99"]': 7}))
    elif change == "lists":
        parts.append(StateView("totals", WHO, "more", {}, keyed=False))
    elif change == "records for it":
        channels.append(InFlight("source[0]", WHO, 0, ({"value": 1},)))
    elif change == "records of it":
        channels.append(InFlight(WHO, "sink[0]", 0, ({"value": 1},)))
    elif change == "nothing that is known":
        parts = []
    return msgspec.structs.replace(shown, state=(*parts, theirs), files=files, in_flight=tuple(channels))


@pytest.mark.parametrize(
    "change",
    [
        "foreign keys",
        "foreign keys under another name",
        "lists",
        "records for it",
        "records of it",
        "nothing that is known",
    ],
)
def test_who_holds_something_else_too_is_left_out_and_nobody_else_is(change: str) -> None:
    """Of keys that belong to others only the groups are known, so nobody can say how many bytes explain them."""
    both, one = judged(beside("")), judged(beside(change))
    assert both.counts == {"snapshots": 2, "bytes": 2 * (MOST + 1), "too_large": 2}
    assert one.counts == {"snapshots": 1, "bytes": MOST + 1, "too_large": 1}
    assert [evidence.place for evidence in one.evidence] == ["totals[1]"]


def test_only_files_are_measured_in_which_entries_lie_as_they_are() -> None:
    def measures(plan: TrialPlan, *lacking: Capability) -> bool:
        able = frozenset(ReferenceSimulated().capabilities) - {*lacking}
        return any(checker.name == SnapshotSizes.name for checker in checkers_for(filled(plan), able))

    assert measures(TrialPlan())
    assert not measures(TrialPlan(), Capability.REQUEST_LOG)
    assert not measures(TrialPlan(checkpoints=CheckpointPlan(incremental=True)))
    assert not measures(TrialPlan(checkpoints=CheckpointPlan(compression="zstd")))
    assert not measures(TrialPlan(state_backend="rocksdb"))
