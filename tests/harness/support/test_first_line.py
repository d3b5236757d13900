"""The first line of a text of many."""

from __future__ import annotations

import pytest

from barrier_tck.harness.support.first_line import first_line


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ""),
        ("one", "one"),
        ("one\n", "one"),
        ("\n one: \n\tat java.lang.Thread.run\n", "one: [...]"),
    ],
)
def test_of_many_lines_the_first_is_told_and_that_there_are_more(text: str, told: str) -> None:
    assert first_line(text) == told
