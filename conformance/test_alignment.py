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
    SOURCE,
    STATEFUL,
    varied,
    with_faults,
)
from barrier_tck.conformance.trials import Trial, Trials, happened, require
from barrier_tck.faults.kinds.delay_channel import DelayChannel
from barrier_tck.faults.kinds.pause_worker import PauseWorker
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, NetworkPlan, TrialPlan
from barrier_tck.harness.record.operations import Acknowledged
from barrier_tck.harness.record.records import CheckpointRecord, SnapshotRecord
from barrier_tck.harness.system.job_view import Role
from barrier_tck.harness.system.system_under_test import Capability

inspects = pytest.mark.needs(Capability.SNAPSHOT_INSPECTION)
slow = pytest.mark.needs(Capability.SLOW_SNAPSHOTS, Capability.SNAPSHOT_INSPECTION)
pytestmark = pytest.mark.needs(Capability.BARRIERS)

WIDE: TrialPlan = msgspec.structs.replace(
    varied(job=JobPlan(widths={"source": 2, "totals": 3, "sink": 1})),
    network=NetworkPlan(slow_channel=0, slow_factor=6),
)
"""Three keyed subtasks behind two sources; the first keyed subtask hears late from the first source."""

SLOW: TrialPlan = varied(checkpoints=CheckpointPlan(interval_ms=8, max_concurrent=3, async_ms_max=40))
"""The asynchronous part takes longer than the time to the next checkpoint."""

OVERLAPPING: TrialPlan = varied(checkpoints=CheckpointPlan(interval_ms=30, max_concurrent=2, async_ms_max=40))
"""Most checkpoints are triggered while the previous one is under way, several batches after it."""

LATE: TrialPlan = with_faults(
    ScheduledFault(
        DelayChannel(SOURCE, STATEFUL, latency_ms=14, duration_ms=150), After(ProtocolPoint.ATTEMPT_RUNNING)
    ),
    plan=varied(checkpoints=CheckpointPlan(interval_ms=18)),
)
"""One of two channels into a keyed subtask is delayed by almost a checkpoint interval."""

STANDS: TrialPlan = with_faults(
    ScheduledFault(PauseWorker(STATEFUL, duration_ms=60), After(ProtocolPoint.ALIGNMENT_COMPLETED, STATEFUL))
)
"""The first process that has aligned stands still in the synchronous part of its snapshot, for two intervals."""

RECORD_BYTES_MIN = 8
"""A record has a key and a value; no format packs both into fewer bytes."""

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
        happened(formula.counts["checkpoints"] >= 1, "a checkpoint was there to check", trial)


@inspects
@pytest.mark.clause("SNP-7")
def test_every_part_of_a_completed_checkpoint_says_how_many_bytes_it_wrote(trials: Trials) -> None:
    trial = trials.valid(WIDE)
    happened(_parts(trial), "a checkpoint completed", trial)
    views = {view.checkpoint: view for view in trial.history.checkpoints}
    written = 0
    for checkpoint, parts in _parts(trial).items():
        measured = sorted(part.subtask for part in parts)
        # A checkpoint has no part of a subtask that had finished before it.
        expected = sorted(set(trial.record.subtasks) - set(views[checkpoint].finished))
        require(
            measured == expected, f"checkpoint {checkpoint} is measured once for each of {expected}", trial
        )
        for part in parts:
            size = sum(file.size for file in views[checkpoint].files.get(part.subtask, ()))
            require(part.bytes_written == size, f"{part} wrote the {size} bytes of its files", trial)
            written += size
    happened(written, "some part has state files", trial)


@pytest.mark.nightly_on_clusters
@inspects
@pytest.mark.needs(Capability.PAUSE)
@pytest.mark.clause("SNP-7")
def test_the_length_of_the_synchronous_part_is_measured(trials: Trials) -> None:
    """A process stands still between the end of its alignment and its snapshot; others do not."""
    stood, longest_ms = 0.0, 0.0
    for trial in trials.all_valid(STANDS):
        fault = trial.record.plan.faults[0].fault
        assert isinstance(fault, PauseWorker)
        (fired,) = trial.record.faults
        require(fired.outcome == "fired" and trial.record.recoveries == 0, "it goes on by itself", trial)
        for part in trial.record.snapshots:
            if part.subtask == trial.subtask(STATEFUL):
                stood = max(stood, part.sync_ms / fault.duration_ms)
            else:
                longest_ms = max(longest_ms, part.sync_ms / fault.duration_ms)
    happened(stood >= 0.8, f"a synchronous part took {stood:.2f} of the time that its process stood still")
    assert longest_ms < 0.5, f"a process that did not stand still took {longest_ms:.2f} of that time"


