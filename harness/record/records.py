"""The records of a trial and of a campaign, which reports render. They are read and written as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.control_records import ControlsRecord
from barrier_tck.harness.record.history import End, History, Recorded
from barrier_tck.harness.record.message_trace import TraceEvent
from barrier_tck.harness.record.operations import (
    AttemptEnded,
    AttemptRunning,
    AttemptStarted,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
    Committed,
    Restored,
)
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.verdict import Finding, Verdict

RECORD_VERSION = 1


class FaultRecord(msgspec.Struct, frozen=True):
    """What became of one planned fault: one line of ``faults.jsonl``."""

    index: int
    """Position in the plan's schedule."""
    label: str
    kind: str
    """The fault's tag, for instance ``kill_executor``."""
    trigger: str
    """The trigger as a phrase, for instance ``after snapshot_taken of totals[0], 2nd time``."""
    point: str | None
    """The protocol point it was aimed at, or None if it was timed."""
    outcome: str
    """``fired``, ``not_fired``, or ``skipped``."""
    fired_at_ms: float | None = None
    target: str = ""
    """What was hit, for instance ``executor 1 (pid 4711)``."""
    reason: str = ""
    """Why it did not fire or was skipped."""
    attempt: int | None = None
    """The attempt that ran when it fired."""
    healed_at_ms: float | None = None
    """When it was undone, if it lasts for a time: after its duration, or at the end of the run."""
    files: tuple[str, ...] = ()
    """The files of durable storage that were hit, by the paths that the system's checkpoints use."""
    phase: str | None = None
    """The ``faults.vocabulary.Phase`` in which it fired; None if it did not fire, and in older records."""
    went_on: bool = False
    """Whether it killed a subtask that was seen to process records again later; False in older records."""


class CheckpointRecord(msgspec.Struct, frozen=True):
    """One checkpoint as the coordinator saw it. Times in milliseconds since the trial's start."""

    checkpoint: int
    attempt: int
    status: str
    """``completed`` or ``aborted``."""
    triggered_at_ms: float
    ended_at_ms: float
    reason: str = ""


class SnapshotRecord(msgspec.Struct, frozen=True):
    """One subtask's part of a checkpoint (ALN-3, SNP-7): one line of ``metrics.jsonl``.

    ``alignment_started_ms`` is the time of the first barrier. Alignment, synchronous part and asynchronous part
    follow one another; the length of each is recorded.
    """

    checkpoint: int
    attempt: int
    subtask: str
    alignment_started_ms: float
    alignment_ms: float
    alignment_buffered_bytes: int
    sync_ms: float
    async_ms: float
    bytes_written: int
    """By all state files together."""
    channel_bytes: int = 0
    """By records in flight among them (UNA-3); 0 in older records."""


class AttemptRecord(msgspec.Struct, frozen=True):
    """One deployment of the dataflow."""

    attempt: int
    started_at_ms: float
    running_at_ms: float | None
    """When every subtask ran, or None if that never happened."""
    ended_at_ms: float
    end: str
    """``finished``, ``failed``, or ``stopped``."""
    reason: str = ""
    restored_checkpoint: int | None = None


class RestoreRecord(msgspec.Struct, frozen=True):
    """Which copy served a range of key groups when a subtask restored its state (LOC-4)."""

    attempt: int
    checkpoint: int
    subtask: str
    at_ms: float
    first_key_group: int
    end_key_group: int
    """The first key group after the range."""
    served_by: str
    """``secondary`` (local) or ``primary``."""
    reason: str = ""
    """Why the local copy did not serve it."""


def restores_of(history: History) -> tuple[RestoreRecord, ...]:
    """Return the restores of a history, in its order; empty for a system that does not report them."""
    return tuple(
        RestoreRecord(
            attempt=restored.operation.attempt,
            checkpoint=restored.operation.checkpoint,
            subtask=restored.operation.subtask,
            at_ms=restored.time_ms,
            first_key_group=file.key_groups[0],
            end_key_group=file.key_groups[1],
            served_by=file.served_by.value,
            reason=file.detail or (file.reason.value if file.reason is not None else ""),
        )
        for restored in history.of(Restored)
        for file in restored.operation.files
    )


