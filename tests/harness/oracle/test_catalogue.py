"""The catalogue finds every checker, in one order, and each says what it covers; grain: classes and text."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barrier_tck.harness.oracle import catalogue, checkers
from barrier_tck.harness.oracle.catalogue import standard_checkers
from barrier_tck.harness.oracle.standard_checker import StandardChecker
from barrier_tck.harness.support.errors import InternalError


@pytest.mark.parametrize("checker", standard_checkers(), ids=lambda checker: checker.name)
def test_a_checker_names_no_clause_for_which_it_does_not_speak(checker: type[StandardChecker]) -> None:
    source = Path(inspect.getfile(checker)).read_text()
    said = {
        *checker.covers,
        *(clause for what in checker.sometimes for clause in what.clauses),
        *(sign.clause for sign in checker.signs),
    }
    assert set(re.findall(r'"([A-Z]{3}-\d+)"', source)) <= said
    assert set(checker.clauses) <= set(checker.covers)


def test_what_a_checker_says_of_itself_cannot_be_changed() -> None:
    for checker in standard_checkers():
        with pytest.raises(TypeError):
            checker.covers["REC-1"] = None  # type: ignore[index]


def test_every_module_of_the_folder_is_a_checker_and_progress_and_faults_come_last() -> None:
    modules = [path.stem for path in Path(checkers.__path__[0]).glob("*.py") if path.stem != "__init__"]
    names = [checker.name for checker in standard_checkers()]
    assert sorted(name.replace("-", "_") for name in names) == sorted(modules)
    assert names[-2:] == ["progress", "faults-fired"]
    assert len({checker.rank for checker in standard_checkers()}) == len(names), (
        "today each has a place of its own"
    )


@pytest.fixture(name="folder")
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder that the catalogue looks into, too."""
    monkeypatch.setattr(checkers, "__path__", [*checkers.__path__, str(tmp_path)])
    standard_checkers.cache_clear()
    yield tmp_path
    standard_checkers.cache_clear()
    sys.modules.pop(f"{checkers.__name__}.strange", None)


OTHER = """\
from barrier_tck.harness.oracle.standard_checker import StandardChecker

class Strange(StandardChecker):
    name = "other"
    check = None
"""


@pytest.mark.parametrize(("text", "words"), [("", "it defines none"), (OTHER, "it defines 'other'")])
def test_a_module_that_is_no_checker_of_its_name_is_refused(folder: Path, text: str, words: str) -> None:
    (folder / "strange.py").write_text(text)
    with pytest.raises(InternalError, match=words):
        catalogue.standard_checkers()
