"""Tries the plans of a campaign, one after the other. ``trial_pool`` tries several at once, in processes of this
machine, and ``spark_runs`` on a Spark cluster, with the same results.

What a campaign does with a result may depend on earlier trials. Trying a plan depends only on the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.campaign.chosen_clauses import judges_of
from barrier_tck.harness.campaign.failures import shrink_as_it_failed
from barrier_tck.harness.campaign.names_reached import names_reached
from barrier_tck.harness.campaign.shrinking import RUNS_MAX
from barrier_tck.harness.oracle.checker import Checker
from barrier_tck.harness.plan.notes import DROPPED
from barrier_tck.harness.plan.trial_plan import FilledPlan, TrialPlan
from barrier_tck.harness.record.history import End
from barrier_tck.harness.record.records import TrialRecord, TrialResult
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.system.optional_interfaces import ShowsCoverage
from barrier_tck.harness.system.system_under_test import Capability, SystemUnderTest
from barrier_tck.harness.trial.trial_run import execute


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """One trial that a campaign is about to run."""

    number: int
    """Its number in the campaign, from 0."""
    plan: FilledPlan
    directory: Path
    """A directory that belongs to this trial alone. It is made when the trial begins."""
    drawn: bool
    """Whether the plan was drawn, not written by a user."""
    wanted_whole: bool = True
    """Whether history and trace are wanted even if the trial is VALID."""
    only: tuple[str, ...] = ()
    """Clauses for which it is judged; empty: all."""
    wanted_reached: bool = False
    """Whether it is wanted what the trial reached."""


@dataclass(frozen=True, slots=True)
class TriedPlan:
    """What became of one planned trial."""

    result: TrialResult
    points: tuple[ProtocolPoint, ...] = ()
    """The points at which a process could be stopped in the trial's job."""
    fitted: TrialResult | None = None
    """The same trial without the faults whose moment never came; None if there are none, or none may be dropped."""
    reached: tuple[str, ...] = ()
    """What the trial reached, by names, if that was wanted."""


@dataclass(frozen=True, slots=True)
class FailedTrial:
    """An INVALID trial whose plan is to be made smaller."""

    record: TrialRecord
    directory: Path
    """An existing directory, below which the runs that this takes have theirs."""
    runs_max: int = RUNS_MAX


RunOnce = Callable[[TrialPlan, Path, tuple[str, ...]], TrialRecord]
"""Runs and judges a plan that is no trial of the campaign, in a directory, for these clauses only (empty: all)."""


class TrialRuns(Protocol):
    """Runs planned trials, one by one or several at once."""

    def run(self, planned: Iterable[PlannedTrial | None]) -> Generator[TriedPlan, None, None]:
        """Yield the result of each trial, in the order of the plans; a plan is taken when its trial can begin.

        None among the plans: the next plan is taken only when the results of all trials before have been yielded.
        """

    def shrink(self, failing: Iterable[FailedTrial]) -> Generator[TrialPlan | None, None, None]:
        """Yield the smallest plan that fails as each trial did, in order; None if a trial cannot be shrunk."""


class SequentialRuns:
    """Runs each trial here, when its result is asked for."""

    def __init__(self, system: SystemUnderTest, checkers: Sequence[Checker] | None = None) -> None:
        self._system = system
        self._checkers = checkers

    def run(self, planned: Iterable[PlannedTrial | None]) -> Generator[TriedPlan, None, None]:
        """Yield the result of each trial."""
        for trial in planned:
            if trial is not None:  # each result is yielded before the next plan is taken anyway
                yield try_plan(trial, self._system, self._checkers)

    def shrink(self, failing: Iterable[FailedTrial]) -> Generator[TrialPlan | None, None, None]:
        """Yield the smallest plan of each."""
        for failed in failing:
            yield shrunk_plan(failed, self._system, self._checkers)


def try_plan(
    trial: PlannedTrial, system: SystemUnderTest, checkers: Sequence[Checker] | None = None
) -> TriedPlan:
    """Run and judge one trial; if its plan was drawn, run it again without the faults whose moment never came.

    Raises what ``execute`` raises.
    """
    if trial.only and checkers is None:
        checkers = judges_of(trial.plan, system, trial.only)
    trial.directory.mkdir(parents=True, exist_ok=True)
    points = system.job(trial.plan).shows
    shown = (
        system.showing_coverage() if trial.wanted_reached and isinstance(system, ShowsCoverage) else system
    )
    result = execute(trial.plan, shown, trial.directory, checkers, trial.number)
    reached = names_reached(result) if trial.wanted_reached else ()
    repeats = Capability.DETERMINISTIC_REPLAY in system.capabilities
    if not trial.drawn or not repeats or result.record.end == End.ERROR.value:
        return TriedPlan(result, points, reached=reached)
    fitted = without_unreachable_faults(trial.plan, result.record)
    if fitted is None:
        return TriedPlan(result, points, reached=reached)
    without = execute(fitted, system, trial.directory, checkers, trial.number)
    return TriedPlan(result, points, without, reached)


def shrunk_plan(
    failed: FailedTrial, system: SystemUnderTest, checkers: Sequence[Checker] | None = None
) -> TrialPlan | None:
    """Return the smallest plan that fails as a trial did; None if no checker says that it failed."""
    shrunk = shrink_as_it_failed(failed.record, system, failed.directory, checkers, failed.runs_max)
    return None if shrunk is None else shrunk.plan


def without_unreachable_faults(plan: TrialPlan, record: TrialRecord) -> TrialPlan | None:
    """Return a drawn plan without the faults that never became due, or None if there are none.

    When a fault is drawn, it is only a guess that the run will reach its moment. If runs are deterministic, a run
    without a fault that did not fire takes exactly the same steps, so the smaller plan shows what really happened. A
    plan that a user wrote is never changed: a fault in it that does not fire makes the trial UNKNOWN (CAM-3).
    """
    kept = tuple(
        fault
        for fault, booked in zip(plan.faults, record.faults, strict=True)
        if booked.outcome != "not_fired"
    )
    dropped = len(plan.faults) - len(kept)
    if not dropped or record.verdict is not Verdict.UNKNOWN:
        return None
    note = f"{plan.note} {dropped} {DROPPED}".strip()
    return msgspec.structs.replace(plan, faults=kept, note=note)
