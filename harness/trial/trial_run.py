"""One trial: a plan is run in a system, leaves a history, is judged, and becomes a record."""

from __future__ import annotations

import hashlib
import logging
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path

import msgspec

from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.oracle.broken_recoveries import vacuity_reasons
from barrier_tck.harness.oracle.checker import Checker, TrialContext
from barrier_tck.harness.oracle.jobs_of_trial import jobs_of_trial
from barrier_tck.harness.oracle.judging import compose
from barrier_tck.harness.oracle.plug_in_checkers import with_plug_ins
from barrier_tck.harness.plan.trial_plan import FilledPlan, TrialPlan, to_builtins
from barrier_tck.harness.record.history import End, History, Recorded
from barrier_tck.harness.record.operations import Operation
from barrier_tck.harness.record.phases import Course, with_phases
from barrier_tck.harness.record.records import (
    RECORD_VERSION,
    TrialRecord,
    TrialResult,
    attempts_of,
    batches_committed,
    checkpoints_of,
    restores_of,
)
from barrier_tck.harness.record.unknown_trials import NOT_RUN_CHECKER
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.support.environment import environment
from barrier_tck.harness.support.errors import (
    HarnessError,
    InternalError,
    NondeterminismError,
    SystemBroke,
    SystemCrashed,
    UsageError,
)
from barrier_tck.harness.support.garbage_collection import no_collection
from barrier_tck.harness.support.notices import notice
from barrier_tck.harness.support.raised_by import OF_THE_WORLD, crash_of, is_of_project
from barrier_tck.harness.support.third_party import what_happened, where_it_was
from barrier_tck.harness.support.wall_clock import TooLate, limited
from barrier_tck.harness.system.optional_interfaces import HasWordsForFaults, KeepsLogs, ProvidesOwnJob
from barrier_tck.harness.system.plan_fields import unused_by
from barrier_tck.harness.system.system_names import reference_of
from barrier_tck.harness.system.system_under_test import Capability, SystemUnderTest, TrialOutcome
from barrier_tck.harness.trial.nemesis import Nemesis
from barrier_tck.harness.trial.outcome_problems import refuse_what_cannot_be
from barrier_tck.harness.workloads.workload_names import filled

_log = logging.getLogger(__name__)

LOGS = "logs"
"""Where the logs of a trial that is not VALID are, relative to its directory."""


def run_trial(
    plan: TrialPlan, system: SystemUnderTest, directory: Path, checkers: Sequence[Checker] | None = None
) -> TrialRecord:
    """Run a plan once and judge it; ``directory`` belongs to this trial alone and must exist.

    ``checkers`` None means the standard ones for this plan and system, plus those that system and workload bring.
    Raises UsageError if the plan cannot be run as it is meant; whatever else goes wrong is in the record, whose
    verdict is then UNKNOWN.
    """
    return execute(plan, system, directory, checkers).record


def execute(
    plan: TrialPlan,
    system: SystemUnderTest,
    directory: Path,
    checkers: Sequence[Checker] | None = None,
    trial: int = 0,
) -> TrialResult:
    """Run as ``run_trial`` does, and also return history and trace; ``trial`` is the number in a campaign.

    If the trial is not VALID, the system's logs, if it has any, are below ``directory`` afterwards.
    """
    result = _execute(filled(plan), system, directory, checkers, trial)
    if result.record.verdict is not Verdict.VALID and isinstance(system, KeepsLogs):
        try:
            system.keep_logs(directory / LOGS)
        except OSError as error:
            _log.warning("the logs of trial %d could not be kept: %s", trial, error)
    return result