def attempts_of(history: History) -> tuple[AttemptRecord, ...]:
    """Return the attempts that a history reports, for a system that gives no records of them."""
    begun = {line.operation.attempt: line for line in history.of(AttemptStarted)}
    running = {line.operation.attempt: line.time_ms for line in history.of(AttemptRunning)}
    ended = {line.operation.attempt: line for line in history.of(AttemptEnded)}
    last_ms = history.operations[-1].time_ms if history.operations else 0.0
    found = []
    for attempt, start in begun.items():
        end = ended.get(attempt)
        if end is not None:
            how = "finished" if end.operation.reason is Reason.FINISHED else "failed"
        else:
            last = attempt == max(begun)
            how = "finished" if last and history.end is End.FINISHED else "stopped" if last else "failed"
        found.append(
            AttemptRecord(
                attempt=attempt,
                started_at_ms=start.time_ms,
                running_at_ms=running.get(attempt),
                ended_at_ms=end.time_ms if end is not None else last_ms,
                end=how,
                reason=end.operation.detail if end is not None else "",
                restored_checkpoint=start.operation.restored_checkpoint,
            )
        )
    return tuple(found)


def checkpoints_of(history: History) -> tuple[CheckpointRecord, ...]:
    """Return the checkpoints that a history reports as ended, for a system that gives no records of them.

    One whose beginning was not reported began when it ended; one without an attempt is of the latest one.
    """
    begun: dict[int, Recorded[CheckpointTriggered]] = {}
    attempt, found = 0, {}
    for line in history.operations:
        match line.operation:
            case AttemptStarted(attempt=attempt):
                pass
            case CheckpointTriggered(checkpoint=checkpoint) as triggered:
                begun[checkpoint] = Recorded(line.index, line.time_ms, line.process, triggered)
            case (
                CheckpointCompleted(checkpoint=checkpoint) | CheckpointAborted(checkpoint=checkpoint) as ended
            ):
                start = begun.get(checkpoint)
                of_attempt = ended.attempt if start is None else start.operation.attempt
                aborted = isinstance(ended, CheckpointAborted)
                found[checkpoint] = CheckpointRecord(
                    checkpoint=checkpoint,
                    attempt=attempt if of_attempt is None else of_attempt,
                    status="aborted" if aborted else "completed",
                    triggered_at_ms=line.time_ms if start is None else start.time_ms,
                    ended_at_ms=line.time_ms,
                    reason=(ended.detail or ended.reason.value)
                    if isinstance(ended, CheckpointAborted)
                    else "",
                )
    return tuple(found.values())


def batches_committed(history: History) -> int:
    """Return for how many checkpoints, or micro-batches, some output was committed."""
    return len({commit.operation.checkpoint for commit in history.of(Committed)} - {None})


class TrialRecord(msgspec.Struct, frozen=True):
    """One judged trial: the ``record.json`` of a trial's directory."""

    version: int
    trial: int
    system: str
    """Name of the system under test, for instance ``reference-spark``."""
    world: str
    """``simulated`` or ``spark``."""
    plan: TrialPlan
    verdict: Verdict
    findings: tuple[Finding, ...]
    end: str
    end_reason: str
    started_at: str
    """Wall clock, ISO 8601 with zone."""
    wall_seconds: float
    duration_ms: float
    """Length on the trial's own clock (virtual in the simulator)."""
    faults: tuple[FaultRecord, ...] = ()
    attempts: tuple[AttemptRecord, ...] = ()
    checkpoints: tuple[CheckpointRecord, ...] = ()
    snapshots: tuple[SnapshotRecord, ...] = ()
    restores: tuple[RestoreRecord, ...] = ()
    """Which copy served which key groups, in every attempt that restored state."""
    subtasks: tuple[str, ...] = ()
    """Every subtask of the job, upstream first."""
    trace_digest: str | None = None
    environment: dict[str, str] = {}
    measurements: dict[str, float] = {}
    """Named numbers worth showing, units in the name, for instance ``kill_to_first_record_ms``."""
    opened_as: str = ""
    """The name by which ``--system`` opens the system; empty in records of older versions."""
    refused_connections: dict[str, int] = {}
    """How many connections the system refused, by a name for the reason."""
    vacuity_reasons: dict[str, str] = msgspec.field(default_factory=dict, name="could_show")
    """Way to break recovery (``harness.system.broken_recovery``) -> why the trial would not have shown it; empty text:
    it would have."""
    batches_committed: int = 0
    """How many checkpoints, or micro-batches, some output was committed for; 0 in records of older versions."""

    @property
    def faults_fired(self) -> int:
        """Return how many planned faults fired."""
        return sum(fault.outcome == "fired" for fault in self.faults)

    @property
    def recoveries(self) -> int:
        """Return how many attempts after the first one are known to have reached the running state."""
        return sum(attempt.running_at_ms is not None for attempt in self.attempts[1:])

    @property
    def recoveries_reported(self) -> bool:
        """Return whether the system reported its attempts, and which of them ran."""
        ran = [attempt.running_at_ms is not None for attempt in self.attempts]
        return any(ran) or bool(ran and self.end != End.FINISHED.value)

    @property
    def checkpoints_completed(self) -> int:
        return sum(checkpoint.status == "completed" for checkpoint in self.checkpoints)


