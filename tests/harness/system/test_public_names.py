"""Interfaces for third parties; grain: the names of ``barrier_tck.harness`` and ``job_api``, and who imports what."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from barrier_tck import harness
from barrier_tck.reference_impl import job_api

ROOT = Path(__file__).resolve().parents[3]
DOOR = ROOT / "harness" / "__init__.pyi"
DOORS = ("barrier_tck.harness", "barrier_tck.reference_impl.job_api")
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
SCREEN_LINES = 110


def homes() -> dict[str, str]:
    """Return name -> module for everything that the stub imports."""
    return {
        alias.name: f"barrier_tck.harness.{node.module}"
        for node in ast.walk(ast.parse(DOOR.read_text()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def listed() -> list[str]:
    """Return the names that the stub lists for type checkers."""
    (names,) = [
        node.value
        for node in ast.parse(DOOR.read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    ]
    return list(ast.literal_eval(names))


def imported_from(text: str) -> list[str]:
    """Return our modules from which a piece of Python imports; the piece may begin in the middle of a class."""
    return re.findall(r"^\s*(?:from|import) +(barrier_tck[\w.]*)", text, flags=re.MULTILINE)


def what_readers_copy() -> list[tuple[str, str]]:
    """Return (place, Python) for every example and every piece of Python on a page."""
    examples = [
        (path.relative_to(ROOT).as_posix(), path.read_text())
        for path in sorted((ROOT / "examples").rglob("*.py"))
        if "build" not in path.relative_to(ROOT).parts
    ]
    return examples + [
        (page.relative_to(ROOT).as_posix(), block)
        for page in PAGES
        for block in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
    ]


@pytest.mark.parametrize("name", sorted(harness.__all__))
def test_every_name_leads_to_what_it_says(name: str) -> None:
    assert getattr(harness, name) is getattr(importlib.import_module(homes()[name]), name)


def test_the_list_is_what_type_checkers_see_and_fits_on_a_screen() -> None:
    assert sorted(homes()) == sorted(harness.__all__) == sorted(listed())
    assert len(DOOR.read_text().splitlines()) <= SCREEN_LINES


JUDGED_OTHERWISE = ("OutputComparison", "StateComparison", "StoredCheckpoint", "StoredSavepoint")
"""Types of a history that no third party makes: our own query, and the findings of the judge's own reader."""


@pytest.mark.parametrize("struct", [harness.History, harness.SnapshotView, harness.StorageView])
def test_whatever_a_system_leaves_can_be_made_with_public_names(struct: type[Any]) -> None:
    """A field whose type is missing could only be filled by the project itself."""
    named = {
        name for hint in struct.__annotations__.values() for name in re.findall(r"\b[A-Z]\w+", str(hint))
    }
    ours = {name for name in named if name not in ("Any", "None", "Operation", *JUDGED_OTHERWISE)}
    assert sorted(ours - set(harness.__all__)) == []


def test_a_name_that_is_not_there_is_an_error_as_ever() -> None:
    with pytest.raises(AttributeError, match="Nothing"):
        harness.Nothing  # type: ignore[attr-defined]  # noqa: B018 - the access is the test
    with pytest.raises(ImportError, match="Nothing"):
        from barrier_tck.harness import Nothing  # type: ignore[attr-defined]  # noqa: F401


def test_the_door_costs_nothing_until_a_name_is_asked_for() -> None:
    code = (
        "import sys; from barrier_tck import harness; "
        "print([m for m in sys.modules if m.startswith('barrier_tck.')], 'msgspec' in sys.modules); "
        "harness.Verdict; print('pyarrow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines() == ["['barrier_tck.harness'] False", "False"]


@pytest.mark.parametrize(("where", "text"), what_readers_copy(), ids=lambda value: str(value)[:40])
def test_examples_and_pages_import_through_the_doors_alone(where: str, text: str) -> None:
    inside = [module for module in imported_from(text) if module not in DOORS]
    assert not inside, (
        f"{where} imports {inside}; a reader who copies it would depend on our internal modules"
    )


def test_every_name_for_jobs_is_imported_and_listed() -> None:
    tree = ast.parse((ROOT / "reference_impl" / "job_api.py").read_text())
    imported = {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert sorted(imported) == sorted(job_api.__all__)


def test_the_examples_use_the_doors() -> None:
    """This shows that the test above has something to look at."""
    users = {where for where, text in what_readers_copy() if imported_from(text)}
    assert {
        "examples/echo_system/echo.py",
        "docs/guide/state-backend.md",
        "examples/event_time/departures.py",
        "examples/savepoints/totals.py",
    } <= users
    assert len(users) >= 5