def _execute(
    plan: FilledPlan,
    system: SystemUnderTest,
    directory: Path,
    checkers: Sequence[Checker] | None,
    trial: int,
) -> TrialResult:
    nemesis = _nemesis_of(plan, system)
    started_at, started = datetime.now(UTC), time.monotonic()
    try:
        judges = checkers_of(plan, system) if checkers is None else tuple(checkers)
        with _limit_of(plan, system):
            try:
                outcome = _run(system, plan, nemesis, directory)
            finally:
                nemesis.heal_all()  # no pause and no cut reaches the next trial, whatever the adapter did
            if not is_of_project(type(system).__module__):
                refuse_what_cannot_be(outcome)
            history = _with_faults(outcome.history, nemesis.operations())
            verdict, findings, context = judged(plan, system, nemesis, outcome, history, judges)
    except (UsageError, NondeterminismError, InternalError, KeyboardInterrupt):
        raise  # nothing was learnt about the system: this is for the caller, or a bug, or an interrupt
    except BaseException as error:  # noqa: BLE001 - the trial is recorded, not lost
        finding = not_run(error, plan)
        seconds = time.monotonic() - started
        return TrialResult(
            _record_of_failure(trial, plan, system, nemesis, finding, started_at, seconds), None
        )
    trace = outcome.trace
    attempts = outcome.attempts or attempts_of(history)
    checkpoints = outcome.checkpoints or checkpoints_of(history)
    course = Course(attempts, checkpoints, outcome.snapshots)
    record = TrialRecord(
        version=RECORD_VERSION,
        trial=trial,
        system=system.name,
        opened_as=reference_of(system),
        world=system.world,
        plan=plan,
        verdict=verdict,
        findings=findings,
        end=history.end.value,
        end_reason=history.detail,
        started_at=started_at.isoformat(),
        wall_seconds=time.monotonic() - started,
        duration_ms=outcome.duration_ms,
        faults=with_phases(nemesis.records(), plan.faults, course),
        attempts=attempts,
        checkpoints=checkpoints,
        snapshots=outcome.snapshots,
        restores=restores_of(history),
        subtasks=outcome.subtasks,
        trace_digest=digest(trace),
        environment=environment(),
        measurements=outcome.measurements,
        refused_connections=outcome.refused_connections,
        vacuity_reasons=vacuity_reasons(context, findings),
        batches_committed=batches_committed(history),
    )
    return TrialResult(record, history, trace, outcome.trace_events, outcome.reached)


def judged(
    plan: FilledPlan,
    system: SystemUnderTest,
    nemesis: Nemesis,
    outcome: TrialOutcome,
    history: History,
    judges: Sequence[Checker],
) -> tuple[Verdict, tuple[Finding, ...], TrialContext]:
    """Return the verdict of what a run left, the findings, and what was judged; ``history`` has the nemesis's lines."""
    context = _context(plan, system, nemesis, outcome, history)
    with no_collection():
        verdict, findings = compose(judges, context)
    return verdict, findings, context


def _run(system: SystemUnderTest, plan: FilledPlan, nemesis: Nemesis, directory: Path) -> TrialOutcome:
    """Run a plan; raises SystemCrashed if a third-party system raises what is neither an error of the harness nor one
    of the machine."""
    ours = is_of_project(type(system).__module__)
    try:
        outcome = system.run(plan, nemesis, directory)
        if not ours:
            _say_what_is_not_aimed_at(system, plan, nemesis)
        return outcome
    except (HarnessError, *OF_THE_WORLD):
        raise
    except Exception as error:
        # An adapter of this project says itself which of its system's processes crashed.
        crash = None if ours else crash_of(error, "the system under test")
        if crash is None:
            raise
        raise crash from error


def _say_what_is_not_aimed_at(system: SystemUnderTest, plan: FilledPlan, nemesis: Nemesis) -> None:
    """Say once which points a system passes that its job does not list: no fault is ever drawn for them."""
    view = system.job(plan)
    passes: dict[str | None, Mapping[ProtocolPoint, int]] = {None: view.coordinator_passes}
    passes |= {subtask.name: subtask.passes for subtask in view.subtasks}
    unlisted = {point for point, subtask in nemesis.passed if point not in passes.get(subtask, {})}
    if unlisted:
        _say_once(
            f"{system.name} passes points that its job() does not list, so no fault is drawn for them: "
            f"{', '.join(sorted(unlisted))}"
        )


@cache
def _say_once(text: str) -> None:
    notice(text)


class TrialOverran(TooLate):
    """A trial took longer than its plan allows."""


def _limit_of(plan: TrialPlan, system: SystemUnderTest) -> AbstractContextManager[None]:
    """Return what ends a simulated trial that never ends, with its judgement; a real system ends its job in time.

    A trial with virtual time needs milliseconds, so a machine that is only slow does not reach the limit.
    """
    return limited(plan.limits.wall_s, TrialOverran) if system.world == "simulated" else nullcontext()


def _nemesis_of(plan: TrialPlan, system: SystemUnderTest) -> Nemesis:
    if isinstance(system, HasWordsForFaults):
        return Nemesis(plan.faults, words=system.in_own_words)
    return Nemesis(plan.faults)


