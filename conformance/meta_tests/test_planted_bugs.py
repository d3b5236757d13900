"""A system with a planted bug fails the suite's own tests (CER-2).

A checker catches each bug, and the product passes the same plan: ``tests/harness/reference/bugs`` shows both.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barrier_tck.conformance.trials import Trials
from barrier_tck.harness.plan.trial_plan import FilledPlan, TrialPlan
from barrier_tck.harness.reference.bugs.catalogue import bugs_of_runtime, bugs_of_suite
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.system.job_view import JobView
from barrier_tck.harness.system.scale import scale_of
from barrier_tck.harness.system.system_names import open_system
from barrier_tck.harness.system.system_under_test import (
    Capability,
    NemesisHooks,
    SystemUnderTest,
    TrialOutcome,
)

ParameterSet = type(pytest.param())
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

    def run(self, plan: FilledPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        """Run the plan with the bug."""
        return self._product.run(msgspec.structs.replace(plan, mutant=self._bug), nemesis, directory)

    def close(self) -> None:
        """Close the product."""
        self._product.close()


def _is_of_a_system(function: Callable[..., None]) -> bool:
    """Tests of a state backend run no trial; what catches planted backend bugs is in ``tests/harness``."""
    return "trials" in inspect.signature(function).parameters


def _clauses_of(body: Callable[[Trials], None]) -> set[str]:
    function = body.func if isinstance(body, partial) else body
    marks = [mark for mark in getattr(function, "pytestmark", []) if mark.name == "clause"]
    return {identifier for mark in marks for identifier in mark.args}


def _distance(identifier: str, body: Callable[[Trials], None]) -> int:
    """Rank a test by its clauses: one that covers the broken clause, or a related one, should fail first.

    All others take long, and most of them pass.
    """
    bug = bugs_of_runtime()[identifier]
    if _name_of(body) == bug.file.conformance_test:
        return -1
    broken, clauses = bug.clause, _clauses_of(body)
    family = broken.partition("-")[0]
    return 0 if broken in clauses else 1 if any(clause.startswith(f"{family}-") for clause in clauses) else 2


def _bodies() -> Iterator[Callable[[Trials], None]]:
    """Yield the body of every test of the suite that has a fixed plan, once for each of its parameters."""
    for subject in SUBJECTS:
        for name, function in vars(importlib.import_module(f"conformance.{subject}")).items():
            if (
                name.startswith("test_")
                and not name.startswith("test_generated")
                and _is_of_a_system(function)
            ):
                yield from _with_parameters(function)


def _with_parameters(function: Callable[..., None]) -> Iterator[Callable[[Trials], None]]:
    """Yield the function with every combination of the values that its ``parametrize`` marks give."""
    marks = [mark for mark in getattr(function, "pytestmark", []) if mark.name == "parametrize"]
    for values in product(*(mark.args[1] for mark in marks)):
        given: dict[str, Any] = {}
        for mark, value in zip(marks, values, strict=True):
            names = mark.args[0]
            if isinstance(names, str):
                given[names] = _plain(value)
            else:
                given.update(
                    zip(names, value.values if isinstance(value, ParameterSet) else value, strict=True)
                )
        yield partial(function, **given) if given else function


def _plain(value: Any) -> Any:
    """Return a parameter's value without its marks, if it has some."""
    return value.values[0] if isinstance(value, ParameterSet) else value


@pytest.mark.nightly
@pytest.mark.parametrize(
    "identifier",
    [name for name, bug in bugs_of_runtime().items() if bug.file.not_in_conformance is None],
)
def test_a_system_with_a_planted_bug_fails_the_suite(tmp_path: Path, identifier: str) -> None:
    trials = Trials(Planted(open_system("reference-simulated"), identifier), tmp_path)
    passed = 0
    for body in sorted(_bodies(), key=partial(_distance, identifier)):
        try:
            body(trials)
        except AssertionError:
            return
        except UsageProblem:
            continue  # a broken state backend does not stand for the other one, which this test asks for
        passed += 1
    pytest.fail(
        f"all {passed} tests with fixed plans pass although {bugs_of_runtime()[identifier].description}"
    )


def _name_of(body: Callable[[Trials], None]) -> str:
    return (body.func if isinstance(body, partial) else body).__name__


def test_the_tests_to_try_first_exist() -> None:
    files = [bug.file for bug in bugs_of_runtime().values()]
    first = {file.conformance_test for file in files if file.conformance_test is not None}
    assert first <= {_name_of(body) for body in _bodies()}
    assert not [file.id for file in files if file.conformance_test and file.not_in_conformance]


@pytest.mark.long
@pytest.mark.parametrize("identifier", bugs_of_suite())
def test_a_bug_that_makes_no_result_wrong_fails_the_test_that_is_there_for_it(
    tmp_path: Path, identifier: str
) -> None:
    bug = bugs_of_suite()[identifier]
    trials = Trials(Planted(open_system("reference-simulated"), identifier), tmp_path)
    bodies = [body for body in _bodies() if _name_of(body) == bug.file.shown_by]
    assert any(bug.clause in _clauses_of(body) for body in bodies)
    failures = [failure for body in bodies if (failure := _failure_of(body, trials)) is not None]
    assert failures, f"{bug.file.shown_by} passes although {bug.description}"
    assert "verdict invalid" not in str(failures[0]), (
        "a checker of campaigns finds it, so it belongs to the other planted bugs"
    )


def _failure_of(body: Callable[[Trials], None], trials: Trials) -> AssertionError | None:
    try:
        body(trials)
    except AssertionError as failure:
        return failure
    return None
