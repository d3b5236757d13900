"""Local recovery: which copy served what, whatever is wrong with the nearer one; and what follows if both are gone."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest

from barrier_tck.conformance.plans import (
    CALM,
    OTHER_SOURCE,
    OTHER_STATEFUL,
    SINK,
    STATEFUL,
    kill_executor,
    kill_worker,
    varied,
    with_faults,
)
from barrier_tck.conformance.trials import Trial, Trials, assert_valid, happened, require
from barrier_tck.faults.fault import Fault
from barrier_tck.faults.kinds.damage_local_copy import DamageLocalCopy
from barrier_tck.faults.kinds.damage_primary import DamagePrimary
from barrier_tck.faults.kinds.fail_local_writes import FailLocalWrites
from barrier_tck.faults.kinds.fail_primary_writes import FailPrimaryWrites
from barrier_tck.faults.kinds.lose_host import LoseHost
from barrier_tck.faults.targets import Damage
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointingMode,
    CheckpointPlan,
    CompressionName,
    DeploymentPlan,
    NetworkPlan,
    RescalePlan,
    SavepointPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.record.operations import (
    Acknowledged,
    AttemptEnded,
    CheckpointAborted,
    CheckpointCompleted,
    Placed,
    Restored,
    ServedFrom,
)
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.system.system_under_test import Capability

pytestmark = pytest.mark.needs(
    Capability.LOCAL_RECOVERY,
    Capability.STORAGE_FAULTS,
    Capability.ATTEMPTS,
    Capability.CHECKPOINTS,
    Capability.SNAPSHOT_INSPECTION,
)

LOCAL = msgspec.structs.replace(
    varied(
        CALM,
        workload=WorkloadPlan("keyed-totals", batches=30, batch_records=3, keys=20, records_per_second=600),
        job=JobPlan(shape="chained"),
        deployment=DeploymentPlan(executors=3),
        checkpoints=CheckpointPlan(interval_ms=15, retained=3),
    ),
    local_recovery=True,
)
"""Two stateful operators in each keyed subtask, and copies of their state on the hosts."""

VICTIM, OTHER = STATEFUL, OTHER_STATEFUL
COMMITTING = After(ProtocolPoint.COMPLETION_NOTIFIED, SINK, 2)
"""The second checkpoint is complete: the one that is restored."""
PRIMARY, SECONDARY = ServedFrom.PRIMARY, ServedFrom.SECONDARY

BACKENDS = ("heap", "rocksdb")
INCREMENTS = "incremental"
RECOMPRESSED = "recompressed"
"""The copy has another format than the primary, and so a checksum of its own."""
STATES = (*BACKENDS, f"rocksdb-{INCREMENTS}", f"heap-{RECOMPRESSED}")
MODES: tuple[CheckpointingMode, ...] = ("exactly_once", "unaligned")
FULL_DISK = "full_disk"
DAMAGES = (*(damage.value for damage in Damage), FULL_DISK)


@dataclass(frozen=True)
class Fallback:
    """One cell of the matrix of fallbacks: what is wrong with the copy, of which backend, in which mode."""

    damage: str
    state: str
    mode: CheckpointingMode
    rescaled: bool
    sampled: bool
    """Whether it is tried where trials take long, too; with ``--every-fallback`` every cell is."""

    def __str__(self) -> str:
        return f"{self.damage}-{self.state}-{self.mode}" + ("-rescaled" if self.rescaled else "")

    @property
    def plan(self) -> TrialPlan:
        """Return a plan whose restore meets the damage; if it is to be rescaled, the job has become wider before."""
        # A checkpoint of the job before, and the savepoint with which that is stopped.
        before = 2 if self.rescaled else 0
        if self.damage == FULL_DISK:
            kill = kill_worker(VICTIM, After(ProtocolPoint.COMPLETION_NOTIFIED, SINK, before + 3))
            full = After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=before + 1)
            faults = (ScheduledFault(FailLocalWrites(VICTIM), full), kill)
        else:
            harm = DamageLocalCopy(VICTIM, Damage(self.damage))
            committing = After(ProtocolPoint.COMPLETION_NOTIFIED, SINK, before + 2)
            faults = (kill_worker(VICTIM, committing), _on_failure(harm))
        backend, _, special = self.state.partition("-")
        checkpoints = msgspec.structs.replace(
            LOCAL.checkpoints,
            mode=self.mode,
            incremental=special == INCREMENTS,
            local_compression="zstd" if special == RECOMPRESSED else None,
        )
        plan = msgspec.structs.replace(LOCAL, state_backend=backend, checkpoints=checkpoints)
        if self.rescaled:
            plan = msgspec.structs.replace(
                plan,
                # A full disk takes one checkpoint more than any other damage.
                workload=msgspec.structs.replace(
                    plan.workload, batches=(3 if self.damage == FULL_DISK else 2) * plan.workload.batches
                ),
                savepoints=(SavepointPlan(after_checkpoints=1, stop=True),),
                rescales=(RescalePlan({"source": 3, "totals": 3}),),
            )
        return with_faults(*faults, plan=plan)


COLUMNS = [(state, mode, rescaled) for rescaled in (False, True) for state in STATES for mode in MODES]
HEAPS = (BACKENDS[0], f"{BACKENDS[0]}-{RECOMPRESSED}")
QUICK = [(backend, mode, False) for backend in BACKENDS for mode in MODES]
"""The columns that are tried whole at every merge."""
SAMPLED = {(DAMAGES[n % len(DAMAGES)], COLUMNS[(n + 6) % len(COLUMNS)]) for n in range(len(COLUMNS))}
"""The cells that are tried where trials take long: each damage and each column. A full disk, the last damage, takes one
checkpoint more than the others, so its job is not rescaled before."""

DAMAGES_BEFORE_A_MERGE = ("missing", "unreadable", "partial", "other_lineage")
"""What is tried on clusters before every merge; the other damage there at night."""


def _cell(row: int, damage: str, column: tuple[str, CheckpointingMode, bool]) -> object:
    """Return a cell. One that shows once more what others do is tried where there is time for it."""
    state, mode, rescaled = column
    cell = Fallback(damage, *column, sampled=(damage, column) in SAMPLED)
    quick = column in QUICK or (state in HEAPS and mode == MODES[row % len(MODES)])
    needs = [pytest.mark.needs(Capability.RESCALING, Capability.SAVEPOINTS)] if rescaled else []
    # On clusters the dealt cells that rescale take longest.
    slow = [pytest.mark.nightly_on_clusters] if rescaled or damage not in DAMAGES_BEFORE_A_MERGE else []
    return pytest.param(cell, id=str(cell), marks=[*needs, *slow, *([] if quick else [pytest.mark.nightly])])


MATRIX = [_cell(row, damage, column) for row, damage in enumerate(DAMAGES) for column in COLUMNS]


def _on_failure(fault: Fault) -> ScheduledFault:
    """Strike between the failure and the restore."""
    return ScheduledFault(fault, After(ProtocolPoint.ATTEMPT_FAILED))


def _served(trial: Trial, subtask: str) -> list[ServedFrom]:
    """Return which copy served each state file of a subtask's last restore."""
    reports = [
        line.operation
        for line in trial.history.of(Restored)
        if line.operation.subtask == trial.subtask(subtask)
    ]
    happened(reports, f"{trial.subtask(subtask)} reported what it restored", trial)
    return [file.served_by for file in reports[-1].files]


