"""Every test names its clauses, every named clause exists, and everything built so far is tested."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from barrier_tck.conformance.clauses import clause

SUITE = Path(__file__).parents[1]
SUBJECTS = sorted(path.stem for path in SUITE.glob("test_*.py"))

BUILT = (
    *("BAR-1", "BAR-2", "BAR-3", "BAR-4", "BAR-5", "ALN-1", "ALN-2", "ALN-3"),
    *("ALO-1", "ALO-2", "ALO-3"),
    *("COO-1", "COO-2", "COO-3", "COO-4", "COO-7"),
    *("REC-1", "REC-2", "REC-3", "REC-6", "SRC-1", "SNK-1"),
    *("LOC-1", "LOC-2", "LOC-3", "LOC-4", "LOC-5", "LOC-6", "LOC-8", "LOC-9", "REC-4"),
    *("SNP-1", "SNP-2", "SNP-3", "STA-3", "CAM-3"),
)
"""Clauses that the reference implementation fulfils; when another one is built, it is added here."""


def _own_marks(holder: Any) -> list[pytest.Mark]:
    """Return the marks of a module or a test, without those of single parameters."""
    held = getattr(holder, "pytestmark", [])
    marks = held if isinstance(held, list) else [held]
    return [mark.mark if isinstance(mark, pytest.MarkDecorator) else mark for mark in marks]


def _marks(holder: Any) -> list[pytest.Mark]:
    plain = _own_marks(holder)
    return plain + [mark for entry in plain for mark in _marks_of_parameters(entry)]


def _marks_of_parameters(mark: pytest.Mark) -> list[pytest.Mark]:
    """Return the marks of single parameters: a test may check other clauses with each."""
    values = mark.args[1] if mark.name == "parametrize" else ()
    of_parameters = [getattr(value, "marks", ()) for value in values]
    return [
        each.mark if isinstance(each, pytest.MarkDecorator) else each for own in of_parameters for each in own
    ]


def _tests() -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield every test of the suite: its module, and itself."""
    suite = __name__.rpartition(".meta_tests")[0]
    for subject in SUBJECTS:
        module = importlib.import_module(f"{suite}.{subject}")
        for name, value in vars(module).items():
            if name.startswith("test_"):
                yield f"{subject}::{name}", (module, value)


def _clauses(marks: list[pytest.Mark]) -> list[str]:
    return [identifier for mark in marks if mark.name == "clause" for identifier in mark.args]


HOLDERS = dict(_tests())
TESTS = {name: _marks(module) + _marks(test) for name, (module, test) in HOLDERS.items()}
"""Test -> its own marks, those of its module, and those of its parameters."""


def test_there_are_tests_for_every_subject() -> None:
    assert [name for name in SUBJECTS if not any(test.startswith(f"{name}::") for test in TESTS)] == []


@pytest.mark.parametrize("test", TESTS)
def test_a_test_names_clauses_that_exist(test: str) -> None:
    named = _clauses(TESTS[test])
    assert named, f"{test} does not say which clause it checks"
    for identifier in named:
        assert clause(identifier).id == identifier


@pytest.mark.parametrize("identifier", BUILT)
def test_a_built_clause_has_a_test(identifier: str) -> None:
    assert any(identifier in _clauses(marks) for marks in TESTS.values()), f"no test is marked {identifier}"


LATER = ("nightly", "nightly_on_clusters", "long_on_clusters")
"""The marks of what the test command leaves out on clusters; what is ``long`` it leaves out in the simulator only."""


def _runs_in_the_test_command(holders: Sequence[Any]) -> bool:
    """Return whether a test is run on clusters before every merge, at least with one of its parameters.

    ``holders``: its module and itself.
    """
    marks = [mark for holder in holders for mark in _own_marks(holder)]
    values = [mark.args[1] for mark in marks if mark.name == "parametrize"]
    later = [mark.name for mark in marks if mark.name in LATER]
    return not later and all(
        any(not set(LATER) & {mark.name for mark in getattr(value, "marks", ())} for value in each)
        for each in values
    )


@pytest.mark.parametrize("identifier", ["RSC-1", "RSC-2", "RSC-3"])
def test_each_clause_of_rescaling_is_shown_on_clusters_before_every_merge(identifier: str) -> None:
    shown = [
        test
        for test, holders in HOLDERS.items()
        if identifier in _clauses(TESTS[test]) and _runs_in_the_test_command(holders)
    ]
    assert shown, f"every test that is marked {identifier} is left out on clusters, in each of its parameters"


def _marked(*marks: pytest.MarkDecorator) -> Any:
    def test() -> None: ...

    for mark in marks:
        mark(test)
    return test


ALWAYS = pytest.mark.parametrize("width", [1, pytest.param(2, marks=pytest.mark.nightly_on_clusters)])
NEVER = pytest.mark.parametrize("mode", [pytest.param("a", marks=pytest.mark.long_on_clusters)])


@pytest.mark.parametrize(
    ("marks", "runs"),
    [
        ((), True),
        ((ALWAYS,), True),
        ((pytest.mark.long, ALWAYS), True),
        ((NEVER,), False),
        ((NEVER, ALWAYS), False),
        ((ALWAYS, pytest.mark.nightly), False),
        ((pytest.mark.long_on_clusters,), False),
    ],
)
def test_what_is_left_out_on_clusters_is_known_by_its_marks(
    marks: tuple[pytest.MarkDecorator, ...], runs: bool
) -> None:
    assert _runs_in_the_test_command([_marked(*marks)]) is runs


@pytest.mark.parametrize("test", TESTS)
def test_a_test_is_gated_on_capabilities_and_not_on_names(test: str) -> None:
    needed = [need for mark in TESTS[test] if mark.name == "needs" for need in mark.args]
    assert all(type(need).__name__ == "Capability" for need in needed)
    assert not {mark.name for mark in TESTS[test]} & {"skip", "skipif", "xfail"}
