"""Runs a campaign: many trials within a budget; finished trials are kept, whatever happens."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

import msgspec
from rich.console import Console

from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.campaign import finding_groups
from barrier_tck.harness.campaign.campaign_memory import CampaignMemory
from barrier_tck.harness.campaign.chosen_clauses import JudgedClauses
from barrier_tck.harness.campaign.configuration import CampaignConfiguration, stored_configuration
from barrier_tck.harness.campaign.controls import RECOVERED_MIN_DRAWN, RECOVERED_MIN_LISTED, Controls
from barrier_tck.harness.campaign.dropped_faults import DroppedFaults
from barrier_tck.harness.campaign.finding_groups import (
    EXAMINED_MAX,
    Failure,
    Grouping,
    failure_of,
    plan_name,
)
from barrier_tck.harness.campaign.interrupts import Interrupts, caught
from barrier_tck.harness.campaign.learning import Learning
from barrier_tck.harness.campaign.phase_progress import PhaseProgress
from barrier_tck.harness.campaign.plan_store.store import PlanStore
from barrier_tck.harness.campaign.planned_trials import campaign_plans, search_of
from barrier_tck.harness.campaign.progress_display import CampaignProgress
from barrier_tck.harness.campaign.repeated_trials import IN_REAL_TIME
from barrier_tck.harness.campaign.resuming import InterruptedRun, finished_before, require_resumable
from barrier_tck.harness.campaign.shards import (
    WHOLE,
    Shard,
    require_shardable,
    require_told_nothing,
    shard_of,
)
from barrier_tck.harness.campaign.sometimes import AllSometimes
from barrier_tck.harness.campaign.trial_pool import TrialPool, require_parallel
from barrier_tck.harness.campaign.tried_plans import (
    FailedTrial,
    PlannedTrial,
    RunOnce,
    SequentialRuns,
    TrialRuns,
    TriedPlan,
)
from barrier_tck.harness.draw.search.search import Search
from barrier_tck.harness.oracle.checker import Checker
from barrier_tck.harness.plan.trial_plan import FilledPlan, TrialPlan
from barrier_tck.harness.record.records import (
    RECORD_VERSION,
    CampaignRecord,
    TrialRecord,
    TrialResult,
    TrialSummary,
    summary_of,
)
from barrier_tck.harness.record.run_directory import RunDirectory, held
from barrier_tck.harness.record.run_reader import StoredRun, read_record
from barrier_tck.harness.record.trial_rows import CopyPart
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.support.environment import environment
from barrier_tck.harness.support.errors import InternalError
from barrier_tck.harness.support.garbage_collection import rare_collection
from barrier_tck.harness.system.exposed_targets import fault_kinds_of, phases_with
from barrier_tck.harness.system.system_names import reference_of
from barrier_tck.harness.system.system_under_test import SystemUnderTest

VALID_KEPT = 5
"""Number of valid trials that a simulated campaign keeps in full, to show what goes right."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Where the trials of a campaign run, if not on this machine. Their rows are kept in Parquet."""

    runs: TrialRuns
    copy: CopyPart | None = None
    """Copies each file of rows to another place."""
    once: RunOnce | None = None
    """Runs controls and candidates for smaller plans there, too; None: they run here."""


