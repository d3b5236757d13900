"""Opened checkpoints share what they have in common: a trial with many of them has each record in memory once."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from barrier_tck.harness.plan.trial_plan import CheckpointPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.reference.snapshot_views import _sharing
from barrier_tck.harness.trial.trial_run import execute
from barrier_tck.harness.workloads.workload_names import filled

PLAN = TrialPlan(
    workload=WorkloadPlan("lineage", batches=30, batch_records=2, keys=3, records_per_second=300),
    checkpoints=CheckpointPlan(interval_ms=20),
)
CHECKPOINTS, SHARED = 5, 20


def test_what_two_checkpoints_have_in_common_is_there_once(tmp_path: Path) -> None:
    history = execute(filled(PLAN), ReferenceSimulated(), tmp_path).history
    assert history is not None and len(history.checkpoints) >= CHECKPOINTS
    items = rows = 0
    for before, after in pairwise(history.checkpoints):
        now = {(part.subtask, part.operator, part.name): part.entries for part in after.state}
        for part in before.state:
            for key, kept in part.entries.items():
                # A subtask that has finished has no state any more.
                later = now.get((part.subtask, part.operator, part.name), {}).get(key, [])
                assert all(old is new for old, new in zip(kept, later, strict=False))
                items += min(len(kept), len(later))
        known = {id(row) for row in after.reached_sinks or ()}
        assert all(id(row) in known for row in before.reached_sinks or ())
        rows += len(before.reached_sinks or ())
    assert items >= SHARED and rows >= SHARED


@pytest.mark.parametrize("other", [[[1.0]], [[True]], [[2]], [["1"]]])
def test_what_is_not_the_same_is_read_as_it_is(other: list[list[object]]) -> None:
    read = _sharing([[1]], other)
    assert repr(read) == repr(other)


def test_a_list_that_grew_or_shrank_keeps_what_it_had() -> None:
    one, two = [1], [2]
    assert _sharing([one], [[1], two])[0] is one
    assert _sharing([one, two], [[1]])[0] is one


def test_a_subtask_has_ended_if_an_operator_of_it_says_so_and_it_had_not_finished(tmp_path: Path) -> None:
    """In some checkpoint of a job whose sources end apart, one subtask has ended and others go on."""
    plan = msgspec.structs.replace(PLAN, workload=msgspec.structs.replace(PLAN.workload, early_ends=1))
    history = execute(filled(plan), ReferenceSimulated(), tmp_path).history
    assert history is not None
    found = [view for view in history.checkpoints if view.ended]
    assert found
    for view in history.checkpoints:
        assert not set(view.ended) & set(view.finished)
        assert set(view.ended) <= set(view.subtasks)
    apart = [view for view in history.checkpoints if "read[0]" in view.ended and "read[1]" not in view.ended]
    assert apart and all("out[0]" not in view.ended for view in apart), "one input of it goes on"
    assert any("out[0]" in view.ended for view in history.checkpoints)