@slow
@pytest.mark.clause("SNP-7")
def test_the_length_of_the_asynchronous_part_is_measured(trials: Trials) -> None:
    longest_ms = 0.0
    for trial in trials.all_valid(SLOW):
        stateful = trial.job.in_role(Role.STATEFUL)
        parts = [part for part in trial.record.snapshots if part.subtask in stateful]
        longest_ms = max([longest_ms, *(part.async_ms for part in parts)])
    asked_ms = trial.record.plan.checkpoints.async_ms_max
    assert longest_ms >= asked_ms / 2, (
        f"parts take up to {asked_ms} ms, and the longest took {longest_ms:g} ms"
    )


@inspects
@pytest.mark.clause("ALN-3")
def test_the_length_of_an_alignment_and_the_bytes_held_back_meanwhile_are_measured(trials: Trials) -> None:
    """A channel is delayed by more than anything else takes, so its receiver waits for about that long."""
    late_ms, held = 0.0, list[int]()
    for trial in trials.all_valid(LATE):
        fault = trial.record.plan.faults[0].fault
        assert isinstance(fault, DelayChannel)
        waiting = [part for part in trial.record.snapshots if part.subtask == trial.subtask(STATEFUL)]
        late_ms = max([late_ms, *(part.alignment_ms / fault.latency_ms for part in waiting)])
        held += [part.alignment_buffered_bytes for part in waiting if part.alignment_buffered_bytes]
    happened(
        late_ms >= 0.5,
        f"the longest alignment took {late_ms:.2f}, over half of the time that a channel was late",
    )
    happened(held, "an alignment held back bytes of records that kept coming")
    happened(
        len(set(held)) > 1 and min(held) >= RECORD_BYTES_MIN,
        f"alignments held back whole records, some more of them than others: {held}",
    )


@inspects
@pytest.mark.clause("ALN-3")
def test_subtasks_with_several_inputs_were_seen_to_align_and_sources_were_not(trials: Trials) -> None:
    done = trials.all_valid(WIDE)
    seen = [part for trial in done for parts in _parts(trial).values() for part in parts]
    readers = done[0].job.in_role(Role.SOURCE)
    aligned = [part for part in seen if part.alignment_ms > 0]
    happened(aligned, f"in some part of a completed checkpoint a subtask aligned: {seen}")
    sources = [part for part in aligned if part.subtask in readers]
    assert not sources, f"a source has no inputs to align: {sources}"
    idle = [part for part in seen if part.alignment_buffered_bytes and not part.alignment_ms]
    assert not idle, f"bytes were held back by an alignment that took no time: {idle}"


@inspects
@pytest.mark.needs(Capability.DETERMINISTIC_REPLAY)
@pytest.mark.clause("ALN-3", "SNP-7")
def test_a_part_is_measured_while_its_checkpoint_is_under_way(trials: Trials) -> None:
    """Only virtual time is the same for all processes."""
    for trial in trials.all_valid(WIDE):
        checkpoints = {c.checkpoint: c for c in trial.record.checkpoints}
        for number, parts in _parts(trial).items():
            whole = checkpoints[number]
            for part in parts:
                began_ms = part.alignment_started_ms
                took_ms = part.alignment_ms + part.sync_ms + part.async_ms
                require(
                    whole.triggered_at_ms <= began_ms
                    and began_ms + took_ms <= whole.ended_at_ms + ROUNDING_MS,
                    f"{part} lies within {whole}",
                    trial,
                )


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
    happened(len(positions) >= 2, "several checkpoints completed", trial)
    for earlier, later in pairwise(positions):
        back = [split for split in earlier if later.get(split, -1) < earlier[split]]
        require(not back, f"no source goes back from checkpoint to checkpoint, but {back} did", trial)
    advanced = sum(sum(later.values()) > sum(earlier.values()) for earlier, later in pairwise(positions))
    happened(advanced >= 1, "sources read on between two checkpoints", trial)


@pytest.mark.nightly_on_clusters
@slow
@pytest.mark.clause("BAR-5", "BAR-4")
def test_records_flow_while_a_checkpoint_is_under_way(trials: Trials) -> None:
    overlapping = 0
    for trial in trials.all_valid(OVERLAPPING):
        views = {view.checkpoint: view for view in trial.history.checkpoints}
        all_of_it = max(sum(view.positions.values()) for view in views.values())
        for earlier, later in pairwise(_completed(trial)):
            before, after = (sum(views[entry.checkpoint].positions.values()) for entry in (earlier, later))
            if later.triggered_at_ms < earlier.ended_at_ms and before < all_of_it:
                overlapping += 1
                require(after > before, f"sources went on between {earlier} and {later}", trial)
    happened(overlapping, "two checkpoints were under way at once")