def lost_trial(
    trial: int, plan: FilledPlan, system: SystemUnderTest, why: str, started_at: datetime, seconds: float
) -> TrialResult:
    """Return the result of a trial whose process ended during it: UNKNOWN, because of ``why``, after ``seconds``."""
    finding = Finding(NOT_RUN_CHECKER, (), Verdict.UNKNOWN, why, details={"plan": to_builtins(plan)})
    nemesis = _nemesis_of(plan, system)
    return TrialResult(_record_of_failure(trial, plan, system, nemesis, finding, started_at, seconds), None)


def checkers_of(plan: FilledPlan, system: SystemUnderTest) -> tuple[Checker, ...]:
    """Return the standard checkers and those that system and workload bring."""
    return with_plug_ins(standard_checkers(plan, system), plan, system)


def standard_checkers(plan: FilledPlan, system: SystemUnderTest) -> tuple[Checker, ...]:
    """Return the checkers of the suite that apply to a plan on a system."""
    # Imported here: judges may import much, and a caller with checkers of its own needs none of these.
    from barrier_tck.harness.oracle.applicable import checkers_for

    modelled = not isinstance(system, ProvidesOwnJob)
    return checkers_for(plan, system.capabilities, modelled=modelled, unused=unused_by(system))


def digest(trace: Sequence[str]) -> str | None:
    """Return the SHA-256 of a trace, or None if it is empty (a system without a trace)."""
    return hashlib.sha256("\n".join(trace).encode()).hexdigest() if trace else None


def _context(
    plan: TrialPlan, system: SystemUnderTest, nemesis: Nemesis, outcome: TrialOutcome, history: History
) -> TrialContext:
    return TrialContext(
        plan=plan,
        history=history,
        faults=nemesis.records(),
        subtasks=outcome.subtasks,
        job=system.job(plan),
        later_jobs=tuple(map(system.job, jobs_of_trial(plan, history).plans[1:])),
        capabilities=_names(frozenset(system.capabilities)),
    )


@lru_cache(maxsize=16)
def _names(capabilities: frozenset[Capability]) -> frozenset[str]:
    """Return the names of capabilities: the same for every trial of a system."""
    return frozenset(capability.name for capability in capabilities)


def _with_faults(history: History, faults: Sequence[Recorded[Operation]]) -> History:
    """Merge the nemesis's lines into the history by time, and renumber all lines."""
    if not faults:
        return history
    merged = sorted((*history.operations, *faults), key=lambda line: line.time_ms)
    numbered = tuple(msgspec.structs.replace(line, index=index) for index, line in enumerate(merged))
    return msgspec.structs.replace(history, operations=numbered)


def not_run(error: BaseException, plan: TrialPlan) -> Finding:
    """Return the finding of a trial that an error ended: INVALID if the system broke a rule of its own."""
    what = f"the trial could not be run: {what_happened(error)}"
    if isinstance(error, TrialOverran):
        what = f"the trial did not end within {plan.limits.wall_s} s of wall time; it was at {where_it_was(error)}"
    broke = isinstance(error, SystemBroke)
    if isinstance(error, SystemCrashed):
        what = str(error)
    elif broke:
        what = f"the system under test broke a rule of its own: {error}"
    return Finding(
        checker=NOT_RUN_CHECKER,
        clauses=("REC-6",) if broke else (),
        verdict=Verdict.INVALID if broke else Verdict.UNKNOWN,
        summary=what,
        details={"traceback": "".join(traceback.format_exception(error)), "plan": to_builtins(plan)},
    )


def _record_of_failure(
    trial: int,
    plan: TrialPlan,
    system: SystemUnderTest,
    nemesis: Nemesis,
    finding: Finding,
    started_at: datetime,
    seconds: float,
) -> TrialRecord:
    return TrialRecord(
        version=RECORD_VERSION,
        trial=trial,
        system=system.name,
        opened_as=reference_of(system),
        world=system.world,
        plan=plan,
        verdict=finding.verdict,
        findings=(finding,),
        end=End.ERROR.value,
        end_reason=finding.summary,
        started_at=started_at.isoformat(),
        wall_seconds=seconds,
        duration_ms=0.0,
        faults=nemesis.records(),
        environment=environment(),
    )
