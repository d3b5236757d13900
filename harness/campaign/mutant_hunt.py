"""Runs planted bugs until a checker says INVALID; shrinks, saves and replays the plan (CER-2)."""

from __future__ import annotations

import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Protocol

import msgspec

from barrier_tck.harness.campaign.failures import failed_checker, fails_by, shrink_failure
from barrier_tck.harness.campaign.names_reached import names_reached
from barrier_tck.harness.campaign.replay import ReplaySource, replay
from barrier_tck.harness.campaign.shrinking import Shrunk
from barrier_tck.harness.draw.not_drawn import NotDrawn
from barrier_tck.harness.oracle.checker import Checker
from barrier_tck.harness.plan.trial_plan import TrialPlan, to_json
from barrier_tck.harness.record.history import End
from barrier_tck.harness.record.records import TrialRecord, TrialResult
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.atomic_files import write_atomically
from barrier_tck.harness.support.errors import UsageError, UsageProblem
from barrier_tck.harness.support.strict_input import nearest
from barrier_tck.harness.support.third_party import what_happened
from barrier_tck.harness.system.optional_interfaces import ShowsCoverage
from barrier_tck.harness.system.system_under_test import Capability, SystemUnderTest
from barrier_tck.harness.trial.trial_run import execute, run_trial

TRIAL_PREFIX = "trial-"
"""What the names of directories of single trials begin with."""


class PlantedBug(Protocol):
    """What this module needs of a bug: one of ``barrier_tck.harness.reference.bugs``, or a user's own."""

    @property
    def id(self) -> str:
        """Return the bug's id, for instance ``AL-01``."""

    @property
    def clause(self) -> str | None:
        """Return the clause that the bug violates; None if it is not given."""

    @property
    def description(self) -> str:
        """Return a sentence that says what is wrong."""

    @property
    def worlds(self) -> Sequence[str]:
        """Return the worlds in which the bug can be shown."""

    @property
    def plans(self) -> Callable[[str], Iterator[TrialPlan | NotDrawn]]:
        """Return a function of the world that yields plans likely to show the bug."""

    @property
    def ran_since_asked(self) -> Callable[[], bool | None]:
        """Return a function that says whether its lines ran since it was called last; None: not known."""

    @property
    def learns(self) -> bool:
        """Return whether its plans follow from what the trials before reached."""

    @property
    def learn(self) -> Callable[[tuple[str, ...], bool], None]:
        """Return a function that takes what the latest trial reached, and whether plans like its plan may be tried."""

    @property
    def planted_in(self) -> Callable[[TrialPlan], TrialPlan]:
        """Return what plants the bug in a plan."""


class SeenBy(msgspec.Struct, frozen=True):
    """A checker that reported INVALID in trials that do not count, because it does not speak for the bug's clause."""

    checker: str
    clauses: tuple[str, ...]
    trials: int


class MutantResult(msgspec.Struct, frozen=True):
    """What became of one planted bug."""

    id: str
    caught: bool
    clause: str | None
    """The clause that the bug violates; it is caught when a checker of this clause says INVALID. None: of any."""
    trials: int
    seconds: float
    unknown: int = 0
    """Trials whose verdict was UNKNOWN."""
    why_unknown: str | None = None
    """What was said of the first of them."""
    failed: int = 0
    """Draws, trials and runs of smaller plans that an exception of the harness ended; a trial of these is UNKNOWN."""
    why_failed: str | None = None
    """The first of these exceptions."""
    traceback: str | None = None
    """Path of its traceback, relative to the run directory."""
    ran_in: int | None = None
    """Trials in which the lines of the patch ran; None: not known."""
    seen_by: tuple[SeenBy, ...] = ()
    """Who said INVALID in trials that do not count."""
    endless: bool = False
    """Whether the last trial did not end within its limit of wall time; then no other one was tried."""
    checker: str | None = None
    """The first checker of the clause that said INVALID."""
    clauses: tuple[str, ...] = ()
    """The clauses that its finding names."""
    named: str | None = None
    """The clause that the saved plan's trial names first: what it says was broken."""
    seen: str = ""
    """What broke it, where, and after which fault."""
    also: tuple[str, ...] = ()
    """The other checkers that reported INVALID in that trial."""
    plan: str | None = None
    """Path of the smallest plan that shows the bug, relative to the run directory."""
    faults: int | None = None
    """Number of faults in that plan."""
    shrinking_runs: int = 0
    replays: bool | None = None
    """Whether the saved plan gave INVALID again, from the same checker; None: it was not run again."""
    replay_runs: int = 0
    """How many runs of the saved plan that took."""
    replay_runs_max: int = 0
    """After how many runs it would have been given up: 1 in a system with DETERMINISTIC_REPLAY."""
    without_patch: tuple[str, ...] | None = None
    """Checkers that say INVALID of the saved plan on the reference as it is; None: it was not run there."""

    @property
    def shown(self) -> bool:
        """Whether it was caught by a plan with which the reference as it is does not fail likewise."""
        return self.caught and self.checker not in (self.without_patch or ())


