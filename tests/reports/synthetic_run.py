"""A deterministic run directory as a Spark campaign leaves it: twelve trials, kills at six protocol points.

Trial 6 is INVALID (two keys counted twice), trial 9 UNKNOWN (its fault did not fire), the others are VALID.
The numbers come from a seeded generator and look like those of a small cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import msgspec

from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.kill_executor import KillExecutor
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.vocabulary import PHASE_OF_POINT, After, At, Phase, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.trial_plan import TrialPlan, WorkloadPlan
from barrier_tck.harness.record.records import (
    AttemptRecord,
    CampaignRecord,
    CheckpointRecord,
    FaultRecord,
    SnapshotRecord,
    TrialRecord,
    summary_of,
)
from barrier_tck.harness.record.verdict import Finding, Verdict

SUBTASKS = ("flights[0]", "flights[1]", "totals[0]", "totals[1]", "committed[0]")
POINTS = (
    ProtocolPoint.RECORDS_PROCESSED,
    ProtocolPoint.ALIGNMENT_STARTED,
    ProtocolPoint.SNAPSHOT_TAKEN,
    ProtocolPoint.ALL_ACKNOWLEDGED,
    ProtocolPoint.CHECKPOINT_COMPLETED,
    ProtocolPoint.RESTORE_STARTED,
)
INVALID_TRIAL = 6
UNKNOWN_TRIAL = 9
EXAMPLES = (
    '{"carrier": "UA", "origin": "EWR", "flights": 46087} twice, expected once',
    '{"carrier": "B6", "origin": "JFK", "flights": 42076} instead of 21038',
)


def plan_of(trial: int, note: str = "") -> TrialPlan:
    """Return the plan of one trial: one kill at a protocol point and, in every third trial, a second, timed fault."""
    point = POINTS[trial % len(POINTS)]
    subtask = (
        None if point in (ProtocolPoint.ALL_ACKNOWLEDGED, ProtocolPoint.CHECKPOINT_COMPLETED) else "totals[0]"
    )
    faults = [ScheduledFault(KillExecutor("totals[0]"), After(point, subtask, nth=2))]
    if trial % 3 == 2:
        faults.append(ScheduledFault(KillWorker("flights[1]"), At(9_500)))
    if trial == UNKNOWN_TRIAL:
        faults = [ScheduledFault(CrashCoordinator(), After(ProtocolPoint.CHECKPOINT_ABORTED, None))]
    return TrialPlan(
        seed=1_000 + trial,
        workload=WorkloadPlan(name="flights", records_per_second=20_000),
        faults=tuple(faults),
        note=note,
    )


@dataclass
class _Story:
    """The clock and the lists of one trial while it is invented."""

    random: Random
    now: float = 120.0
    checkpoint: int = 0
    completed: int | None = None
    attempts: list[AttemptRecord] = field(default_factory=list)
    checkpoints: list[CheckpointRecord] = field(default_factory=list)
    snapshots: list[SnapshotRecord] = field(default_factory=list)

    def take_checkpoint(self, attempt: int, completes: bool) -> None:
        """Take one checkpoint; an incomplete one stops after the sources and is aborted."""
        self.checkpoint += 1
        triggered, upstream_done = self.now, self.now
        ended = triggered
        for place, subtask in enumerate(SUBTASKS if completes else SUBTASKS[:2]):
            started = upstream_done + self.random.uniform(2, 15)
            alignment = 0.0 if place < 2 else self.random.expovariate(1 / 90)
            sync = self.random.uniform(1, 12)
            rest = self.random.uniform(40, 420)
            self.snapshots.append(
                SnapshotRecord(
                    checkpoint=self.checkpoint,
                    attempt=attempt,
                    subtask=subtask,
                    alignment_started_ms=started,
                    alignment_ms=alignment,
                    alignment_buffered_bytes=int(alignment * 9_000),
                    sync_ms=sync,
                    async_ms=rest,
                    bytes_written=self.random.randint(900, 400_000),
                )
            )
            if place in (1, 3):
                upstream_done = started + alignment + sync
            ended = max(ended, started + alignment + sync + rest)
        reason = "" if completes else "the attempt ended"
        status = "completed" if completes else "aborted"
        self.checkpoints.append(CheckpointRecord(self.checkpoint, attempt, status, triggered, ended, reason))
        self.completed = self.checkpoint if completes else self.completed
        self.now = max(ended + 50, triggered + 1_000)


def record_of(trial: int, world: str = "spark", note: str = "") -> TrialRecord:
    """Invent one trial's record from its plan."""
    plan = plan_of(trial, note)
    story = _Story(Random(plan.seed))
    faults: list[FaultRecord] = []
    start, restored = 0.0, None
    for index, scheduled in enumerate(plan.faults):
        attempt = len(story.attempts) + 1
        running = start + story.random.uniform(700, 1_400)
        story.now = running + 300
        for _ in range(story.random.randint(2, 4)):
            story.take_checkpoint(attempt, completes=True)
        missed = trial == UNKNOWN_TRIAL
        if not missed:
            story.take_checkpoint(attempt, completes=False)
            fired = story.now - 500
            story.attempts.append(
                AttemptRecord(attempt, start, running, fired + 340, "failed", "executor 1 was lost", restored)
            )
            start, restored = fired + 360, story.completed
        faults.append(_fault(index, scheduled, None if missed else fired, attempt))
    attempt = len(story.attempts) + 1
    if not any(fault.outcome != "fired" for fault in faults):
        running = start + story.random.uniform(900, 2_600)
        story.now = running + 250
    else:
        running = 900.0
    for _ in range(story.random.randint(4, 7)):
        story.take_checkpoint(attempt, completes=True)
    story.attempts.append(AttemptRecord(attempt, start, running, story.now, "finished", "", restored))
    findings = _findings(trial, len(story.checkpoints))
    gaps = [
        after.running_at_ms - before.ended_at_ms
        for before, after in zip(story.attempts, story.attempts[1:], strict=False)
        if after.running_at_ms is not None
    ]
    return TrialRecord(
        version=1,
        trial=trial,
        system=f"reference-{world}",
        world=world,
        plan=plan,
        verdict=Verdict.worst(finding.verdict for finding in findings),
        findings=findings,
        end="finished",
        end_reason="",
        started_at=f"2026-03-01T12:{trial:02d}:00+00:00",
        wall_seconds=round(story.now / 1_000 + 1.25, 3),
        duration_ms=story.now,
        faults=tuple(faults),
        attempts=tuple(story.attempts),
        checkpoints=tuple(story.checkpoints),
        snapshots=tuple(story.snapshots),
        subtasks=SUBTASKS,
        environment={"python": "3.12.3", "pyspark": "4.1.0"},
        measurements={"kill_to_first_record_ms": max(gaps) + 95.0, "records_read": 336_776.0} if gaps else {},
    )


