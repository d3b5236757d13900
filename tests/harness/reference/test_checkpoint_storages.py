"""Trials with checkpoints in a storage that a plan names: a third party's, or the coordinator's memory (STA-2)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.damage_primary import DamagePrimary
from barrier_tck.faults.kinds.fail_primary_writes import FailPrimaryWrites
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.campaign.configuration import configuration_from
from barrier_tck.harness.campaign.runner import run_campaign
from barrier_tck.harness.cli import main as cli
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, SavepointPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.records import TrialResult
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.reference.spark.spark_system import ReferenceSpark
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.trial.plan_check import check_plan
from barrier_tck.harness.trial.trial_run import execute
from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from barrier_tck.reference_impl.storage.filesystem import LocalFileSystem

COMPLETED = ProtocolPoint.CHECKPOINT_COMPLETED
KILL = ScheduledFault(KillWorker("totals[0]"), After(COMPLETED, nth=3))
CRASH = ScheduledFault(CrashCoordinator(), After(COMPLETED, nth=2))


class Theirs(FileCheckpointStorage):
    """A third party's storage: sound, in a directory of its own."""

    def __init__(self, location: str, job: str) -> None:
        """Take the directory and the job's name."""
        super().__init__(LocalFileSystem(location), job)


class ForgetsTheNewest(Theirs):
    """Wrong: of several complete checkpoints it knows all but the newest."""

    def completed(self) -> tuple[CheckpointId, ...]:
        """Return the older ones."""
        return super().completed()[:-1]


THEIRS, FORGETS = f"{__name__}:Theirs", f"{__name__}:ForgetsTheNewest"


def plan_on(storage: str, *faults: ScheduledFault) -> TrialPlan:
    return TrialPlan(
        workload=WorkloadPlan("keyed-totals", batches=120, keys=20),
        checkpoints=CheckpointPlan(interval_ms=15, storage=storage),
        faults=faults,
    )


def run(plan: TrialPlan, directory: Path) -> TrialResult:
    return execute(plan, ReferenceSimulated(), directory)


def restored(result: TrialResult) -> list[int | None]:
    assert result.history is not None
    operations = [recorded.operation for recorded in result.history.operations]
    return [each.restored_checkpoint for each in operations if isinstance(each, ops.AttemptStarted)]


@pytest.mark.parametrize(
    ("storage", "faults", "from_which"),
    [(THEIRS, (CRASH, KILL), [None, 2, 3]), ("memory", (KILL,), [None, 3])],
)
def test_a_simulated_job_recovers_from_the_storage_that_its_plan_names(
    storage: str, faults: tuple[ScheduledFault, ...], from_which: list[int | None], tmp_path: Path
) -> None:
    first, again = (run(plan_on(storage, *faults), tmp_path) for _ in range(2))
    assert first.record.verdict is Verdict.VALID
    assert restored(first) == from_which
    assert first.history is not None and first.history.storage is not None
    assert first.history.storage.retained and not first.history.storage.orphans
    assert first.record.trace_digest == again.record.trace_digest


def test_a_wrong_storage_of_a_third_party_is_caught(tmp_path: Path) -> None:
    record = run(plan_on(FORGETS, CRASH), tmp_path).record
    assert record.verdict is Verdict.INVALID


def test_savepoints_are_kept_there_and_jobs_start_from_them(tmp_path: Path) -> None:
    plan = msgspec.structs.replace(plan_on(THEIRS), savepoints=(SavepointPlan(stop=True),))
    result = run(plan, tmp_path)
    assert result.record.verdict is Verdict.VALID
    assert result.history is not None and result.history.storage is not None
    assert len(result.history.storage.savepoints) == 1


def test_reads_of_such_a_storage_fail_when_the_harness_says_so(tmp_path: Path) -> None:
    """The next coordinator finds nothing until storage answers again."""
    hidden = ScheduledFault(CrashCoordinator(unreadable_ms=40), After(COMPLETED, nth=2))
    on_theirs, on_files = (run(plan_on(name, hidden), tmp_path) for name in (THEIRS, "files"))
    assert on_theirs.record.verdict is Verdict.VALID
    assert on_theirs.record.duration_ms == on_files.record.duration_ms
    assert on_theirs.record.duration_ms > run(plan_on(THEIRS, CRASH), tmp_path).record.duration_ms


