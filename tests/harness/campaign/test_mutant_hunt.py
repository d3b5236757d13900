"""Hunting planted bugs: what is said of one that is caught, and how often a saved plan is run. Grain: whole trials."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from barrier_tck.harness.campaign.mutant_hunt import MutantResult, hunt
from barrier_tck.harness.campaign.phase_progress import PhaseProgress
from barrier_tck.harness.cli import mutants_command
from barrier_tck.harness.cli.printing import VerdictConsole, console_for
from barrier_tck.harness.draw.not_drawn import NotDrawn
from barrier_tck.harness.plan.reading import read_plan
from barrier_tck.harness.plan.trial_plan import FilledPlan, TrialPlan
from barrier_tck.harness.reference.bugs.catalogue import planted_bugs
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.support.errors import InternalError, OperatingError, UsageProblem
from barrier_tck.harness.system.system_under_test import Capability, NemesisHooks, TrialOutcome
from barrier_tck.harness.trial.trial_run import run_trial

BUG = planted_bugs()["SO-02"]
"""Its first plan shows it in each run."""


class RealTime(ReferenceSimulated):
    """A system in which a plan may take another course each time: some of its runs do not show the bug."""

    capabilities = ReferenceSimulated.capabilities - {Capability.DETERMINISTIC_REPLAY}

    def __init__(self, misses: Collection[int]) -> None:
        super().__init__()
        self.runs = 0
        self._misses = misses

    def run(self, plan: FilledPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        self.runs += 1
        if self.runs in self._misses:
            plan = msgspec.structs.replace(plan, mutant=None)
        return super().run(plan, nemesis, directory)


@pytest.mark.parametrize(
    ("misses", "runs", "said"),
    [
        ((), 1, "replayed in run 1 of 4"),
        ((2, 3), 3, "replayed in run 3 of 4"),
        (range(2, 6), 4, "DOES NOT REPLAY in 4 runs"),
    ],
)
def test_in_real_time_a_saved_plan_is_run_until_it_fails_again_or_as_often_as_seeds_are_tried(
    misses: Collection[int], runs: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    system = RealTime(misses)
    result = hunt(BUG, system, tmp_path, replays_max=4)
    assert (result.caught, result.replay_runs, result.replays) == (True, runs, "DOES NOT" not in said)
    assert system.runs == 1 + runs
    mutants_command.print_mutant(console_for(False), result, tmp_path, None)
    assert said in " ".join(capsys.readouterr().out.split())


def test_a_patch_is_said_to_break_the_clause_that_was_broken_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = MutantResult(
        "my", True, None, 3, 1.5, checker="dataflow", clauses=("BAR-6", "ALN-2"), named="BAR-6"
    )
    mutants_command.print_mutant(
        console_for(False), msgspec.structs.replace(result, faults=0), tmp_path, None
    )
    printed = " ".join(capsys.readouterr().out.split())
    assert "my caught by dataflow in trial 3 after 1.5 s (BAR-6); smallest plan has no faults" in printed


def test_a_saved_plan_is_not_run_again_if_nobody_asks_for_it(tmp_path: Path) -> None:
    system = RealTime(())
    result = hunt(BUG, system, tmp_path, replays_max=0)
    assert (result.caught, result.replays, result.replay_runs, system.runs) == (True, None, 0, 1)


@pytest.mark.long
def test_a_deterministic_system_has_one_run_to_fail_again(tmp_path: Path) -> None:
    result = hunt(BUG, ReferenceSimulated(), tmp_path, replays_max=4)
    assert (result.replays, result.replay_runs, result.replay_runs_max) == (True, 1, 1)


@pytest.mark.long
def test_what_is_said_of_a_bug_is_what_its_saved_plan_shows(tmp_path: Path) -> None:
    result = hunt(BUG, ReferenceSimulated(), tmp_path)
    saved = run_trial(read_plan(tmp_path / (result.plan or "")), ReferenceSimulated(), tmp_path / "again")
    (first,) = (finding for finding in saved.findings if finding.checker == result.checker)
    assert first.first is not None
    assert (result.named, result.seen) == (first.broken, first.first.description)


class Choosy(ReferenceSimulated):
    """A system that refuses jobs with few records, as a plan that is made smaller may become."""

    def run(self, plan: FilledPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        if plan.workload.batches < 4:
            raise UsageProblem("too few batches")
        return super().run(plan, nemesis, directory)


@pytest.mark.long
def test_a_smaller_plan_that_the_system_refuses_is_passed_over(tmp_path: Path) -> None:
    result = hunt(BUG, Choosy(), tmp_path)
    assert (result.caught, result.replays) == (True, True)
    assert read_plan(tmp_path / (result.plan or "")).workload.batches >= 4


class Crashing(ReferenceSimulated):
    """A system whose first trials cannot be run."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = 0

    def run(self, plan: FilledPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        self.runs += 1
        if self.runs <= 3:
            raise OperatingError("nothing to divide by")
        return super().run(msgspec.structs.replace(plan, mutant=None), nemesis, directory)


@pytest.mark.long
def test_a_missed_bug_says_how_many_trials_were_unknown_and_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = hunt(BUG, Crashing(), tmp_path)
    assert (result.caught, result.trials, result.unknown, result.ran_in) == (False, 40, 3, None)
    mutants_command.print_mutant(console_for(False), result, tmp_path, None)
    printed = " ".join(capsys.readouterr().out.split())
    assert f"SO-02 MISSED in 40 trials ({BUG.clause}), 3 of them UNKNOWN" in printed
    assert (
        "the first UNKNOWN: the trial could not be run: barrier_tck.harness.support.errors.OperatingError"
        in printed
    )


class Dying(ReferenceSimulated):
    """A system that dies of an exception of its own."""

    def run(self, plan: FilledPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        raise ZeroDivisionError("nothing to divide by")


def test_a_bug_of_which_the_system_dies_is_shown_with_the_exception(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = hunt(planted_bugs()["DY-01"], Dying(), tmp_path)
    assert (result.caught, result.named) == (True, "REC-6")
    mutants_command.print_mutant(console_for(False), result, tmp_path, None)
    assert "REC-6: the system under test died of an exception of its own: ZeroDivisionError" in " ".join(
        capsys.readouterr().out.split()
    )


class Faulty(ReferenceSimulated):
    """A system whose chosen runs meet a bug of the harness."""

    def __init__(self, failing: Collection[int]) -> None:
        super().__init__()
        self.runs = 0
        self._failing = failing

    def run(self, plan: FilledPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        self.runs += 1
        if self.runs in self._failing:
            error = InternalError("a judge miscounted")
            error.add_note("Falsifying example: a(\n    b=1,\n)")
            raise error
        return super().run(plan, nemesis, directory)


@dataclass(frozen=True)
class NotAlwaysDrawn:
    """A bug some of whose plans cannot be drawn."""

    not_drawn: Collection[int]
    id = BUG.id
    clause = BUG.clause
    description = BUG.description
    worlds = BUG.worlds
    planted_in = BUG.planted_in
    ran_since_asked = BUG.ran_since_asked
    learns = BUG.learns
    learn = BUG.learn

    def plans(self, world: str) -> Iterator[TrialPlan | NotDrawn]:
        for number, plan in enumerate(BUG.plans(world), start=1):
            yield NotDrawn(ValueError("nothing to draw from")) if number in self.not_drawn else plan


@pytest.mark.long
def test_a_bug_of_the_harness_ends_one_trial_and_not_the_hunt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = hunt(BUG, Faulty((1, 2)), tmp_path)
    assert (result.caught, result.trials, result.unknown, result.failed) == (True, 3, 2, 2)
    mutants_command.print_mutant(console_for(False), result, tmp_path, None)
    printed = " ".join(capsys.readouterr().out.split())
    why = "InternalError: a judge miscounted (test_mutant_hunt.py, line"
    assert "SO-02: 2 times the harness failed: barrier_tck.harness.support.errors." + why in printed
    assert "a judge miscounted" in (tmp_path / "SO-02-failed.txt").read_text()


@pytest.mark.long
def test_a_plan_that_cannot_be_drawn_counts_as_an_unknown_trial(tmp_path: Path) -> None:
    caught = hunt(NotAlwaysDrawn((1,)), ReferenceSimulated(), tmp_path)
    assert (caught.caught, caught.trials, caught.unknown) == (True, 2, 1)
    none = hunt(NotAlwaysDrawn(range(1, 41)), ReferenceSimulated(), tmp_path)
    assert (none.caught, none.trials, none.unknown) == (False, 40, 40)
    assert none.why_unknown == "the harness failed: ValueError: nothing to draw from"


def test_a_bug_of_the_harness_in_a_smaller_plan_leaves_the_plan_as_it_was_found(tmp_path: Path) -> None:
    result = hunt(BUG, Faulty((3,)), tmp_path)
    assert (result.caught, result.replays, result.failed, result.unknown) == (True, True, 1, 0)


def test_a_plan_that_the_system_refuses_ends_the_hunt(tmp_path: Path) -> None:
    class Refusing(ReferenceSimulated):
        def run(self, plan: FilledPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
            raise UsageProblem("no such job")

    with pytest.raises(UsageProblem, match="no such job"):
        hunt(BUG, Refusing(), tmp_path)


@pytest.mark.long
def test_a_hunt_says_what_begins_and_in_a_log_it_prints_that_now_and_then(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[str] = []
    hunt(BUG, ReferenceSimulated(), tmp_path, begins=begun.append)
    assert begun[:2] == ["trial 1", "trial 1 shows it; its plan is made smaller, run 1"]
    now = 100.0
    with PhaseProgress(VerdictConsole(stderr=True), "SO-02", clock=lambda: now) as progress:
        for seconds in (0.5, 1.9, 2.0, 5.0, 11.9, 12.0, 13.0, 30.0):
            now = 100.0 + seconds
            progress.show(f"trial {seconds}")
    assert capsys.readouterr().err.splitlines() == [
        "SO-02: trial 2.0, after 2 s",
        "SO-02: trial 12.0, after 12 s",
        "SO-02: trial 30.0, after 30 s",
    ]