@dataclass(slots=True)
class Tally:
    """The counts and results of a running campaign."""

    valid: int = 0
    invalid: int = 0
    unknown: int = 0
    faults_planned: int = 0
    faults_fired: int = 0
    recoveries: int = 0
    recoveries_reported: bool = False
    checkpoints_completed: int = 0
    refused_connections: Counter[str] = field(default_factory=Counter)
    sometimes: AllSometimes = field(default_factory=AllSometimes)
    failing: list[tuple[int, Verdict]] = field(default_factory=list)
    judged_clauses: JudgedClauses = field(default_factory=lambda: JudgedClauses(()))

    @property
    def trials(self) -> int:
        """Return how many trials are finished."""
        return self.valid + self.invalid + self.unknown

    @property
    def worst_first(self) -> tuple[int, ...]:
        """Return the trials that were not valid, invalid ones first, then by number."""
        ordered = sorted(self.failing, key=lambda entry: (-entry[1].severity, entry[0]))
        return tuple(number for number, _ in ordered)

    def add(self, trial: TrialSummary) -> None:
        """Count a finished trial."""
        self.valid += trial.verdict is Verdict.VALID
        self.invalid += trial.verdict is Verdict.INVALID
        self.unknown += trial.verdict is Verdict.UNKNOWN
        self.faults_planned += trial.faults_planned
        self.faults_fired += trial.faults_fired
        self.recoveries += trial.recoveries
        self.recoveries_reported |= trial.recoveries_reported
        self.checkpoints_completed += trial.checkpoints_completed
        self.refused_connections.update(trial.refused_connections)
        self.sometimes.add(trial)
        self.judged_clauses.add(trial.findings)
        if trial.verdict is not Verdict.VALID:
            self.failing.append((trial.trial, trial.verdict))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return what only all trials together can show."""
        of_clauses = self.judged_clauses.finding()
        return (*self.sometimes.findings(), *((of_clauses,) if of_clauses is not None else ()))

    def verdict_of_trials(self) -> Verdict:
        """Return the verdict of the worst trial; UNKNOWN if there is none."""
        counts = {
            Verdict.VALID: self.valid,
            Verdict.UNKNOWN: self.unknown,
            Verdict.INVALID: self.invalid,
        }
        return Verdict.worst(verdict for verdict, count in counts.items() if count)

    def verdict(self) -> Verdict:
        """Return the campaign's verdict: the worst trial's or finding's.

        It is at best UNKNOWN if none of the planned faults fired.
        """
        verdicts = [self.verdict_of_trials(), *(finding.verdict for finding in self.findings)]
        if self.faults_planned and not self.faults_fired:
            verdicts.append(Verdict.UNKNOWN)
        return Verdict.worst(verdicts)


def run_campaign(
    configuration: CampaignConfiguration,
    system: SystemUnderTest,
    out: Path,
    checkers: Sequence[Checker] | None = None,
    console: Console | None = None,
    jobs: int = 1,
    spread: Spread | None = None,
    shard: Shard = WHOLE,
    store: PlanStore | None = None,
) -> CampaignRecord:
    """Run a campaign and return its record, which lies in ``out/campaign.json`` too.

    With ``jobs`` above 1, simulated trials run in this number of processes, and with ``spread`` on a cluster; then
    ``checkers`` must not be given.
    A campaign without a seed gets a new one. Plans and the output directory are checked first; UsageProblem or
    EnvironmentProblem is raised before a trial runs. On Ctrl-C or SIGTERM the running trials are abandoned and the
    record says ``interrupted``. Plans that failed and are in the ``store`` are the first trials, beyond the budget.
    """
    _check_jobs(jobs, system, checkers)
    require_shardable(shard, configuration)
    configuration = configuration.seeded()
    if spread is not None:
        require_told_nothing(configuration, "--on")
    search = search_of(configuration)
    plans = campaign_plans(configuration, system, shard.owns, search)
    directory = RunDirectory.create(out, spread is not None, spread.copy if spread is not None else None)
    with held(out):
        runs = _runs(system, checkers, jobs, spread)
        run = _Campaign(configuration, system, directory, checkers, shard, store, search, _once(spread))
        return run.to_the_end(chain(run.tried_first(), plans), runs, console)


def resume_campaign(
    path: Path,
    system: SystemUnderTest,
    checkers: Sequence[Checker] | None = None,
    console: Console | None = None,
    jobs: int = 1,
    spread: Spread | None = None,
    store: PlanStore | None = None,
) -> CampaignRecord:
    """Continue an interrupted campaign and return its record, which is that of a campaign without an interruption.
    Its plans are drawn again, and only missing trials run. Raises UsageProblem, before any trial runs, if nothing is
    missing, if this machine would draw other plans, or if the campaign still runs.
    """
    _check_jobs(jobs, system, checkers)
    with held(path):
        interrupted = require_resumable(path)
        stored = interrupted.stored
        configuration = stored_configuration(stored.campaign.configuration, str(path / "campaign.json"))
        shard = shard_of(stored.campaign.shard, str(path / "campaign.json"))
        if spread is not None:
            require_told_nothing(configuration, "--on")
        search = search_of(configuration)
        plans = campaign_plans(configuration, system, shard.owns, search)
        directory = RunDirectory.reopen(
            path, shard.number(interrupted.finished), spread.copy if spread is not None else None
        )
        run = _Campaign(configuration, system, directory, checkers, shard, store, search, _once(spread))
        plans = chain(run.tried_first_before(stored), plans)
        run.take_over(interrupted, plans)
        return run.to_the_end(plans, _runs(system, checkers, jobs, spread), console)


def _runs(
    system: SystemUnderTest, checkers: Sequence[Checker] | None, jobs: int, spread: Spread | None
) -> TrialRuns:
    """Return what runs the trials: a cluster, processes, or this process."""
    if spread is not None:
        return spread.runs
    return SequentialRuns(system, checkers) if jobs == 1 else TrialPool(system, jobs)


def _once(spread: Spread | None) -> RunOnce | None:
    return None if spread is None else spread.once


def _judged_by_all(once: RunOnce | None) -> Callable[[TrialPlan, Path], TrialRecord] | None:
    """Return what runs a plan and judges it for all clauses, whichever the campaign judges."""
    return None if once is None else lambda plan, directory: once(plan, directory, ())


def _check_jobs(jobs: int, system: SystemUnderTest, checkers: Sequence[Checker] | None) -> None:
    """Raise an error, before anything is written, if trials cannot run in this number of processes."""
    require_parallel(system, jobs)
    if jobs > 1 and checkers is not None:
        raise InternalError("your own checkers cannot be used in other processes; run with one job")


class _Campaign:
    """One running campaign."""

    def __init__(
        self,
        configuration: CampaignConfiguration,
        system: SystemUnderTest,
        directory: RunDirectory,
        checkers: Sequence[Checker] | None,
        shard: Shard,
        store: PlanStore | None,
        search: Search,
        once: RunOnce | None,
    ) -> None:
        self._configuration = configuration
        self._system = system
        self._directory = directory
        self._checkers = checkers
        self._once = once
        self._keep_all = system.world != "simulated"
        self._tally = Tally(judged_clauses=JudgedClauses(configuration.only))
        recovered_min = RECOVERED_MIN_DRAWN if configuration.draws else RECOVERED_MIN_LISTED
        wanted = configuration.controls_wanted()
        self._controls = Controls(system, configuration.root_seed, wanted, recovered_min, configuration.only)
        self._dropped = DroppedFaults()
        self._shard = shard
        self._budget = shard.budget(configuration.budget_of_trials())
        self._begun: dict[int, None] = {}
        """Trials that may have a directory but are not counted yet."""
        self._points: dict[ProtocolPoint, None] = {}
        """Every point at which a process could be stopped in the jobs so far."""
        self._memory = CampaignMemory(store, system, configuration.only)
        self._learning = Learning(search, directory.path)
        self._failures: list[Failure] = []
        self._grouping = Grouping(system, directory.path, checkers, IN_REAL_TIME, once=_judged_by_all(once))
        self._started_at, self._started = datetime.now(UTC), time.monotonic()

    def tried_first(self) -> tuple[FilledPlan, ...]:
        """Return the stored plans that are the campaign's first trials, beyond its budget; a shard has none."""
        if not self._shard.is_part:
            self._memory.begin(self._directory.path, self._budget.trials)
        return self._first_trials()

    def tried_first_before(self, stored: StoredRun) -> tuple[FilledPlan, ...]:
        """Return those that were the first trials of an interrupted campaign."""
        self._memory.take_over(stored.path, stored.campaign.store)
        return self._first_trials()

    def _first_trials(self) -> tuple[FilledPlan, ...]:
        self._budget = self._budget.with_trials(self._memory.tried_first)
        self._learning.begin(self._memory.tried_first + self._configuration.listed)
        return self._memory.plans()

    def take_over(self, run: InterruptedRun, plans: Iterator[FilledPlan]) -> None:
        """Count the finished trials, which have the first of the plans."""
        before = run.stored.campaign
        self._started_at = datetime.fromisoformat(before.started_at)
        self._started = time.monotonic() - before.wall_seconds
        self._learning.take_over(run.finished)
        for trial in run.stored.rows():
            plan = next(plans)
            self._learning.again(trial.trial)
            drawn = self._is_drawn(trial.trial)
            again = finished_before(
                trial, plan, drawn, self._configuration, self._system, self._directory.path
            )
            self._points |= dict.fromkeys(again.points)
            if trial.trial >= self._memory.tried_first:
                self._dropped.add(again.dropped)
            self._tally.add(trial)
            self._controls.add(trial, again.plan)
            self._note_failure(trial, again.plan)
            self._memory.remember(trial, again.plan)

    def _is_drawn(self, number: int) -> bool:
        """Whether faults of a trial whose moment never comes may be dropped: stored plans were drawn once."""
        first = self._memory.tried_first
        return number < first or self._configuration.is_drawn(number - first)

    def _note_failure(self, trial: TrialSummary, plan: TrialPlan) -> None:
        if trial.verdict is Verdict.INVALID:
            keep_plan = len(self._failures) < EXAMINED_MAX
            failure = failure_of(trial.trial, trial.findings, plan, keep_plan)
            self._failures += [failure] if failure is not None else []

    def to_the_end(
        self, plans: Iterator[FilledPlan], runs: TrialRuns, console: Console | None
    ) -> CampaignRecord:
        """Run the remaining trials, and return the record."""
        self.save(interrupted=True)  # what a reader finds if this process is killed
        interrupts = Interrupts()
        with caught(interrupts), rare_collection():
            try:
                slow = self._system.world != "simulated"
                progress = CampaignProgress(console, self._budget, self._tally.trials, slow)
                finished = self.trials(plans, runs, interrupts, progress)
                if finished:
                    with PhaseProgress(console, "controls", slow=slow) as phase:
                        finished = self.run_controls(interrupts, phase)
                if finished:
                    with PhaseProgress(console, "findings", slow=slow) as phase:
                        finished = self.group_failures(runs, interrupts, phase)
            except BaseException:
                self.save(interrupted=True)  # finished trials can be reported, whatever ended the campaign
                raise
            return self.save(interrupted=not finished)

    def trials(
        self, plans: Iterator[FilledPlan], runs: TrialRuns, interrupts: Interrupts, progress: CampaignProgress
    ) -> bool:
        """Run trials until the budget is used up; return False if they were interrupted."""
        if self._configuration.fail_fast and self._tally.invalid:
            return True  # it was interrupted after its last trial
        with progress, contextlib.closing(runs.run(self._planned(plans))) as tried:
            try:
                while True:
                    with interrupts.during_trial():
                        tried_plan = next(tried, None)
                    if tried_plan is None:
                        return not interrupts.requested
                    record = self._book(tried_plan)
                    progress.update(record, self._tally.trials, self._tally.invalid, self._tally.unknown)
                    if self._configuration.fail_fast and record.verdict is Verdict.INVALID:
                        self._abandon(tried)
                        return True
            except KeyboardInterrupt:
                self._abandon(tried)
                return False

    def _abandon(self, tried: Generator[TriedPlan, None, None]) -> None:
        """End the running trials, and remove what they left."""
        tried.close()  # no trial may go on when its directory is removed
        for number in self._begun:
            self._directory.forget(number)

    def _planned(self, plans: Iterator[FilledPlan]) -> Iterator[PlannedTrial | None]:
        """Yield the trials that the budget allows; None where a plan follows from the results of all trials before."""
        place = self._tally.trials
        while self._budget.allows(place, time.monotonic() - self._started):
            number = self._shard.number(place)
            if self._learning.waits_before(number):
                yield None
            plan = next(plans, None)
            if plan is None:
                return
            self._begun[number] = None
            yield PlannedTrial(
                number,
                plan,
                self._directory.trial(number),
                drawn=self._is_drawn(number),
                wanted_whole=self._keep_all or self._tally.valid < VALID_KEPT,
                only=self._configuration.only,
                wanted_reached=self._learning.wanted,
            )
            place += 1

    def _chosen(self, tried: TriedPlan) -> TrialResult:
        """Return the result that counts: for a drawn plan, the one without the faults whose moment never came.

        A shard keeps the other one: which of them counts in the whole campaign, its other shards decide too.
        """
        if tried.fitted is None:
            return tried.result
        if tried.result.record.trial < self._memory.tried_first:
            return tried.fitted  # what the product does may have changed since it was drawn
        self._dropped.add(len(tried.result.record.plan.faults) - len(tried.fitted.record.plan.faults))
        chosen, other = tried.fitted, tried.result
        if not self._dropped.allowed(self._tally.faults_fired):
            chosen, other = other, chosen
        if self._shard.is_part:
            self._directory.keep_alternative(other)
        return chosen

    def _book(self, tried: TriedPlan) -> TrialRecord:
        """Count a trial, keep it if it is worth keeping, and return the record that counts."""
        self._points |= dict.fromkeys(tried.points)
        result = self._chosen(tried)
        record = result.record
        summary = summary_of(record)
        self._tally.add(summary)
        self._controls.add(summary, record.plan)
        self._note_failure(summary, record.plan)
        self._memory.take(record, summary)
        self._learning.take(tried)
        del self._begun[record.trial]
        valid = record.verdict is Verdict.VALID
        if self._keep_all or not valid or self._tally.valid <= VALID_KEPT:
            self._directory.keep(result)
        else:
            self._directory.forget(record.trial)
        self._directory.append(summary)
        return record

    def run_controls(self, interrupts: Interrupts, phase: PhaseProgress) -> bool:
        """Run some trials again with recovery broken, unless a trial is INVALID; return False if interrupted."""
        if self._tally.invalid:
            return True
        try:
            self._controls.run(self._directory, self._checkers, interrupts, phase.show, self._once)
        except KeyboardInterrupt:
            return False
        return True

    def group_failures(self, runs: TrialRuns, interrupts: Interrupts, phase: PhaseProgress) -> bool:
        """Sort the failing trials by what they found, with the smallest plan of each; return False if interrupted."""
        grouping = self._grouping
        grouping.begins = phase.show
        if not self._configuration.shrink:
            for failure in grouping.left_of(self._failures):
                grouping.presume(failure)
        shrunk_where_trials_run = grouping.one_of_each(self._failures)
        failing = (
            FailedTrial(
                read_record(self._directory.trial(failure.number)),
                self._directory.path,
                finding_groups.RUNS_OF_ONE_MAX,
            )
            for failure in shrunk_where_trials_run
        )
        try:
            with contextlib.closing(runs.shrink(failing)) as shrunk:
                for failure in shrunk_where_trials_run:
                    phase.show(f"the plan of trial {failure.number} is made smaller")
                    with interrupts.during_trial():
                        grouping.add(failure, next(shrunk))
            for failure in grouping.left_of(self._failures):
                with interrupts.during_trial():
                    grouping.examine(failure)
        except KeyboardInterrupt:
            return False
        for group in grouping.groups:
            if group.shrunk and group.smallest is not None:
                self._directory.write_plan(plan_name(group.smallest_of.number), group.smallest)
        self._memory.finish(grouping.groups)
        return True

    def save(self, interrupted: bool) -> CampaignRecord:
        """Write ``campaign.json`` with the results so far."""
        tally = self._tally
        self._memory.flush()
        grouping = self._grouping.copy()
        for failure in grouping.left_of(self._failures):
            grouping.presume(failure)
        groups = tuple(group.record() for group in grouping.groups)
        of_controls = self._controls.finding()
        findings = (*tally.findings, *((of_controls,) if of_controls is not None else ()))
        verdict = tally.verdict()
        if self._shard.is_part:  # what only all trials can show, all shards show together
            findings, verdict = self._controls.missed(), tally.verdict_of_trials()
        record = CampaignRecord(
            version=RECORD_VERSION,
            name=self._configuration.name,
            system=self._system.name,
            opened_as=reference_of(self._system),
            seed=self._configuration.root_seed,
            verdict=Verdict.worst((verdict, *(finding.verdict for finding in findings))),
            trials=tally.trials,
            valid=tally.valid,
            invalid=tally.invalid,
            unknown=tally.unknown,
            faults_fired=tally.faults_fired,
            recoveries=tally.recoveries,
            recoveries_reported=tally.recoveries_reported or not tally.trials,
            checkpoints_completed=tally.checkpoints_completed,
            started_at=self._started_at.isoformat(),
            wall_seconds=time.monotonic() - self._started,
            environment=environment(),
            configuration=msgspec.json.decode(msgspec.json.encode(self._configuration)),
            interrupted=interrupted,
            fault_kinds=fault_kinds_of(self._system),
            fault_phases=phases_with(self._points),
            findings=findings,
            failing=tally.worst_first,
            shrunk={str(group.smallest_trial): group.plan for group in groups if group.plan},
            refused_connections=dict(tally.refused_connections),
            controls=self._controls.record(),
            shard=str(self._shard) if self._shard.is_part else "",
            groups=groups,
            store=self._memory.record(),
        )
        self._directory.write_campaign(record)
        return record