def choose(mutants: dict[str, PlantedBug], only: Sequence[str], world: str) -> tuple[PlantedBug, ...]:
    """Return the bugs to run; raises UsageProblem for an unknown id, or one that the world cannot show."""
    for name in only:
        if name not in mutants:
            raise UsageProblem(f"there is no planted bug {name!r}{nearest(name, mutants)}")
        if world not in mutants[name].worlds:
            worlds = ", ".join(mutants[name].worlds)
            raise UsageProblem(f"{name} cannot be shown in the world {world!r}; choose one of: {worlds}")
    names = only or [name for name, mutant in mutants.items() if world in mutant.worlds]
    return tuple(mutants[name] for name in dict.fromkeys(names))


def hunt(
    mutant: PlantedBug,
    system: SystemUnderTest,
    directory: Path,
    checkers: Sequence[Checker] | None = None,
    replays_max: int = 1,
    begins: Callable[[str], None] = lambda _: None,
) -> MutantResult:
    """Run a planted bug's plans until one is INVALID by the bug's clause; shrink, save and replay that plan.

    ``begins`` is called with what begins: a trial, or making the plan that shows the bug smaller.

    A trial that is INVALID only for another reason does not count, because the suite should recognise the bug. Without
    DETERMINISTIC_REPLAY the same plan may miss the interleaving that shows the bug, so the saved one is run up to
    ``replays_max`` times; 0: not at all. An exception of the harness ends one trial, not the hunt. Raises UsageError
    if the plan of a trial is refused.
    """
    started = time.monotonic()
    tried = Tried(directory / f"{mutant.id}-failed.txt")
    failing = first_invalid(mutant, system, directory, checkers, tried, begins)
    if failing is None:
        return tried.result(mutant, time.monotonic() - started)
    plan, runs = failing.plan, 0
    deterministic = Capability.DETERMINISTIC_REPLAY in system.capabilities
    if deterministic:
        smallest = _smallest(mutant, system, directory, checkers, failing, tried, begins)
        if smallest is not None:
            plan, runs = smallest.plan, smallest.runs
    checker = failed_checker(failing, mutant.clause) or ""
    note = f"{mutant.id}: {mutant.description} Caught by {checker}."
    plan = msgspec.structs.replace(plan, note=note)
    path = directory / f"{mutant.id}.json"
    write_atomically(path, to_json(plan).encode())
    replays_max = 1 if deterministic else replays_max
    if deterministic:
        replay(ReplaySource(path, plan), system, checkers)
    replayed_in, replayed = _replayed(replays_max, plan, checker, mutant.clause, system, directory, checkers)
    found = [finding for finding in (replayed or failing).findings if finding.verdict is Verdict.INVALID]
    clauses = next((finding.clauses for finding in found if finding.checker == checker), ())
    return msgspec.structs.replace(
        tried.result(mutant, time.monotonic() - started),
        caught=True,
        checker=checker,
        clauses=tuple(clauses),
        named=found[0].broken or None,
        seen=found[0].first.description if found[0].first is not None else found[0].summary,
        also=tuple(dict.fromkeys(finding.checker for finding in found if finding.checker != checker)),
        plan=path.name,
        faults=len(plan.faults),
        shrinking_runs=runs,
        replays=replayed_in is not None if replays_max else None,
        replay_runs=replayed_in or replays_max,
        replay_runs_max=replays_max,
    )


