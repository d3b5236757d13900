"""Which known name is offered for one that does not exist."""

from __future__ import annotations

import pytest

from barrier_tck.harness.support.strict_input import nearest

CLAUSES = ("SRC-1", "REC-1", "SNK-1", "SNP-1", "UR-01", "AL-01")


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("al-01", "AL-01"), ("snp-1", "SNP-1"), ("RCE-1", "REC-1"), ("SPN-1", "SNP-1"), ("SNK-11", "SNK-1")],
)
def test_upper_and_lower_case_come_first_and_then_swapped_characters(wrong: str, right: str) -> None:
    assert nearest(wrong, CLAUSES) == f"; did you mean {right!r}?"


def test_where_none_is_near_all_are_named_in_their_order() -> None:
    assert nearest("quite another", CLAUSES[:2]) == "; known: SRC-1, REC-1"
    assert nearest("x", ()) == ""