def _local(plan: TrialPlan, *faults: ScheduledFault) -> TrialPlan:
    return with_faults(*faults, plan=plan)


@pytest.mark.clause("LOC-1", "LOC-4", "LOC-9")
def test_subtasks_that_return_to_their_hosts_restore_from_their_own_copies(trials: Trials) -> None:
    for trial in trials.all_valid(_local(LOCAL, kill_worker(VICTIM, COMMITTING))):
        counts = trial.finding("local-recovery").counts
        happened(
            counts["copies_kept"] > 0 and counts["placements"] > 0,
            "copies are kept, and decide placement",
            trial,
        )
        served = _served(trial, VICTIM) + _served(trial, OTHER)
        happened(SECONDARY in served, "a copy on a host served", trial)


@pytest.mark.long_on_clusters
@pytest.mark.clause("LOC-1")
def test_local_recovery_is_off_unless_configured(trials: Trials) -> None:
    plan = msgspec.structs.replace(_local(LOCAL, kill_worker(VICTIM, COMMITTING)), local_recovery=None)
    for trial in trials.all_valid(plan):
        reports = [*trial.history.of(Restored), *trial.history.of(Placed)]
        reports += [line for line in trial.history.of(Acknowledged) if line.operation.local is not None]
        require(not reports, "no local copy is reported", trial)
        written = trial.history.local_files
        require(not written, f"no file of a local copy is on a host: {written}", trial)
        require(
            written is not None or not trials.can(Capability.DETERMINISTIC_REPLAY),
            "the hosts were inspected",
            trial,
        )