@dataclass
class Tried:
    """What the trials of a bug said before one of them caught it."""

    traceback: Path
    """Where the traceback of the first exception of the harness is written."""
    trials: int = 0
    unknown: list[str] = field(default_factory=list)
    ran: list[bool | None] = field(default_factory=list)
    seen: Counter[tuple[str, tuple[str, ...]]] = field(default_factory=Counter)
    endless: bool = False
    failures: list[str] = field(default_factory=list)

    def failed(self, error: Exception) -> None:
        """Count an exception of the harness."""
        if not self.failures:
            write_atomically(self.traceback, "".join(traceback.format_exception(error)).encode())
        self.failures.append(f"the harness failed: {what_happened(error)}")

    def failed_trial(self, error: Exception) -> None:
        """Count a trial that could not be drawn or run."""
        self.failed(error)
        self.unknown.append(self.failures[-1])

    def take(self, record: TrialRecord) -> None:
        """Count a trial that does not show the bug by its clause."""
        if record.verdict is Verdict.UNKNOWN:
            unknown = (finding.summary for finding in record.findings if finding.verdict is Verdict.UNKNOWN)
            self.unknown.append(next(unknown, ""))
        for finding in record.findings:
            if finding.verdict is Verdict.INVALID:
                self.seen[finding.checker, tuple(finding.clauses)] += 1
        not_run = record.end == End.ERROR.value and record.verdict is Verdict.UNKNOWN
        self.endless = not_run and record.wall_seconds >= record.plan.limits.wall_s

    def result(self, mutant: PlantedBug, seconds: float) -> MutantResult:
        return MutantResult(
            mutant.id,
            False,
            mutant.clause,
            self.trials,
            seconds,
            unknown=len(self.unknown),
            why_unknown=next(iter(self.unknown), None),
            failed=len(self.failures),
            why_failed=next(iter(self.failures), None),
            traceback=self.traceback.name if self.failures else None,
            ran_in=None if None in self.ran else self.ran.count(True),
            seen_by=tuple(
                SeenBy(checker, clauses, trials) for (checker, clauses), trials in self.seen.most_common()
            ),
            endless=self.endless,
        )


def first_invalid(
    mutant: PlantedBug,
    system: SystemUnderTest,
    directory: Path,
    checkers: Sequence[Checker] | None,
    tried: Tried,
    begins: Callable[[str], None],
) -> TrialRecord | None:
    """Return the first trial that shows the bug; None if no plan does, or a trial does not end. ``tried`` counts."""
    shown = system.showing_coverage() if mutant.learns and isinstance(system, ShowsCoverage) else system
    for plan in mutant.plans(system.world):
        mutant.ran_since_asked()
        tried.trials += 1
        begins(f"trial {tried.trials}")
        result = None
        if isinstance(plan, NotDrawn):
            tried.failed_trial(plan.error)
        else:
            result = _run(mutant.planted_in(plan), shown, directory, checkers, tried)
        tried.ran.append(mutant.ran_since_asked())
        if result is None:
            continue
        record = result.record
        if mutant.learns:
            mutant.learn(names_reached(result), record.verdict is Verdict.VALID)
        if failed_checker(record, mutant.clause) is not None:
            return record
        tried.take(record)
        if tried.endless:
            break
    return None


def _run(
    planted: TrialPlan,
    system: SystemUnderTest,
    directory: Path,
    checkers: Sequence[Checker] | None,
    tried: Tried,
) -> TrialResult | None:
    """Run a trial; None if an exception of the harness ended it, which is counted."""
    with tempfile.TemporaryDirectory(dir=directory, prefix=TRIAL_PREFIX) as scratch:
        try:
            return execute(planted, system, Path(scratch), checkers, tried.trials - 1)
        except UsageError:
            raise
        except Exception as error:  # noqa: BLE001 - it is counted and shown, and the other plans are tried
            tried.failed_trial(error)
            return None


def _smallest(
    mutant: PlantedBug,
    system: SystemUnderTest,
    directory: Path,
    checkers: Sequence[Checker] | None,
    failing: TrialRecord,
    tried: Tried,
    begins: Callable[[str], None],
) -> Shrunk | None:
    """Make the plan of a failing trial smaller; None if an exception of the harness ended that, which is counted."""
    run = count(1)

    def next_run() -> None:
        begins(f"trial {tried.trials} shows it; its plan is made smaller, run {next(run)}")

    try:
        return shrink_failure(failing, system, directory, checkers, clause=mutant.clause, begins=next_run)
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001 - it is counted and shown, and the plan is saved as it was found
        tried.failed(error)
        return None


def _replayed(
    runs_max: int,
    plan: TrialPlan,
    checker: str,
    clause: str | None,
    system: SystemUnderTest,
    directory: Path,
    checkers: Sequence[Checker] | None,
) -> tuple[int | None, TrialRecord | None]:
    """Return in which run the saved plan fails again, from 1 on, and its record; None if it fails in no run."""
    for run in range(1, runs_max + 1):
        with tempfile.TemporaryDirectory(dir=directory, prefix=TRIAL_PREFIX) as scratch:
            record = run_trial(plan, system, Path(scratch), checkers)
        if fails_by(record, checker, clause):
            return run, record
    return None, None
