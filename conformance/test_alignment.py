"""Barriers and their alignment: several inputs, one of them slow, and what is measured meanwhile.

Only a simulated network can make a channel slow on purpose; on a real one the barriers of two sources never
arrive at the same instant, so subtasks align there too.
"""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from barrier_tck.conformance.plans import (
    CALM,
    varied,
)
from barrier_tck.conformance.trials import Trial, Trials, require
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, NetworkPlan, TrialPlan
from barrier_tck.harness.record.records import CheckpointRecord, SnapshotRecord
from barrier_tck.harness.system.job_view import Role
from barrier_tck.harness.system.system_under_test import Capability

inspects = pytest.mark.needs(Capability.SNAPSHOT_INSPECTION)
pytestmark = pytest.mark.needs(Capability.BARRIERS)

WIDE: TrialPlan = msgspec.structs.replace(
    varied(job=JobPlan(widths={"source": 2, "totals": 3, "sink": 1})),
    network=NetworkPlan(slow_channel=0, slow_factor=6),
)
"""Three keyed subtasks behind two sources; the first keyed subtask hears late from the first source."""

ROUNDING_MS = 0.5
"""What measuring and scheduling may add to or take from a length."""


def _parts(trial: Trial) -> dict[int, list[SnapshotRecord]]:
    """Return the parts of every completed checkpoint."""
    completed = [c.checkpoint for c in trial.record.checkpoints if c.status == "completed"]
    return {n: [part for part in trial.record.snapshots if part.checkpoint == n] for n in completed}


@inspects
@pytest.mark.clause("ALN-1", "BAR-2", "BAR-3")
def test_nothing_behind_a_barrier_is_processed_before_the_snapshot(trials: Trials) -> None:
    for trial in trials.all_valid(WIDE):
        formula = trial.finding("snapshot-formula")
        require(formula.counts["checkpoints"] >= 1, "a checkpoint was there to check", trial)


@inspects
@pytest.mark.clause("ALN-3", "SNP-7")
def test_every_part_of_a_completed_checkpoint_is_measured(trials: Trials) -> None:
    trial = trials.valid(WIDE)
    require(_parts(trial), "a checkpoint completed", trial)
    for checkpoint, parts in _parts(trial).items():
        measured = sorted(part.subtask for part in parts)
        expected = sorted(trial.record.subtasks)
        require(
            measured == expected, f"checkpoint {checkpoint} is measured once for each of {expected}", trial
        )
        for part in parts:
            lengths = (part.alignment_ms, part.sync_ms, part.async_ms)
            require(min(lengths) >= 0, f"no length of {part} is negative", trial)
            sizes = (part.alignment_buffered_bytes, part.bytes_written)
            require(min(sizes) >= 0, f"no size of {part} is negative", trial)


@inspects
@pytest.mark.clause("ALN-3")
def test_subtasks_with_several_inputs_were_seen_to_align_and_sources_were_not(trials: Trials) -> None:
    done = trials.all_valid(WIDE)
    seen = [part for trial in done for parts in _parts(trial).values() for part in parts]
    readers = done[0].job.in_role(Role.SOURCE)
    aligned = [part for part in seen if part.alignment_ms > 0]
    assert aligned, f"in no part of a completed checkpoint did a subtask align: {seen}"
    sources = [part for part in aligned if part.subtask in readers]
    assert not sources, f"a source has no inputs to align: {sources}"
    idle = [part for part in seen if part.alignment_buffered_bytes and not part.alignment_ms]
    assert not idle, f"bytes were held back by an alignment that took no time: {idle}"


@inspects
@pytest.mark.clause("ALN-3", "SNP-3", "COO-1")
def test_a_checkpoint_ends_only_after_the_slowest_of_its_parts(trials: Trials) -> None:
    for trial in trials.all_valid(WIDE):
        checkpoints = {c.checkpoint: c for c in trial.record.checkpoints}
        for checkpoint, parts in _parts(trial).items():
            lasted = checkpoints[checkpoint].ended_at_ms - checkpoints[checkpoint].triggered_at_ms
            for part in parts:
                # Lengths only: the clocks of two processes need not agree.
                took = part.alignment_ms + part.sync_ms + part.async_ms
                require(took <= lasted + ROUNDING_MS, f"{part} fits into {lasted} ms", trial)