NO_SHAPE = "nothing special"
"""The shape of a smallest plan that has no faults and is in all else as plans usually are."""
NOT_SMALLER = "not made smaller"
"""The shape of findings whose plans were not made smaller: they may be several."""


class FindingGroup(msgspec.Struct, frozen=True):
    """Trials that failed in the same way: one finding of a campaign, however many trials showed it."""

    clause: str
    """The clause that was broken first; empty if the checker names none."""
    checker: str
    shape: str
    """What the smallest plan that shows it needs, for instance ``an attempt fails``."""
    trials: int
    """How many trials showed it."""
    numbers: tuple[int, ...]
    """The first of them."""
    smallest_trial: int
    """The trial whose plan is, or became, the smallest."""
    plan: str = ""
    """The smallest plan that fails likewise, relative to the run directory; empty: the trial's own."""
    faults: int = 0
    """How many faults that plan has."""
    summary: str = ""
    """What was seen in that trial, as a sentence."""
    failed_runs: int = 1
    """In how many of ``runs`` runs that plan failed; where runs do not differ, in one of one."""
    runs: int = 1
    presumed: int = 0
    """Trials of which no run showed that they need no more than this plan: they show the same, and have its shape."""


class PassingNow(msgspec.Struct, frozen=True):
    """A stored plan that failed once and passes now."""

    file: str
    """Its name in the store."""
    trial: int
    clause: str
    checker: str
    shape: str
    on_version: str
    """The version on which it failed."""


class StoreRecord(msgspec.Struct, frozen=True):
    """What a campaign took from a store of plans, and gave to it."""

    location: str
    tried_first: int = 0
    """Stored plans that had failed before: the first trials of the campaign."""
    passing_now: tuple[PassingNow, ...] = ()
    """Those of them that pass now. They are not tried again."""
    failed: int = 0
    """Plans of findings that were stored."""
    new: int = 0
    """Plans that reached something new, and were stored."""
    new_tried: int = 0
    """Stored plans that had reached something new: the trials behind those that had failed before."""
    notices: tuple[str, ...] = ()
    """What could not be read, written or run, and why."""


class CampaignRecord(msgspec.Struct, frozen=True):
    """A campaign: the ``campaign.json`` of a run directory. Its trials lie in ``trials/NNNNN/``."""

    version: int
    name: str
    system: str
    seed: int
    verdict: Verdict
    trials: int
    valid: int
    invalid: int
    unknown: int
    faults_fired: int
    recoveries: int
    checkpoints_completed: int
    started_at: str
    wall_seconds: float
    environment: dict[str, str] = {}
    configuration: dict[str, Any] = {}
    """The whole campaign file, with its defaults filled in."""
    interrupted: bool = False
    fault_kinds: tuple[str, ...] = ()
    """Tags of the faults that the system can suffer: the columns of the matrix of phases and faults."""
    fault_phases: tuple[str, ...] = ()
    """Phases that can be distinguished in the system: the rows of that matrix."""
    findings: tuple[Finding, ...] = ()
    """Findings that only all trials together can show, for instance that duplicates do occur (ALO-2)."""
    failing: tuple[int, ...] = ()
    """Trials that were not valid, worst first."""
    shrunk: dict[str, str] = {}
    """Trial number -> path of the smallest failing plan, relative to the run directory."""
    opened_as: str = ""
    """What ``--system`` opens the system by; empty in records of older versions."""
    refused_connections: dict[str, int] = {}
    """How many connections the system refused in all trials, by a name for the reason."""
    recoveries_reported: bool = True
    """Whether the system reported which attempts ran, in any trial."""
    controls: ControlsRecord | None = None
    """Trials run again with recovery broken, and which clauses could have been violated; None in records of older
    versions."""
    shard: str = ""
    """Which part of a campaign this is, for instance ``2/5``; empty: the whole."""
    groups: tuple[FindingGroup, ...] = ()
    """The trials that are INVALID, grouped by what they showed; empty in records of older versions."""
    store: StoreRecord | None = None
    """None: there was no store of plans."""