@pytest.mark.parametrize("fault", [DamagePrimary("totals[0]"), FailPrimaryWrites("totals[0]")])
def test_faults_of_files_that_only_the_storage_knows_are_skipped(
    fault: DamagePrimary | FailPrimaryWrites, tmp_path: Path
) -> None:
    record = run(plan_on(THEIRS, ScheduledFault(fault, After(COMPLETED))), tmp_path).record
    assert record.verdict is Verdict.UNKNOWN
    assert [each.outcome for each in record.faults] == ["skipped"]


@pytest.mark.long
@pytest.mark.parametrize("storage", [THEIRS, "memory"])
def test_drawn_trials_suffer_what_can_happen_there_and_nothing_else(storage: str, tmp_path: Path) -> None:
    campaign = {
        "profile": "heavy",
        "trials": 6,
        "seed": 4,
        "controls": 0,
        "checkpoints": {"storage": storage},
    }
    record = run_campaign(configuration_from(campaign, "test"), ReferenceSimulated(), tmp_path / "run")
    assert (record.valid, record.unknown) == (6, 0)
    assert record.faults_fired > 2


def test_the_coordinators_memory_is_refused_where_it_would_be_lost_or_out_of_reach() -> None:
    with pytest.raises(
        UsageProblem, match="'memory', the coordinator's own, and a fault crashes the coordinator"
    ):
        check_plan(plan_on("memory", CRASH), ReferenceSimulated())
    with pytest.raises(UsageProblem, match="processes of a cluster share none"):
        check_plan(plan_on("memory"), ReferenceSpark())


def test_the_command_line_and_the_campaign_file_name_storages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "runs")]
    few = ["campaign", "--trials", "2", "--controls", "0", *out]
    assert cli.run([*few, "--checkpoint-storage", THEIRS]) == 0
    (directory,) = (tmp_path / "runs").iterdir()
    plan = msgspec.json.decode((directory / "trials" / "00000" / "plan.json").read_bytes())
    assert plan["checkpoints"]["storage"] == THEIRS
    capsys.readouterr()
    (tmp_path / "wrong.toml").write_text('[[trial]]\ncheckpoints = { storage = "fles" }\n')
    for wrong, said in (
        ([*few, "--checkpoint-storage", "memry"], "did you mean 'memory'"),
        ([*few, "--checkpoint-storage", "builtins:dict"], "cannot be made"),
        ([*few, "--checkpoint-storage", f"{__name__}:plan_on"], "no checkpoint storage"),
        (["campaign", str(tmp_path / "wrong.toml"), *out], "did you mean 'files'"),
    ):
        assert cli.run(wrong) == 3
        assert said in capsys.readouterr().err


@pytest.fixture
def spark() -> Iterator[ReferenceSpark]:
    system = ReferenceSpark()
    yield system
    system.close()


@pytest.mark.nightly
@pytest.mark.spark
def test_a_job_on_spark_recovers_from_a_third_partys_storage(spark: ReferenceSpark, tmp_path: Path) -> None:
    plan = TrialPlan(
        workload=WorkloadPlan(
            "keyed-totals", batches=60, batch_records=50, keys=40, records_per_second=1_000
        ),
        checkpoints=CheckpointPlan(interval_ms=500, timeout_ms=20_000, storage=THEIRS),
        faults=(
            ScheduledFault(KillWorker("totals[0]"), After(COMPLETED, nth=2)),
            ScheduledFault(CrashCoordinator(), After(COMPLETED, nth=3)),
        ),
    )
    result = execute(plan, spark, tmp_path)
    assert result.record.verdict is Verdict.VALID, result.record.findings
    first, second, third = restored(result)
    # A coordinator that is being killed may still complete the next one.
    assert (first, second) == (None, 2) and third is not None and third >= 3
