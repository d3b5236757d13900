"""Continues an interrupted campaign: finished trials are counted from its record, and its plans are drawn again.
Trials are counted in the order of their numbers, so the finished trials are the first ones of the campaign. The
record keeps no plan for most trials. Each plan is drawn again and compared with what is known about it.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.campaign.configuration import CampaignConfiguration
from barrier_tck.harness.campaign.shards import shard_of
from barrier_tck.harness.campaign.tried_plans import PlannedTrial, try_plan
from barrier_tck.harness.plan.trial_plan import FilledPlan, TrialPlan
from barrier_tck.harness.record.history import End
from barrier_tck.harness.record.records import TrialSummary
from barrier_tck.harness.record.run_directory import SCRATCH
from barrier_tck.harness.record.run_reader import StoredRun, open_run
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.environment import environment
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.system.system_under_test import Capability, SystemUnderTest

_DRAWN_WITH = ("barrier-tck", "hypothesis", "python")
"""Versions on which the plans that a seed draws depend."""


@dataclass(frozen=True, slots=True)
class FinishedTrial:
    """What a campaign knew about a trial when it was counted and what the trial's short record does not say."""

    plan: TrialPlan
    points: tuple[ProtocolPoint, ...]
    """The points at which a process could be stopped in the trial's job."""
    dropped: int
    """Drawn faults whose moment never came."""


@dataclass(frozen=True, slots=True)
class InterruptedRun:
    """A run that can go on."""

    stored: StoredRun
    finished: int
    """How many trials are finished: the first ones."""


def require_resumable(path: Path) -> InterruptedRun:
    """Return an interrupted run; raises UsageProblem if it is complete, or was started with other versions."""
    stored = open_run(path)
    if not stored.campaign.interrupted:
        raise UsageProblem(f"{path} is complete, nothing is left to run; see: barrier-tck report {path}")
    here, then = environment(), stored.campaign.environment
    for name in _DRAWN_WITH:
        if here.get(name) != then.get(name):
            raise UsageProblem(
                f"{path} was begun with {name} {then.get(name)}, and here is {here.get(name)}: other plans would be "
                "drawn; resume it with that version, or run the campaign anew"
            )
    shard = shard_of(stored.campaign.shard, str(path / "campaign.json"))
    finished = 0
    for trial in stored.rows():
        if trial.trial != shard.number(finished):
            raise UsageProblem(f"{path} lacks trials in the middle; run the campaign anew")
        finished += 1
    return InterruptedRun(stored, finished)


def finished_before(
    trial: TrialSummary,
    plan: FilledPlan,
    drawn: bool,
    configuration: CampaignConfiguration,
    system: SystemUnderTest,
    path: Path,
) -> FinishedTrial:
    """Return what was known about a finished trial; raises UsageProblem if it was a different trial. A trial some of
    whose faults were dropped (it was ``drawn``) runs again, because only this shows which ones were dropped.
    """
    if (plan.seed, True) != (trial.seed, len(plan.faults) >= trial.faults_planned):
        raise UsageProblem(
            f"{path}: trial {trial.trial} is not the one that is drawn here (seed {trial.seed}, here "
            f"{plan.seed}); run the campaign anew"
        )
    points = system.job(plan).shows
    if len(plan.faults) == trial.faults_planned:
        return FinishedTrial(plan, points, _left_over(trial, drawn, system))
    with tempfile.TemporaryDirectory(dir=path, prefix=SCRATCH) as scratch:
        planned = PlannedTrial(trial.trial, plan, Path(scratch), drawn=True, only=configuration.only)
        fitted = try_plan(planned, system).fitted
    if fitted is None or len(fitted.record.plan.faults) != trial.faults_planned:
        raise UsageProblem(f"{path}: trial {trial.trial} ends in another way here; run the campaign anew")
    return FinishedTrial(fitted.record.plan, points, len(plan.faults) - trial.faults_planned)


def _left_over(trial: TrialSummary, drawn: bool, system: SystemUnderTest) -> int:
    """Return how many faults could have been dropped but were not, because too many had been dropped before."""
    may_drop = (
        drawn and Capability.DETERMINISTIC_REPLAY in system.capabilities and trial.end != End.ERROR.value
    )
    if not may_drop or trial.verdict is not Verdict.UNKNOWN:
        return 0
    return sum(fault.outcome == "not_fired" for fault in trial.faults)
