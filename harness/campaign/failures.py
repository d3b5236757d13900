"""Says when two trials fail in the same way, and shrinks a plan as long as it fails in that way."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from barrier_tck.harness.campaign.shrinking import RUNS_MAX, Shrunk, StillFails, shrink
from barrier_tck.harness.oracle.checker import Checker
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.records import TrialRecord
from barrier_tck.harness.record.run_directory import SCRATCH
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.system.plan_fields import unused_by, without
from barrier_tck.harness.system.system_under_test import SystemUnderTest
from barrier_tck.harness.trial.plan_check import check_plan
from barrier_tck.harness.trial.trial_run import run_trial


def failed_checker(record: TrialRecord, clause: str | None = None) -> str | None:
    """Return the name of the first checker that says INVALID, None if none does.

    With ``clause``, only checkers whose finding names it count.
    """
    for finding in record.findings:
        if finding.verdict is Verdict.INVALID and (clause is None or clause in finding.clauses):
            return finding.checker
    return None


def fails_likewise(
    system: SystemUnderTest,
    checker: str,
    directory: Path,
    checkers: Sequence[Checker] | None = None,
    clause: str | None = None,
) -> StillFails:
    """Return a function that says of a plan whether the same checker says INVALID (for ``clause``, if one is given).

    A plan that the system refuses does not fail. Trials run below ``directory``.
    """
    return _trial_shows(system, directory, checkers, lambda record: fails_by(record, checker, clause))


def _trial_shows(
    system: SystemUnderTest,
    directory: Path,
    checkers: Sequence[Checker] | None,
    shows: Callable[[TrialRecord], bool],
    once: Callable[[TrialPlan, Path], TrialRecord] | None = None,
) -> StillFails:
    def still_fails(plan: TrialPlan) -> bool:
        with tempfile.TemporaryDirectory(dir=directory, prefix=SCRATCH) as scratch:
            try:
                check_plan(plan, system)  # a plan that it refuses could not be replayed
                if once is not None:
                    record = once(plan, Path(scratch))
                else:
                    record = run_trial(plan, system, Path(scratch), checkers)
            except UsageProblem:
                return False
        return shows(record)

    return still_fails


def fails_by(record: TrialRecord, checker: str, clause: str | None = None) -> bool:
    """Whether a checker says INVALID of a trial (for ``clause``, if one is given)."""
    return any(
        finding.checker == checker
        and finding.verdict is Verdict.INVALID
        and (clause is None or clause in finding.clauses)
        for finding in record.findings
    )


def failed_keys(findings: Iterable[Finding]) -> tuple[tuple[str, str], ...]:
    """Return the broken clause and the checker of each INVALID finding, in the order in which things broke."""
    return tuple(
        (finding.broken, finding.checker) for finding in findings if finding.verdict is Verdict.INVALID
    )


def fails_as(
    system: SystemUnderTest,
    clause: str,
    checker: str,
    directory: Path,
    checkers: Sequence[Checker] | None = None,
    once: Callable[[TrialPlan, Path], TrialRecord] | None = None,
) -> StillFails:
    """Return a function that says of a plan whether the checker says INVALID and names this clause as broken first.

    A plan that the system refuses does not fail. Trials run below ``directory``. ``once`` runs and judges a plan
    elsewhere, and the checkers must be the standard ones then.
    """

    def shows(record: TrialRecord) -> bool:
        return (clause, checker) in failed_keys(record.findings)

    return _trial_shows(system, directory, checkers, shows, once)


def shrink_failure(
    record: TrialRecord,
    system: SystemUnderTest,
    directory: Path,
    checkers: Sequence[Checker] | None = None,
    runs_max: int = RUNS_MAX,
    clause: str | None = None,
    begins: Callable[[], None] = lambda: None,
) -> Shrunk | None:
    """Shrink the plan of an invalid trial; None if no checker reported INVALID (for ``clause``, if one is given).

    ``begins`` is called before each run.
    """
    checker = failed_checker(record, clause)
    if checker is None:
        return None
    fails = fails_likewise(system, checker, directory, checkers, clause)

    def still_fails(plan: TrialPlan) -> bool:
        begins()
        return fails(plan)

    unused = unused_by(system)
    return shrink(record.plan, still_fails, system.job, runs_max, fit=lambda plan: without(plan, unused))


def shrink_as_it_failed(
    record: TrialRecord,
    system: SystemUnderTest,
    directory: Path,
    checkers: Sequence[Checker] | None = None,
    runs_max: int = RUNS_MAX,
) -> Shrunk | None:
    """Shrink the plan of an invalid trial as long as the same checker names the same clause as broken first; None if no
    checker reported INVALID.
    """
    keys = failed_keys(record.findings)
    if not keys:
        return None
    clause, checker = keys[0]
    still_fails = fails_as(system, clause, checker, directory, checkers)
    unused = unused_by(system)
    return shrink(record.plan, still_fails, system.job, runs_max, fit=lambda plan: without(plan, unused))