@slow
@pytest.mark.clause("SNP-1", "BAR-5")
def test_a_subtask_goes_on_while_its_part_is_being_stored(trials: Trials) -> None:
    """It takes its next barrier, and so all records before it, while its previous part is still being stored."""
    went_on = waited = 0
    for trial in trials.all_valid(SLOW):
        for subtask in trial.job.in_role(Role.STATEFUL):
            own = sorted(
                (part for part in trial.record.snapshots if part.subtask == subtask),
                key=lambda part: part.checkpoint,
            )
            for earlier, later in pairwise(own):
                went_on += _aligned_ms(later) < _aligned_ms(earlier) + earlier.sync_ms + earlier.async_ms
                waited += 1
    happened(went_on, f"a subtask took its next barrier before its part was stored, in one of {waited} cases")


@slow
@pytest.mark.clause("SNP-3")
def test_a_barrier_is_forwarded_before_the_part_is_stored(trials: Trials) -> None:
    """A sink acknowledges the barrier long before an upstream subtask whose part takes long."""
    lead_ms, asked_ms = 0.0, 0.0
    for trial in trials.all_valid(SLOW):
        sinks, stateful = trial.job.in_role(Role.SINK), trial.job.in_role(Role.STATEFUL)
        asked_ms = trial.record.plan.checkpoints.async_ms_max
        for checkpoint in _completed(trial):
            reported_ms = {
                line.operation.subtask: line.time_ms
                for line in trial.history.of(Acknowledged)
                if line.operation.checkpoint == checkpoint.checkpoint
            }
            if not reported_ms.keys() >= {*sinks, *stateful}:
                continue  # some had finished before it
            last = max(reported_ms[subtask] for subtask in stateful)
            lead_ms = max(lead_ms, last - min(reported_ms[subtask] for subtask in sinks))
    happened(
        lead_ms > asked_ms / 4,
        f"a sink had the barrier long before a part was stored that takes up to {asked_ms:g} ms, not {lead_ms:g} ms",
    )


@slow
@pytest.mark.uses("checkpoints.max_concurrent")
@pytest.mark.clause("BAR-4")
@pytest.mark.parametrize("most", [pytest.param(1, marks=pytest.mark.nightly_on_clusters), 2])
def test_as_many_checkpoints_are_in_flight_as_configured_and_no_more(trials: Trials, most: int) -> None:
    plan = varied(
        checkpoints=CheckpointPlan(interval_ms=8, min_pause_ms=4, max_concurrent=most, async_ms_max=30)
    )
    seen = 0
    for trial in trials.all_valid(plan):
        for checkpoint in trial.record.checkpoints:
            at = checkpoint.triggered_at_ms
            others = [c for c in trial.record.checkpoints if c.triggered_at_ms <= at < c.ended_at_ms]
            require(len(others) <= most, f"at {at} ms at most {most} are in flight, not {others}", trial)
            seen = max(seen, len(others))
    happened(seen == most, f"as many were in flight at once as may be, {most}, and not {seen}")


@pytest.mark.nightly_on_clusters
@inspects
@pytest.mark.clause("BAR-4")
def test_the_pause_between_checkpoints_is_kept(trials: Trials) -> None:
    plan = varied(checkpoints=CheckpointPlan(interval_ms=8, min_pause_ms=4, async_ms_max=30))
    for trial in trials.all_valid(plan):
        # The last one follows the end of all input: waiting with it would gain nothing.
        regular = sorted(trial.record.checkpoints, key=lambda c: c.triggered_at_ms)[:-1]
        happened(len(regular) >= 2, "there is a pause between two checkpoints", trial)
        pause_ms = trial.record.plan.checkpoints.min_pause_ms
        for earlier, later in pairwise(regular):
            waited = later.triggered_at_ms - earlier.ended_at_ms
            require(waited >= pause_ms - ROUNDING_MS, f"{later} waits {pause_ms} ms", trial)


def _aligned_ms(part: SnapshotRecord) -> float:
    """Return when the last barrier of a part had arrived, on the trial's clock as the subtask knows it."""
    return part.alignment_started_ms + part.alignment_ms


def _completed(trial: Trial) -> list[CheckpointRecord]:
    return sorted(
        (c for c in trial.record.checkpoints if c.status == "completed"), key=lambda c: c.checkpoint
    )
