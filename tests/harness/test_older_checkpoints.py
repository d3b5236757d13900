"""The verdict on a job that falls back to an older checkpoint, as its plan allows (REC-4): no false alarm, no pass."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from barrier_tck.faults.kinds.damage_local_copy import DamageLocalCopy
from barrier_tck.faults.kinds.damage_primary import DamagePrimary
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.targets import Damage
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.trial_plan import (
    CheckpointingMode,
    CheckpointPlan,
    NetworkPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.record.records import TrialRecord
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import run_trial

FAILED = After(ProtocolPoint.ATTEMPT_FAILED)
COMPLETED = After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=3)
COMMITTED = After(ProtocolPoint.TRANSACTIONS_COMMITTED, "sink[0]", 3)
SLOW = NetworkPlan(slow_channel=0, slow_factor=6)
SEEDS = 4


def fell_back(
    mode: CheckpointingMode, moment: After, directory: Path, network: NetworkPlan | None = None
) -> list[TrialRecord]:
    """Run jobs whose sink dies at a given moment, and whose latest checkpoint cannot be read afterwards."""
    base = TrialPlan(
        workload=WorkloadPlan(batches=30, records_per_second=600, keys=20),
        checkpoints=CheckpointPlan(mode=mode, retained=3),
        network=network or NetworkPlan(),
        local_recovery=True,
        on_unreadable="older",
        faults=(
            ScheduledFault(KillWorker("sink[0]"), moment),
            ScheduledFault(DamageLocalCopy("totals[0]", Damage.BIT_FLIPPED), FAILED),
            ScheduledFault(DamagePrimary("totals[0]", Damage.BIT_FLIPPED), FAILED),
        ),
    )
    plans = [msgspec.structs.replace(base, seed=seed) for seed in range(SEEDS)]
    records = [run_trial(plan, ReferenceSimulated(), directory) for plan in plans]
    for record in records:
        first, second = (attempt.restored_checkpoint or 0 for attempt in record.attempts[1:3])
        assert first > second, "it went back"
    return records


@pytest.mark.parametrize("network", [None, SLOW], ids=["even", "slow channel"])
@pytest.mark.parametrize("mode", ["exactly_once", "at_least_once"])
def test_output_that_was_not_committed_is_made_again_and_is_right(
    mode: CheckpointingMode, network: NetworkPlan | None, tmp_path: Path
) -> None:
    for record in fell_back(mode, COMPLETED, tmp_path, network):
        assert record.verdict is Verdict.VALID, record.findings


def test_output_that_was_committed_comes_twice_and_the_verdict_is_unknown(
    tmp_path: Path,
) -> None:
    for record in fell_back("exactly_once", COMMITTED, tmp_path):
        assert record.verdict is Verdict.UNKNOWN
        (output,) = [finding for finding in record.findings if finding.checker == "exactly-once-output"]
        assert output.counts["duplicated"] > 0
        assert "went back to checkpoint 2 although 3 had completed" in output.summary


@pytest.mark.parametrize("network", [None, SLOW], ids=["even", "slow channel"])
def test_there_is_no_false_alarm_in_at_least_once_mode_either(
    network: NetworkPlan | None, tmp_path: Path
) -> None:
    for record in fell_back("at_least_once", COMMITTED, tmp_path, network):
        assert record.verdict is not Verdict.INVALID, record.findings
