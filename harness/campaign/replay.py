"""Replays plans: does the trial end as before and, in a deterministic system, after exactly the same steps?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import msgspec

from barrier_tck.harness.campaign.failures import failed_keys
from barrier_tck.harness.campaign.plan_store.stored_plan import stored_plan_of
from barrier_tck.harness.oracle.checker import Checker
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.reading import check_names, plan_from, read_plan
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.records import TrialRecord, TrialResult
from barrier_tck.harness.record.run_directory import latest_run, trial_directory
from barrier_tck.harness.record.run_reader import open_run, read_campaign, read_record
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.errors import NondeterminismError, UsageProblem
from barrier_tck.harness.support.strict_input import read_json
from barrier_tck.harness.support.work_directories import temporary_work_directory
from barrier_tck.harness.system.system_under_test import Capability, SystemUnderTest
from barrier_tck.harness.trial.plan_check import check_plan
from barrier_tck.harness.trial.trial_run import digest, execute

LIKELY_CAUSES = (
    "likely causes: the code changed since the trial was recorded; iteration over a set or over objects' "
    "ids; a real clock, thread or unseeded random number in what is simulated"
)


@dataclass(frozen=True, slots=True)
class ReplaySource:
    """Something to replay: a plan and, if it was recorded, its result at that time."""

    path: Path
    """The plan's file."""
    plan: TrialPlan
    recorded: TrialRecord | None = None
    trace: tuple[str, ...] = ()
    """The recorded trace, if it was kept."""
    kept_for: KeptFor | None = None
    """What the plan showed, if it is kept because it failed."""


@dataclass(frozen=True, slots=True)
class KeptFor:
    """What a plan showed that is kept because it failed."""

    clause: str
    """The clause that was broken first; empty if the checker names none."""
    checker: str
    failed_runs: int
    """In how many of ``runs`` runs it failed."""
    runs: int


@dataclass(frozen=True, slots=True)
class Replayed:
    """One plan replayed."""

    source: ReplaySource
    record: TrialRecord
    runs: int = 1
    """How often it was run; ``record`` is that of the last run."""
    exact: bool = False
    """Whether the trace was compared with another one, which was the same."""

    @property
    def shows_no_more(self) -> KeptFor | None:
        """What the plan showed before, if it is kept because it failed, and is VALID now."""
        return self.source.kept_for if self.record.verdict is Verdict.VALID else None

    @property
    def same_verdict(self) -> bool:
        """Whether the verdict is the recorded one; without a record it cannot differ."""
        return self.source.recorded is None or self.source.recorded.verdict is self.record.verdict


def sources_of(path: Path) -> tuple[ReplaySource, ...]:
    """Find what a path names: a plan file, a trial's directory, or a run directory.

    For a run directory, these are its failing trials or, if none failed, all that were kept. Raises UsageProblem if
    the path is none of these, or is corrupt or of a newer version.
    """
    if path.is_file():
        if path.name == "plan.json" and (path.parent / "record.json").is_file():
            return (_recorded(path.parent),)
        return (_kept_plan(path),)
    if not path.exists():
        raise UsageProblem(f"{path} does not exist; name a plan file or a run directory")
    if (path / "record.json").is_file():
        return (_recorded(path),)
    path = latest_run(path)
    run = open_run(path)
    chosen = [number for number in run.campaign.failing if number in run.kept] or list(run.kept)
    if not chosen:
        raise UsageProblem(f"{path} keeps no trial in full, so there is nothing to replay")
    return tuple(_recorded(trial_directory(path, number)) for number in chosen)


def _kept_plan(path: Path) -> ReplaySource:
    """Read a plan's file, one of a store of plans, or the smallest plan of a finding in a run directory."""
    value = read_json(path)
    if isinstance(value, dict) and "because" in value:
        stored = stored_plan_of(path.read_bytes(), str(path))
        shown = stored.shown
        kept_for = (
            KeptFor(shown.clause, shown.checker, max(1, stored.failed_runs), max(1, stored.runs))
            if shown is not None
            else None
        )
        return ReplaySource(path, stored.trial_plan(str(path)), kept_for=kept_for)
    return ReplaySource(path, plan_from(value, str(path)), kept_for=_finding_of(path))


def _finding_of(path: Path) -> KeptFor | None:
    """Return the finding of which a file has the smallest plan; None if it lies in no run directory."""
    run = path.resolve().parent.parent
    if not (run / "campaign.json").is_file():
        return None
    for group in read_campaign(run).groups:
        if group.plan and (run / group.plan) == path.resolve():
            return KeptFor(group.clause, group.checker, group.failed_runs, group.runs)
    return None


