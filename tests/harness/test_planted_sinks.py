"""Wrong sinks are found by trials that nobody aims; grain: real kills (`nightly`)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from barrier_tck.harness import StreamingJob, TrialRecord, Verdict, run_trial
from barrier_tck.harness.campaign.configuration import CampaignConfiguration, SystemSection
from barrier_tck.harness.campaign.planned_trials import campaign_plans
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.streaming.committed_output import CommittedOutput
from barrier_tck.harness.streaming.structured_streaming import StructuredStreaming
from tests.harness import planted_sinks

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