@pytest.mark.long
@pytest.mark.clause("LOC-4", "LOC-5", "LOC-6", "LOC-7", "LOC-11")
@pytest.mark.parametrize("cell", MATRIX)
def test_whatever_is_wrong_with_the_copy_the_primary_serves(trials: Trials, cell: Fallback) -> None:
    if not (cell.sampled or trials.every_fallback):
        pytest.skip(
            "where trials take long, each damage and each column is in one cell, without --every-fallback"
        )
    trial = trials.valid_until(
        cell.plan,
        lambda trial: trial.finding("local-recovery").counts.get(f"met_{cell.damage}"),
        f"a restore met the copy of {cell}",
    )
    counts = trial.finding("local-recovery").counts
    require(counts["observed"] == counts["restores"], "what every restore read was seen", trial)
    wanted = {PRIMARY, SECONDARY} if cell.damage == Damage.PARTIAL.value else {PRIMARY}
    require(set(_served(trial, VICTIM)) == wanted, "the primary serves what the copy cannot", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("LOC-4", "REC-5")
@pytest.mark.parametrize(
    "backend",
    [BACKENDS[0], pytest.param(BACKENDS[1], marks=[pytest.mark.long, pytest.mark.nightly_on_clusters])],
)
def test_a_copy_that_served_one_restore_serves_the_next_one_too(trials: Trials, backend: str) -> None:
    plan = msgspec.structs.replace(LOCAL, state_backend=backend)
    again = kill_worker(VICTIM, After(ProtocolPoint.RESTORED, VICTIM))
    for trial in trials.all_valid(_local(plan, kill_worker(VICTIM, COMMITTING), again)):
        reports = [line.operation for line in trial.history.of(Restored)]
        mine = [report for report in reports if report.subtask == trial.subtask(VICTIM)]
        happened(len({report.attempt for report in mine}) >= 2, "it was restored again", trial)
        served = [{file.served_by for file in report.files} for report in mine]
        happened({SECONDARY} in served[1:], "its copy served it again", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("LOC-4", "LOC-5", "REC-5")
def test_a_copy_found_damaged_is_not_believed_by_the_next_restore(trials: Trials) -> None:
    plan = _local(
        LOCAL,
        kill_worker(VICTIM, COMMITTING),
        _on_failure(DamageLocalCopy(VICTIM, Damage.BIT_FLIPPED)),
        kill_worker(VICTIM, After(ProtocolPoint.RESTORED, VICTIM)),
    )
    for trial in trials.all_valid(plan):
        require(trial.record.end == "finished", "the job finishes", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("LOC-4", "LOC-5", "REC-5")
def test_a_restore_that_was_interrupted_is_repeated_in_full(trials: Trials) -> None:
    # Only some interruptions come while a neighbour still has to restore, so each trial has several.
    started = [After(ProtocolPoint.RESTORE_STARTED, OTHER_SOURCE, nth) for nth in range(1, 5)]
    for seed in (0, 20):
        plan = _local(
            msgspec.structs.replace(LOCAL, seed=seed, network=NetworkPlan(latency_ms_max=10)),
            kill_worker(VICTIM, COMMITTING),
            _on_failure(DamageLocalCopy(VICTIM, Damage.MISSING)),
            *[kill_worker(OTHER_SOURCE, point) for point in started],
        )
        for trial in trials.all_valid(plan):
            require(trial.record.end == "finished", "the job finishes", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("LOC-7", "LOC-4")
@pytest.mark.parametrize(
    ("primary", "second"),
    [("zstd", "none"), pytest.param("none", "zstd", marks=pytest.mark.nightly_on_clusters)],
)
@pytest.mark.parametrize(
    "damage",
    [
        Damage.BIT_FLIPPED,
        *(pytest.param(it, marks=pytest.mark.nightly_on_clusters) for it in (None, Damage.OTHER_LINEAGE)),
    ],
)
def test_a_copy_in_another_format_serves_if_it_is_intact_and_only_then(
    trials: Trials, primary: CompressionName, second: CompressionName, damage: Damage | None
) -> None:
    checkpoints = msgspec.structs.replace(LOCAL.checkpoints, compression=primary, local_compression=second)
    plan = msgspec.structs.replace(LOCAL, checkpoints=checkpoints)
    harm = () if damage is None else (_on_failure(DamageLocalCopy(VICTIM, damage)),)
    trial = trials.valid_until(
        _local(plan, kill_worker(VICTIM, COMMITTING), *harm),
        lambda trial: trial.finding("local-recovery").counts.get("other_format"),
        "a copy in another format served",
    )
    served = set(_served(trial, VICTIM))
    require(damage is None or served == {PRIMARY}, "a damaged copy does not serve", trial)


def _in_memory(plan: TrialPlan, size: int = 64 * 1024 * 1024) -> TrialPlan:
    checkpoints = msgspec.structs.replace(plan.checkpoints, local_copies="memory", local_memory_bytes=size)
    return msgspec.structs.replace(plan, checkpoints=checkpoints)


IN_MEMORY = pytest.mark.uses("checkpoints.local_copies")


@IN_MEMORY
@pytest.mark.nightly_on_clusters
@pytest.mark.clause("LOC-7", "LOC-1", "LOC-4", "LOC-9")
@pytest.mark.parametrize("backend", [BACKENDS[0], pytest.param(BACKENDS[1], marks=pytest.mark.long)])
def test_copies_in_memory_outlive_the_process_of_a_subtask(trials: Trials, backend: str) -> None:
    plan = msgspec.structs.replace(_in_memory(LOCAL), state_backend=backend)
    for trial in trials.all_valid(_local(plan, kill_worker(VICTIM, COMMITTING))):
        counts = trial.finding("local-recovery").counts
        happened(counts.get("from_memory"), "copies in memory served", trial)
        require(set(_served(trial, VICTIM)) == {SECONDARY}, "that of the killed subtask, too", trial)


@IN_MEMORY
@pytest.mark.nightly_on_clusters
@pytest.mark.clause("LOC-7", "LOC-4", "LOC-5", "LOC-9")
def test_copies_in_memory_are_lost_with_their_executor_and_the_primary_serves(trials: Trials) -> None:
    for trial in trials.all_valid(_local(_in_memory(LOCAL), kill_executor(VICTIM, COMMITTING))):
        counts = trial.finding("local-recovery").counts
        happened(counts.get("met_memory_lost"), "a restore came after the loss of its copy", trial)
        require(set(_served(trial, VICTIM)) == {PRIMARY}, "nothing was left of it", trial)
        happened(counts.get("from_memory"), "copies in the memory of others served", trial)


@IN_MEMORY
@pytest.mark.nightly_on_clusters
@pytest.mark.clause("LOC-7", "LOC-2", "LOC-3")
def test_a_copy_for_which_there_is_no_memory_fails_no_checkpoint_and_says_why(trials: Trials) -> None:
    plan = _in_memory(LOCAL, size=100)
    for trial in trials.all_valid(_local(plan, kill_worker(VICTIM, COMMITTING))):
        reports = [line.operation.local for line in trial.history.of(Acknowledged)]
        why = {report.detail for report in reports if report is not None and report.reason is not None}
        require(
            why and all("of 100 bytes are used" in reason for reason in why), f"{why} name the limit", trial
        )
        counts = trial.finding("local-recovery").counts
        happened(counts["completed_without_copy"] > 0, "checkpoints complete without a copy", trial)
        require(set(_served(trial, VICTIM)) == {PRIMARY}, "the primary serves", trial)


@IN_MEMORY
@pytest.mark.nightly_on_clusters
@pytest.mark.clause("LOC-7", "LOC-2", "LOC-4")
def test_a_copy_for_which_there_is_no_memory_takes_none_from_that_of_the_newest_checkpoint(
    trials: Trials,
) -> None:
    """How large copies are is the system's own business, so several limits are tried: one has room for one copy.

    Then the first copy is kept, the second one is not, and the third one is. It serves although the fourth is not kept.
    """
    served = set[ServedFrom]()
    for size in (1_000, 1_500, 2_200, 3_300, 5_000, 7_500):
        plan = _in_memory(LOCAL, size)
        trial = trials.valid(_local(plan, kill_worker(SINK, After(ProtocolPoint.SNAPSHOT_TAKEN, SINK, 4))))
        kept = {
            line.operation.local.kept
            for line in trial.history.of(Acknowledged)
            if line.operation.subtask == trial.subtask(VICTIM) and line.operation.local is not None
        }
        if kept == {True, False}:
            served.update(_served(trial, VICTIM))
    happened(
        SECONDARY in served, "where there was room for one copy, that of the newest checkpoint served", trial
    )


@IN_MEMORY
@pytest.mark.clause("LOC-7", "LOC-4", "LOC-6")
@pytest.mark.parametrize(
    "damage",
    [
        Damage.TRUNCATED,
        *(
            pytest.param(one, marks=pytest.mark.nightly_on_clusters)
            for one in (Damage.PARTIAL, Damage.OTHER_LINEAGE)
        ),
        pytest.param(Damage.UNREADABLE, marks=pytest.mark.needs(Capability.DETERMINISTIC_REPLAY)),
    ],
)
def test_a_damaged_copy_in_memory_does_not_serve(trials: Trials, damage: Damage) -> None:
    """A directory in memory can become unreadable in the simulator only."""
    if damage is not Damage.TRUNCATED and not trials.can(Capability.DETERMINISTIC_REPLAY):
        pytest.skip("where trials take long, one kind of damage is tried")
    plan = _local(
        _in_memory(LOCAL), kill_worker(VICTIM, COMMITTING), _on_failure(DamageLocalCopy(VICTIM, damage))
    )
    trial = trials.valid_until(
        plan,
        lambda trial: trial.finding("local-recovery").counts.get(f"met_{damage.value}"),
        f"a restore met the {damage.value} copy",
    )
    wanted = {PRIMARY, SECONDARY} if damage is Damage.PARTIAL else {PRIMARY}
    require(set(_served(trial, VICTIM)) == wanted, "the primary serves what the copy cannot", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.uses("checkpoints.incremental")
@pytest.mark.clause("LOC-4", "COO-2", "SNP-5")
def test_the_abort_of_an_increment_takes_nothing_from_the_copies_of_other_checkpoints(trials: Trials) -> None:
    plan = _local(
        msgspec.structs.replace(
            LOCAL, checkpoints=CheckpointPlan(incremental=True, interval_ms=15, min_pause_ms=10)
        ),
        ScheduledFault(
            FailPrimaryWrites(OTHER, metadata=True), After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=3)
        ),
        kill_worker(VICTIM, After(ProtocolPoint.CHECKPOINT_TRIGGERED, nth=5)),
    )
    for trial in trials.all_valid(plan):
        happened(any(trial.history.of(CheckpointAborted)), "a checkpoint was aborted", trial)
        happened(trial.finding("shared-files").counts["reused"] > 0, "checkpoints shared files", trial)


@pytest.mark.long_on_clusters
@pytest.mark.clause("LOC-6")
def test_a_partial_copy_serves_what_it_has_and_the_primary_the_rest(trials: Trials) -> None:
    plan = _local(
        LOCAL, kill_worker(VICTIM, COMMITTING), _on_failure(DamageLocalCopy(VICTIM, Damage.PARTIAL))
    )
    for trial in trials.all_valid(plan):
        placed = [line.operation for line in trial.history.of(Placed)]
        victim = trial.subtask(VICTIM)
        returned = placed[1].hosts[victim] in placed[1].homes.get(victim, ())
        wanted = {PRIMARY, SECONDARY} if returned else {PRIMARY}
        require(set(_served(trial, VICTIM)) == wanted, "both copies serve, if the subtask returned", trial)


@pytest.mark.clause("LOC-9", "REC-1")
def test_after_the_death_of_an_executor_the_others_restore_locally(trials: Trials) -> None:
    for trial in trials.all_valid(_local(LOCAL, kill_executor(VICTIM, COMMITTING))):
        happened(trial.finding("local-recovery").counts["secondary"] > 0, "a copy on a host served", trial)


@pytest.mark.long_on_clusters
@pytest.mark.clause("LOC-8")
def test_a_lost_host_takes_its_copies_along_and_the_others_restore_locally(trials: Trials) -> None:
    plan = _local(LOCAL, ScheduledFault(LoseHost(VICTIM), COMMITTING))
    for trial in trials.all_valid(plan):
        require(set(_served(trial, VICTIM)) == {PRIMARY}, "nothing local was left of it", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.needs(Capability.HOST_RETURN)
@pytest.mark.clause("LOC-8")
def test_a_host_that_comes_back_empty_under_its_own_name_serves_nothing_and_keeps_copies_again(
    trials: Trials,
) -> None:
    """It is lost twice: the second time it has kept copies since it came back, and they are gone, too."""
    again = After(ProtocolPoint.COMPLETION_NOTIFIED, SINK, 3)
    lost = tuple(ScheduledFault(LoseHost(VICTIM, returns=True), at) for at in (COMMITTING, again))
    for trial in trials.all_valid(_local(LOCAL, *lost)):
        require(set(_served(trial, VICTIM)) == {PRIMARY}, "nothing local was left of it", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("LOC-2")
def test_a_full_local_disk_fails_no_checkpoint(trials: Trials) -> None:
    plan = _local(
        LOCAL,
        ScheduledFault(FailLocalWrites(VICTIM), After(ProtocolPoint.CHECKPOINT_COMPLETED)),
        kill_worker(VICTIM, After(ProtocolPoint.COMPLETION_NOTIFIED, SINK, 3)),
    )
    for trial in trials.all_valid(plan):
        counts = trial.finding("local-recovery").counts
        happened(counts["completed_without_copy"] > 0, "a checkpoint completes without the copy", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("LOC-2", "COO-2")
def test_a_primary_that_cannot_be_written_fails_the_checkpoint_and_processing_goes_on(trials: Trials) -> None:
    plan = _local(
        LOCAL,
        ScheduledFault(FailPrimaryWrites(VICTIM), After(ProtocolPoint.CHECKPOINT_TRIGGERED, nth=2)),
        kill_worker(VICTIM, COMMITTING),
    )
    for trial in trials.all_valid(plan):
        aborted = [line.operation for line in trial.history.of(CheckpointAborted)]
        declined = [abort.checkpoint for abort in aborted if abort.reason is Reason.DECLINED]
        happened(declined, "the checkpoint is declined", trial)
        completed = [line.operation.checkpoint for line in trial.history.of(CheckpointCompleted)]
        happened(any(later > declined[0] for later in completed), "a later one completes", trial)


@pytest.mark.long_on_clusters
@pytest.mark.clause("LOC-3")
def test_only_the_newest_copy_is_kept(trials: Trials) -> None:
    for trial in trials.all_valid(_local(LOCAL, kill_worker(VICTIM, COMMITTING))):
        reports = [line.operation.local for line in trial.history.of(Acknowledged)]
        confirmed = [(report, report.confirmed) for report in reports if report is not None]
        happened(any(newest is not None for _, newest in confirmed), "completions are heard of", trial)
        for report, newest in confirmed:
            kept = newest is None or all(held >= newest for held in report.held)
            require(kept, f"{report} keeps no older one", trial)


@pytest.mark.clause("LOC-5", "LOC-4")
def test_where_only_the_primary_is_damaged_the_copy_serves(trials: Trials) -> None:
    """The job gives up where a subtask could not return to its copy; nothing else can save it then."""
    plan = _local(LOCAL, kill_worker(VICTIM, COMMITTING), _on_failure(DamagePrimary(VICTIM)))
    for trial in trials.several(plan):
        if trial.record.end == "finished":
            assert_valid(trial)
            require(set(_served(trial, VICTIM)) == {SECONDARY}, "the copy served all of it", trial)
        else:
            require(trial.history.reason is Reason.CHECKPOINT_UNREADABLE, "it says why", trial)


BOTH = (
    _on_failure(DamageLocalCopy(VICTIM, Damage.BIT_FLIPPED)),
    _on_failure(DamagePrimary(VICTIM, Damage.BIT_FLIPPED)),
)


@pytest.mark.clause("REC-4", "LOC-5")
def test_if_no_copy_can_be_read_an_older_checkpoint_is_restored_where_configured(trials: Trials) -> None:
    # The sink dies before it commits the unreadable checkpoint: so its output is still exact.
    dies = kill_worker(SINK, After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=2))
    plan = msgspec.structs.replace(_local(LOCAL, dies, *BOTH), on_unreadable="older")
    for trial in trials.all_valid(plan):
        tried = [attempt.restored_checkpoint for attempt in trial.record.attempts[1:]]
        require(
            tried[-1] is not None and tried[0] is not None and tried[-1] < tried[0],
            f"{tried} goes back",
            trial,
        )


@pytest.mark.long_on_clusters
@pytest.mark.clause("REC-4", "LOC-5")
def test_if_no_copy_can_be_read_the_job_fails_where_configured_and_says_what_was_tried(
    trials: Trials,
) -> None:
    plan = _local(LOCAL, kill_worker(VICTIM, COMMITTING), *BOTH)
    for trial in trials.all_valid(plan):
        require(trial.record.end == "failed", "the job gives up", trial)
        require(trial.history.reason is Reason.CHECKPOINT_UNREADABLE, "it says why", trial)
        tried = trial.record.attempts[-1].restored_checkpoint
        gave_up = [line.operation.reason for line in trial.history.of(AttemptEnded)][-1]
        newest = max(
            checkpoint.checkpoint
            for checkpoint in trial.record.checkpoints
            if checkpoint.status == "completed"
        )
        require(tried == newest, f"{newest}, the latest one, was tried, and not {tried}", trial)
        require(gave_up is Reason.CHECKPOINT_UNREADABLE, "the attempt ended because of it", trial)
        end_reason = trial.record.end_reason
        require(
            trial.subtask(VICTIM) in end_reason and f"checkpoint {newest}" in end_reason,
            f"{end_reason} says what was tried",
            trial,
        )
        storage = trial.history.storage
        require(storage is not None and len(storage.retained) >= 2, "nothing is deleted", trial)
