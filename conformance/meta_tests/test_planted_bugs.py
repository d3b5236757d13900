"""Every planted bug is caught, by a checker that speaks for its clause and by the suite's own tests (CER-2)."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec
import pytest

from barrier_tck.conformance.clauses import clause
from barrier_tck.conformance.trials import Trial, Trials, assert_valid
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.mutants.catalogue_suite import FLOW_BUGS
from barrier_tck.harness.reference.mutants.mutant_catalogue import MUTANTS
from barrier_tck.harness.system.job_view import JobView
from barrier_tck.harness.system.scale import scale_of
from barrier_tck.harness.system.system_names import open_system
from barrier_tck.harness.system.system_under_test import (
    Capability,
    NemesisHooks,
    SystemUnderTest,
    TrialOutcome,
)

TRIALS_MAX = 40
"""After this many plans a planted bug counts as missed."""

SHOWS_AS: dict[str, tuple[str, ...]] = {
    "BAR-1": ("ALN-2", "SNK-1"),
    "ALN-1": ("ALN-2",),
    "SNP-1": ("ALN-2",),
    "COO-1": ("STA-3",),
    "SRC-1": ("REC-1", "SNK-1"),
    "SNK-1": ("REC-1", "REC-6"),
}
"""Clause -> clauses whose breach shows a breach of it.

A snapshot that is not the prefix shows barriers that were not kept apart; lost or repeated records show a source
that resumed elsewhere; a sink that refuses to commit twice lets no restart succeed.
"""


SUBJECTS = sorted(path.stem for path in Path(__file__).parents[1].glob("test_*.py"))


class Planted:
    """The simulated product with a planted bug: what a third party with this bug would certify."""

    def __init__(self, product: SystemUnderTest, bug: str) -> None:
        """Plant a bug."""
        self._product = product
        self._bug = bug
        self.name = f"planted-{bug}"
        self.world = product.world
        self.capabilities: frozenset[Capability] = product.capabilities
        self.scale = scale_of(product)

    def job(self, plan: TrialPlan) -> JobView:
        """Return the product's job."""
        return self._product.job(plan)

    def run(self, plan: TrialPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        """Run the plan with the bug."""
        return self._product.run(msgspec.structs.replace(plan, mutant=self._bug), nemesis, directory)

    def close(self) -> None:
        """Close the product."""
        self._product.close()


@pytest.fixture
def simulated(tmp_path: Path) -> Iterator[Trials]:
    """Run plans in simulated time, whatever ``--system`` says."""
    system = open_system("reference-simulated")
    yield Trials(system, tmp_path)
    system.close()


def _first_invalid(trials: Trials, identifier: str) -> Trial | None:
    for plan in islice(MUTANTS[identifier].plans("simulated"), TRIALS_MAX):
        trial = trials.one(plan)
        if trial.record.verdict is Verdict.INVALID:
            return trial
    return None


@pytest.mark.parametrize("identifier", MUTANTS)
def test_a_planted_bug_is_caught_by_its_clause(simulated: Trials, identifier: str) -> None:
    broken = clause(MUTANTS[identifier].clause).id
    trial = _first_invalid(simulated, identifier)
    assert trial is not None, f"{identifier} was missed: {MUTANTS[identifier].description}"
    invalid = [found for found in trial.record.findings if found.verdict is Verdict.INVALID]
    named = {identifier for found in invalid for identifier in found.clauses}
    expected = {broken, *SHOWS_AS.get(broken, ())}
    assert named & expected, f"{identifier} breaks {broken}, yet only {sorted(named)} were said to be broken"
    with pytest.raises(AssertionError, match="verdict invalid"):
        assert_valid(trial)


@pytest.mark.parametrize("identifier", MUTANTS)
def test_the_product_passes_the_plan_that_caught_the_bug(simulated: Trials, identifier: str) -> None:
    caught = _first_invalid(simulated, identifier)
    assert caught is not None
    assert_valid(simulated.one(msgspec.structs.replace(caught.record.plan, mutant=None)))


def _is_of_a_system(function: Callable[..., None]) -> bool:
    """Tests of a state backend run no trial; what catches planted backend bugs is in ``tests/harness``."""
    return "trials" in inspect.signature(function).parameters


def _clauses_of(body: Callable[[Trials], None]) -> set[str]:
    function = body.func if isinstance(body, partial) else body
    marks = [mark for mark in getattr(function, "pytestmark", []) if mark.name == "clause"]
    return {identifier for mark in marks for identifier in mark.args}


def _bodies() -> Iterator[Callable[[Trials], None]]:
    """Yield the body of every test of the suite that has a fixed plan, once for each of its parameters."""
    for subject in SUBJECTS:
        for name, function in vars(importlib.import_module(f"conformance.{subject}")).items():
            if (
                name.startswith("test_")
                and not name.startswith("test_generated")
                and _is_of_a_system(function)
            ):
                marks = [mark for mark in getattr(function, "pytestmark", []) if mark.name == "parametrize"]
                if not marks:
                    yield function
                for argument, values in (mark.args for mark in marks):
                    yield from (partial(function, **{argument: value}) for value in values)


@pytest.mark.parametrize("identifier", MUTANTS)
def test_a_system_with_a_planted_bug_fails_the_suite(tmp_path: Path, identifier: str) -> None:
    trials = Trials(Planted(open_system("reference-simulated"), identifier), tmp_path)
    passed = 0
    # Those that speak for its clause come first: one of them should fail, and the others take long.
    for body in sorted(_bodies(), key=lambda body: MUTANTS[identifier].clause not in _clauses_of(body)):
        try:
            body(trials)
        except AssertionError:
            return
        passed += 1
    pytest.fail(f"all {passed} tests with fixed plans pass although {MUTANTS[identifier].description}")


def _name_of(body: Callable[[Trials], None]) -> str:
    return (body.func if isinstance(body, partial) else body).__name__


@pytest.mark.parametrize("identifier", FLOW_BUGS)
def test_a_bug_that_makes_no_result_wrong_fails_the_test_that_is_there_for_it(
    tmp_path: Path, identifier: str
) -> None:
    bug = FLOW_BUGS[identifier]
    trials = Trials(Planted(open_system("reference-simulated"), identifier), tmp_path)
    bodies = [body for body in _bodies() if _name_of(body) == bug.shown_by]
    assert any(bug.clause in _clauses_of(body) for body in bodies)
    failures = [failure for body in bodies if (failure := _failure_of(body, trials)) is not None]
    assert failures, f"{bug.shown_by} passes although {bug.description}"
    assert "verdict invalid" not in str(failures[0]), (
        "a checker of campaigns finds it, so it belongs to the other planted bugs"
    )


def _failure_of(body: Callable[[Trials], None], trials: Trials) -> AssertionError | None:
    try:
        body(trials)
    except AssertionError as failure:
        return failure
    return None