def _fault(index: int, scheduled: ScheduledFault, fired_at: float | None, attempt: int) -> FaultRecord:
    trigger = scheduled.trigger
    return FaultRecord(
        index=index,
        label=scheduled.fault.description(),
        kind=str(scheduled.fault.__struct_config__.tag),
        trigger=f"after {trigger.point.value}, 2nd time"
        if isinstance(trigger, After)
        else f"at {trigger.time_ms} ms",
        point=trigger.point.value if isinstance(trigger, After) else None,
        outcome="not_fired" if fired_at is None else "fired",
        fired_at_ms=fired_at,
        target="" if fired_at is None else f"executor 1 (pid {4_000 + index}) on 127.0.0.2",
        reason="the point was never reached" if fired_at is None else "",
        attempt=None if fired_at is None else attempt,
        phase=None if fired_at is None else _phase(trigger),
    )


def _phase(trigger: After | At) -> Phase:
    return PHASE_OF_POINT[trigger.point] if isinstance(trigger, After) else Phase.ASYNCHRONOUS_PART


def _findings(trial: int, checkpoints: int) -> tuple[Finding, ...]:
    output = Finding(
        "exactly-once-output", ("SNK-1", "REC-1", "ALN-1"), Verdict.VALID, "Output equals the batch query."
    )
    if trial == INVALID_TRIAL:
        output = Finding(
            "exactly-once-output",
            ("SNK-1", "REC-1", "ALN-1"),
            Verdict.INVALID,
            "2 of 35 output rows differ from the batch query over the same input.",
            {"expected": 35, "extra": 1, "different": 1},
            EXAMPLES,
        )
    faults = Finding("faults-fired", ("CAM-3",), Verdict.VALID, "Every planned fault fired.")
    if trial == UNKNOWN_TRIAL:
        faults = Finding(
            "faults-fired",
            ("CAM-3",),
            Verdict.UNKNOWN,
            "1 of 1 planned faults did not fire.",
            {"not_fired": 1},
        )
    return (
        output,
        Finding(
            "snapshot-formula", ("ALN-2",), Verdict.VALID, f"{checkpoints} checkpoints fold to their state."
        ),
        Finding("progress-after-faults", ("REC-6",), Verdict.VALID, "All input was consumed."),
        faults,
    )