def varied(
    source: ReplaySource,
    state_backend: str | None = None,
    workload: str | None = None,
    checkpoint_storage: str | None = None,
) -> ReplaySource:
    """Return the source with another state backend, workload or checkpoint storage, if one is given.

    Another plan than the recorded one has nothing to be compared with. Raises UsageProblem for a state backend or a
    storage that is neither a short name nor a target.
    """
    plan = source.plan
    if state_backend is not None:
        plan = msgspec.structs.replace(plan, state_backend=state_backend)
    if checkpoint_storage is not None:
        checkpoints = msgspec.structs.replace(plan.checkpoints, storage=checkpoint_storage)
        plan = msgspec.structs.replace(plan, checkpoints=checkpoints)
    check_names(plan, str(source.path))
    if workload is not None and workload != plan.workload.name:
        changed = msgspec.structs.replace(plan.workload, name=workload)
        plan = msgspec.structs.replace(plan, workload=changed, job=JobPlan())
    return source if plan == source.plan else ReplaySource(source.path, plan)


def _recorded(directory: Path) -> ReplaySource:
    trace = directory / "trace.txt"
    record = read_record(directory)
    broken = failed_keys(record.findings)
    return ReplaySource(
        path=directory / "plan.json",
        plan=read_plan(directory / "plan.json"),
        recorded=record,
        trace=tuple(trace.read_text().splitlines()) if trace.is_file() else (),
        kept_for=KeptFor(*broken[0], 1, 1) if broken else None,
    )


def replay(
    source: ReplaySource,
    system: SystemUnderTest,
    checkers: Sequence[Checker] | None = None,
    times: int = 1,
    begins: Callable[[str], None] = lambda _: None,
) -> Replayed:
    """Run a plan again and compare; ``times`` is how often it is run at most until it is not VALID. ``begins``
    is told of each run before it begins.

    In a system with DETERMINISTIC_REPLAY, ``times`` does not count: the trace must be the recorded one, and a plan
    without a record runs twice. Raises NondeterminismError, with the first differing line, if the traces differ. A run
    that was ended, for instance at its limit of wall time, has no trace, and is compared with no other.
    """
    check_plan(source.plan, system, str(source.path))
    exact = Capability.DETERMINISTIC_REPLAY in system.capabilities
    begins("run 1" if exact else f"run 1 of {times}")
    result = _run(source.plan, system, checkers)
    runs = 1
    if exact:
        compared = _has_trace(result) and _compare(source, result, system, checkers)
        return Replayed(source, result.record, exact=compared)
    while runs < times and result.record.verdict is Verdict.VALID:
        runs += 1
        begins(f"run {runs} of {times}")
        result = _run(source.plan, system, checkers)
    return Replayed(source, result.record, runs)


def _run(plan: TrialPlan, system: SystemUnderTest, checkers: Sequence[Checker] | None) -> TrialResult:
    with temporary_work_directory("replay") as scratch:
        return execute(plan, system, Path(scratch), checkers)


def _has_trace(result: TrialResult) -> bool:
    return result.record.trace_digest is not None


def _compare(
    source: ReplaySource, result: TrialResult, system: SystemUnderTest, checkers: Sequence[Checker] | None
) -> bool:
    """Compare a run with the recorded one or, without that, with a second run; return whether there is one."""
    recorded = source.recorded
    if recorded is None or recorded.system != system.name:
        again = _run(source.plan, system, checkers)
        if not _has_trace(again):
            return False
        _require_same(source, result.trace, again.trace, digest(again.trace), "the second run")
    elif recorded.trace_digest is None:
        return False
    else:
        _require_same(source, result.trace, source.trace, recorded.trace_digest, "the recorded trace")
    return True


def _require_same(
    source: ReplaySource,
    trace: Sequence[str],
    other: Sequence[str],
    other_digest: str | None,
    other_name: str,
) -> None:
    if digest(trace) == other_digest:
        return
    difference = first_difference(trace, other) if other else "that trace was not kept"
    raise NondeterminismError(
        f"{source.path}: the same plan did not take the same steps; against {other_name}: {difference}; "
        f"{LIKELY_CAUSES}"
    )


def first_difference(trace: Sequence[str], other: Sequence[str]) -> str:
    """Return a sentence with the first line at which two traces differ."""
    for number, (mine, theirs) in enumerate(zip_longest(trace, other, fillvalue="(end)"), start=1):
        if mine != theirs:
            return f"line {number} is {mine!r}, there it is {theirs!r}"
    return "no line differs"


def worst_verdict(replayed: Sequence[Replayed]) -> Verdict:
    """Return the worst verdict of several replays."""
    return Verdict.worst(result.record.verdict for result in replayed)
