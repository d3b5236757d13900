"""Wrong sinks are found by trials that nobody aims; grain: real kills (`nightly`)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from barrier_tck.harness import (
    After,
    KillExecutor,
    LimitsPlan,
    ProtocolPoint,
    ScheduledFault,
    StreamingJob,
    TrialPlan,
    TrialRecord,
    Verdict,
    WorkloadPlan,
    run_trial,
)
from barrier_tck.harness.campaign.configuration import CampaignConfiguration, SystemSection
from barrier_tck.harness.campaign.planned_trials import campaign_plans
from barrier_tck.harness.record.verdict import EXERCISED
from barrier_tck.harness.streaming.committed_output import CommittedOutput
from barrier_tck.harness.streaming.query_targets import TASKS
from barrier_tck.harness.streaming.structured_streaming import StructuredStreaming
from tests.harness.streaming import planted_sinks

WITHIN = 20
SEED = 15


@pytest.fixture(scope="module")
def cluster() -> Iterator[StructuredStreaming]:
    """One cluster for all sinks: between two trials a test puts another job on it."""
    system = StructuredStreaming(planted_sinks.right)
    yield system
    system.close()


def drawn(system: StructuredStreaming, name: str) -> list[TrialPlan]:
    """The plans that a campaign on a job would draw, each sink its own."""
    section = SystemSection(f"{planted_sinks.__name__}:{name}")
    seed = SEED + planted_sinks.PLANTED.index(name)
    configuration = CampaignConfiguration(system=section, seed=seed, trials=WITHIN)
    return list(islice(campaign_plans(configuration, system), WITHIN))


def tried(system: StructuredStreaming, name: str, plan: TrialPlan, directory: Path) -> TrialRecord:
    directory.mkdir()
    job = getattr(planted_sinks, name)
    assert isinstance(job, StreamingJob)
    system._job = job
    return run_trial(plan, system, directory)


@pytest.mark.spark
@pytest.mark.nightly
def test_copies_of_a_stage_that_ran_again_are_those_of_a_micro_batch_that_did(
    cluster: StructuredStreaming, tmp_path: Path
) -> None:
    """The executor has shuffle files, too: without them its tasks are not tried again, but their whole stage is."""
    plan = TrialPlan(
        workload=WorkloadPlan(batches=3, batch_records=6),
        faults=(ScheduledFault(KillExecutor(TASKS), After(ProtocolPoint.SNAPSHOT_TAKEN, TASKS, nth=3)),),
        limits=LimitsPlan(wall_s=300),
    )
    record = tried(cluster, "at_least_once", plan, tmp_path / "trial")
    assert record.verdict is Verdict.VALID, record.findings
    counts = next(found.counts for found in record.findings if found.checker == CommittedOutput.name)
    assert counts[EXERCISED] > 0


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("name", planted_sinks.PLANTED)
def test_a_wrong_sink_is_caught_within_twenty_trials_drawn_blindly(
    cluster: StructuredStreaming, name: str, tmp_path: Path
) -> None:
    for number, plan in enumerate(drawn(cluster, name), 1):
        record = tried(cluster, name, plan, tmp_path / f"{number}")
        verdicts = {found.checker: found.verdict for found in record.findings}
        print(f"{name}: trial {number} {record.verdict}", file=sys.stderr)
        if verdicts[CommittedOutput.name] is Verdict.INVALID:
            break
    else:
        pytest.fail(f"{WITHIN} trials did not show it")
    right = tried(cluster, "right", plan, tmp_path / "right")
    assert right.verdict is Verdict.VALID, right.findings