@inspects
@pytest.mark.clause("BAR-1", "BAR-5")
def test_barriers_come_at_the_sources_positions_which_go_on(trials: Trials) -> None:
    trial = trials.valid(CALM)
    positions = [view.positions for view in trial.history.checkpoints]
    require(len(positions) >= 2, "several checkpoints completed", trial)
    for earlier, later in pairwise(positions):
        back = [split for split in earlier if later.get(split, -1) < earlier[split]]
        require(not back, f"no source goes back from checkpoint to checkpoint, but {back} did", trial)
    advanced = sum(sum(later.values()) > sum(earlier.values()) for earlier, later in pairwise(positions))
    require(advanced >= 1, "sources read on between two checkpoints", trial)


@pytest.mark.needs(Capability.SLOW_SNAPSHOTS, Capability.SNAPSHOT_INSPECTION)
@pytest.mark.clause("BAR-5", "BAR-4", "SNP-1")
def test_records_flow_while_a_checkpoint_is_under_way(trials: Trials) -> None:
    slow = CheckpointPlan(interval_ms=8, max_concurrent=3, async_ms_max=40)
    flowed = overlapping = 0
    for trial in trials.all_valid(varied(checkpoints=slow)):
        views = {view.checkpoint: view for view in trial.history.checkpoints}
        for earlier, later in pairwise(_completed(trial)):
            if later.triggered_at_ms < earlier.ended_at_ms:
                overlapping += 1
                before, after = views[earlier.checkpoint].positions, views[later.checkpoint].positions
                flowed += sum(after.values()) > sum(before.values())
    assert overlapping, "no two checkpoints were under way at once, so nothing was tested"
    assert flowed, (
        f"{overlapping} checkpoints were triggered during another, and no source had moved on by then"
    )


@pytest.mark.needs(Capability.SLOW_SNAPSHOTS, Capability.SNAPSHOT_INSPECTION)
@pytest.mark.uses("checkpoints.max_concurrent")
@pytest.mark.clause("BAR-4")
@pytest.mark.parametrize("most", [1, 2])
def test_no_more_checkpoints_are_in_flight_than_configured(trials: Trials, most: int) -> None:
    plan = varied(
        checkpoints=CheckpointPlan(interval_ms=8, min_pause_ms=4, max_concurrent=most, async_ms_max=30)
    )
    for trial in trials.all_valid(plan):
        for checkpoint in trial.record.checkpoints:
            at = checkpoint.triggered_at_ms
            others = [c for c in trial.record.checkpoints if c.triggered_at_ms <= at < c.ended_at_ms]
            require(len(others) <= most, f"at {at} ms at most {most} are in flight, not {others}", trial)


@inspects
@pytest.mark.clause("BAR-4")
def test_the_pause_between_checkpoints_is_kept(trials: Trials) -> None:
    plan = varied(checkpoints=CheckpointPlan(interval_ms=8, min_pause_ms=4, async_ms_max=30))
    for trial in trials.all_valid(plan):
        # The last one follows the end of all input: waiting with it would gain nothing.
        regular = sorted(trial.record.checkpoints, key=lambda c: c.triggered_at_ms)[:-1]
        pause_ms = trial.record.plan.checkpoints.min_pause_ms
        for earlier, later in pairwise(regular):
            waited = later.triggered_at_ms - earlier.ended_at_ms
            require(waited >= pause_ms - ROUNDING_MS, f"{later} waits {pause_ms} ms", trial)


def _completed(trial: Trial) -> list[CheckpointRecord]:
    return sorted(
        (c for c in trial.record.checkpoints if c.status == "completed"), key=lambda c: c.checkpoint
    )
