"""A campaign that is killed at any moment is finished elsewhere, from its run directory and its store of plans.

Grain: processes that are killed with SIGKILL, in the middle of whatever they do with files; another process resumes the
campaign from copies, with other names of directories, another order of hashes and another working directory.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.campaign.plan_store.places import DirectoryPlace
from barrier_tck.harness.campaign.plan_store.stored_plan import Shown, StoredPlan, failed_plan
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.run_reader import open_run, read_campaign
from tests.harness.campaign.test_same_campaign import EVEN, UNEVEN, timeless
from tests.test_tidy import ROOT

MOMENTS = 10
"""At how many drawn moments each campaign is killed."""
DYING = (sys.executable, "-m", "tests.harness.campaign.dying_command")
NOT_COMPARED = ("location", "new")
"""What a record says of a store, and what differs: where it is, and how many plans were new to it, of which a killed
process may have stored some without saying so."""


@dataclass(frozen=True)
class Machine:
    """A directory with a store of plans and run directories, as a machine of its own would have it."""

    place: Path
    hash_seed: str

    @property
    def store(self) -> Path:
        return self.place / "store"

    def run(self, arguments: Sequence[str], dies_at: int = sys.maxsize) -> subprocess.CompletedProcess[str]:
        """Run the command in a process that kills itself at a step, if it comes to that."""
        (self.place / "tmp").mkdir(parents=True, exist_ok=True)
        return subprocess.run(
            [*DYING, str(self.place), str(dies_at), *arguments, "--json", "--trust"],
            cwd=self.place,
            env={
                **os.environ,
                "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
                "PYTHONHASHSEED": self.hash_seed,
                "TMPDIR": str(self.place / "tmp"),
            },
            capture_output=True,
            text=True,
            check=False,
        )

    def begin(self, campaign: Path, dies_at: int = sys.maxsize) -> subprocess.CompletedProcess[str]:
        out = str(self.place / "runs")
        return self.run(["campaign", str(campaign), "--out", out, "--store", str(self.store)], dies_at)

    def finish(self, campaign: Path, dies_at: int = sys.maxsize) -> subprocess.CompletedProcess[str]:
        """Resume the campaign as its user would: if not even its record was begun, by beginning anew, and if only its
        reports are missing, by writing them.
        """
        for directory in (self.place / "runs").glob("*"):
            if not (directory / "campaign.json").is_file():
                shutil.rmtree(directory)
            elif read_campaign(directory).interrupted:
                return self.run(["campaign", "--resume", str(directory), "--store", str(self.store)], dies_at)
            else:
                return self.run(["report", str(directory)], dies_at)
        return self.begin(campaign, dies_at)

    @property
    def run_directory(self) -> Path:
        (found,) = (self.place / "runs").iterdir()
        return found

    def moved_to(self, place: Path, hash_seed: str) -> Machine:
        """Return another machine that was given the run directory and the store, and nothing else."""
        for name in ("runs", "store"):
            if (self.place / name).exists():
                shutil.copytree(self.place / name, place / name)
        shutil.rmtree(self.place)
        return Machine(place, hash_seed)


def shown(path: Path) -> dict[str, Any]:
    """Return what a campaign showed: its record, every trial, which are kept in full, and the smallest plans."""
    stored = open_run(path)
    record = timeless(json.loads((path / "campaign.json").read_text()))
    record.pop("environment")  # how much memory is free, for instance
    for name in NOT_COMPARED:
        record["store"].pop(name)
    trials = [
        (trial.trial, trial.seed, trial.verdict, trial.trace_digest, trial.faults_planned, trial.faults_fired)
        for trial in tuple(stored.rows())
    ]
    plans = {file.name: file.read_text() for file in sorted((path / "shrunk").glob("*.json"))}
    return {**record, "every trial": trials, "kept": stored.kept, "plans": plans}


def failed_before(store: Path) -> list[str]:
    """Return the names of the plans in a store that failed."""
    return sorted(file.name for file in (store / "failed").glob("*.json"))


CAMPAIGNS: dict[str, tuple[str, str]] = {
    "with failures": (
        UNEVEN,
        """
trials = 12
seed = 1
[faults]
per_trial = [1, 2]
[checkpoints]
interval_ms = 40
[workload]
batches = 20
records_per_second = 200
[[trial]]
repeat = 8
[[trial.faults]]
fault = { type = "kill_worker", subtask = "totals[0]" }
trigger = { type = "after", point = "completion_notified", subtask = "sink[0]" }
""",
    ),
    "guided, with controls": (
        EVEN,
        """
trials = 22
seed = 11
strategy = "guided"
controls = 2
[faults]
per_trial = [1, 3]
""",
    ),
}


def stored_plans(system: str) -> tuple[StoredPlan, ...]:
    """Return two plans of which a store says that they failed. Both pass now, but one fails on a system whose seeds say
    so.
    """
    kill = ScheduledFault(KillWorker("totals[0]"), After(ProtocolPoint.COMPLETION_NOTIFIED, "sink[0]"))
    plan = TrialPlan(
        workload=WorkloadPlan(batches=20, records_per_second=200),
        checkpoints=CheckpointPlan(interval_ms=40),
        faults=(kill,),
    )
    shown_then = Shown("SNK-1", "exactly-once-output", "an attempt fails")
    plans = [msgspec.structs.replace(plan, seed=seed) for seed in (8, 10)]
    return tuple(failed_plan(plan, system, shown_then) for plan in plans)


@pytest.mark.nightly
@pytest.mark.parametrize("name", CAMPAIGNS)
def test_killed_at_drawn_moments_and_resumed_on_another_machine(name: str, tmp_path: Path) -> None:
    system, text = CAMPAIGNS[name]
    campaign = tmp_path / "killed.toml"
    campaign.write_text(f'system = "{system}"\n{text}')

    def machine(place: str, hash_seed: int) -> Machine:
        fresh = Machine(tmp_path / place, str(hash_seed))
        for entry in stored_plans(system):
            DirectoryPlace(fresh.store).write(entry.because.value, entry.name, entry.encoded())
        return fresh

    undisturbed = machine("undisturbed", 0)
    ended = undisturbed.begin(campaign)
    steps = int(ended.stdout.splitlines()[-1])
    wanted, stored = shown(undisturbed.run_directory), failed_before(undisturbed.store)
    assert len(wanted["store"]["passing_now"]) == (2 if system == EVEN else 1)
    assert bool(wanted["groups"]) == bool(wanted["plans"]) == (system == UNEVEN)
    moments = random.Random(f"killed {name}")
    for number in range(MOMENTS):
        killed_at = moments.randrange(steps)
        began = machine(f"begun-{number}", number + 1)
        assert began.begin(campaign, killed_at).returncode == -signal.SIGKILL, killed_at
        other = began.moved_to(tmp_path / f"resumed-{number}", str(number + 100))
        if number % 2:  # who resumes it is killed, too
            other.finish(campaign, moments.randrange(steps))
            other = other.moved_to(tmp_path / f"again-{number}", str(number + 200))
        finished = other.finish(campaign)
        assert finished.returncode == ended.returncode, (killed_at, finished.stderr)
        found = shown(other.run_directory)
        assert {key for key in wanted if found[key] != wanted[key]} == set(), killed_at
        assert failed_before(other.store) == stored, killed_at
        shutil.rmtree(other.place)
