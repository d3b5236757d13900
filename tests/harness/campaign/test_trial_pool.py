"""Several jobs: a campaign in several processes leaves the same files as in one, and leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from barrier_tck.harness.campaign.configuration import CampaignConfiguration, configuration_from
from barrier_tck.harness.campaign.runner import run_campaign
from barrier_tck.harness.campaign.trial_messages import TrialRan, answer_of, line_of
from barrier_tck.harness.campaign.tried_plans import TriedPlan
from barrier_tck.harness.cluster.installation import import_path
from barrier_tck.harness.record.records import CampaignRecord, TrialSummary
from barrier_tck.harness.record.run_reader import open_run
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.bugs.catalogue import planted_bugs
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.system.system_names import open_system
from barrier_tck.harness.trial.trial_run import execute
from tests.harness.campaign.dying_system import DIES, REFUSED, SLEEPS

BUGGY = "tests.harness.campaign.dying_system:BuggySystem"
MORTAL = "tests.harness.campaign.dying_system:MortalSystem"
DYING = "tests.harness.campaign.dying_system:DyingSystem"
OF_THE_CLOCK = ("started_at", "wall_seconds")


def drawn(**values: Any) -> CampaignConfiguration:
    return configuration_from({"trials": 12, "seed": 5} | values, "test")


def listed(*seeds: int) -> CampaignConfiguration:
    """Return a campaign whose trials have these consecutive seeds."""
    return configuration_from({"seed": seeds[0], "trial": [{"repeat": len(seeds)}]}, "test")


def without_times(summary: TrialSummary | CampaignRecord) -> dict[str, Any]:
    return {name: value for name, value in msgspec.to_builtins(summary).items() if name not in OF_THE_CLOCK}


def files_of(run: Path) -> dict[str, bytes]:
    """Return all files of the kept trials, including each trace, without the parts that depend on the clock."""
    names = sorted(path for path in run.glob("trials/*/*") if path.name != "record.json")
    return {str(path.relative_to(run)): path.read_bytes() for path in names}


@pytest.mark.long
@pytest.mark.parametrize("profile", ["standard", pytest.param("graphs", marks=pytest.mark.nightly)])
def test_three_jobs_leave_what_one_leaves(profile: str, tmp_path: Path) -> None:
    wanted = drawn(profile=profile)
    run_campaign(wanted, ReferenceSimulated(), tmp_path / "one")
    run_campaign(wanted, ReferenceSimulated(), tmp_path / "three", jobs=3)
    one, three = open_run(tmp_path / "one"), open_run(tmp_path / "three")
    assert [without_times(trial) for trial in tuple(three.rows())] == [
        without_times(trial) for trial in tuple(one.rows())
    ]
    assert len({trial.trace_digest for trial in tuple(one.rows())}) == len(tuple(one.rows())) == 12
    assert without_times(three.campaign) == without_times(one.campaign)
    assert files_of(tmp_path / "three") == files_of(tmp_path / "one") != {}


@pytest.mark.long
def test_a_trial_whose_process_dies_is_unknown_and_the_campaign_goes_on(tmp_path: Path) -> None:
    record = run_campaign(listed(1_000, 1_001, DIES), open_system(DYING), tmp_path / "run", jobs=2)
    assert (record.verdict, record.trials, record.valid, record.unknown) == (Verdict.UNKNOWN, 3, 2, 1)
    run = open_run(tmp_path / "run")
    [finding] = run.record(2).findings
    assert finding.summary == "the process that ran it ended: killed by signal 9"
    assert record.failing == (2,)


@pytest.mark.nightly
def test_however_a_process_ends_only_its_trial_is_lost_and_another_takes_its_place(tmp_path: Path) -> None:
    record = run_campaign(listed(*range(8, 17)), open_system(MORTAL), tmp_path / "run", jobs=2)
    assert (record.verdict, record.trials, record.failing) == (Verdict.UNKNOWN, 9, (1, 3, 5, 7))
    run = open_run(tmp_path / "run")
    told = [finding.summary for number in record.failing for finding in run.record(number).findings]
    endings = ("killed by signal 9", "exit code 0", "killed by signal 6", "exit code 3")
    assert told == [f"the process that ran it ended: {ending}" for ending in endings]


@pytest.mark.long
def test_a_refused_plan_ends_the_campaign_as_it_does_in_one_process(tmp_path: Path) -> None:
    for jobs in (1, 2):
        with pytest.raises(UsageProblem, match="this plan is refused"):
            run_campaign(listed(REFUSED, SLEEPS + 1), open_system(DYING), tmp_path / str(jobs), jobs=jobs)
    assert not psutil.Process().children(recursive=True)


def test_systems_that_are_not_simulated_run_one_trial_at_a_time(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="--jobs 2: reference-spark runs its trials one by one"):
        run_campaign(drawn(), open_system("reference-spark"), tmp_path / "run", jobs=2)
    assert not (tmp_path / "run").exists()


@pytest.mark.nightly
@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.nightly),
        pytest.param(signal.SIGKILL, marks=pytest.mark.long),
    ],
)
def test_no_process_outlives_a_campaign_that_is_ended_in_the_middle(number: int, tmp_path: Path) -> None:
    """The last trial sleeps for ever, in a process of its own."""
    script = (
        "from pathlib import Path\n"
        "from tests.harness.campaign.test_trial_pool import *\n"
        f"run_campaign(listed(1_000, 1_001), open_system(DYING), Path({str(tmp_path)!r}) / 'first', jobs=2)\n"
        f"run_campaign(listed(SLEEPS, SLEEPS + 1), open_system(DYING), Path({str(tmp_path)!r}) / 'run', jobs=2)\n"
    )
    environment = {**os.environ, "PYTHONPATH": import_path()}
    campaign = subprocess.Popen([sys.executable, "-c", script], env=environment)
    try:
        asleep = _awaited(tmp_path / "run" / "trials" / "00000")
        campaign.send_signal(number)
        campaign.wait(60)
    finally:
        campaign.kill()
        campaign.wait()
    assert open_run(tmp_path / "run").campaign.interrupted
    if number == signal.SIGKILL:
        psutil.wait_procs([asleep], timeout=60)  # it notices that its input ends
    else:
        assert not list((tmp_path / "run" / "trials").iterdir())
    assert not asleep.is_running()


def _awaited(directory: Path) -> psutil.Process:
    """Return the process that sleeps in a trial, once it does."""
    for _ in range(600):
        for path in directory.glob("asleep-*"):
            return psutil.Process(int(path.name.partition("-")[2]))
        time.sleep(0.1)
    raise AssertionError("no trial fell asleep within a minute")


def test_a_result_crosses_whole(tmp_path: Path) -> None:
    plan = next(iter(planted_bugs()["AL-01"].plans("simulated")))
    tried = TriedPlan(execute(plan, ReferenceSimulated(), tmp_path))
    assert tried.result.history is not None and tried.result.trace
    assert answer_of(line_of(TrialRan(tried))) == TrialRan(tried)