class TrialSummary(msgspec.Struct, frozen=True):
    """One trial in short: one line of ``trials.jsonl``, which has a line for every trial, kept in full or not.

    It contains findings and faults, so that a report over all trials (verdicts per clause, phases by fault) needs no
    ``record.json``. Only ``trial`` and ``verdict`` are required.
    """

    trial: int
    verdict: Verdict
    seed: int | None = None
    note: str = ""
    """The plan's note."""
    setup: str = ""
    """Settings of the runtime that are not its defaults: mode, state backend, local recovery."""
    end: str = ""
    end_reason: str = ""
    started_at: str = ""
    wall_seconds: float = 0.0
    duration_ms: float = 0.0
    faults_planned: int = 0
    faults_fired: int = 0
    recoveries: int = 0
    checkpoints_completed: int = 0
    checkpoints_aborted: int = 0
    trace_digest: str | None = None
    findings: tuple[Finding, ...] = ()
    faults: tuple[FaultRecord, ...] = ()
    measurements: dict[str, float] = {}
    refused_connections: dict[str, int] = {}
    vacuity_reasons: dict[str, str] = msgspec.field(default_factory=dict, name="could_show")
    """The same as in ``TrialRecord``."""
    batches_committed: int = 0
    """The same as in ``TrialRecord``."""
    recoveries_reported: bool = True
    """Whether the system reported which attempts ran."""


def summary_of(record: TrialRecord) -> TrialSummary:
    """Return a trial's record in short, as ``trials.jsonl`` keeps it."""
    return TrialSummary(
        trial=record.trial,
        verdict=record.verdict,
        seed=record.plan.seed,
        note=record.plan.note,
        setup=_setup_of(record.plan),
        end=record.end,
        end_reason=record.end_reason,
        started_at=record.started_at,
        wall_seconds=record.wall_seconds,
        duration_ms=record.duration_ms,
        faults_planned=max(len(record.plan.faults), len(record.faults)),
        faults_fired=record.faults_fired,
        recoveries=record.recoveries,
        recoveries_reported=record.recoveries_reported,
        checkpoints_completed=record.checkpoints_completed,
        checkpoints_aborted=sum(checkpoint.status == "aborted" for checkpoint in record.checkpoints),
        trace_digest=record.trace_digest,
        findings=record.findings,
        faults=record.faults,
        measurements=record.measurements,
        refused_connections=record.refused_connections,
        vacuity_reasons=record.vacuity_reasons,
        batches_committed=record.batches_committed,
    )


def _setup_of(plan: TrialPlan) -> str:
    default = TrialPlan()
    parts = (
        [plan.checkpoints.mode.replace("_", "-")] if plan.checkpoints.mode != default.checkpoints.mode else []
    )
    parts += [plan.state_backend] if plan.state_backend != default.state_backend else []
    parts += ["incremental"] if plan.checkpoints.incremental else []
    compression = plan.checkpoints.compression
    parts += [f"{compression} snapshots"] if compression != default.checkpoints.compression else []
    storage = plan.checkpoints.storage
    parts += [f"checkpoints in {storage}"] if storage != default.checkpoints.storage else []
    parts += ["local recovery"] if plan.local_recovery else []
    return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class TrialResult:
    """A judged trial together with what it was judged by; a trial's directory is written from it."""

    record: TrialRecord
    history: History | None
    """None if the system could not run the plan at all."""
    trace: tuple[str, ...] = ()
    trace_events: tuple[TraceEvent, ...] = ()
    """What passed through the channels around barriers, if the system logged it."""
    reached: tuple[str, ...] = ()
    """What the system's protocol came through, if it was asked."""
