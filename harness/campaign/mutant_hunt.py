"""Runs planted bugs until a checker says INVALID; shrinks, saves and replays the plan (CER-2)."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from barrier_tck.harness.campaign.failures import failed_checker, fails_likewise, shrink_failure
from barrier_tck.harness.campaign.replay import ReplaySource, replay
from barrier_tck.harness.oracle.checker import Checker
from barrier_tck.harness.plan.trial_plan import TrialPlan, to_json
from barrier_tck.harness.record.records import TrialRecord
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.atomic_files import write_atomically
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import nearest
from barrier_tck.harness.system.system_under_test import Capability, SystemUnderTest
from barrier_tck.harness.trial.trial_run import execute


class PlantedBug(Protocol):
    """What this module needs of a bug: one of ``barrier_tck.harness.reference.bugs``, or somebody's own."""

    @property
    def id(self) -> str:
        """Return the bug's id, for instance ``AL-01``."""

    @property
    def clause(self) -> str | None:
        """Return the clause that the bug violates; None: nobody said."""

    @property
    def description(self) -> str:
        """Return a sentence that says what is wrong."""

    @property
    def worlds(self) -> Sequence[str]:
        """Return the worlds in which the bug can be shown."""

    @property
    def plans(self) -> Callable[[str], Iterator[TrialPlan]]:
        """Return a function of the world that yields plans likely to show the bug."""

    @property
    def planted_in(self) -> Callable[[TrialPlan], TrialPlan]:
        """Return what plants the bug in a plan."""


class MutantResult(msgspec.Struct, frozen=True):
    """What became of one planted bug."""

    id: str
    caught: bool
    clause: str | None
    """The clause that the bug violates; it is caught when a checker of this clause says INVALID. None: of any."""
    trials: int
    seconds: float
    checker: str | None = None
    """The first checker of the clause that said INVALID."""
    clauses: tuple[str, ...] = ()
    """The clauses that its finding names."""
    also: tuple[str, ...] = ()
    """The other checkers that said INVALID in the same trial."""
    plan: str | None = None
    """Path of the smallest plan that shows the bug, relative to the run directory."""
    faults: int | None = None
    """Number of faults in that plan."""
    shrinking_runs: int = 0
    replays: bool | None = None
    """Whether the saved plan gave INVALID again, from the same checker."""
    replay_runs: int = 0
    """How many runs of the saved plan that took."""
    replay_runs_max: int = 0
    """After how many runs it would have been given up: 1 in a system with DETERMINISTIC_REPLAY."""


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
) -> MutantResult:
    """Run a planted bug's plans until one is INVALID by the bug's clause; shrink, save and replay that plan.

    A trial that is INVALID only for another reason does not count, because the suite should recognise the bug. Without
    DETERMINISTIC_REPLAY the same plan may miss the interleaving that shows the bug, so the saved one is run up to
    ``replays_max`` times.
    """
    started = time.monotonic()
    trials, failing = _first_invalid(mutant, system, directory, checkers)
    if failing is None:
        return MutantResult(mutant.id, False, mutant.clause, trials, time.monotonic() - started)
    plan, runs = failing.plan, 0
    deterministic = Capability.DETERMINISTIC_REPLAY in system.capabilities
    if deterministic:
        smallest = shrink_failure(failing, system, directory, checkers, clause=mutant.clause)
        if smallest is not None:
            plan, runs = smallest.plan, smallest.runs
    checker = failed_checker(failing, mutant.clause) or ""
    found = [finding for finding in failing.findings if finding.verdict is Verdict.INVALID]
    clauses = next((finding.clauses for finding in found if finding.checker == checker), ())
    note = f"{mutant.id}: {mutant.description} Caught by {checker}."
    plan = msgspec.structs.replace(plan, note=note)
    path = directory / f"{mutant.id}.json"
    write_atomically(path, to_json(plan).encode())
    replays_max = 1 if deterministic else replays_max
    replayed_in = _replayed_in(replays_max, path, plan, checker, mutant.clause, system, directory, checkers)
    return MutantResult(
        id=mutant.id,
        caught=True,
        clause=mutant.clause,
        trials=trials,
        seconds=time.monotonic() - started,
        checker=checker,
        clauses=tuple(clauses),
        also=tuple(dict.fromkeys(finding.checker for finding in found if finding.checker != checker)),
        plan=path.name,
        faults=len(plan.faults),
        shrinking_runs=runs,
        replays=replayed_in is not None,
        replay_runs=replayed_in or replays_max,
        replay_runs_max=replays_max,
    )


def _first_invalid(
    mutant: PlantedBug,
    system: SystemUnderTest,
    directory: Path,
    checkers: Sequence[Checker] | None,
) -> tuple[int, TrialRecord | None]:
    trials = 0
    for plan in mutant.plans(system.world):
        planted = mutant.planted_in(plan)
        with tempfile.TemporaryDirectory(dir=directory, prefix="trial-") as scratch:
            record = execute(planted, system, Path(scratch), checkers, trials).record
        trials += 1
        if failed_checker(record, mutant.clause) is not None:
            return trials, record
    return trials, None


def _replayed_in(
    runs_max: int,
    path: Path,
    plan: TrialPlan,
    checker: str,
    clause: str | None,
    system: SystemUnderTest,
    directory: Path,
    checkers: Sequence[Checker] | None,
) -> int | None:
    """Return in which run the saved plan fails again, from 1 on; None if it fails in none of ``runs_max``.

    In a deterministic system, raises NondeterminismError if two runs do not take the same steps.
    """
    if Capability.DETERMINISTIC_REPLAY in system.capabilities:
        replay(ReplaySource(path, plan), system, checkers)
    fails = fails_likewise(system, checker, directory, checkers, clause)
    return next((run for run in range(1, runs_max + 1) if fails(plan)), None)
