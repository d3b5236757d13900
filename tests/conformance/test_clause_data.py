"""The clauses say the same as data and as a page, and every id leads to its clause."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from barrier_tck.conformance.clauses import CLAUSES, SOURCES, UnknownClause, as_markdown, clause

PAGE = Path(__file__).parents[2] / "docs" / "clauses.md"
COUNTS = {
    "BAR": 6, "ALN": 3, "ALO": 3, "UNA": 5, "CHL": 5, "STA": 3, "SNP": 8, "COO": 7,
    "REC": 6, "SNK": 1, "SRC": 1, "LOC": 11, "RSC": 3, "BCK": 6, "EVT": 6, "STO": 7, "CAP": 1, "CAM": 3, "CER": 2,
}  # fmt: skip


def test_no_clause_is_missing() -> None:
    expected = [f"{prefix}-{number}" for prefix, count in COUNTS.items() for number in range(1, count + 1)]
    assert list(CLAUSES) == expected


def test_the_page_has_the_same_ids_and_texts() -> None:
    rows = re.findall(r"^\| ([A-Z]{3}-\d+) \| (.*) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert rows == [(entry.id, entry.full, entry.source) for entry in CLAUSES.values()]


def test_the_page_is_the_generated_one() -> None:
    assert PAGE.read_text() == as_markdown(), (
        "run: python -m barrier_tck.conformance.clauses > docs/clauses.md"
    )


def test_the_page_has_one_title() -> None:
    assert len(re.findall(r"^# ", PAGE.read_text(), re.MULTILINE)) == 1


@pytest.mark.parametrize("identifier", CLAUSES)
def test_a_clause_is_found_by_its_id_and_is_complete(identifier: str) -> None:
    entry = clause(identifier)
    assert entry.id == identifier
    assert entry.group
    assert len(entry.text) <= 200
    assert entry.text.endswith(".")
    assert set(entry.source.split()) <= set(SOURCES)


@pytest.mark.parametrize(("wrong", "nearest"), [("snp-1", "SNP-1"), ("ALN2", "ALN-2"), ("COO-77", "COO-7")])
def test_an_unknown_id_is_answered_with_the_nearest(wrong: str, nearest: str) -> None:
    with pytest.raises(UnknownClause, match=rf"no clause '{wrong}'; the nearest id is {nearest}"):
        clause(wrong)