def campaign_of(records: list[TrialRecord], interrupted: bool = False, **changes: object) -> CampaignRecord:
    """Sum up trials as the campaign runner does."""
    counts = {verdict: sum(record.verdict is verdict for record in records) for verdict in Verdict}
    failing = sorted(
        (record for record in records if record.verdict is not Verdict.VALID),
        key=lambda record: (-record.verdict.severity, record.trial),
    )
    campaign = CampaignRecord(
        version=1,
        name="flights",
        system="reference-spark",
        seed=20_260_301,
        verdict=Verdict.worst(record.verdict for record in records),
        trials=len(records),
        valid=counts[Verdict.VALID],
        invalid=counts[Verdict.INVALID],
        unknown=counts[Verdict.UNKNOWN],
        faults_fired=sum(record.faults_fired for record in records),
        recoveries=sum(record.recoveries for record in records),
        checkpoints_completed=sum(record.checkpoints_completed for record in records),
        started_at="2026-03-01T12:00:00+00:00",
        wall_seconds=sum(record.wall_seconds for record in records),
        environment={"barrier-tck": "0.1.0", "java": "17.0.12", "pyspark": "4.1.0", "python": "3.12.3"},
        configuration={"system": "reference-spark", "trials": len(records), "workload": {"name": "flights"}},
        interrupted=interrupted,
        fault_kinds=("kill_executor", "kill_worker", "crash_coordinator"),
        fault_phases=tuple(phase.value for phase in Phase),
        failing=tuple(record.trial for record in failing),
    )
    return msgspec.structs.replace(campaign, **changes)


def write_run(
    directory: Path,
    records: list[TrialRecord],
    campaign: CampaignRecord | None = None,
    valid_kept: int = 3,
) -> Path:
    """Write a run directory; trials that are not valid and the first few valid ones are kept in full."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "trials").mkdir()
    (directory / "campaign.json").write_bytes(msgspec.json.encode(campaign or campaign_of(records)))
    lines = [msgspec.json.encode(summary_of(record)) + b"\n" for record in records]
    (directory / "trials.jsonl").write_bytes(b"".join(lines))
    kept = 0
    for record in records:
        kept += record.verdict is Verdict.VALID
        if record.verdict is not Verdict.VALID or kept <= valid_kept:
            own = directory / "trials" / f"{record.trial:05d}"
            own.mkdir()
            (own / "plan.json").write_bytes(msgspec.json.encode(record.plan))
            (own / "record.json").write_bytes(msgspec.json.encode(record))
    return directory


def spark_campaign(directory: Path) -> Path:
    """Write the whole synthetic campaign."""
    return write_run(directory, [record_of(trial) for trial in range(12)])
